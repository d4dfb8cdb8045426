"""What is said of a mismatch beside its place: the question and the section of the cause that is known, if one is."""

from dataclasses import replace

import pytest

from grader.diagnosis import cause
from grader.diagnosis.cause import Cause, Diagnosis

WINDOW = Cause("a window of 33", "how old may a key be: `<` or `<=`?", "Where a window begins")


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    elsewhere = replace(cause.course.current(), folder=tmp_path)
    monkeypatch.setattr(cause.course, "current", lambda: elsewhere)
    return tmp_path / "notebooks"


def test_a_section_is_named_only_where_it_can_be_read(notebooks):
    known = Diagnosis("output", "First wrong row 32.", [WINDOW])
    assert known.sentence == "Your output equals a window of 33. First wrong row 32."
    assert known.facts()["question"] == WINDOW.question and "section" not in known.facts()
    notebooks.touch()  # a file of that name is no notebook
    assert "section" not in known.facts()
    notebooks.unlink()
    notebooks.mkdir()
    assert known.facts()["section"] == "Where a window begins"


def test_without_a_cause_there_is_no_question(notebooks):
    notebooks.mkdir()
    known = Diagnosis("output", "First wrong row 32.")
    assert known.sentence == "First wrong row 32." and not known.facts()["causes"]
    assert "question" not in known.facts() and "section" not in known.facts()


def test_a_general_cause_is_told_where_nothing_more_specific_is_known(notebooks):
    general = Cause("attention over 160 keys", "", "", general=True)
    assert Diagnosis("lse", "", [general, WINDOW]).named == [WINDOW]
    assert Diagnosis("lse", "", [general]).sentence == "Your lse equals attention over 160 keys."
