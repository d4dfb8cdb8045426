"""Outcomes -> points. A fault of the grader's own never costs a point, nor does a missing GPU."""

from fractions import Fraction

from grader.assignment import POINTS, SPEED_SHARE
from grader.result import Aspect, Outcome


def max_points(results):
    """For each result of one problem, what it can earn: Fractions that add up to the problem's points."""
    points = Fraction(POINTS[results[0].problem])
    timed = [r for r in results if r.aspect is Aspect.SPEED and counts(r)]
    share = Fraction(str(SPEED_SHARE)) if timed else Fraction(0)
    others = [r for r in results if r.aspect is not Aspect.SPEED]
    each = points * (1 - share) / len(others) if others else Fraction(0)
    return [(points * share if r in timed else Fraction(0)) if r.aspect is Aspect.SPEED else each for r in results]


def counts(result):
    """A speed that could not be measured for want of a GPU is worth nothing, and the rest is worth all."""
    return result.outcome is not Outcome.NOT_RUN or result.facts.get("earned") is False


def earned(results):
    """For each result of one problem, what it earned."""
    kept = (Outcome.PASSED, Outcome.GRADER_FAULT)
    return [
        points if result.outcome in kept else Fraction(0)
        for result, points in zip(results, max_points(results), strict=True)
    ]


def by_problem(results):
    """{problem id: its results}, in order of appearance."""
    grouped = {}
    for result in results:
        grouped.setdefault(result.problem, []).append(result)
    return grouped


def total(results):
    """(earned, possible) over all problems of `results`."""
    grouped = by_problem(results).values()
    return sum((sum(earned(g)) for g in grouped), Fraction(0)), sum((sum(max_points(g)) for g in grouped), Fraction(0))


def passed(results):
    """True where nothing failed; a speed that could not be measured does not count."""
    return all(r.outcome is Outcome.PASSED or (r.aspect is Aspect.SPEED and not counts(r)) for r in results)
