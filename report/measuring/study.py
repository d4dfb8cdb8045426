"""What a study is: points, the arms asked at each, the columns of its rows and what ratios are taken to. No torch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module

from report.measuring.rows import interval


@dataclass(frozen=True)
class Point:
    """One question of a study, as plain data: its arms take turns on the same inputs.

    keys: {column: value} of its rows, less the kernel. kernels: names of the arms. anchor: the arm that all must be
    compared with precisely. chosen_by: {option of the command: value}, by which it is left out or not. B batch, H query
    heads, kv_heads key/value heads, N tokens, D head dim. block: tokens of a tile, where the study is about those.
    """

    title: str
    keys: dict
    kernels: tuple[str, ...]
    anchor: str
    chosen_by: dict
    N: int
    H: int
    D: int
    B: int = 1
    kv_heads: int | None = None
    causal: bool = False
    window: int | None = None
    sinks: int | None = None
    dtype: str = "float16"
    pattern: str | None = None
    block: int | None = None


@dataclass(frozen=True)
class Over:
    """A ratio: how many times as fast an arm is as the first of `others` that was measured beside it.

    others(kernel): names. inverse: how many times as fast that one is as the arm.
    """

    column: str
    others: Callable
    inverse: bool = False


@dataclass(frozen=True)
class Study:
    """A study as data: STUDY in report/studies/NAME.py. What makes its arms ready is StudyArms in report/arms/NAME.py.

    whole, quick: the Points on a GPU, and small ones on a CPU. choices: {option of the command: what it lists}.
    budget: seconds of sampling of an arm at a point; limit: of one step of it; both on a GPU. interpreted: without one
    Triton's kernels run in the grader's machine. finish(path, points, options): what is done when all rows are there.
    """

    name: str
    words: str
    row: type
    whole: tuple[Point, ...]
    quick: tuple[Point, ...]
    ratios: tuple[Over, ...]
    choices: dict = field(default_factory=dict)
    budget: float = 1.0
    limit: float = 120.0
    interpreted: bool = True
    machine: str = ""
    finish: Callable | None = None

    @property
    def csv(self):
        return f"{self.name}.csv"

    @property
    def facts(self):
        """The file of the machine's facts."""
        return self.machine or f"{self.name}.json"

    def blank(self, point, kernel):
        """The row of an arm, nothing measured yet."""
        return self.row(**point.keys, kernel=kernel)

    def bases(self, names):
        """What the ratios of these arms may be taken to."""
        return {other for name in names for over in self.ratios for other in over.others(name)}

    def companions(self, point, names, done):
        """Arms to time again beside `names`, so that ratios come from one run; done: the rows that are there, by key.

        Of each ratio the first base that is asked now or has a time.
        """

        def timed(name):
            row = done.get(self.blank(point, name).key)
            return name in names or (row is not None and row.status == "ok")

        firsts = [next(filter(timed, over.others(name)), None) for over in self.ratios for name in names]
        return [name for name in dict.fromkeys(firsts) if name is not None and name not in names]


def find_study(name):
    return import_module(f"report.studies.{name}").STUDY


def columns(unit, *others):
    """The measured columns that studies share: times of one call in that unit, then `others`; `x*` is a ratio."""
    times = [f"{what}_{unit}" for what in ("median", "p20", "p80")]
    named = [*times, "samples", "tflops", *others]
    return tuple(c for name in named for c in (interval(name[:-1]) if name.endswith("*") else [name]))
