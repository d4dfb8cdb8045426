"""What a problem is: plain data; shares and limits in one place. Points stand in course.toml."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.course import course

# Shares and limits -------------------------------------------------------------------------------------------------

SPEED_SHARE = 0.2  # of the points of a problem that is timed; kept in full where speed cannot be measured
COMPILE_SHARE = 0.2  # of a problem with kernels: lost where kernels compile for none of the GPUs asked for
WORK_SHARE = 0.5  # of a problem that counts work
SPEED_BARS = {
    "naive PyTorch": 2.0,
    "reference": 0.5,
}  # times as fast at SPEED_SHAPE, in the same run: half a share each
# Limits of time, for what the machine's count of operations does not stop. A case takes about a hundredth of them.
SECONDS_PER_CASE = {"cpu": 60.0, "cuda": 90.0}  # on a GPU the first case of a shape also compiles
SECONDS_PER_PROBLEM = {"cpu": 360.0, "cuda": 900.0}  # of all its cases together; the reference needs 3, and 25
LONG_ROW = "long row"  # the case on which work is judged most plainly
WORK, COMPILES = "work", "compiles"  # what is asked of a problem as a whole, by name
TIMEOUTS_BEFORE_GIVING_UP = 2  # in one problem; the rest is then not run


@dataclass(frozen=True)
class Problem:
    """A numbered problem: where its module lies, what is called, and what it is asked.

    tiled: it is solved tile by tile. multiplies: its kernels multiply matrices. spilled: bytes of a thread's
    registers that may be spilled without a word: a few cost nothing, or the reference spills as many. memory_cases:
    those in which no tensor of Nq x Nk elements may exist at any time (P2). takes: the arguments that the entry
    point must have beside its tensors, where its first case does not tell. compile_case: what is compiled, where
    nothing is timed. tensors: what it is called with, by name. lesson: the names of cases that show what the
    problem teaches; only who passes them has work to be judged. refused: operations of PyTorch that would be the
    problem's work. beside, observer: the kind's own code in the recorder and in the runner. kind: the Kind that asks
    it, which the registry sets.
    """

    id: str
    title: str
    module: str
    entry_point: str
    signature: str
    cases: tuple
    uses_triton: bool = True
    tiled: bool = True
    returns_lse: bool = False
    memory_cases: tuple = ()
    speed_case: Any = None
    counts_work: bool = False
    takes: tuple[str, ...] = ()
    compile_case: Any = None
    tensors: tuple[str, ...] = ("q", "k", "v")
    lesson: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    beside: Path | None = None
    observer: Path | None = None
    multiplies: bool = True
    spilled: int = 64
    points: int = 0  # a lab has none
    kind: Any = field(default=None, compare=False, repr=False)

    @property
    def keywords(self):
        """The names by which the entry point is called, beside its tensors."""
        return self.takes or tuple(argument for case in self.cases[:1] for argument in case.arguments)

    @property
    def gap_word(self):
        """The word of an open gap in this course's modules."""
        return course.current().said.names.gap

    @property
    def tiles_variable(self):
        """The variable that has the sizes of a module's tiles without a GPU."""
        return course.current().said.names.tiles

    @property
    def compiled_case(self):
        return self.compile_case or self.speed_case

    @property
    def number(self):
        return self.id.removeprefix("p")
