"""What a sandbox refuses: each call and each place is tried from inside, as any user."""

import subprocess
import sys
from pathlib import Path

import pytest

from grader.core.sandbox import bubblewrap
from grader.core.worker import system_calls
from grader.tests.support import ROOT

pytestmark = pytest.mark.skipif(
    bubblewrap.find_obstacle() is not None, reason=f"no sandbox here: {bubblewrap.find_obstacle()}"
)


KEYS = {"keyctl", "add_key", "request_key"}
BEYOND = {"unshare", "setns", "mount", "ptrace", "process_vm_readv", "process_vm_writev", "bpf", "perf_event_open"}
RINGS = {"io_uring_setup", "io_uring_enter", "io_uring_register"}


def test_nothing_that_must_be_refused_is_possible():
    assert set(system_calls.REFUSED) >= KEYS | BEYOND | RINGS  # each of them is tried
    assert bubblewrap.find_leaks() == []


PROGRAM = f"import sys; sys.path.insert(0, {str(Path(system_calls.__file__).parent)!r}); import system_calls as s; "


def run_alone(code):
    return subprocess.run([sys.executable, "-c", PROGRAM + code], capture_output=True, text=True).stdout.strip()


def test_without_the_filter_the_trial_says_what_is_possible():
    """The trial is no test that cannot fail: keyctl goes through where nothing refuses it."""
    if run_alone("print(s.try_call('keyctl'))") == "None":
        pytest.skip("keys are refused to every process here")
    assert run_alone("s.restrict(); print(s.try_call('keyctl'), s.try_call('unshare'))") == "None None"


@pytest.mark.parametrize("place", ["/usr/share", "/usr/src", "/root", "/home", "/var", str(ROOT)])
def test_only_what_python_and_the_compiler_need_is_there(place):
    done = bubblewrap.run("cpu", [sys.executable, "-I", "-c", f"import os; print(sorted(os.listdir({place!r})))"])
    folders = map(Path, bubblewrap.python_folders())
    inside = [folder.relative_to(place) for folder in folders if folder.is_relative_to(place)]
    needed = sorted({path.parts[0] for path in inside if path.parts})
    assert done.returncode or done.stdout.strip() == str(needed)


def test_a_python_below_usr_shows_no_more_of_it(monkeypatch):
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert "/usr" not in bubblewrap.python_folders()


@pytest.mark.parametrize("name", ["a class", "class/of/autumn"])
def test_a_hidden_folder_under_one_that_is_shown_is_empty(name, tmp_path, monkeypatch):
    secret = tmp_path / "shown" / name
    secret.mkdir(parents=True)
    (secret / "gradebook.csv").write_text("everyone\n", "utf-8")
    (secret / "own").mkdir()
    monkeypatch.setattr(bubblewrap, "HIDDEN", {bubblewrap.ROOT})
    bubblewrap.hide(secret)
    bubblewrap.hide(tmp_path / "shown" / "gone")  # one that is not there is nothing to hide
    look = f"import os; print(os.listdir({str(secret)!r}))"
    for named, seen in (([tmp_path / "shown"], "[]"), ([tmp_path / "shown", secret / "own"], "['own']")):
        done = bubblewrap.run("cpu", [sys.executable, "-I", "-c", look], named)
        assert done.stdout.strip() == seen, done.stderr


def test_the_keys_of_the_session_are_not_inherited():
    if system_calls.missing():
        pytest.skip(system_calls.missing())
    mine = "print(s.C.syscall(s.number('keyctl'), 0, -3, 0))"
    without_filter = "s.make_filter = lambda: type('', (), {'load': print}); s.missing = lambda: None; s.restrict(); "
    told = [run_alone(mine), run_alone(mine), run_alone(without_filter + mine)]
    if int(told[0]) < 0:
        pytest.skip("keys are refused to every process here")
    assert told[0] == told[1] != told[2] and int(told[2]) > 0


def test_where_there_is_no_libseccomp_doctor_says_so(monkeypatch):
    from grader.commands import doctor

    monkeypatch.setattr(system_calls, "missing", lambda: "pyseccomp is not there")
    found, todo = doctor.try_attempts("cpu")
    assert "pyseccomp is not there" in found and "pip install pyseccomp" in todo
