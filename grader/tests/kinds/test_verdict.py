"""What is said of a mismatch beside its place: the question and the section of the cause that is known, if one is."""

import pytest

from grader.diagnosis.diagnose import Cause
from grader.kinds.attention import verdict

WINDOW = Cause("a window of 33", "how old may a key be: `<` or `<=`?", "Where a window begins")
FACTS = {"what": "output", "where": "First wrong row 32."}


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    monkeypatch.setattr(verdict, "NOTEBOOKS", tmp_path / "notebooks")
    return tmp_path / "notebooks"


def test_a_section_is_named_only_where_it_can_be_read(notebooks):
    sentence, facts = verdict.with_causes(FACTS, [WINDOW])
    assert sentence == "Your output equals a window of 33. First wrong row 32."
    assert facts["question"] == WINDOW.question and "section" not in facts
    notebooks.mkdir()
    assert verdict.with_causes(FACTS, [WINDOW])[1]["section"] == "Where a window begins"


def test_a_file_of_that_name_is_no_notebook(notebooks):
    notebooks.touch()
    assert "section" not in verdict.with_causes(FACTS, [WINDOW])[1]


def test_a_cause_that_is_taken_back_takes_its_question_and_section_with_it(notebooks):
    notebooks.mkdir()
    _, facts = verdict.with_causes(FACTS, [WINDOW])
    sentence, facts = verdict.with_causes(facts, [])
    assert sentence == "First wrong row 32." and not facts["causes"]
    assert "question" not in facts and "section" not in facts
