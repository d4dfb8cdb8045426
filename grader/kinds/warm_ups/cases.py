"""The warm-ups as plain data: their cases, and the classes whose pairs these cover."""

from dataclasses import dataclass

from grader.course.problem import Problem
from grader.engine.question import Question


@dataclass(frozen=True)
class Case(Question):
    """A vector of N elements, or a matrix of rows x columns. layout and values: names that engine/values.py knows."""

    N: int = 0
    rows: int = 0
    columns: int = 0
    dtype: str = "float32"
    layout: str = "contiguous"
    values: str = "normal"

    @property
    def shape(self):
        return (self.N,) if self.N else (self.rows, self.columns)


# {parameter: {class: whether a case is of it}} ------------------------------------------------------------------------

TILE, TILE_ROWS = 128, 4  # no kernel must have these; a smaller one has more tiles


def one_of(name, *values):
    return lambda case: getattr(case, name) in values


def sizes(name, tile, many):
    """The classes of a size, against a tile and against as much as many tiles."""

    def between(least, most, whole=None):
        return lambda case: least <= getattr(case, name) <= most and whole in (None, getattr(case, name) % tile == 0)

    return {
        "one": between(1, 1), "below a tile": between(2, tile - 1), "whole tiles": between(tile, many, True),
        "no multiple": between(tile, many, False), "many tiles": between(many + 1, 2**20),
    }  # fmt: skip


DTYPES = {name: one_of("dtype", name) for name in ("float16", "bfloat16", "float32")}
OF_VECTORS = {
    "N": sizes("N", 256, 1024),
    "dtype": DTYPES,
    "layout": {name: one_of("layout", name) for name in ("contiguous", "slice", "every third")},
}
OF_ROWS = {
    "rows": sizes("rows", TILE_ROWS, 16),
    "columns": sizes("columns", TILE, 512),
    "dtype": DTYPES,
    "layout": {name: one_of("layout", name) for name in ("contiguous", "slice", "odd rows")},
    "values": {name: one_of("values", name) for name in ("normal", "falling", "uneven", "offset", "low", "high")},
}

# Named cases have one idea; `pairs 1` and the like cover the pairs of classes that these leave -----------------------

VECTORS = (
    Case("whole tiles", N=512),
    Case("ragged tail", N=300),
    Case("one element", N=1),
    Case("fewer elements than a tile", N=7, dtype="float16"),
    Case("many tiles", N=2001, dtype="bfloat16"),
    Case("slice of a larger buffer", N=300, dtype="float16", layout="slice"),
    Case("every third element", N=300, dtype="bfloat16", layout="every third"),
    Case("pairs 1", N=1, dtype="float16", layout="every third"),
    Case("pairs 2", N=100, layout="every third"),
    Case("pairs 3", N=256, dtype="bfloat16", layout="slice"),
    Case("pairs 4", N=1300, layout="slice"),
    Case("pairs 5", N=1300, dtype="float16", layout="every third"),
    Case("pairs 6", N=256, dtype="float16", layout="every third"),
    Case("pairs 7", N=100, dtype="bfloat16", layout="slice"),
    Case("pairs 8", N=1, dtype="bfloat16", layout="slice"),
)
MATRICES = (
    Case("whole tiles", rows=4, columns=128),
    Case("ragged tail", rows=5, columns=300),
    Case("one number", rows=1, columns=1),
    Case("one column", rows=6, columns=1, dtype="float16"),
    Case("one row", rows=1, columns=200, dtype="bfloat16"),
    Case("fewer columns than a tile", rows=3, columns=7, dtype="float16"),
    Case("many tiles", rows=2, columns=1000),
    Case("many rows", rows=33, columns=20),
    Case("slice of a larger buffer", rows=6, columns=50, layout="slice"),
    Case("rows at odd addresses", rows=7, columns=131, dtype="float16", layout="odd rows"),
    Case("around 400", rows=3, columns=300, dtype="float16", values="offset"),
    Case("all around -20000", rows=5, columns=300, values="low"),
    Case("around 20000", rows=4, columns=70, dtype="float16", values="high"),
    Case("falling along the row", rows=3, columns=150, values="falling"),
    Case("rows of very different size", rows=6, columns=40, dtype="bfloat16", values="uneven"),
    Case("pairs 1", rows=19, columns=256, dtype="bfloat16", layout="slice", values="falling"),
    Case("pairs 2", rows=1, columns=700, dtype="float16", layout="slice", values="low"),
    Case("pairs 3", rows=8, columns=1, dtype="bfloat16", layout="odd rows", values="low"),
    Case("pairs 4", rows=19, columns=700, dtype="float16", layout="odd rows", values="uneven"),
    Case("pairs 5", rows=3, columns=256, dtype="bfloat16", layout="odd rows", values="high"),
    Case("pairs 6", rows=1, columns=60, layout="odd rows", values="offset"),
    Case("pairs 7", rows=8, columns=700, dtype="bfloat16", layout="slice", values="offset"),
    Case("pairs 8", rows=6, columns=256, dtype="float16", layout="slice", values="offset"),
    Case("pairs 9", rows=19, columns=1, layout="slice", values="high"),
    Case("pairs 10", rows=3, columns=1, layout="slice", values="uneven"),
    Case("pairs 11", rows=1, columns=256, dtype="float16", layout="odd rows", values="falling"),
    Case("pairs 12", rows=6, columns=700, values="high"),
    Case("pairs 13", rows=19, columns=200, layout="slice", values="high"),
    Case("pairs 14", rows=8, columns=200, values="uneven"),
    Case("pairs 15", rows=19, columns=60, values="low"),
    Case("pairs 16", rows=1, columns=256, values="uneven"),
    Case("pairs 17", rows=6, columns=1, values="falling"),
    Case("pairs 18", rows=1, columns=60, values="high"),
    Case("pairs 19", rows=19, columns=60, values="offset"),
    Case("pairs 20", rows=3, columns=60, values="low"),
    Case("pairs 21", rows=8, columns=60, values="falling"),
    Case("pairs 22", rows=6, columns=1, values="offset"),
    Case("pairs 23", rows=6, columns=256, values="low"),
    Case("pairs 24", rows=6, columns=700, values="falling"),
)
WIDE = Case("compiles", rows=64, columns=1000, dtype="float16")
PROBLEMS = (
    Problem(
        "w1", "masked copy", "w1_masked_copy.py", "masked_copy", "masked_copy(x) -> out", VECTORS,
        tensors=("x",), multiplies=False, compile_case=Case("compiles", N=4095, dtype="float16"),
        refused=("clone", "contiguous", "copy"),
    ),
    Problem(
        "w2", "row sum", "w2_row_sum.py", "row_sum", "row_sum(x) -> out", MATRICES,
        tensors=("x",), multiplies=False, compile_case=WIDE, refused=("sum", "mean", "cumsum", "mv", "mm"),
    ),
    Problem(
        "w3", "softmax", "w3_softmax.py", "row_softmax", "row_softmax(x) -> out", MATRICES,
        tensors=("x",), multiplies=False, compile_case=WIDE,
        refused=("_softmax", "_log_softmax", "exp", "exp2", "logsumexp"),
    ),
)  # fmt: skip
