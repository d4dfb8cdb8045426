"""The contract as a table: the classes of each parameter, which pairs of them may meet, and which pairs cases have.

A class is what a kernel can get wrong by itself: a head dim, rows of many tiles, a group that is no power of two. Two
together are what it gets wrong where one alone is right: a test asks that every pair which may meet is in some case;
`python -m grader.kinds.cover` proposes cases. Offsets beyond int32 are one case, and in no pair: few kernels have them.
"""

from dataclasses import dataclass
from functools import partial

from grader.engine import pairs

TILE = 16  # the smallest tile: below it a window, the sinks or a row end inside the first tile of any kernel
MANY = 256  # more tokens than this are many tiles, of whatever size
BEYOND = 1100  # and more than this are past what the grader's longest named cases have


def one_of(*values):
    return lambda value, N: value in values


def between(least, most):
    return lambda value, N: least <= value <= most


def inside(of_size):
    """A window or sinks that are shorter than the row and of a size of this kind."""
    return lambda value, N: value is not None and 1 < value < N and of_size(value)


def of_a_row(value, N):
    return value is not None and value >= N and value > 1


# {parameter: {class: whether (its value, N) is of it}}
CLASSES = {
    "B": {"1": one_of(1), "2": one_of(2), "several": between(3, 99)},
    "heads": {"1": one_of(1), "2 to 4": between(2, 4), "5 to 8": between(5, 8), "9 or more": between(9, 99)},
    "group": {str(n): one_of(n) for n in (1, 2, 3, 4, 8)},
    "N": {
        "one token": one_of(1), "below a tile": between(2, TILE - 1),
        "whole tiles": lambda value, N: TILE <= value <= MANY and value % TILE == 0,
        "ragged": lambda value, N: TILE <= value <= MANY and value % TILE > 0, "many tiles": between(MANY + 1, BEYOND),
        "beyond 1100": between(BEYOND + 1, 2**20),
    },
    "lengths": {
        "one": one_of(0), "more keys": lambda value, N: value > 0, "more queries": lambda value, N: value < 0,
    },
    "D": {str(n): one_of(n) for n in (16, 32, 64, 128, 256)},
    "dtype": {name: one_of(name) for name in ("float16", "bfloat16", "float32")},
    "layout": {
        "contiguous": one_of("contiguous"), "other orders": one_of("interleaved", "tokens first"),
        "amid other numbers": one_of("slice", "poisoned tail"), "mixed": one_of("mixed"),
        "odd rows": one_of("odd rows"),
    },
    "values": {
        "normal": one_of("normal", "zero row"),
        "steep": one_of("falling", "rising", "peaked", "late", "uneven", "orthogonal"),
        "low": one_of("low", "lower", "lowest"), "high": one_of("high"),
        "offset": one_of("offset"),
    },
    "causal": {"causal": one_of(True), "not causal": one_of(False)},
    "window": {
        "none": one_of(None), "1": one_of(1), "below a tile": inside(lambda n: n < TILE),
        "at a tile": inside(lambda n: n in (16, 32, 64, 128, 192)),
        "no multiple": inside(lambda n: n > TILE and n % TILE), "beyond N": of_a_row,
    },
    "sinks": {
        "none": one_of(None, 0), "1": one_of(1), "below a tile": inside(lambda n: n < TILE),
        "at a tile": inside(lambda n: n in (16, 32, 64, 128)),
        "no multiple": inside(lambda n: n > TILE and n % TILE), "beyond N": of_a_row,
    },
    "arguments": {"given": one_of(()), "left out": lambda value, N: bool(value)},
}  # fmt: skip

VALUE = {
    "heads": lambda case: case.Hq, "group": lambda case: case.Hq // case.kv_heads,
    "lengths": lambda case: case.num_keys - case.N, "arguments": lambda case: case.left_out,
}  # fmt: skip

FORWARD = ("B", "heads", "N", "D", "dtype", "layout", "values", "arguments")
FULL_OR_CAUSAL = (*FORWARD, "lengths", "causal")
GROUPED = (*FORWARD, "group")
WINDOWED = {"window": ("1", "below a tile", "at a tile", "no multiple", "beyond N")}
# {problem: (its parameters, {parameter: those of its classes that the problem has, where it has not all})}
ASKED = {
    "p1": (FULL_OR_CAUSAL, {}), "p2": (FULL_OR_CAUSAL, {}), "p3": (FORWARD, {}),
    "p4": ((*FORWARD, "causal"), {}), "p5": ((*GROUPED, "causal"), {}), "p6": ((*GROUPED, "window"), WINDOWED),
    "p7": ((*GROUPED, "window", "sinks"), WINDOWED),
    "x1": (("B", "heads", "group", "N", "D", "dtype", "layout", "values", "lengths"), {}),
    "x3": ((*GROUPED, "causal", "window", "sinks"), {}),
}  # fmt: skip


@dataclass(frozen=True)
class Apart:
    """Two sets of classes that do not meet, and why. problems: where that is so; empty for all of them.

    on_gpu: they may meet, and do so in a case for a GPU: on a CPU it would take too long.
    """

    one: tuple[str, tuple[str, ...]]
    other: tuple[str, tuple[str, ...]]
    because: str
    problems: tuple[str, ...] = ()
    on_gpu: bool = False


DIVIDES = "the group must divide the query heads"
SHORT = "no window and no sinks of this size are shorter than such a row; longer ones are another class"
LONG_ROWS = "on a CPU the time of a row grows with the square of its tokens"
INSIDE = ("below a tile", "at a tile", "no multiple")
APART = (
    Apart(("heads", ("1",)), ("group", ("2", "3", "4", "8")), DIVIDES),
    Apart(("heads", ("2 to 4",)), ("group", ("8",)), DIVIDES),
    Apart(("window", INSIDE), ("N", ("one token",)), SHORT),
    Apart(("sinks", INSIDE), ("N", ("one token",)), SHORT),
    Apart(("window", INSIDE[1:]), ("N", ("below a tile",)), SHORT),
    Apart(("sinks", INSIDE[1:]), ("N", ("below a tile",)), SHORT),
    Apart(("values", ("steep", "offset")), ("N", ("one token",)), "one score has no slope and no sum"),
    Apart(("lengths", ("more queries",)), ("N", ("one token",)), "there is no number of keys below one"),
    Apart(("lengths", ("more keys", "more queries")), ("causal", ("causal",)), "a causal mask needs Nq == Nk"),
    Apart(("causal", ("not causal",)), ("arguments", ("left out",)), "the default is causal", ("p4", "p5")),
    Apart(("causal", ("causal",)), ("arguments", ("left out",)), "the default is not causal", ("p1", "p2")),
    Apart(("causal", ("not causal",)), ("window", ("1", *INSIDE, "beyond N")), "a window looks back only"),
    Apart(("causal", ("not causal",)), ("sinks", ("1", *INSIDE, "beyond N")), "sinks belong to a causal mask"),
    Apart(("window", ("none",)), ("sinks", ("1", *INSIDE, "beyond N")), "without a window every key is visible"),
    Apart(
        ("values", ("low", "high")), ("dtype", ("float16", "bfloat16")),
        "an honest kernel that scales q in its dtype is then far from the lse that it is given", ("x3",),
    ),
    Apart(("causal", ("not causal",)), ("arguments", ("left out",)), "the default is causal", ("x3",)),
    *(
        Apart(("N", ("beyond 1100",)), other, LONG_ROWS, on_gpu=True)
        for other in (
            ("heads", ("5 to 8", "9 or more")), ("group", ("4", "8")), ("B", ("several",)), ("D", ("128", "256")),
            ("values", ("low", "high")), ("layout", ("amid other numbers", "mixed", "odd rows")),
        )
    ),
)  # fmt: skip


def classes(problem):
    """{parameter: its classes in this problem}"""
    parameters, some = ASKED[problem]
    return {name: some.get(name, tuple(CLASSES[name])) for name in parameters}


def table(problem):
    """{parameter: {class: function of a case, whether it is of the class}}"""

    def is_of(name, each):
        value = VALUE.get(name) or (lambda case: getattr(case, name))
        return lambda case: CLASSES[name][each](value(case), case.N)

    return {name: {each: is_of(name, each) for each in known} for name, known in classes(problem).items()}


def meet(problem, one, other, on_gpu=False):
    """True where two (parameter, class) may meet; on_gpu: where they may but only a GPU's case has them."""
    between = [apart for apart in APART if not apart.problems or problem in apart.problems]
    found = [apart for apart in between if parts(apart, one, other) or parts(apart, other, one)]
    return any(apart.on_gpu for apart in found) if on_gpu else not found


def parts(apart, one, other):
    (a, some), (b, others) = apart.one, apart.other
    return one[0] == a and one[1] in some and other[0] == b and other[1] in others


def missing(problem, cases, on_gpu=False):
    """The pairs that may meet and are in none of these cases; on_gpu: those that only a GPU's case has."""
    return pairs.missing(table(problem), cases, partial(meet, problem, on_gpu=on_gpu))
