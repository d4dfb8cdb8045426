"""What a grade depends on, as hashes: the module, the problem with all that judges it, the environment, the seed."""

import functools
import hashlib
import importlib.metadata
import inspect
import json
import platform
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path

from grader.course import assignment
from grader.course.assignment import POINTS
from grader.course.labs import LABS

GRADER = Path(__file__).resolve().parent.parent
# Sources that judge nothing: what shows results, starts the grader, or is hashed as data.
FACES = {
    "__main__.py", "conftest.py", "test_assignment.py", "course/assignment.py", "course/labs.py", "course/skeletons.py",
    "gpu/machine.py", "kinds/program_order/cache_model.py", "kinds/program_order/orders.py", "runner/profiled.py",
}  # fmt: skip
LABS_ROOMS = ("kinds/block_sparse/", "kinds/program_order/")
OF_LABS = {
    "course/patterns.py", "course/tile_lists.py", "course/tile_map.py", "diagnosis/list_mistakes.py",
    "recorder/lists.py", "recorder/orders.py",
}  # fmt: skip
ON_A_GPU = {
    "gpu/speed.py", "gpu/timing.py", "gpu/peaks.py", "reference/naive.py", "runner/stopwatch.py", "runner/timed.py",
}  # fmt: skip
FOLDERS = (
    "", "course", "reference", "diagnosis", "kinds", "kinds/attention", "kinds/block_sparse", "kinds/program_order",
    "gpu", "recorder", "runner", "processes", "processes/inside",
)  # fmt: skip
LIMITS = (
    "SPEED_SHARE", "COMPILE_SHARE", "WORK_SHARE", "SPEED_BARS", "SECONDS_PER_CASE", "SECONDS_PER_PROBLEM",
    "TIMEOUTS_BEFORE_GIVING_UP",
)  # fmt: skip
PACKAGES = ("torch", "triton", "numpy")


def digest(*parts):
    """A hash of texts and bytes that no other division of them shares."""
    hashed = hashlib.sha256()
    for part in parts:
        part = part.encode() if isinstance(part, str) else part
        hashed.update(b"%d:" % len(part) + part)
    return hashed.hexdigest()


def key_of(module, problem, environment, seed):
    """The key of a grade. module: bytes, or None where none was handed in; the rest: fingerprints, and the seed."""
    return digest(b"\0none" if module is None else b"\1" + module, problem, environment, str(seed))


def of_problem(problem, device="cpu", targets=()):
    """What is asked of a problem and who judges it: its cases as data, its points, the limits, the grader's sources."""
    asked = [plain(problem), POINTS.get(problem.id, 0), {name: plain(getattr(assignment, name)) for name in LIMITS}]
    kinds = {type(case) for case in (*problem.cases, *problem.memory_cases)} | {type(problem), assignment.Case}
    classes = [inspect.getsource(kind) for kind in sorted(kinds, key=lambda kind: kind.__qualname__)]
    parts = [json.dumps(asked), *classes, sources(problem.id in LABS, device), device, *targets]
    if device == "cuda" and problem.speed_case:  # the kernel that a submission's speed is compared with
        parts.append((GRADER.parent / "solutions" / problem.module).read_bytes())
    return digest(*parts)


def plain(value):
    """Data of dataclasses as lists, dicts and text, the same in every process."""
    if is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, {f.name: plain(getattr(value, f.name)) for f in fields(value)}]
    if isinstance(value, dict):
        return [[plain(key), plain(entry)] for key, entry in value.items()]
    if isinstance(value, (tuple, list)):
        return [plain(entry) for entry in value]
    if isinstance(value, (set, frozenset)):
        return sorted(json.dumps(plain(entry)) for entry in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Fraction):
        return str(value)
    if callable(value):
        return inspect.getsource(value)
    if hasattr(value, "__dict__"):
        return [type(value).__name__, {name: plain(entry) for name, entry in sorted(vars(value).items())}]
    return repr(value)


@functools.cache
def sources(labs, device):
    """A hash of the grader's files that have a say in a verdict."""
    left_out = FACES | (set() if labs else OF_LABS) | (set() if device == "cuda" else ON_A_GPU)
    files = {path.relative_to(GRADER).as_posix(): path for f in FOLDERS for path in (GRADER / f).glob("*.py")}
    names = [name for name in sorted(set(files) - left_out) if labs or not name.startswith(LABS_ROOMS)]
    return digest(*(part for name in names for part in (name, files[name].read_bytes())))


def environment(device_name="cpu"):
    """What runs the kernels: Python, the packages, the device by name."""
    return digest(json.dumps(facts(device_name), sort_keys=True))


def facts(device_name="cpu"):
    """The same as plain data."""
    known = {"python": platform.python_version(), "machine": platform.machine(), "device": device_name}
    return known | {package: version(package) for package in PACKAGES}


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
