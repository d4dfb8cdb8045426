"""The key of a grade changes with all that the grade depends on, and with nothing else."""

import subprocess
import sys
from dataclasses import replace

import pytest

from grader.assignment import PROBLEMS
from grader.classroom import fingerprint
from grader.labs import EVERY
from grader.tests.support import ROOT

P3 = PROBLEMS["p3"]


def test_every_problem_has_its_own():
    assert len({fingerprint.of_problem(problem) for problem in EVERY.values()}) == len(EVERY)


def test_it_is_the_same_in_every_process():
    code = "from grader.classroom.fingerprint import *; from grader.labs import EVERY; " \
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

    for file in ("verdict.py", "score.py", "show.py", "sparse_lab.py"):
        shutil.copy(fingerprint.GRADER / file, tmp_path)
    monkeypatch.setattr(fingerprint, "GRADER", tmp_path)
    seen = {}
    for file in ("", "verdict.py", "show.py", "sparse_lab.py"):
        if file:
            with (tmp_path / file).open("a") as opened:
                opened.write("# another line\n")
        fingerprint.sources.cache_clear()
        seen[file] = fingerprint.sources(False, "cpu"), fingerprint.sources(True, "cpu")
    fingerprint.sources.cache_clear()
    assert seen["verdict.py"][0] != seen[""][0]
    assert seen["show.py"] == seen["verdict.py"], "what only shows results re-grades nobody"
    assert seen["sparse_lab.py"][0] == seen["show.py"][0] and seen["sparse_lab.py"][1] != seen["show.py"][1]


def test_the_files_that_are_left_out_exist():
    for name in (fingerprint.FACES - {"doctor.py"}) | fingerprint.OF_LABS | fingerprint.ON_A_GPU:
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
