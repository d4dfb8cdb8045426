"""The bundle for Gradescope: it is whole, and its run_autograder grades in a tree like Gradescope's."""

import json
import os
import subprocess
import sys
import zipfile

import pytest

from classroom import bundle
from grader.commands.arguments import BadArguments
from grader.tests.support import ROOT, thorough


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """/autograder as Gradescope makes it, without its installing."""
    root = tmp_path_factory.mktemp("autograder")
    bundle.write(root / "autograder.zip", 3)
    subprocess.run([sys.executable, "-m", "zipfile", "-e", root / "autograder.zip", root / "source"], check=True)
    (root / "source" / "run_autograder").chmod(0o755)
    (root / "results").mkdir()
    return root


def run(tree, files, **environment):
    """results.json for these files, by run_autograder."""
    submission = tree / "submission"
    subprocess.run(["rm", "-rf", submission], check=True)
    for name, text in files.items():
        path = submission / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    submission.mkdir(exist_ok=True)
    given = {"AUTOGRADER": str(tree), "AUTOGRADER_PYTHON": sys.executable, "PROBLEMS": "1", **environment}
    done = subprocess.run(
        [tree / "source" / "run_autograder"],
        env=os.environ | given,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((tree / "results" / "results.json").read_text("utf-8"))


def test_the_same_files_give_the_same_bytes_and_no_test_goes_along(tmp_path):
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    bundle.write(first, 3), bundle.write(second, 3)
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as file:
        names = set(file.namelist())
        assert (
            file.getinfo("run_autograder").external_attr >> 16 == file.getinfo("setup.sh").external_attr >> 16 == 0o755
        )
    wanted = {
        "setup.sh",
        "run_autograder",
        "pyproject.toml",
        "locks/base.txt",
        "locks/torch.txt",
        "locks/cuda.txt",
        "grader/core/worker/fork_server.py",
        "grader/kinds/attention/rows.csv",
        "grader/core/record/recorder.py",
        "grader/core/run/runner.py",
        "solutions/p1_naive_attention.py",
    }
    assert wanted | {"grader/commands/environment.py", "grader/render/templates/report.css"} <= names
    assert not any("tests/" in name or "__pycache__" in name for name in names)
    missing = {p.relative_to(ROOT).as_posix() for p in (ROOT / "grader").rglob("*.py")} - names
    assert all(name.startswith("grader/tests/") for name in missing)


@pytest.mark.parametrize("name", ["setup.sh", "run_autograder"])
def test_the_scripts_are_bash(name):
    script = bundle.AUTOGRADER / name
    subprocess.run(["bash", "-n", script], check=True)
    assert os.access(script, os.X_OK) and script.read_text("utf-8").startswith("#!/usr/bin/env bash\n")


@pytest.mark.thorough
def test_a_right_module_in_a_nested_folder_gets_its_points(tree):
    text = (ROOT / "solutions" / "p1_naive_attention.py").read_text("utf-8")
    results = run(tree, {"my work/p1_naive_attention.py": text, "notes.txt": "x"})
    assert results["score"] == 10 and [test["status"] for test in results["tests"]] == ["passed"]
    assert results["tests"][0]["name"] == "p1 naive attention: cases" and "p1 10/10" in results["output"]


@pytest.mark.thorough
def test_a_wrong_module_gets_no_points_and_its_reasons(tree):
    results = run(
        tree, {"p1_naive_attention.py": "def naive_attention(q, k, v, is_causal=False):\n    return q, q[..., 0]\n"}
    )
    assert results["score"] == 0 and "again: make grade P=1" in results["tests"][0]["output"]
    assert str(tree) not in json.dumps(results)


@pytest.mark.thorough
def test_no_module_is_a_0_that_says_what_is_missing(tree):
    results = run(tree, {"hello.py": "print(1)\n", "work.txt": ""})
    assert results["score"] == 0 and "p1_naive_attention.py" in json.dumps(results)


NO_PYTHON, NO_PROBLEM = {"AUTOGRADER_PYTHON": "/no/python"}, {"PROBLEMS": "nonsense"}


@pytest.mark.parametrize("environment", [NO_PYTHON, thorough(NO_PROBLEM)])
def test_a_fault_of_ours_has_no_score(tree, environment):
    results = run(tree, {"p1_naive_attention.py": "x = 1\n"}, **environment)
    assert "score" not in results and results["tests"] == []
    assert "fault" in results["output"] and "no point is lost" in results["output"]


def test_the_problems_that_were_asked_for_are_in_the_bundle(tmp_path):
    bundle.write(tmp_path / "a.zip", 3, "3-5")
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        assert b'PROBLEMS="${PROBLEMS:-3-5}"' in file.read("run_autograder")
    with pytest.raises(BadArguments):
        bundle.write(tmp_path / "a.zip", 3, "99; rm -rf /")
