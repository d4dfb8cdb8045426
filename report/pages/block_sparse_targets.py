"""What the fast form must reach on an H200, and the row that is worst by each measure. No torch."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from report.pages.measured import length
from report.studies import block_sparse as names


@dataclass(frozen=True)
class Target:
    """One line: what we aim at, the bound, and how a row's figure is found.

    figure(row): a number, or None for a row that does not count. at_least: the bound is a least, else a most.
    """

    words: str
    bound: float
    figure: Callable
    at_least: bool = True
    unit: str = " x"

    def line(self, rows):
        """[what, bound, worst, where, rows in which it is met], of the rows that count; blanks where there are none."""
        counted = [(self.figure(row), row) for row in rows]
        counted = [(figure, row) for figure, row in counted if figure is not None]
        sign = ">=" if self.at_least else "<="
        aim = f"{sign} {self.bound:g}{self.unit}"
        lost = [row for row in rows if row.status == "failed" and self.figure(timed(row)) is not None]
        if not counted:
            return [self.words, aim, "", "", "not measured" if not lost else f"{len(lost)} rows failed"]
        figure, row = (min if self.at_least else max)(counted, key=lambda entry: entry[0])
        met = sum(self.holds(value) for value, _ in counted)
        met_in = f"{met} of {len(counted) + len(lost)} rows"
        return [self.words, aim, f"{figure:.2f}{self.unit}", place(row), met_in]

    def holds(self, figure):
        return figure >= self.bound if self.at_least else figure <= self.bound


def timed(row):
    """A failed row as if every ratio were known: would it count?"""
    return replace(row, density=row.density or 0.0, median_us=1.0, over_flex=1.0, over_cudnn=1.0, over_dense=1.0)


def place(row):
    """`causal 2k, block 64`"""
    at = row.kernel.partition(" at ")[2]
    return f"{row.pattern}{f' {at}' if at else ''} {length(row.n)}, block {row.block}"


def over_flex(row):
    return row.over_flex if row.kernel == "fast" and row.pattern in names.PATTERNS else None


def over_cudnn(row):
    sparse = row.density is not None and row.density <= 0.6 and row.n >= 2048
    return row.over_cudnn if row.kernel == "fast" and row.pattern in names.PATTERNS and sparse else None


def full_map(row):
    if row.kernel != "fast" or row.pattern != names.FULL_MAP or not row.over_dense:
        return None
    return 1 / row.over_dense


def linear(density):
    """How near a row at that density comes to the time at density 1 times its density."""

    def figure(row):
        if row.pattern != names.BY_DENSITY or row.kernel != f"fast at {density}" or row.over_dense is None:
            return None
        return linear_share(row)

    return figure


def linear_share(row):
    return row.over_dense * row.density


def building(row):
    return row.median_us and row.median_us / 1000 if row.kernel == names.FAST_BUILDER else None


TARGETS = (
    Target("speed over compiled FlexAttention: five patterns, 512 to 16k, blocks of 64 and 128", 1.5, over_flex),
    Target("speed over dense cuDNN, block density <= 0.6, N >= 2k", 1.0, over_cudnn),
    Target("time of a map that is all FULL, over that of our dense kernel", 1.05, full_map, at_least=False),
    Target("linear time / measured time: random FULL blocks, 16k, density 0.5", 0.9, linear("0.5"), unit=""),
    Target("linear time / measured time: random FULL blocks, 16k, density 0.1", 0.75, linear("0.1"), unit=""),
    Target("building the map of 16k tokens on the GPU", 1.0, building, at_least=False, unit=" ms"),
)
