"""Cases drawn from a seed: nobody can know their shapes beforehand. A name says the shape, and asks for it again."""

import random
import re
from dataclasses import replace

from grader.course.assignment import Case

COUNT = 2  # of each problem
PREFIX = "drawn "
LAYOUTS = ("contiguous", "interleaved", "slice", "mixed")
DTYPES = ("float16", "bfloat16", "float32")
FIELDS = {"B": "B", "Hq": "Hq", "Hkv": "Hkv", "N": "N", "D": "D", "window": "window", "sinks": "sinks"}


def cases(problem, seed):
    """COUNT cases of a numbered problem: B to 2, Hkv to 2, groups of 1 to 4 where heads may share, N 33 to 140."""
    first, draw, found = problem.cases[0], random.Random(f"drawn {seed} {problem.id}"), []
    kinds = sorted({(case.D, case.dtype) for case in problem.cases if case.D < 128 and not case.gpu})  # compiled before
    for _ in range(COUNT if problem.points else 0):
        kv_heads, tokens = draw.randint(1, 2), draw.randint(33, 140)
        group, (width, dtype) = draw.randint(1, 4) if first.Hkv else 1, draw.choice(kinds)
        case = Case(
            "", B=draw.randint(1, 2 if group < 3 else 1), Hq=kv_heads * group, Hkv=kv_heads if first.Hkv else None,
            N=tokens, D=width, dtype=dtype, causal=first.causal,
            window=None if first.window is None else draw.randint(1, tokens),
            sinks=None if first.sinks is None else draw.randint(0, tokens // 2), layout=draw.choice(LAYOUTS),
        )  # fmt: skip
        found.append(replace(case, name=name_of(case)))
    return found


def name_of(case):
    """`drawn B=2 Hq=4 Hkv=2 N=187 D=32 window=45 float16 slice`"""
    numbers = [f"{word}={getattr(case, word)}" for word in FIELDS if getattr(case, word) is not None]
    return " ".join([PREFIX.strip(), *numbers, case.dtype, case.layout])


def from_name(name, problem):
    """The case of such a name, or None."""
    if not name.startswith(PREFIX):
        return None
    numbers = {word: int(value) for word, value in re.findall(r"(\w+)=(\d+)", name) if word in FIELDS}
    *_, dtype, layout = name.split()
    if dtype not in DTYPES or layout not in LAYOUTS or not all(numbers.get(word) for word in ("B", "Hq", "N", "D")):
        return None
    return Case(name, **numbers, dtype=dtype, layout=layout, causal=problem.cases[0].causal)
