"""What several tests need: a submission made of text, graded on the CPU."""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import pytest

from grader.core.sandbox import pool
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.registry import EVERY

OWN_RECORDERS = pool.start  # each submission has a recorder's sandbox process of its own
ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = ROOT / "solutions"
KERNELS = ROOT / "kernels"
SUBMISSIONS = ROOT / "grader" / "tests" / "submissions"  # honest, broken and dishonest ones


def share_recorders(folders):
    """What takes the place of pool.start: all submissions in one of these folders share a sandbox process."""

    def start(device, submission):
        shared = (f for f in folders if submission and Path(os.path.abspath(submission)).is_relative_to(f))
        return OWN_RECORDERS(device, next(shared, submission))

    return start


def solution(problem_id):
    return (SOLUTIONS / EVERY[problem_id].module).read_text(encoding="utf-8")


def thorough(*values):
    """These values of a test's parameters, for `make test-all` alone."""
    return pytest.param(*values, marks=pytest.mark.thorough)


def thorough_but(quick, names):
    """These names as parameters of a test, of which `make test` runs those in `quick` alone."""
    strange = set(quick) - set(names)
    assert not strange, f"quick, and not there: {strange}"
    return [name if name in quick else thorough(name) for name in names]


def triton_version():
    """(3, 7), of the triton that is installed."""
    import triton

    return tuple(map(int, triton.__version__.split(".")[:2]))


def interpreter_loops():
    """True where Triton's own interpreter takes a kernel's value as a loop's bound: not with every numpy."""
    import inspect
    import warnings

    import numpy
    from triton.runtime import interpreter

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return int(numpy.ones(1)) == 1
        except TypeError:  # numpy 2.5
            return "int(self.handle.data)" not in inspect.getsource(interpreter)


in_interpreter = pytest.mark.skipif(
    not interpreter_loops(), reason="Triton's own interpreter takes no array of this numpy as a loop's bound"
)


in_utf8 = pytest.mark.skipif(
    sys.getfilesystemencoding().replace("-", "") != "utf8", reason="this locale has no such names of files"
)


def honest(name):
    """The source of an honest kernel; skips the test that asks for it where this triton lacks what it is made of."""
    if name == "p3_block_pointers" and triton_version() >= (3, 9):
        pytest.skip("triton 3.9 and later have no block pointers")
    kernel = (SUBMISSIONS / "honest" / f"{name}.py").read_text(encoding="utf-8")
    if name.startswith("x1"):  # the file has the kernel alone: the lists are the solution's
        return solution("x1").partition("# The kernel --")[0] + kernel
    return kernel


def grade_text(folder, problem_id, source, names=None, seed=0, cases=None, hints=True):
    """The results, speed left out, of `source` as the module of a problem; `cases` replaces the problem's own.

    hints: look closer at what is wrong, which takes longer than the verdict.
    """
    from dataclasses import replace

    problem = EVERY[problem_id]
    if cases is not None:
        problem = replace(problem, cases=tuple(cases), memory_cases=())
        names = [case.name for case in cases] if names is None else names  # and none that is drawn
    (folder / problem.module).write_text(source, "utf-8")
    names = None if names is None else frozenset(names)
    results = grade(Request(folder, (problem,), names, "cpu", seed, hints=hints), lanes=1)
    return [result for result in results if result.aspect.value != "speed"]


def running(words):
    """Numbers of the processes whose command is these words, a moment after they should have ended."""
    for _ in range(50):
        found = [int(place.parent.name) for place in Path("/proc").glob("[0-9]*/cmdline") if said(place) == words]
        if not found:
            break
        time.sleep(0.1)
    return found


def said(place):
    try:
        return place.read_bytes().decode(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def below(pid):
    """Numbers of the processes that came of this one, the older first."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += sorted(child for child, parent in parents.items() if parent == each)
    return found[1:]


def prose():
    """{name: text} of everything that a reader is given: pages, notebooks and skeletons."""
    files = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "report").glob("*.md"),
        *(ROOT / "problems").glob("*.py"),
    ]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts[path.relative_to(ROOT).as_posix()] = "\n\n".join("".join(cell["source"]) for cell in cells)
    return texts
