"""Whether what was begun passes: python -m grader check results.json.

For a check on every push, which is to be green while a student works through the problems: exit status 0 where every
problem either passes or is unfinished, 1 where one that was begun fails, 2 where the grader failed or gave no results.
"""

import argparse
import json
from pathlib import Path

from grader.result import Outcome

OPEN = {Outcome.PASSED, Outcome.UNFINISHED, Outcome.NOT_RUN}


def judge(tests: list[dict]) -> tuple[int, str]:
    """(exit status, the sentence) for the `tests` of a results.json."""
    outcomes: dict[str, set[Outcome]] = {}
    for test in tests:
        facts = test["extra_data"]
        outcomes.setdefault(facts["problem"].upper(), set()).add(Outcome(facts["outcome"]))
    if not outcomes or any(Outcome.GRADER_FAULT in found for found in outcomes.values()):
        return 2, "The grader failed: nothing is known of some problems."
    failing = [problem for problem, found in outcomes.items() if found - OPEN]
    begun = [problem for problem, found in outcomes.items() if Outcome.UNFINISHED not in found]
    if failing:
        return 1, f"To mend: {', '.join(failing)}."
    if not begun:
        return 0, "Nothing is solved yet: fill in the gaps in problems/."
    return 0, f"All that was begun passes: {', '.join(begun)}."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, help="the results.json of make grade")


def main(arguments: argparse.Namespace) -> int:
    try:
        status, sentence = judge(json.loads(arguments.results.read_text("utf-8"))["tests"])
    except (OSError, ValueError, KeyError) as error:
        status, sentence = 2, f"The grader gave no results: {error}."
    print(sentence)
    return status
