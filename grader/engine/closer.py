"""A closer look at wrong cases without a cause: what a kind measures, the line of the first NaN, one thing changed."""

import time

from grader.core.protocol.messages import FindFirstBad, FirstBad
from grader.engine import contrast
from grader.engine.cause import Measured

SECONDS = 5.0  # for all of a problem's cases
CASES = 3  # the smallest that are wrong
VAGUE = "times", "precision"  # facts that say little of where the mistake is
BAD = "of which numbers is it made, and which of them can be infinite, or a sum of nothing?"


def look(kind, problem, cases, seed, results, submission):
    """Add what is measured to the diagnoses of wrong outputs; the others name the first case that tells something."""
    wrong = [result for result in results if result.diagnosis]
    wrong.sort(key=lambda result: kind.order(cases[result.case]))
    until, told = time.monotonic() + SECONDS, []
    for result in wrong[:CASES]:
        if time.monotonic() > until or result.diagnosis.causes:
            break
        found = measure(kind, problem, submission, cases[result.case], seed, result)
        result.diagnosis.measured += found
        told += [result.case] if found or tells(result) else []
    for result in wrong if told else ():
        if not result.diagnosis.causes and not tells(result) and result.case not in told:
            result.diagnosis.shown_by = result.diagnosis.shown_by or told[0]


def tells(result):
    return result.diagnosis.measured and not result.facts.mismatch.unwritten


def measure(kind, problem, submission, case, seed, result):
    """[Measured] of one case."""
    mismatch, known = result.facts.mismatch, result.diagnosis.measured
    found = [] if mismatch.unwritten else kind.measure(problem, submission, case, result.diagnosis)
    if not (found or known or mismatch.unwritten) and mismatch.nan and submission.device == "cpu":
        found = first_bad(kind, problem, submission, case, seed)
    if not (found or known) or mismatch.unwritten or (known and known[0].kind in VAGUE):
        found = found + contrast.find(kind, submission, case, seed)
    return found


def first_bad(kind, problem, submission, case, seed, tell=None):
    """[Measured]: the line that makes the first number that is NaN or infinite. tell(FirstBad) words it, if given."""
    call, files = kind.request(problem, case, kind.inputs(case, seed), submission.device)
    bad = submission.run(FindFirstBad(call), files, kind.beside(case)).reply
    if not isinstance(bad, FirstBad) or bad.line is None:
        return []
    said = f"The first number that is {bad.what} is made in line {bad.line}, `{bad.source}`."
    ask, read = kind.words_on_nan
    return [tell(bad) if tell else Measured("first bad", said, ask or BAD, read, line=bad.line)]
