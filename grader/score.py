"""Outcomes -> points. A fault of the grader's own leaves its points open: neither earned nor lost."""

import itertools
import math
from fractions import Fraction

from grader.course import course
from grader.course.problem import COMPILE_SHARE, SPEED_SHARE, WORK_SHARE
from grader.result import Aspect, Outcome

SHARES = {
    Aspect.SPEED: Fraction(str(SPEED_SHARE)), Aspect.COMPILE: Fraction(str(COMPILE_SHARE)),
    Aspect.WORK: Fraction(str(WORK_SHARE)),
}  # fmt: skip


def max_points(results):
    """For each result of one problem, what it can earn: whole thousandths that add up to the problem's points.

    What is asked beside the cases has a share of its own, where it counts; the cases share the rest, each the same to
    a thousandth: every form that shows points shows all of them, so that no rounding changes their sum.
    """
    points = Fraction(course.current().points(results[0].problem))
    shares = [SHARES[r.aspect] if counts(r) else Fraction(0) for r in results if not r.aspect.concerns_case]
    cases = divide(points * (1 - sum(shares)), sum(r.aspect.concerns_case for r in results))
    beside = iter(shares)
    return [next(cases) if r.aspect.concerns_case else points * next(beside) for r in results]


def divide(points, parts):
    """`points`, whole thousandths, in so many parts of whole thousandths, as equal as they can be."""
    ends = (math.floor(points * 1000 * part / parts) for part in range(parts + 1))
    return (Fraction(end - begin, 1000) for begin, end in itertools.pairwise(ends))


def counts(result):
    """True where a result is worth points.

    A speed that could not be measured for want of a GPU is worth nothing, and the rest is worth all. That a kernel
    compiles earns nothing by itself; that it compiles for no GPU costs a share, but not where only time was short.
    """
    if result.aspect is Aspect.COMPILE:
        return result.outcome in (Outcome.CRASHED, Outcome.UNFINISHED)
    return result.outcome is not Outcome.NOT_RUN or not result.facts.earned


def earned(results):
    """For each result of one problem, what it earned; where one needs review, nothing before that."""
    if needs_review(results):
        return [Fraction(0)] * len(results)
    return [points * kept(result) for result, points in zip(results, max_points(results), strict=True)]


def kept(result):
    """The part of its points that a result earns: all, nothing, or what `share` says of a slow one."""
    if result.outcome is Outcome.PASSED:
        return Fraction(1)
    return Fraction(result.facts.share) if result.outcome is Outcome.SLOW else Fraction(0)


def needs_review(results):
    """Those that an instructor must look at."""
    return [result for result in results if result.outcome is Outcome.NEEDS_REVIEW]


def open_points(results):
    """How many of the points of these results the grader's own faults leave open."""
    found = Fraction(0)
    for group in by_problem(results).values():
        pairs = zip(group, max_points(group), strict=True)
        found += sum((most for result, most in pairs if result.outcome is Outcome.GRADER_FAULT), Fraction(0))
    return found


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
    """True where nothing failed; what could not be measured beside the cases does not count."""
    return all(r.outcome is Outcome.PASSED or could_not_be_known(r) for r in results)


def could_not_be_known(result):
    """True for a speed, or a compilation, that was not run for no fault of the submission."""
    return not result.aspect.concerns_case and result.outcome is Outcome.NOT_RUN and not counts(result)
