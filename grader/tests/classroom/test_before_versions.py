"""A class that an older grader has graded: what it wrote is read, and all is graded anew, since the judge is another.

Its folder was written by that grader with quick_one.py in the place of the kernels, one case "held" and decided on.
"""

import csv
import os
import shutil
from pathlib import Path

import pytest

from grader.classroom import journal
from grader.classroom.export import decisions
from grader.classroom.record import GRADED
from grader.tests.classroom import quick_class

BEFORE = Path(__file__).with_name("before_versions")


@pytest.fixture
def graded(tmp_path, monkeypatch):
    """The folder of the class; what is graded again is named in `log`."""
    monkeypatch.setenv("QUICK_LOG", str(tmp_path / "log"))
    return Path(shutil.copytree(BEFORE / "graded", tmp_path / "class"))


def run(graded):
    arguments = [str(BEFORE / "submissions"), "--out", str(graded), "--roster", str(BEFORE / "roster.csv")]
    assert quick_class.main([*arguments, "--lanes", "1", "--problems", "1,2"]) == 0
    return sorted(Path(os.environ["QUICK_LOG"]).read_text().splitlines())


def test_what_was_held_needs_review(graded):
    known = journal.read(graded).records
    assert len(known) == 4 and {record.status for record in known.values()} == {GRADED}
    (waiting,) = known["bob", "p2"].to_review
    assert waiting["outcome"] == "needs review" and waiting["sentence"] == "Held for the instructor: a sign."


def test_all_is_graded_anew_and_an_old_decision_is_kept_and_said_not_to_count(graded, capsys):
    before = [(graded / name).read_bytes() for name in (journal.JOURNAL, decisions.NAME)]
    assert run(graded) == ["ann p1,p2", "bob p1,p2"]
    assert (graded / journal.JOURNAL).read_bytes().startswith(before[0])
    assert (graded / decisions.NAME).read_bytes() == before[1]
    assert "line 2 (bob p2); this does not count" in capsys.readouterr().out
    rows = {row["submission"]: row for row in csv.DictReader((graded / "gradebook.csv").open(encoding="utf-8-sig"))}
    assert (rows["bob"]["p2"], rows["bob"]["status"]) == ("9", "graded")
