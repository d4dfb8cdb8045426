"""A closer look at a wrong case: which one thing makes it wrong, and the line that makes the first NaN."""

import time
from dataclasses import replace

from grader.core.protocol.messages import FindFirstBad, FirstBad
from grader.diagnosis.cause import Measured
from grader.kinds import contrast
from grader.kinds.attention.known_mistakes import HEADS, POINTERS
from grader.kinds.decode import mistakes

SECONDS = 5.0  # for all of a problem's cases
CASES = 3  # the smallest that are wrong


def look(kind, problem, cases, seed, results, submission):
    """Add what is measured to the diagnoses of wrong outputs that have no cause."""
    wrong = [result for result in results if result.diagnosis]
    wrong.sort(key=lambda result: kind.size(cases[result.case]))
    until, told = time.monotonic() + SECONDS, []
    for result in wrong[:CASES]:
        diagnosis, case, unwritten = result.diagnosis, cases[result.case], result.facts.mismatch.unwritten
        if time.monotonic() > until or diagnosis.causes:
            break
        if not diagnosis.measured and not unwritten and result.facts.mismatch.nan and submission.device == "cpu":
            diagnosis.measured += first_bad(kind, problem, submission, case, seed)
        if not diagnosis.measured or unwritten or diagnosis.measured[0].kind == "times":
            found = contrast.find(kind, submission, case, changes(case), lambda of: kind.inputs(of, seed))
            diagnosis.measured += found
            unwritten = unwritten and not found
        told += [result.case] if diagnosis.measured and not unwritten else []
    for result in wrong if told else ():
        little = not result.diagnosis.measured or result.facts.mismatch.unwritten
        if not result.diagnosis.causes and little and result.case not in told:
            result.diagnosis.shown_by = result.diagnosis.shown_by or told[0]


def first_bad(kind, problem, submission, case, seed):
    """[Measured]: the line that makes the first number that is NaN or infinite."""
    call, files = kind.request(problem, case, kind.inputs(case, seed), submission.device)
    bad = submission.run(FindFirstBad(call), files, kind.beside(case)).reply
    if not isinstance(bad, FirstBad) or bad.line is None:
        return []
    said = f"The first number that is {bad.what} is made in line {bad.line}, `{bad.source}`."
    return [Measured("first bad", said, mistakes.NONE_SEEN, mistakes.EMPTY, line=bad.line)]


def changes(case):
    yield replace(case, dtype="float32"), *contrast.DTYPE, mistakes.MERGE
    yield replace(case, layout="contiguous"), *contrast.LAYOUT, POINTERS
    yield (replace(case, values="normal"), "values", "with scores of ordinary size",
           "what can grow too large with the scores?", mistakes.MERGE)  # fmt: skip
    yield replace(case, sink=""), "sink", "without sink logits", mistakes.SINK, mistakes.LOGIT
    yield replace(case, page=None, room=None), "pages", "in a dense cache", mistakes.PAGE, mistakes.PAGES
    yield replace(case, window=None), "window", "without a window", mistakes.WHERE_WINDOW, mistakes.MASK
    yield replace(case, Nq=1), "new", "with one new token", mistakes.NEWEST, mistakes.MASK
    yield replace(case, Hq=case.Hkv), "group", "where each query head has its own K and V", mistakes.GROUP, HEADS
    yield replace(case, lengths=case.lengths[:1]), "batch", "with the first sequence alone", mistakes.WHOSE, POINTERS
    short = tuple(min(length, case.piece) for length in case.lengths)
    yield (replace(case, lengths=short, room=None), "pieces", "with sequences of one piece", mistakes.ALL_PIECES,
           mistakes.MERGE)  # fmt: skip
    yield (replace(case, dtype="float16"), "narrow", "in float16", "which numbers are narrower than q's dtype?",
           mistakes.MERGE)  # fmt: skip
