"""A run alone waits for the others, those that come later wait for it, and nobody waits for ever."""

import os
import subprocess
import sys
import tempfile
import threading

import pytest

from grader.core.sandbox import turns
from grader.tests.support import ROOT

HOLDS = """
import sys
from grader.core.sandbox import turns
with turns.{turn}():
    print("in", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def own_locks(tmp_path, monkeypatch):
    """The locks of this test alone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def hold(turn):
    """Another process that has this turn until its input is closed."""
    command = [sys.executable, "-c", HOLDS.format(turn=turn)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"in\n"
    return process


def begin(turn):
    """(thread, event): a thread that takes the turn, and whether it has had it."""
    entered = threading.Event()

    def take():
        with turn():
            entered.set()

    thread = threading.Thread(target=take)
    thread.start()
    return thread, entered


@pytest.mark.parametrize(
    ("theirs", "ours"), [("beside_others", turns.alone), ("alone", turns.beside_others), ("alone", turns.alone)]
)
def test_a_run_alone_and_any_other_wait_for_each_other(theirs, ours):
    with hold(theirs) as other:
        thread, entered = begin(ours)
        assert not entered.wait(0.2)
        other.stdin.close()
        thread.join()
    assert entered.is_set()


def test_runs_beside_each_other_do_not_wait():
    with hold("beside_others") as other, turns.beside_others():
        assert other.poll() is None
        other.stdin.close()


def test_who_comes_after_a_run_alone_waits_behind_it():
    with hold("beside_others") as other:
        alone, entered = begin(turns.alone)
        assert not entered.wait(0.2)
        later, entered_later = begin(turns.beside_others)
        assert not entered_later.wait(0.2), "runs that go on beginning would keep the one alone waiting"
        other.stdin.close()
        alone.join()
        later.join()
    assert entered.is_set() and entered_later.is_set()


def test_nobody_waits_for_a_holder_that_does_not_go_on(monkeypatch):
    monkeypatch.setattr(turns, "WAIT_SECONDS", 0.1)
    with hold("beside_others") as other:
        with turns.alone():
            assert other.poll() is None
        other.stdin.close()


def test_without_a_place_for_the_locks_everybody_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "is not there"))
    with turns.alone(), turns.alone():
        assert os.listdir(tmp_path) == []
