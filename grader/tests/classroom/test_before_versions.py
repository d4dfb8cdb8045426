"""A class that was graded when keys held the grader's sources: read, exported, and nothing of it graded again.

Its folder was written by that grader with quick_one.py in the place of the kernels, one case "held" and decided on.
"""

import csv
import json
import os
import shutil
from pathlib import Path

import pytest

from grader.classroom import fingerprint, journal
from grader.classroom.export import decisions
from grader.classroom.record import GRADED
from grader.tests.classroom import quick_class

BEFORE = Path(__file__).with_name("before_versions")
ENDED = "a JUDGE_VERSION or a problem's cases changed: if that is meant, hashes_before.json has no more use"


@pytest.fixture
def graded(tmp_path, monkeypatch):
    """The folder of the class, on the machine that graded it; what is graded again is named in `log`."""
    facts = json.loads((BEFORE / "environment.json").read_text())
    monkeypatch.setattr(fingerprint, "describe_environment", lambda device_name: facts | {"device": device_name})
    monkeypatch.setenv("QUICK_LOG", str(tmp_path / "log"))
    return Path(shutil.copytree(BEFORE / "graded", tmp_path / "class"))


def run(graded, submissions=BEFORE / "submissions", *more):
    arguments = [str(submissions), "--out", str(graded), "--roster", str(BEFORE / "roster.csv"), "--lanes", "1"]
    assert quick_class.main([*arguments, "--problems", "1,2", *more]) == 0
    log = Path(os.environ["QUICK_LOG"])
    return log.read_text().splitlines() if log.exists() else []


def test_nothing_is_graded_again(graded, capsys):
    before = (graded / journal.JOURNAL).read_bytes()
    assert run(graded) == [], ENDED
    assert (graded / journal.JOURNAL).read_bytes() == before and "nothing is left to grade" in capsys.readouterr().err
    known = journal.read(graded).records
    assert len(known) == 4 and {record.status for record in known.values()} == {GRADED}


def test_what_was_held_needs_review_and_its_decision_counts(graded):
    (waiting,) = journal.read(graded).records["bob", "p2"].to_review
    assert waiting["outcome"] == "needs review" and waiting["sentence"] == "Held for the instructor: a sign."
    assert run(graded) == [], ENDED
    rows = {row["submission"]: row for row in csv.DictReader((graded / "gradebook.csv").open(encoding="utf-8-sig"))}
    assert rows["bob"]["p2"] == "2" and rows["bob"]["status"] == "graded"
    assert "2 points by the instructor's decision: agreed in office hours" in rows["bob"]["remarks"]
    (graded / decisions.NAME).unlink()
    run(graded)
    assert "needs review" in (graded / "gradebook.csv").read_text()
    assert (graded / decisions.NAME).read_text(encoding="utf-8-sig").splitlines()[1].startswith("bob,p2,,,bob,0,3,")


@pytest.mark.parametrize("changed", ["module", "seed", "environment", "judge", "points"])
def test_a_grade_of_before_stands_only_where_all_that_made_it_does(graded, tmp_path, monkeypatch, changed):
    submissions = Path(shutil.copytree(BEFORE / "submissions", tmp_path / "submissions"))
    facts = fingerprint.describe_environment("cpu")
    if changed == "module":
        (submissions / "ann" / "p1_naive_attention.py").write_text("another")
    if changed == "environment":
        monkeypatch.setattr(fingerprint, "describe_environment", lambda device_name: facts | {"torch": "9.9"})
    if changed == "judge":
        monkeypatch.setattr(fingerprint, "judge_version", lambda problem: 2)
    if changed == "points":
        monkeypatch.setitem(fingerprint.settings.POINTS, "p1", 99)
    again = run(graded, submissions, *(["--seed", "5"] if changed == "seed" else []))
    every = ["ann p1,p2", "bob p1,p2"]
    assert again == {"module": ["ann p1"], "points": ["ann p1", "bob p1"]}.get(changed, every)
    if changed == "module":
        assert run(graded, submissions) == again, "its new key is known now, and the others' old ones still are"
