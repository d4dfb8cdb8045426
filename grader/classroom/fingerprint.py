"""What a grade depends on, as its key: the module, the problem and who judges it, the environment, the seed.

No file of the grader's is hashed, so that it may be moved and rewritten. Where it judges otherwise, its JUDGE_VERSION
is raised, which tests/kinds/test_judge_version.py asks for.
"""

import hashlib
import importlib
import importlib.metadata
import json
import platform
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

from grader.course import course
from grader.course import problem as settings
from grader.kinds.registry import NAME_OF

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


def make_key(module, problem, environment, seed):
    """The key of a grade. module: bytes, or None where none was handed in; the rest: hashes, and the seed."""
    return digest(b"\0none" if module is None else b"\1" + module, problem, environment, str(seed))


def hash_problem(problem, device="cpu", targets=()):
    """A hash of what is asked and who judges it: cases and limits as data, points, the judge's version."""
    limits = {name: getattr(settings, name) for name in LIMITS}
    asked = [replace(problem, points=0), problem.points, limits]
    parts = [json.dumps(asked, default=as_data, sort_keys=True), str(judge_version(problem)), device, *targets]
    if device == "cuda" and problem.speed_case:  # the kernel that a submission's speed is compared with
        parts.append((course.current().solutions / problem.module).read_bytes())
    return digest(*parts)


def judge_version(problem):
    """The version of the kind that judges a problem."""
    return importlib.import_module(f"grader.kinds.{NAME_OF[problem.id]}").JUDGE_VERSION


def as_data(value):
    """A dataclass for json.dumps: its name and what differs from its defaults, so that a new field changes nothing."""
    if not is_dataclass(value):
        raise TypeError(f"{value!r} in a problem is no plain data: use numbers, texts, tuples and dataclasses of them")
    given = {field.name: getattr(value, field.name) for field in fields(value)}
    given = {name: each for name, each in given.items() if not isinstance(each, Path)}  # code has the judge's version
    defaults = {field.name: field.default for field in fields(value)}
    return [type(value).__name__, {name: part for name, part in given.items() if part != defaults[name]}]


def hash_environment(device_name="cpu"):
    """A hash of what runs the kernels: Python without its patch level, the packages, the device by name."""
    known = describe_environment(device_name)
    return digest(json.dumps(known | {"python": known["python"].rpartition(".")[0]}, sort_keys=True))


def describe_environment(device_name):
    """The same as plain data."""
    known = {"python": platform.python_version(), "machine": platform.machine(), "device": device_name}
    return known | {package: version(package) for package in PACKAGES}


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
