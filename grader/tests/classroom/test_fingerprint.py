"""The key of a grade changes with all that the grade depends on, and with nothing else."""

import subprocess
import sys
from dataclasses import replace

import pytest

from grader.classroom import fingerprint
from grader.course.assignment import PROBLEMS
from grader.course.labs import EVERY
from grader.tests.support import ROOT

P3 = PROBLEMS["p3"]


def test_every_problem_has_its_own():
    assert len({fingerprint.of_problem(problem) for problem in EVERY.values()}) == len(EVERY)


def test_it_is_the_same_in_every_process():
    code = "from grader.classroom.fingerprint import *; from grader.course.labs import EVERY; " \
           "print([of_problem(p) for p in EVERY.values()], environment())"  # fmt: skip
    said = {
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True,
                       env={"PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(said) == 1


@pytest.mark.parametrize(
    "changed",
    [
        replace(P3, cases=P3.cases[1:]),
        replace(P3, cases=(replace(P3.cases[0], N=129), *P3.cases[1:])),
        replace(P3, entry_point="attention"),
        replace(P3, cases=(*P3.cases[1:], P3.cases[0])),
    ],
)
def test_a_changed_case_changes_its_problem(changed):
    assert fingerprint.of_problem(changed) != fingerprint.of_problem(P3)


def test_points_limits_targets_and_device_change_it(monkeypatch):
    seen = {
        fingerprint.of_problem(P3),
        fingerprint.of_problem(P3, "cuda"),
        fingerprint.of_problem(P3, "cpu", ("sm_80",)),
    }
    monkeypatch.setitem(fingerprint.POINTS, "p3", 99)
    seen.add(fingerprint.of_problem(P3))
    monkeypatch.setattr(fingerprint.assignment, "SECONDS_PER_CASE", {"cpu": 3.0})
    seen.add(fingerprint.of_problem(P3))
    assert len(seen) == 5


def test_the_sources_that_judge_change_it(tmp_path, monkeypatch):
    import shutil

    of_a_lab = "kinds/block_sparse/sparse_verdict.py"
    files = (
        "engine.py",
        "runner/trace.py",
        "recorder/record.py",
        "processes/inside/limits.py",
        "processes/sandbox_process.py",
    )
    for file in (*files, "runner/profiled.py", of_a_lab, "recorder/lists.py", "runner/stopwatch.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(fingerprint.GRADER / file, tmp_path / file)
    monkeypatch.setattr(fingerprint, "GRADER", tmp_path)

    def hashes():
        fingerprint.sources.cache_clear()
        return [fingerprint.sources(labs, device) for labs, device in ((False, "cpu"), (True, "cpu"), (False, "cuda"))]

    def change(file):
        """Of the ladder, of a lab, of the ladder on a GPU: does a change of this file re-grade it?"""
        before = hashes()
        with (tmp_path / file).open("a") as opened:
            opened.write("# another line\n")
        return [now != then for now, then in zip(hashes(), before, strict=True)]

    for file in files:
        assert change(file) == [True, True, True], file
    assert change("runner/profiled.py") == [False, False, False], "what only shows results re-grades nobody"
    assert change(of_a_lab) == change("recorder/lists.py") == [False, True, False]
    assert change("runner/stopwatch.py") == [False, False, True]
    fingerprint.sources.cache_clear()


def test_every_folder_with_a_part_in_a_verdict_is_hashed():
    beside = {"classroom", "commands", "profile", "render", "tests"}  # they show results, or hand them on
    folders = {path.parent.relative_to(fingerprint.GRADER) for path in fingerprint.GRADER.rglob("*.py")}
    missing = {folder.as_posix() for folder in folders if not beside & set(folder.parts)} - {"."}
    assert missing == set(fingerprint.FOLDERS) - {""}


def test_the_files_that_are_left_out_exist():
    for name in fingerprint.FACES | fingerprint.OF_LABS | fingerprint.ON_A_GPU:
        assert (fingerprint.GRADER / name).is_file(), name


def test_the_environment_is_part_of_it(monkeypatch):
    seen = {fingerprint.environment(), fingerprint.environment("NVIDIA H200")}
    monkeypatch.setattr(fingerprint, "version", lambda package: "9.9.9")
    seen.add(fingerprint.environment())
    assert len(seen) == 3


def test_a_key_tells_apart_what_differs():
    keys = [fingerprint.key_of(*given) for given in (
        (b"x", "p", "e", 0), (b"y", "p", "e", 0), (b"x", "q", "e", 0), (b"x", "p", "f", 0), (b"x", "p", "e", 1),
        (None, "p", "e", 0), (b"", "p", "e", 0), (b"xp", "", "e", 0),
    )]  # fmt: skip
    assert len(set(keys)) == len(keys)
