"""The set-up: what is broken is noticed, what is whole is left alone, and what fails is said in one sentence."""

import subprocess
import sys
from collections import namedtuple

import pytest

from grader.commands import environment
from grader.tests.support import ROOT

# A uv or pip that notes what it is asked; it fails with the words in the file `fails`.
INSTALLER = """#!/bin/sh
echo "$@" >> {asked}
[ ! -e {fails} ] || {{ cat {fails} >&2; exit 1; }}
"""


@pytest.fixture
def venv(tmp_path, monkeypatch):
    """A folder that looks like an environment with this interpreter, in which base is installed and torch is not."""
    folder, locks = tmp_path / ".venv", tmp_path / "locks"
    for place in (folder / "bin", folder / "installed", folder / "lib" / "python3" / "site-packages", locks):
        place.mkdir(parents=True)
    (locks / "base.txt").write_text(f"pytest=={pytest.__version__} \\\n    --hash=sha256:0\n")
    (locks / "torch.txt").write_text(f"-c cuda.txt\nother==1 ; python_version < '3'\npytest=={pytest.__version__}\n")
    (locks / "notebooks.txt").write_text("-r base.txt\nx==1\n")
    for name, place in (("VENV", folder), ("LOCKS", locks), ("find_uv", lambda: str(tmp_path / "uv"))):
        monkeypatch.setattr(environment, name, place)
    (tmp_path / "uv").write_text(INSTALLER.format(asked=tmp_path / "asked", fails=tmp_path / "fails"))
    (folder / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for program in (tmp_path / "uv", folder / "bin" / "python"):
        program.chmod(0o755)
    (folder / "made-for").write_text(environment.owner())
    (folder / "installed" / "base").write_text(f"{environment.fingerprint('base')}\npytest=={pytest.__version__}")
    monkeypatch.setattr(sys, "argv", ["environment.py"])
    return folder


def asked(venv):
    """What the installer was asked for, a line each, without the flags that are always there."""
    path = venv.parent / "asked"
    common = f"pip install --python {environment.venv_python()} "
    return [line.removeprefix(common) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_set_up_goes_on_where_it_was_stopped_and_then_does_nothing(venv):
    environment.main()
    assert asked(venv) == [f"-r {venv.parent}/locks/torch.txt"]
    assert environment.recorded("torch") == [
        f"pytest=={pytest.__version__}"
    ]  # what holds for another Python is not asked
    environment.main()
    assert len(asked(venv)) == 1


def test_what_has_hashes_is_installed_by_them_and_a_lock_that_changed_again(venv):
    (venv / "installed" / "base").unlink()
    environment.main()
    (venv.parent / "locks" / "base.txt").write_text(f"pytest=={pytest.__version__} \\\n    --hash=sha256:1\n")
    environment.main()
    base = f"--require-hashes -r {venv.parent}/locks/base.txt"
    assert asked(venv) == [base, f"-r {venv.parent}/locks/torch.txt", base]


def test_what_an_installer_was_stopped_at_is_installed_again(venv):
    packages = venv / "lib" / "python3" / "site-packages"
    for name, files in (("whole", ["RECORD", "INSTALLER"]), ("half", ["METADATA"]), ("linked", ["RECORD"])):
        (packages / f"{name}-1.dist-info").mkdir()
        for file in files:
            (packages / f"{name}-1.dist-info" / file).write_text("")
    environment.main()
    assert [path.name for path in packages.iterdir()] == ["whole-1.dist-info"]


def test_what_is_broken_is_noticed(venv):
    assert environment.fault() is None
    (venv / "installed" / "base").write_text(f"{environment.fingerprint('base')}\npytest==1.0")
    assert environment.fault() == f"pytest is {pytest.__version__}, not 1.0"
    (venv / "bin" / "python").write_text("#!/bin/sh\nexit 3\n")
    assert environment.fault() == "its Python does not start"
    (venv / "bin" / "python").unlink()
    assert environment.fault() == "its Python does not start"
    (venv / "made-for").write_text("another")
    assert "changed since" in environment.fault()
    (venv / "made-for").unlink()
    assert "did not finish" in environment.fault()


def test_an_extra_is_added_once(venv, monkeypatch, tmp_path, capsys):
    environment.main()
    (venv / "bin" / "python").write_text(
        f'#!/bin/sh\ncase "$*" in *sysconfig*) echo {tmp_path};; *) exec "{sys.executable}" "$@";; esac\n'
    )
    monkeypatch.setattr(sys, "argv", ["environment.py", "notebooks"])
    monkeypatch.setattr(environment, "PROBE", "")
    environment.main()
    assert asked(venv)[1:] == [f"--require-hashes -r {venv.parent}/locks/notebooks.txt"]
    assert (tmp_path / "this_repository.pth").read_text() == f"{ROOT}\n"
    environment.main()
    assert len(asked(venv)) == 2
    monkeypatch.setattr(environment, "PROBE", "import sys; sys.exit('x is missing' if 'x==1' in sys.argv else 0)")
    with pytest.raises(SystemExit, match="x is missing after it was installed"):
        environment.main()
    assert len(asked(venv)) == 3 and "(x is missing)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("Failed to establish a new connection: [Errno -2] Name or service not known", "no package index was reached"),
        ("ERROR: No matching distribution found for torch==2.13.0", "no build for this Python and system"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "not the one that is locked"),
        ("something that nobody foresaw", "the installer's own words are above"),
    ],
)
def test_a_failure_is_one_sentence_after_the_installers_own_words(words, sentence, venv, capfd):
    (venv.parent / "fails").write_text(f"{words}\n")
    with pytest.raises(SystemExit, match=rf"set-up failed: .*{sentence}.*the same command goes on from here"):
        environment.main()
    assert words in capfd.readouterr().err and environment.recorded("torch") is None


@pytest.mark.parametrize("version", [(3, 9, 18), (3, 15, 0)])
def test_another_python_is_named_with_what_is_needed(version, venv, monkeypatch):
    monkeypatch.setattr(sys, "version_info", namedtuple("v", "major minor micro")(*version))
    with pytest.raises(SystemExit, match=rf"Python 3.10 to 3.14 is needed; this is 3.{version[1]}"):
        environment.main()
    assert asked(venv) == []


def test_uv_installs_unless_pip_is_told_what_uv_would_not_know(monkeypatch, tmp_path):
    monkeypatch.setattr(environment.shutil, "which", lambda name: f"/bin/{name}")
    settings = {"PIP_CONFIG_FILE": "/dev/null", "PIP_ARGS": ""}
    for name in [name for name in environment.os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert environment.find_uv() == "/bin/uv"
    monkeypatch.setenv("PIP_ARGS", "--no-cache-dir")
    assert environment.find_uv() is None
    monkeypatch.setenv("PIP_ARGS", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert environment.find_uv() is None


def test_make_alone_prints_help():
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    for word in ("make grade", "make show", "make notebooks", "make site", "make test", "SUBMISSION=", "CASE=", "SEED=",
                 "DEVICE=", "PYTHON=", "PIP_ARGS=", "P=3,5-7"):  # fmt: skip
        assert word in done.stdout
