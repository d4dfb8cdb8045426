"""What is left to grade: the key of each result, and a Job for each submission that lacks some.

No file of the grader's is hashed, so that it may be moved and rewritten. Where it judges otherwise, its JUDGE_VERSION
is raised, which tests/kinds/test_judge_version.py asks for.
"""

import importlib
import importlib.metadata
import io
import json
import platform
import re
import tokenize
from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from token import NAME, NEWLINE, OP
from typing import Any

import msgspec

from classroom.data import Row, digest, read_record
from grader.core.sandbox.turns import WAIT_SECONDS
from grader.course import course
from grader.course import problem as settings
from grader.course.problem import SECONDS_PER_CASE, SECONDS_PER_PROBLEM, TIMEOUTS_BEFORE_GIVING_UP, Problem
from grader.registry import EVERY, NAME_OF

ATTEMPTS = 3  # of a submission in which the machine failed, the first included
START_SECONDS = 240.0  # of a job, beside its cases: Python, torch and triton on a busy disk
COMPILE_SECONDS = 90.0  # of a problem: compiling.SECONDS, the canary's and the starts of their children
SPEED_SECONDS = 600.0  # of a problem that is timed on a GPU, twice where it is close
LIMITS = (
    "SPEED_SHARE", "COMPILE_SHARE", "WORK_SHARE", "SPEED_BARS", "SECONDS_PER_CASE", "SECONDS_PER_PROBLEM",
    "TIMEOUTS_BEFORE_GIVING_UP",
)  # fmt: skip
PACKAGES = ("torch", "triton", "numpy")
# In a module's tokens, a blank between two: what may lead to another file.
REACHES_OTHERS = re.compile(
    r"""\b__ | \.[ ]_ | \btorch[ ]\.[ ](?:jit|fx)\b           # hidden names; text that becomes code
    | \b(?:builtins|compile|ctypes|delattr|eval|exec|from_file|getattr|glob|globals|hub|importlib|inspect|io|locals|open
    |make_dataclass|operator|package|pathlib|runpy|serialization|setattr|sys|tempfile|utils|vars)\b
    | (?<!tl[ ])\.[ ]load\b | (?<!import[ ])\bos\b(?![ ]\.[ ]environ) | import[ ]os(?![ ]\n)
    | (?:\n|:|;)[ ](?:import|from)[ ](?!(?:dataclasses|itertools|math|os|torch|triton)\b)
    | (?:\n|:|;)[ ]import[ ][^\n]*,""",
    re.VERBOSE,
)


class Job(msgspec.Struct, frozen=True):
    """Some problems of one submission, graded by one process, which writes a result for each.

    row: the id of its Row. keys: {problem: key of its result}. folder: the clean copy of its modules. out: the class's
    folder. attempt: from 1.
    """

    row: str
    keys: dict[str, str]
    folder: str
    out: str
    device: str = "cpu"
    seed: int = 0
    targets: tuple[str, ...] = ()
    needs_gpu: bool = False
    attempt: int = 1

    @property
    def limit(self) -> float:
        """Seconds that nothing of it can exceed where every part keeps its own limit: past it, the machine is stuck."""
        return START_SECONDS + sum(map(self.limit_of, self.keys))

    def limit_of(self, id: str) -> float:
        problem = EVERY[id]
        cases = [c for c in (*problem.cases, *problem.memory_cases) if self.device == "cuda" or not c.gpu]
        each, whole = SECONDS_PER_CASE[self.device], SECONDS_PER_PROBLEM[self.device]
        # One to load and two that are asked again; those that time out run twice, as a problem that takes long has its
        # time twice; the last may begin just before the end. 2 s to judge each.
        seconds = min((len(cases) + 3 + TIMEOUTS_BEFORE_GIVING_UP) * each, 2 * whole + 4 * each) + 2 * len(cases)
        seconds += TIMEOUTS_BEFORE_GIVING_UP * WAIT_SECONDS
        seconds += COMPILE_SECONDS if self.targets and problem.uses_triton else 0
        return seconds + (SPEED_SECONDS if self.device == "cuda" and problem.speed_case else 0)


def make_jobs(rows: Iterable[Row], out: Path, **rest: Any) -> list[Job]:
    """A Job for each submission that lacks results; one result answers for all whose modules are the same.

    rest: device, seed and targets of the Jobs.
    """
    jobs, asked = [], set[str]()
    for row in rows:
        left = {id: key for id, key in row.keys.items() if key not in asked and read_record(out, key) is None}
        if left:
            asked |= set(left.values())
            gpu = rest.get("device") == "cuda" and any(EVERY[id].module in row.modules for id in left)
            jobs.append(Job(row.id, left, str(out / row.folder), str(out), needs_gpu=gpu, **rest))
    return jobs


# Keys -----------------------------------------------------------------------------------------------------------------


class Keys:
    """The keys of results: of a submission's module, the problem and who judges it, the environment, the seed."""

    def __init__(self, problems: Iterable[Problem], device: str, device_name: str, targets: tuple[str, ...], seed: int):
        self.problems, self.seed = tuple(problems), str(seed)
        self.environment = hash_environment(device_name)
        self.asked = {problem.id: hash_problem(problem, device, targets) for problem in self.problems}

    def of(self, folder: Path) -> dict[str, str]:
        """{problem: key} of the modules in a folder. One that may reach others depends on all that were handed in."""
        modules = {path.name: path.read_bytes() for path in sorted(folder.glob("*.py"))}
        found = {}
        for problem in self.problems:
            own = modules.get(problem.module)
            others = [] if own is None or stands_alone(own) else [part for each in modules.items() for part in each]
            parts = [b"\0none" if own is None else b"\1" + own, *others]
            found[problem.id] = digest(*parts, self.asked[problem.id], self.environment, self.seed)
        return found


def stands_alone(module: bytes) -> bool:
    """True where no other file can change what a module does: it imports a few packages alone and opens no file.

    It is read as tokens, which no text makes slow or deep. A module of which this is not sure depends on all.
    """
    try:
        tokens = [
            token for token in tokenize.tokenize(io.BytesIO(module).readline) if token.type in (NAME, OP, NEWLINE)
        ]
    except (tokenize.TokenError, SyntaxError, ValueError):
        return False
    text = " ".join("\n" if token.type == NEWLINE else token.string for token in tokens)
    return not REACHES_OTHERS.search(f"\n {text} \n")


def hash_problem(problem: Problem, device: str = "cpu", targets: Iterable[str] = ()) -> str:
    """A hash of what is asked and who judges it: cases and limits as data, points, the judge's version."""
    limits = {name: getattr(settings, name) for name in LIMITS}
    asked = [replace(problem, points=0, kind=None), problem.points, limits]
    parts: list[str | bytes] = [json.dumps(asked, default=as_data, sort_keys=True), str(judge_version(problem))]
    parts += [device, *targets]
    if device == "cuda" and problem.speed_case:  # the kernel that a submission's speed is compared with
        parts.append((course.current().solutions / problem.module).read_bytes())
    return digest(*parts)


def judge_version(problem: Problem) -> int:
    """The version of the kind that judges a problem."""
    return importlib.import_module(f"grader.kinds.{NAME_OF[problem.id]}").JUDGE_VERSION


def as_data(value: Any) -> Any:
    """A dataclass for json.dumps: its name and what differs from its defaults, so that a new field changes nothing."""
    if not is_dataclass(value):
        raise TypeError(f"{value!r} in a problem is no plain data: use numbers, texts, tuples and dataclasses of them")
    given = {field.name: getattr(value, field.name) for field in fields(value)}
    given = {name: each for name, each in given.items() if not isinstance(each, Path)}  # code has the judge's version
    defaults = {field.name: field.default for field in fields(value)}
    return [type(value).__name__, {name: part for name, part in given.items() if part != defaults[name]}]


def hash_environment(device_name: str) -> str:
    """A hash of what runs the kernels: Python without its patch level, the packages, the device by name."""
    python = ".".join(platform.python_version_tuple()[:2])
    known = {"python": python, "machine": platform.machine(), "device": device_name}
    return digest(json.dumps(known | {package: version(package) for package in PACKAGES}, sort_keys=True))


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
