"""A process that one look at /proc misses is ended all the same."""

import subprocess

from grader.core.worker import process_tree


def test_a_process_that_was_forked_between_two_looks_is_ended(monkeypatch):
    with subprocess.Popen(["sleep", "600"]) as late:
        looks = iter([{}, {}, {late.pid: "sleep"}])
        monkeypatch.setattr(process_tree, "find_programs", lambda pid, children: next(looks, {}))
        assert process_tree.end(0, set()) == {}
        assert late.wait() < 0


def test_what_cannot_be_ended_is_said(monkeypatch):
    monkeypatch.setattr(process_tree, "find_programs", lambda pid, children: {2**30: "not there to be killed"})
    assert process_tree.end(0, set()) == {2**30: "not there to be killed"}
