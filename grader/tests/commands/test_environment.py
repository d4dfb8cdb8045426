"""The set-up: what is broken is noticed, what is whole is left alone."""

import subprocess
import sys
import time

import pytest

from grader.commands import environment
from grader.tests.support import ROOT

REQUIREMENTS = ["pytest==1.0"]


@pytest.fixture
def venv(tmp_path, monkeypatch):
    """A folder that looks like an environment which was made from REQUIREMENTS and holds this interpreter."""
    folder = tmp_path / ".venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "bin" / "python").chmod(0o755)
    monkeypatch.setattr(environment, "VENV", folder)
    monkeypatch.setattr(environment, "STAMP", folder / "complete")
    version = pytest.__version__
    (folder / "complete").write_text(f"{environment.fingerprint(REQUIREMENTS)}\npytest=={version}")
    return folder


def test_a_whole_environment_is_checked_in_under_a_second(venv):
    started = time.perf_counter()
    assert environment.fault(REQUIREMENTS) is None
    assert time.perf_counter() - started < 1.0


def test_what_is_broken_is_noticed(venv):
    assert "changed since" in environment.fault(["pytest==2.0"])
    (venv / "complete").write_text(f"{environment.fingerprint(REQUIREMENTS)}\npytest==1.0")
    assert environment.fault(REQUIREMENTS) == f"pytest is {pytest.__version__}, not 1.0"
    (venv / "bin" / "python").write_text("#!/bin/sh\nexit 3\n")
    assert environment.fault(REQUIREMENTS) == "its Python does not start"
    (venv / "bin" / "python").unlink()
    assert environment.fault(REQUIREMENTS) == "its Python does not start"
    (venv / "complete").write_text("")
    assert environment.fault(REQUIREMENTS)
    (venv / "complete").unlink()
    assert "did not finish" in environment.fault(REQUIREMENTS)


def test_the_requirements_are_pinned():
    read = environment.read_requirements
    for requirement in (*read(), *read("notebooks"), *read("site"), *read("site-test"), *read("class")):
        assert "==" in requirement.split(";")[0]


def test_an_extra_is_added_once(venv, monkeypatch, tmp_path, capsys):
    asked = []
    monkeypatch.setattr(environment, "install", asked.append)
    monkeypatch.setattr(environment, "PROBE", "import sys; sys.exit('x is missing' if 'x==1' in sys.argv else 0)")
    monkeypatch.setattr(environment, "read_requirements", lambda extra: ["x==1"])
    (venv / "bin" / "python").write_text(
        f'#!/bin/sh\ncase "$*" in *sysconfig*) echo {tmp_path};; *) exec "{sys.executable}" "$@";; esac\n'
    )
    environment.add("notebooks", REQUIREMENTS)
    assert asked == [[*REQUIREMENTS, "x==1"]] and "x is missing" in capsys.readouterr().out
    assert (tmp_path / "this_repository.pth").read_text() == f"{ROOT}\n"
    monkeypatch.setattr(environment, "PROBE", "")
    environment.add("notebooks", REQUIREMENTS)
    assert len(asked) == 1 and not capsys.readouterr().out


def test_make_alone_prints_help():
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    for word in (
        "make grade",
        "make show",
        "make notebooks",
        "make site",
        "make test",
        "SUBMISSION=",
        "CASE=",
        "DEVICE=",
        "SEED=",
        "PYTHON=",
        "PIP_ARGS=",
        "P=3,5-7",
    ):
        assert word in done.stdout
