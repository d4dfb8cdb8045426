"""A push of a half-done course is green where all that was begun passes, and says what it found."""

import json

import pytest

from grader.__main__ import main


def results(**outcomes):
    """The tests of a results.json: a problem's outcomes, one for each of its cases."""
    return [
        {"extra_data": {"problem": problem, "outcome": outcome}}
        for problem, found in outcomes.items()
        for outcome in found.split(", ")
    ]


@pytest.mark.parametrize(
    ("outcomes", "status", "words"),
    [
        ({"p1": "unfinished, unfinished", "p3": "unfinished, not run"}, 0, "Nothing is solved yet"),
        ({"p1": "passed, passed", "p3": "passed, not run", "p4": "unfinished"}, 0, "passes: P1, P3."),
        ({"p1": "passed, wrong", "p2": "passed", "p3": "unfinished, crashed"}, 1, "To mend: P1, P3."),
        ({"p1": "passed", "p2": "needs review"}, 1, "To mend: P2."),
        ({"p1": "passed", "p2": "grader fault"}, 2, "The grader failed"),
        ({}, 2, "The grader failed"),
    ],
)
def test_what_is_unfinished_fails_nothing(outcomes, status, words, tmp_path, capsys):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"tests": results(**outcomes)}), "utf-8")
    assert main(["check", str(path)]) == status and words in capsys.readouterr().out


def test_without_results_the_grader_failed(tmp_path, capsys):
    assert main(["check", str(tmp_path / "none.json")]) == 2
    assert "no results" in capsys.readouterr().out
