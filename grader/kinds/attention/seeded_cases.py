"""Cases drawn from a seed: nobody can know their shapes beforehand. A name says the shape, and asks for it again."""

import random
import re
from dataclasses import replace

from grader.course.problem import LONG_ROW
from grader.kinds.attention import contract
from grader.kinds.attention.case import Case

PREFIX = "drawn "
LAYOUTS = ("contiguous", "interleaved", "tokens first", "slice", "mixed", "odd rows")
POISONED = "poisoned tail"  # what a kernel must not read: PyTorch, in P1 and P2, cannot
DTYPES = ("float16", "bfloat16", "float32")
VALUES = ("normal", "peaked", "late", "falling", "rising", "uneven", "lower", "high", "offset")
MORE = 6  # cases of a class's own seed beside the two of every seed
GROUPS = ((2, 1), (3, 1), (1, 1), (4, 2), (6, 2), (6, 3), (8, 2), (9, 3), (5, 5), (16, 2))  # query heads, kv heads
FIELDS = {"B": "B", "Hq": "Hq", "Hkv": "Hkv", "N": "N", "D": "D", "window": "window", "sinks": "sinks"}


def every(problem, seed):
    """All cases of a problem that are asked with this seed; of a class's own seed the long row is another, too."""
    named = [long_row(problem, case, seed) if seed and case.name == LONG_ROW else case for case in problem.cases]
    return (*named, *problem.memory_cases, *cases(problem, seed))


def long_row(problem, case, seed):
    """The long row of this seed; of a kernel in Triton with another dtype, head dim and layout than the one all know.

    A kernel that wastes nothing only in the row that all know is found.
    """
    draw = random.Random(f"long row {seed}")
    tokens, sinks = draw.randint(1026, 1100), draw.randint(1, 90)
    window = draw.choice((draw.randint(100, 200), draw.randint(257, 400)))
    width, dtype, layout = draw.choice((32, 64, 128)), draw.choice(DTYPES), draw.choice(LAYOUTS)
    case = replace(case, N=tokens, window=case.window and window, sinks=case.sinks and sinks)
    return replace(case, D=width, dtype=dtype, layout=layout) if problem.uses_triton else case


def cases(problem, seed):
    """The cases of a numbered problem: one of a few tiles, and one of many, whose scores are highest in the middle.

    Of a class's own seed, six more: over all of the contract but for its longest rows and offsets beyond int32.
    """
    if not problem.points:
        return []
    first, draw = problem.cases[0], random.Random(f"drawn {seed} {problem.id}")
    return [
        draw_one(draw, first, draw.randint(33, 140), draw.choice((16, 32, 64, 128)), draw.choice(DTYPES), "normal"),
        # float32 is tf32 on a GPU, too coarse for such scores
        draw_one(draw, first, draw.randint(200, 400), draw.choice((16, 32)), draw.choice(DTYPES[:2]), "peaked"),
        *(draw_any(draw, problem) for _ in range(MORE if seed else 0)),
    ]


def draw_any(draw, problem):
    """A case of any parameters, of few tokens where heads or their dim are many."""
    first, parameters = problem.cases[0], contract.classes(problem.id)
    shares, batches = "group" in parameters, draw.choice((1, 1, 2, 5))
    heads, kv_heads = draw.choice(GROUPS) if shares else (draw.choice((1, 2, 3, 5, 8, 9)), None)
    width = draw.choice((16, 32, 64, 128, 256))
    most = 300 if batches * heads <= 2 and width <= 64 else 150 if batches * heads <= 9 else 40
    tokens = draw.choice((1, draw.randint(2, 15), 64, draw.randint(17, most), draw.randint(17, most)))
    window = draw.choice((1, draw.randint(1, tokens), draw.randint(1, tokens), tokens + draw.randint(0, 99)))
    sinks = draw.choice((0, 1, draw.randint(0, tokens), tokens + draw.randint(0, 99)))
    case = Case(
        "", B=batches, Hq=heads, Hkv=kv_heads, N=tokens, D=width, dtype=draw.choice(DTYPES), causal=first.causal,
        window=window if "window" in parameters else None, sinks=sinks if "sinks" in parameters else None,
        layout=draw.choice((*LAYOUTS, POISONED) if problem.uses_triton else LAYOUTS), values=draw.choice(VALUES),
    )  # fmt: skip
    return replace(case, name=name_of(case))


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
    words = " ".join(word for word in name.split()[1:] if "=" not in word)
    layouts = "|".join((*LAYOUTS, POISONED))
    found = re.fullmatch(rf"(\w+) ({layouts})(?: (\w+))?", words)
    dtype, layout, values = found.groups(default="normal") if found else (None,) * 3
    known = dtype in DTYPES and values in VALUES
    if not known or not all(numbers.get(word) for word in ("B", "Hq", "N", "D")):
        return None
    return Case(name, **numbers, dtype=dtype, layout=layout, values=values, causal=problem.cases[0].causal)
