"""The set-up: what is broken or changed is noticed, what is whole is left alone, what fails is said in one sentence."""

import re
import subprocess
import sys
from collections import namedtuple

import pytest

from grader.commands import environment
from grader.tests.support import ROOT

# A Python of an environment that notes what its pip is asked; it fails with the words in the file `fails`.
PYTHON = """#!/bin/sh
echo "$@" >> "{folder}/asked"
[ ! -e "{folder}/fails" ] || {{ cat "{folder}/fails" >&2; exit 1; }}
"""


@pytest.fixture
def venv(tmp_path, monkeypatch):
    """A folder that looks like an environment with this interpreter, in which base is installed and torch is not."""
    folder, locks = tmp_path / ".venv", tmp_path / "locks"
    for place in (folder / "bin", folder / "installed", folder / "lib" / "python3" / "site-packages", locks):
        place.mkdir(parents=True)
    for name in ("base", "torch", "notebooks"):
        (locks / f"{name}.txt").write_text(f"{name}==1\n", "utf-8")
    monkeypatch.setattr(environment, "VENV", folder)
    monkeypatch.setattr(environment, "LOCKS", locks)
    monkeypatch.delenv("PIP_ARGS", raising=False)
    (folder / "bin" / "python").write_text(PYTHON.format(folder=tmp_path), "utf-8")
    (folder / "bin" / "python").chmod(0o755)
    (folder / "bin" / "pip").touch()
    (folder / "made-for").write_text(f"{sys.version}\n{folder}\n", "utf-8")
    set_up(monkeypatch)
    (folder / "installed" / "torch").unlink()
    (tmp_path / "asked").unlink()
    return folder


def set_up(monkeypatch, *extras):
    monkeypatch.setattr(sys, "argv", ["environment.py", *extras])
    environment.main()


def asked(venv):
    """What pip was asked for, a line each, without what is always there."""
    path, common = venv.parent / "asked", "-m pip install --disable-pip-version-check "
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [line.removeprefix(common).replace(f"{venv.parent}/", "") for line in lines]


HASHES = "--require-hashes"


def test_a_set_up_goes_on_where_it_was_stopped_and_then_does_nothing(venv, monkeypatch):
    set_up(monkeypatch)
    set_up(monkeypatch)
    assert asked(venv) == ["-r locks/torch.txt"]


def test_a_lock_that_changed_is_installed_again_by_its_hashes(venv, monkeypatch):
    (venv.parent / "locks" / "base.txt").write_text("base==2\n", "utf-8")
    monkeypatch.setenv("PIP_ARGS", "--extra-index-url 'an address'")
    set_up(monkeypatch)
    given = "--extra-index-url an address"
    assert asked(venv) == [f"{given} {HASHES} -r locks/base.txt", f"{given} -r locks/torch.txt"]


def test_what_pip_was_stopped_at_is_installed_again(venv, monkeypatch):
    packages = venv / "lib" / "python3" / "site-packages"
    for name, files in (("whole", ["RECORD", "INSTALLER"]), ("half", ["METADATA"]), ("linked", ["RECORD"])):
        (packages / f"{name}-1.dist-info").mkdir()
        for file in files:
            (packages / f"{name}-1.dist-info" / file).write_text("", "utf-8")
    set_up(monkeypatch)
    assert [path.name for path in packages.iterdir()] == ["whole-1.dist-info"]


@pytest.mark.parametrize("file", ["made-for", "bin/python"])
@pytest.mark.parametrize("missing", [True, False])
def test_what_was_made_for_another_python_or_folder_is_made_anew(file, missing, venv, monkeypatch):
    (venv / file).unlink()
    if not missing:
        (venv / file).symlink_to("/nowhere") if file == "bin/python" else (venv / file).write_text("another", "utf-8")
    made, real = [], subprocess.run

    def run(command, **options):
        if command[1:3] == ["-m", "venv"]:
            made.append(command)
            (venv / "bin").mkdir(parents=True)
            (venv / "bin" / "pip").touch()
            (venv / "lib" / "python3" / "site-packages").mkdir(parents=True)
            (venv / "bin" / "python").write_text(PYTHON.format(folder=venv.parent), "utf-8")
            return (venv / "bin" / "python").chmod(0o755)
        return real(command, **options)

    monkeypatch.setattr(subprocess, "run", run)
    set_up(monkeypatch)
    set_up(monkeypatch)
    assert len(made) == 1 and asked(venv) == [f"{HASHES} -r locks/base.txt", "-r locks/torch.txt"]


def test_an_extra_is_added_once_and_finds_this_repository(venv, monkeypatch):
    set_up(monkeypatch)
    assert not list(venv.glob("lib/python3/site-packages/*"))
    set_up(monkeypatch, "notebooks")
    set_up(monkeypatch, "notebooks")
    assert asked(venv)[1:] == [f"{HASHES} -r locks/notebooks.txt"]
    assert (venv / "lib" / "python3" / "site-packages" / "this_repository.pth").read_text("utf-8") == f"{ROOT}\n"


def test_a_failure_is_one_sentence_after_pips_own_words(venv, monkeypatch, capfd):
    (venv.parent / "fails").write_text("ERROR: No space left on device\n", "utf-8")
    for _ in range(2):
        with pytest.raises(SystemExit, match=r"set-up failed: the words above .*the same command goes on from here"):
            set_up(monkeypatch)
        assert "No space left on device" in capfd.readouterr().err
    assert len(asked(venv)) == 2


def test_what_pip_says_of_a_set_up_that_works_is_one_line(venv, monkeypatch, capfd):
    python = venv / "bin" / "python"
    python.write_text(python.read_text("utf-8") + "echo Collecting this; echo WARNING: and that >&2\n", "utf-8")
    set_up(monkeypatch)
    said = capfd.readouterr()
    assert re.fullmatch(r"installing torch: \d+ s\n", said.out) and said.err == ""


def test_a_python_without_venv_says_what_to_install(venv, monkeypatch):
    (venv / "made-for").unlink()
    monkeypatch.setattr(environment, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"set-up failed: this Python comes without venv and pip: apt install python3"):
        set_up(monkeypatch)


@pytest.mark.parametrize("version", [(3, 9, 18), (3, 15, 0)])
def test_another_python_is_named_with_what_is_needed(version, venv, monkeypatch):
    monkeypatch.setattr(sys, "version_info", namedtuple("v", "major minor micro")(*version))
    with pytest.raises(SystemExit, match=rf"Python 3.10 to 3.14 is needed; this is 3.{version[1]}"):
        set_up(monkeypatch)
    assert asked(venv) == []


def test_make_alone_prints_help():
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    for word in ("make grade", "make show", "make notebooks", "make site", "make test", "SUBMISSION=", "CASE=", "SEED=",
                 "DEVICE=", "PYTHON=", "PIP_ARGS=", "P=3,5-7"):  # fmt: skip
        assert word in done.stdout
