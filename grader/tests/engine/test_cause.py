"""What is said of a mismatch beside its place: the question and the section of the cause that is known, if one is."""

from dataclasses import replace

import pytest

from grader.engine import cause
from grader.engine.cause import Diagnosis
from grader.result import Cause, Facts

WINDOW = Cause("a window of 33", "how far back may keys be: `<` or `<=`?", "Where a window begins")


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    elsewhere = replace(cause.course.current(), folder=tmp_path)
    monkeypatch.setattr(cause.course, "current", lambda: elsewhere)
    return tmp_path / "notebooks"


def facts_of(known):
    return known.add_to(Facts())


def test_a_section_is_named_only_where_it_can_be_read(notebooks):
    known = Diagnosis("output", "First wrong row 32.", [WINDOW])
    assert known.sentence == "Your output equals a window of 33. First wrong row 32."
    assert facts_of(known).question == WINDOW.question and not facts_of(known).section
    notebooks.touch()  # a file of that name is no notebook
    assert not facts_of(known).section
    notebooks.unlink()
    notebooks.mkdir()
    assert facts_of(known).section == "Where a window begins"


def test_without_a_cause_there_is_no_question(notebooks):
    notebooks.mkdir()
    known = Diagnosis("output", "First wrong row 32.")
    assert known.sentence == "First wrong row 32." and not facts_of(known).causes
    assert not facts_of(known).question and not facts_of(known).section


def test_a_general_cause_is_told_where_nothing_more_specific_is_known(notebooks):
    general = Cause("attention over 160 keys", "", "", general=True)
    assert Diagnosis("lse", "", [general, WINDOW]).named == [WINDOW]
    assert Diagnosis("lse", "", [general]).sentence == "Your lse equals attention over 160 keys."
