"""A course is a folder outside of the grader, whatever it asks: every command serves it."""

import csv
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from grader.core.sandbox.texts import quoted
from grader.tests.support import ROOT, SOLUTIONS, thorough

MATMUL = Path(__file__).with_name("matmul_rmsnorm")
WARM_UPS = """
title = "Warm-ups"
kinds = ["warm_ups"]
problem = [{ id = "w1", points = 2 }, { id = "w2", points = 3 }, { id = "w3", points = 5 }]
"""
# Of each course a module, what stands in it and what stands there instead, a case that tells it, and the sentence.
WRONG = {
    "matmul_rmsnorm": (
        "n1", "n1_rmsnorm.py", "/ columns + eps", "/ BLOCK + eps", "ragged tail", "over the width of the block",
    ),
    "warm_ups": ("w3", "w3_softmax.py", 'other=float("-inf")', "other=0.0", "ragged tail", "with zeros"),
}  # fmt: skip


@pytest.fixture(scope="module", params=["matmul_rmsnorm", thorough("warm_ups")])
def course(request, tmp_path_factory):
    """A course in a folder of its own, with a wrong version of a module in `wrong`."""
    course = tmp_path_factory.mktemp(request.param) / request.param
    if request.param == "warm_ups":
        (course / "solutions").mkdir(parents=True)
        (course / "course.toml").write_text(WARM_UPS, "utf-8")
        for path in SOLUTIONS.glob("w?_*.py"):
            shutil.copy(path, course / "solutions")
    else:
        shutil.copytree(MATMUL, course, ignore=shutil.ignore_patterns("__pycache__"))
    (course / "README.md").write_text("# What is asked\n\nFill in `problems/`.\n", "utf-8")
    course.chmod(0o755)
    (course / "wrong").mkdir()
    _, module, was, now, *_ = WRONG[request.param]
    text = (course / "solutions" / module).read_text("utf-8")
    assert was in text
    (course / "wrong" / module).write_text(text.replace(was, now), "utf-8")
    status, printed = run(course, "grader", "skeletons")
    assert status == 0, printed
    return course


def started(course, *arguments):
    """A command on the CPU, whose output can be read."""
    command = [sys.executable, "-um", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "GRADER_COURSE": str(course)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=course, env=environment, **pipes)


def run(course, *arguments):
    """(exit status, what was printed) of a command on the CPU."""
    process = started(course, *arguments)
    printed, _ = process.communicate()
    return process.returncode, printed


def grade(course, folder, *more):
    """({case: outcome}, what was printed) of the modules in a folder of the course."""
    options = ["--submission", course / folder, "--device", "cpu", "--out", course / "out", *more]
    _, printed = run(course, "grader", "grade", *options)
    tests = json.loads((course / "out" / "results.json").read_text("utf-8"))["tests"]
    return {test["name"]: test["extra_data"]["outcome"] for test in tests}, printed


def test_a_wrong_version_is_told_and_the_command_to_repeat_it_names_the_course(course):
    id, _, _, _, case, words = WRONG[course.name]
    asked = ["--problems", id, "--case", case, "--submission", course / "wrong", "--no-compile", "--device", "cpu"]
    _, printed = run(course, "grader", "grade", *asked)
    assert "): wrong" in printed and words in printed, printed
    assert f'make grade P={id} CASE="{case}" COURSE={quoted(course)} SUBMISSION=' in printed


@pytest.mark.thorough
def test_its_solutions_pass_and_compile(course):
    outcomes, printed = grade(course, "solutions")
    assert set(outcomes.values()) == {"passed"} and any("compiles" in name for name in outcomes), printed
    assert "matrix instructions" not in printed and "past the ladder" not in printed


@pytest.mark.thorough
def test_its_skeletons_are_unfinished(course):
    outcomes, printed = grade(course, "problems", "--no-compile")
    assert set(outcomes.values()) == {"unfinished"} and "TODO 1" in printed


@pytest.mark.thorough
@pytest.mark.parametrize("course", ["matmul_rmsnorm"], indirect=True)
@pytest.mark.parametrize(("was", "now", "words"), [
    ("Rstd + row, rstd", "Rstd + row, 1 / rstd", "the root itself, not one over it. out is right, rstd is not."),
    ("return out, rstd", "return out, (x.float().square().mean(1) + EPS).rsqrt()", "No kernel of yours computed rstd"),
])  # fmt: skip
def test_a_sentence_names_the_output(course, tmp_path, was, now, words):
    text = (course / "solutions" / "n1_rmsnorm.py").read_text("utf-8")
    assert was in text
    (tmp_path / "n1_rmsnorm.py").write_text(text.replace(was, now), "utf-8")
    asked = ["--problems", "n1", "--case", "ragged tail", "--submission", tmp_path, "--no-compile", "--device", "cpu"]
    _, printed = run(course, "grader", "grade", *asked)
    assert words in " ".join(printed.split()), printed


@pytest.mark.thorough
def test_a_case_is_shown_and_a_hint_given(course):
    id, _, _, _, case, _ = WRONG[course.name]
    asked = ["--problems", id, "--case", case, "--submission", "wrong", "--device", "cpu"]
    status, printed = run(course, "grader", "show", *asked, "--out", "out")
    assert status == 0 and (course / "out" / f"show-{id}-{case.replace(' ', '-')}.png").stat().st_size > 1000, printed
    _, printed = run(course, "grader", "hint", *asked[:2], *asked[4:])
    assert "hint 1 of" in printed or "no hint says more than make grade does: Your" in printed, printed


@pytest.mark.thorough
def test_a_class_of_two(course):
    (course / "class").mkdir()
    shutil.copytree(course / "solutions", course / "class" / "ada")
    shutil.copytree(course / "wrong", course / "class" / "bob")
    options = ["--device", "cpu", "--no-compile", "--lanes", "1", "--out", "graded"]
    _, printed = run(course, "classroom", *options, "--", "class")
    with (course / "graded" / "gradebook.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    assert rows.keys() == {"ada", "bob"}, printed
    assert float(rows["ada"]["total"]) in (10, 100) and 0 < float(rows["bob"]["total"]) < float(rows["ada"]["total"])
    page = (course / "graded" / "pages" / "bob.html").read_text("utf-8")
    assert WRONG[course.name][-1] in page


@pytest.mark.thorough
def test_a_saved_module_is_graded_again(course):
    id, module, _, _, case, words = WRONG[course.name]
    folder = shutil.copytree(course / "wrong", course / "watched")
    asked = ["--problems", id, "--case", case, "--submission", folder, "--no-compile", "--device", "cpu"]
    watch = started(course, "grader", "watch", *asked, "--out", "out")
    first = "".join(itertools.takewhile(lambda line: "Ctrl-C ends" not in line, watch.stdout))
    shutil.copy(course / "solutions" / module, folder)
    second = "".join(itertools.takewhile(lambda line: "Ctrl-C ends" not in line, watch.stdout))
    watch.send_signal(signal.SIGINT)
    watch.communicate()
    assert words in first and "saved" in second and "passed" in second, first + second
    assert watch.returncode == 0


@pytest.mark.thorough
def test_its_bundle_for_gradescope_grades_a_submission(course):
    root = course / "autograder"
    status, printed = run(course, "classroom.bundle", root / "autograder.zip")
    assert status == 0, printed
    shutil.unpack_archive(root / "autograder.zip", root / "source")
    shutil.copytree(course / "wrong", root / "submission")
    environment = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "GRADER_COURSE")}
    command = [sys.executable, "-m", "classroom.one_submission", root]
    subprocess.run(command, cwd=root / "source", env=environment, check=True, capture_output=True)
    results = json.loads((root / "results" / "results.json").read_text("utf-8"))
    assert results["score"] > 0 and any(WRONG[course.name][-1] in test["output"] for test in results["tests"])


@pytest.mark.thorough
def test_its_site_begins_with_its_readme(course):
    pytest.importorskip("sphinx")
    title = "Warm-ups" if course.name == "warm_ups" else "Two kernels of a transformer"
    status, printed = run(course, "web.build")
    assert status == 0, printed
    page = (course / "site" / "README.html").read_text("utf-8")
    assert "What is asked" in page and title in page
    (course / "README.md").rename(course / "no README.md")
    _, printed = run(course, "web.build")
    assert "README.md is missing: write it" in printed and (course / "site" / "README.html").exists()
