"""What to grade: a submission's folder, which problems and cases, where, and with which inputs."""

from dataclasses import dataclass
from pathlib import Path

from grader.core.sandbox.texts import quoted
from grader.course import course
from grader.course.problem import COMPILES, WORK, Problem


@dataclass(frozen=True)
class Request:
    """What to grade: a folder, the problems, the names of the cases or None for all, where, and with which inputs."""

    submission: Path
    problems: tuple[Problem, ...]
    names: frozenset[str] | None
    device: str
    seed: int
    default_submission: bool = True
    options: tuple[str, ...] = ()  # of make, that a case needs to run again as it did
    targets: tuple[str, ...] = ()  # GPUs to compile for, names of gpus.py
    private_seed: bool = False  # True: the seed is a class's own, and is not told to students
    all_targets: bool = True  # False: until the first that the kernels compile for
    hear_others: bool = False  # judge a problem's other cases too, silently, where one that was asked for is wrong
    hints: bool = True  # look closer at what is wrong: more runs of the kernel, for sentences and no verdict

    @property
    def seed_told(self):
        """The seed as students see it: they run a case again with values of the public seed."""
        return "of the class" if self.private_seed else self.seed

    def cases(self, problem):
        """The cases of `problem` that run on this device and have the name that was asked for."""
        kind = problem.kind
        every = kind.cases(problem, self.seed)
        every = [case for case in every if self.device == "cuda" or not case.gpu]
        if self.names is None:
            return every
        named = [case for case in every if case.name in self.names or (self.judges_work(problem) and not case.gpu)]
        others = (kind.case_by_name(problem, name) for name in self.names - {case.name for case in every})
        return named + [case for case in others if case]

    def judges_work(self, problem):
        """True where the work of `problem` is to be judged, over its cases."""
        return problem.counts_work and (self.names is None or WORK in self.names)

    def compiles(self, problem):
        """True where the kernels of `problem` are to be compiled."""
        wanted = self.names is None or COMPILES in self.names
        return bool(self.targets and problem.uses_triton and problem.compiled_case and wanted)

    def again(self, problem, case_name):
        """The command that runs one case again."""
        parts = [f"make grade P={problem.number}", f'CASE="{case_name}"']
        here = course.current().folder
        parts += [] if here == course.THIS or self.private_seed else [f"COURSE={quoted(here)}"]
        parts += [] if self.default_submission else [f"SUBMISSION={quoted(self.submission)}"]
        parts += [f"SEED={self.seed}"] if self.seed and not self.private_seed else []
        return " ".join([*parts, *self.options])
