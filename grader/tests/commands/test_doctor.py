"""The doctor says what is there, what is missing and what to do, and its exit status says whether grading works."""

import shutil

import pytest

from grader.__main__ import main
from grader.commands import doctor, versions
from grader.core.sandbox import bubblewrap
from grader.tests import matrix


def found():
    """{name: (what is there, what to do)}"""
    return {name: (state, todo) for name, state, todo in doctor.lines()}


def test_here_grading_works(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "grading works here" in said and "Traceback" not in said
    for name in (
        "Python",
        "torch",
        "GPU",
        "ptxas",
        "Nsight Compute",
        "sandbox",
        "control groups",
        "disk",
        "gcc",
        "sinfo",
    ):
        assert f" {name} " in said


def pretend(monkeypatch, **versions_found):
    """Packages of these versions are installed; None is none."""
    find = versions.find
    monkeypatch.setattr(
        versions, "find", lambda name: versions_found.get(name, None if name in versions_found else find(name))
    )


def test_a_package_that_is_missing_is_named_with_what_to_do(monkeypatch, capsys):
    pretend(monkeypatch, torch=None)
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    (line,) = (line for line in said.splitlines() if " torch " in line)
    assert line.startswith("missing") and "pip install -r locks/torch.txt" in line
    assert said.splitlines()[-1] == "grading does not work here: torch"


@pytest.mark.parametrize("version", ["3.5.1", "3.10.0", "4.0.0+git1234"])
def test_an_untried_version_is_said_by_the_doctor_and_before_grading(version, monkeypatch):
    pretend(monkeypatch, triton="3.6.0")
    assert "versions" not in found() and versions.warning() is None
    pretend(monkeypatch, triton=version)
    assert found()["triton"] == (version, "")
    assert found()["versions"][0] == versions.warning()
    assert versions.warning().startswith(f"triton {version} is untried (tried: 3.6 to 3.9): ")


def test_without_triton_nothing_is_said_of_versions(monkeypatch):
    pretend(monkeypatch, triton=None)
    assert versions.warning() is None


def test_without_bubblewrap_it_says_what_is_not_protected(monkeypatch):
    which = shutil.which
    monkeypatch.delenv("GRADER_SANDBOX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name, **more: None if name == "bwrap" else which(name, **more))
    state, todo = found()["sandbox"]
    assert "use the network" in state and "apt install bubblewrap" in todo
    assert "sandbox" not in doctor.NEEDED  # grading works all the same


def test_the_sandbox_is_tried_not_only_found(monkeypatch):
    monkeypatch.setattr(bubblewrap, "try_out", lambda tool, device: "bubblewrap does not work here: no user namespaces")
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    assert "no user namespaces" in found()["sandbox"][1]


def test_a_full_disk_is_said(monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    assert "5 GiB are wanted" in found()["disk"][1]


def test_the_versions_of_triton_that_count_as_tried_are_those_that_the_matrix_tries():
    tried = [tuple(map(int, version.split(".")[:2])) for version in matrix.VERSIONS]
    assert (min(tried), max(tried)) == versions.TRIED["triton"]
