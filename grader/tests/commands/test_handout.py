"""A handout: all that a student needs, and nothing that fills a gap."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from grader.__main__ import main
from grader.commands import handout, handout_notebooks, skeletons
from grader.course import course
from grader.registry import EVERY, PROBLEMS
from grader.tests.support import ROOT, SOLUTIONS, solution


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("handout") / "made"
    assert main(["handout", "--out", str(out)]) == 0
    return out


def names_in(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def git(folder, *arguments):
    return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True).stdout


def test_what_is_in_it(made):
    names = names_in(made)
    files = {f"problems/{problem.module}" for problem in EVERY.values() if problem.id[0] != "x"}
    files.add(f"problems/{skeletons.HINTS}")
    assert {name for name in names if name.startswith("problems/")} == files  # skeletons of labs show answers
    assert {
        "model/generate.py", "model/prompts.txt", "Makefile", "README.md", "course.toml", "docs/students.md",
        "notebooks/02_online_softmax.ipynb",
    } <= names  # fmt: skip
    left_out = (
        "solutions/", "kernels/", "grader/tests/", "classroom/", "model/train.py", "web/", "instructors.mk",
        "report/rubric.md", "report/counting/cost.py",
    )  # fmt: skip
    assert not [name for name in names if name.startswith(left_out) or "REPORT" in name]


def test_a_notebook_that_belongs_to_a_lab_travels_with_the_lab(made):
    given = course.current()
    owner = {entry.notebook: entry.id for entry in given.said.problem if entry.notebook}
    assert all((given.notebooks / f"{name}.ipynb").is_file() for name in owner)
    assert not {f"notebooks/{name}.ipynb" for name in owner} & names_in(made)  # no lab is in it
    files = handout.collect(given, [EVERY["x4"]], "a commit")
    assert {"notebooks/09_decode.ipynb", "notebooks/02_online_softmax.ipynb"} <= set(files)
    assert "notebooks/06_program_order.ipynb" not in files and b'notebook = "09_decode"' in files["course.toml"]


@pytest.mark.thorough
def test_it_is_a_repository_and_the_same_each_time(made, tmp_path):
    assert main(["handout", "--out", str(tmp_path / "again")]) == 0
    assert git(made, "rev-parse", "HEAD") == git(tmp_path / "again", "rev-parse", "HEAD")
    assert not git(made, "status", "--porcelain") and git(ROOT, "rev-parse", "--short=12", "HEAD").strip() in git(
        made, "log"
    )


def test_no_link_leads_nowhere(made):
    names = names_in(made)
    for name in sorted(names):
        if name.endswith(".md"):
            for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", (made / name).read_text("utf-8")):
                path = (made / name).parent / target
                assert path.exists(), f"{name} links to {target}"


@pytest.mark.thorough
def test_the_problems_that_are_named(tmp_path):
    assert main(["handout", "--problems", "3-4,x1", "--out", str(tmp_path / "week")]) == 0
    modules = {path.name for path in (tmp_path / "week" / "problems").iterdir()}
    assert modules == {EVERY[id].module for id in ("p3", "p4", "x1")} | {skeletons.HINTS}
    examples = json.loads((tmp_path / "week" / "problems" / skeletons.HINTS).read_bytes())
    assert set(examples) == modules - {skeletons.HINTS}
    assert '"p5"' not in (tmp_path / "week" / "course.toml").read_text("utf-8")


def test_a_folder_with_something_in_it_is_refused(tmp_path, capsys):
    (tmp_path / "mine").touch()
    assert main(["handout", "--out", str(tmp_path)]) == 2 and "name a new folder" in capsys.readouterr().err


def test_an_answer_is_named_and_nothing_is_written(tmp_path, monkeypatch, capsys):
    given = handout.collect

    def with_an_answer(*arguments):
        return given(*arguments) | {"docs/more.md": f"See:\n```\n{solution('p5')}```\n".encode()}

    monkeypatch.setattr(handout, "collect", with_an_answer)
    assert main(["handout", "--out", str(tmp_path / "out")]) == 2 and not (tmp_path / "out").exists()
    assert re.search(r"line \d+ of docs/more.md is what fills gap \d of p\d_", capsys.readouterr().err)


def test_a_tagged_cell_becomes_what_it_gave():
    outputs = [{"text": ["a\n"]}, {"data": {"image/png": "aGk=", "text/plain": "x"}}]
    cell = {"cell_type": "code", "id": "c", "metadata": {"tags": ["solution"]}, "source": "secret", "outputs": outputs}
    notebook = handout_notebooks.without_solutions(json.dumps({"cells": [cell]}))
    (shown,) = notebook["cells"]
    assert shown["cell_type"] == "markdown" and "secret" not in json.dumps(notebook)
    assert "```text\na\n```" in shown["source"] and shown["attachments"] == {"1.png": {"image/png": "aGk="}}


@pytest.mark.thorough
def test_it_works_in_a_clone_that_has_nothing_else(made, tmp_path):
    git(tmp_path, "clone", "--quiet", str(made), "clone")
    clone = tmp_path / "clone"
    done = subprocess.run(
        ["make", "grade", f"PYTHON={sys.executable}", "DEVICE=cpu", "COMPILE=no"],
        cwd=clone,
        capture_output=True,
        text=True,
    )
    assert "TODO 1: the scaled scores" in done.stdout and "0 of 100 points" in done.stdout, done.stdout + done.stderr
    shutil.copy(SOLUTIONS / PROBLEMS["p5"].module, clone / "problems")
    command = ["make", "grade", f"PYTHON={sys.executable}", "DEVICE=cpu", "P=5"]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert done.returncode == 0 and "15 of 15 points" in done.stdout, done.stdout + done.stderr
    listed = subprocess.run(["make"], cwd=clone, capture_output=True, text=True).stdout
    assert "make grade" in listed and "make class" not in listed


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["02_online_softmax", "04_masks_and_phases"])
def test_a_notebook_of_it_runs_where_there_are_no_solutions(name, made):
    nbclient = pytest.importorskip("nbclient", reason="of the extra `notebooks`, which make test-all adds")
    import nbformat

    notebook = nbformat.read(made / "notebooks" / f"{name}.ipynb", 4)
    nbformat.validate(notebook)
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(made)}})
    client.execute(env=os.environ | {"PYTHONPATH": str(made)})
