"""A course of one's own is a folder outside of the grader: it is graded, traced, compiled, shown, classed and has its
skeleton. The folder `elementwise` beside this file is the example of docs/a-kind-of-your-own.md."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader.tests.support import ROOT

EXAMPLE = Path(__file__).with_name("elementwise")
MODULE = "e1_scaled_add.py"
KERNEL = (EXAMPLE / MODULE).read_text()


COURSE = """
title = "Vectors"
kinds = ["elementwise"]
problem = [{ id = "e1", points = 10 }]
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course of one kind, in a folder of its own."""
    course = tmp_path_factory.mktemp("course")
    course.chmod(0o755)
    (course / "course.toml").write_text(COURSE)
    shutil.copytree(EXAMPLE, course / "kinds" / "elementwise", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("solutions", "problems", "wrong", "class/ada", "class/bob"):
        (course / folder).mkdir(parents=True)
    shutil.copy(EXAMPLE / MODULE, course / "solutions")
    return course


def run(course, *arguments):
    command = [sys.executable, "-m", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "GRADER_COURSE": str(course)}
    done = subprocess.run(command, cwd=course, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def grade(course, text, *more):
    """({case: outcome}, what was printed) of a module with this text."""
    (course / "wrong" / MODULE).write_text(text)
    options = ["--problems", "e1", "--submission", course / "wrong", "--device", "cpu", "--out", course / "out", *more]
    _, printed = run(course, "grader", "grade", *options)
    results = json.loads((course / "out" / "results.json").read_text())["tests"]
    return {r["extra_data"]["case"]: r["extra_data"]["outcome"] for r in results}, printed


def test_it_is_graded_and_compiled(course):
    outcomes, printed = grade(course, KERNEL)
    assert set(outcomes.values()) == {"passed"} and outcomes.keys() >= {"ragged tail", "compiles"}, printed


@pytest.mark.thorough
def test_it_is_traced(course):
    outcomes, printed = grade(course, KERNEL.replace("mask=inside, other=0.0", ""), "--no-compile")
    assert outcomes["whole blocks"] == "passed" and outcomes["ragged tail"] == "unsafe"
    assert "elements outside X" in printed and f"({MODULE}:1" in printed


@pytest.mark.thorough
def test_what_is_wrong_is_told_with_its_place(course):
    outcomes, printed = grade(course, KERNEL.replace("x + alpha * y)", "x + y)"), "--no-compile")
    assert outcomes["whole blocks"] == "passed" and outcomes["ragged tail"] == "wrong"
    assert "got " in printed and "expected " in printed


@pytest.mark.thorough
def test_it_is_shown(course):
    (course / "wrong" / MODULE).write_text(KERNEL.replace("x + alpha * y)", "x + y)"))
    case = ["--problems", "e1", "--case", "ragged tail", "--submission", "wrong", "--device", "cpu"]
    status, printed = run(course, "grader", "show", *case, "--out", "out")
    assert status == 0 and (course / "out" / "show-e1-ragged-tail.png").stat().st_size > 1000, printed


@pytest.mark.thorough
def test_its_skeleton_is_unfinished(course):
    status, printed = run(course, "grader", "skeletons")
    skeleton = (course / "problems" / MODULE).read_text()
    assert status == 0 and "# TODO 1: load x and y" in skeleton and "inside" not in skeleton, printed
    outcomes, printed = grade(course, skeleton, "--no-compile")
    assert set(outcomes.values()) == {"unfinished"} and "TODO 1" in printed


@pytest.mark.thorough
def test_a_class_hands_it_in(course):
    (course / "class" / "ada" / MODULE).write_text(KERNEL)
    (course / "class" / "bob" / MODULE).write_text(KERNEL.replace("+ alpha * y", "- alpha * y"))
    options = ["--problems", "e1", "--device", "cpu", "--no-compile", "--lanes", "1", "--out", "graded"]
    _, printed = run(course, "grader.classroom", *options, "--", "class")
    with (course / "graded" / "gradebook.csv").open(newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert rows.keys() == {"ada", "bob"}, printed
    pages = {name: (course / "graded" / "pages" / f"{name}.html").read_text() for name in rows}
    assert "scaled add" in pages["ada"] and "4 of 4" in pages["ada"] and "got " in pages["bob"]
