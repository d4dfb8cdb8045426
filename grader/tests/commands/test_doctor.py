"""The doctor says what is there, what is missing and what to do, and its exit status says whether grading works."""

import shutil

import pytest

from grader.commands import doctor, versions
from grader.processes import bubblewrap
from grader.tests import matrix


def found():
    return {line.name: line for line in doctor.lines()}


def test_here_grading_works(capsys):
    assert doctor.main() == 0
    said = capsys.readouterr().out
    assert "grading works here" in said and "Traceback" not in said
    for name in ("Python", "torch", "GPU", "ptxas", "sandbox", "control groups", "disk", "cores", "chromium", "Slurm"):
        assert f" {name} " in said


def pretend(monkeypatch, **versions_found):
    """Packages of these versions are installed; None is none."""
    find = versions.find
    monkeypatch.setattr(
        versions, "find", lambda name: versions_found.get(name, None if name in versions_found else find(name))
    )


def test_a_package_that_is_missing_is_named_with_what_to_do(monkeypatch, capsys):
    pretend(monkeypatch, torch=None)
    assert doctor.main() == 1
    said = capsys.readouterr().out
    (line,) = (line for line in said.splitlines() if " torch " in line)
    assert line.startswith("missing") and "pip install torch==" in line
    assert said.splitlines()[-1] == "grading does not work here: torch"


def test_another_version_works_and_is_said(monkeypatch):
    pretend(monkeypatch, triton="3.6.0")
    line = found()["triton"]
    assert line.well and "3.6.0; the course was made with 3." in line.found and "untried" not in line.found
    assert versions.warning() is None


@pytest.mark.parametrize("version", ["3.5.1", "3.10.0", "4.0.0+git1234"])
def test_an_untried_version_is_said_by_the_doctor_and_before_grading(version, monkeypatch):
    pretend(monkeypatch, triton=version)
    line = found()["triton"]
    assert line.well and line.found.endswith("; untried")
    assert versions.warning().startswith(f"triton {version} is untried (tried: 3.6 to 3.9): ")


def test_without_triton_nothing_is_said_of_versions(monkeypatch):
    pretend(monkeypatch, triton=None)
    assert versions.warning() is None


def test_without_bubblewrap_it_says_what_is_not_protected(monkeypatch):
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **more: None if name == "bwrap" else which(name, **more))
    line = found()["sandbox"]
    assert not line.well and "use the network" in line.found and "apt install bubblewrap" in str(line)
    assert line.kind == doctor.WANTED  # grading works all the same


def test_the_sandbox_is_tried_not_only_found(monkeypatch):
    monkeypatch.setattr(bubblewrap, "try_out", lambda tool, device: "bubblewrap does not work here: no user namespaces")
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    assert "no user namespaces" in str(found()["sandbox"])


def test_a_full_disk_is_said(monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    assert "5 GiB are wanted" in str(found()["disk"])


def test_the_versions_of_triton_that_count_as_tried_are_those_that_the_matrix_tries():
    tried = [tuple(map(int, version.split(".")[:2])) for version in matrix.VERSIONS]
    assert (min(tried), max(tried)) == versions.TRIED["triton"]
