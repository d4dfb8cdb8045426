"""A push of a half-done course is green where all that was begun passes, and says what it found."""

import pytest

from grader.commands.grade import judge_begun
from grader.result import Aspect, Outcome, Result


@pytest.mark.parametrize(
    ("outcomes", "fails", "words"),
    [
        ({"p1": "unfinished, unfinished", "p3": "unfinished, not run"}, False, "Nothing is solved yet"),
        ({"p1": "passed, passed", "p3": "passed, not run", "p4": "unfinished"}, False, "passes: P1, P3."),
        ({"p1": "passed, wrong", "p2": "passed", "p3": "unfinished, crashed"}, True, "To mend: P1, P3."),
        ({"p1": "passed", "p2": "needs review"}, True, "To mend: P2."),
    ],
)
def test_what_is_unfinished_fails_nothing(outcomes, fails, words):
    pairs = [(problem, outcome) for problem, found in outcomes.items() for outcome in found.split(", ")]
    sentence, failing = judge_begun([Result(id, "a case", Aspect.CORRECT, Outcome(found)) for id, found in pairs])
    assert failing is fails and words in sentence
