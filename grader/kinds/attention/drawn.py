"""Cases drawn from a seed: nobody can know their shapes beforehand. A name says the shape, and asks for it again."""

import random
import re
from dataclasses import replace

from grader.course.problem import LONG_ROW
from grader.kinds.attention.cases import Case

PREFIX = "drawn "
LAYOUTS = ("contiguous", "interleaved", "slice", "mixed")
DTYPES = ("float16", "bfloat16", "float32")
VALUES = ("normal", "peaked")
FIELDS = {"B": "B", "Hq": "Hq", "Hkv": "Hkv", "N": "N", "D": "D", "window": "window", "sinks": "sinks"}


def every(problem, seed):
    """All cases of a problem that are asked with this seed; of a class's own seed the long row is another, too."""
    named = [long_row(case, seed) if seed and case.name == LONG_ROW else case for case in problem.cases]
    return (*named, *problem.memory_cases, *cases(problem, seed))


def long_row(case, seed):
    draw = random.Random(f"long row {seed}")
    tokens, window, sinks = draw.randint(1026, 1100), draw.randint(20, 200), draw.randint(1, 40)
    return replace(case, N=tokens, window=case.window and window, sinks=case.sinks and sinks)


def cases(problem, seed):
    """Two cases of a numbered problem: one of a few tiles, and one of many, whose scores are highest in the middle."""
    if not problem.points:
        return []
    first, draw = problem.cases[0], random.Random(f"drawn {seed} {problem.id}")
    return [
        draw_one(draw, first, draw.randint(33, 140), draw.choice((16, 32, 64, 128)), draw.choice(DTYPES), "normal"),
        # float32 is tf32 on a GPU, too coarse for such scores
        draw_one(draw, first, draw.randint(200, 400), draw.choice((16, 32)), draw.choice(DTYPES[:2]), "peaked"),
    ]


def draw_one(draw, first, tokens, width, dtype, values):
    """B to 2, Hkv to 2, groups of 1 to 4 where heads may share; a window sees more than an end of a long row."""
    long = values != "normal"
    kv_heads = 1 if long else draw.randint(1, 2)
    group = draw.randint(1, 4) if first.Hkv else 1
    case = Case(
        "", B=1 if long or group > 2 else draw.randint(1, 2), Hq=kv_heads * group,
        Hkv=kv_heads if first.Hkv else None, N=tokens, D=width, dtype=dtype, causal=first.causal,
        window=None if first.window is None else draw.randint(tokens // 2 if long else 1, tokens),
        sinks=None if first.sinks is None else draw.randint(0, tokens // 2),
        layout=draw.choice(LAYOUTS), values=values,
    )  # fmt: skip
    return replace(case, name=name_of(case))


def name_of(case):
    """`drawn B=2 Hq=4 Hkv=2 N=187 D=32 window=45 float16 slice`, and the values where they are not normal"""
    numbers = [f"{word}={getattr(case, word)}" for word in FIELDS if getattr(case, word) is not None]
    values = [case.values] if case.values != "normal" else []
    return " ".join([PREFIX.strip(), *numbers, case.dtype, case.layout, *values])


def from_name(name, problem):
    """The case of such a name, or None."""
    if not name.startswith(PREFIX):
        return None
    numbers = {word: int(value) for word, value in re.findall(r"(\w+)=(\d+)", name) if word in FIELDS}
    words = [word for word in name.split()[1:] if "=" not in word]
    dtype, layout, values = (*words, "normal")[:3] if len(words) in (2, 3) else (None,) * 3
    known = dtype in DTYPES and layout in LAYOUTS and values in VALUES
    if not known or not all(numbers.get(word) for word in ("B", "Hq", "N", "D")):
        return None
    return Case(name, **numbers, dtype=dtype, layout=layout, values=values, causal=problem.cases[0].causal)
