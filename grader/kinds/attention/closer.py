"""A closer look at wrong cases: their weights, and which one thing about the case makes it wrong."""

import time
from collections import Counter
from dataclasses import replace

from grader.engine import contrast
from grader.engine.cause import Measured
from grader.engine.closer import first_bad
from grader.kinds.attention import seeded_cases, tile_visits, weight_facts, weights
from grader.kinds.attention.known_mistakes import ONLINE

SECONDS = 5.0  # for all of a problem's cases
CASES = 3  # the smallest that are wrong
MOST_SHOW = 3  # of so many wrong cases, one must show a cause
WHEN_RIGHT = ("dtype", "layout", "values", "Hkv", "B", "N")  # of contrasts: when it is right, not what is wrong
VAGUE = ("nan", "scores", "uneven", "precision")  # facts that leave open where it comes from
OPEN = (*VAGUE, *WHEN_RIGHT)
ROUNDING, UNDERFLOW = 0.1, -100.0  # of exponents: the largest that rounding makes, and one whose exp is 0 in float32
LARGEST = (
    "do you subtract the largest score so far before every exp: the larger of the old and the new maximum, scaled as "
    "the scores are?"
)
SAME_SCALE = "are the scores and the maximum that is subtracted scaled alike, once, and in the same base?"


def look(kind, problem, cases, seed, results, submission):
    """Add what is measured to the diagnoses of wrong outputs."""
    wrong = [result for result in results if result.diagnosis and not result.facts.mismatch.unwritten]
    wrong.sort(key=lambda result: (result.diagnosis.what != "output", *order(cases[result.case])))
    until, shown = time.monotonic() + SECONDS, []
    in_a_row = any(fact.kind == "column" for result in wrong for fact in result.diagnosis.measured)  # that says it all
    for result in wrong[:CASES]:
        if time.monotonic() > until:
            break
        case = cases[result.case]
        if result.diagnosis.what == "output":
            found = measure_case(kind, problem, submission, case, seed)
            if not in_a_row:
                found = [with_line(fact, result.diagnosis.evidence["records"]) for fact in found]
        else:
            found = contrast.find(kind, submission, case, seed)
        result.diagnosis.measured += found
        shown += [(found[0].kind in OPEN, result.case)] if found else []
    if shown:
        is_vague, name = min(shown, key=lambda each: each[0])
        if not is_vague:
            drop_chance([result for result in results if result.diagnosis])
        for result in wrong:
            own = result.diagnosis.measured
            if result.case != name and (not own or (own[0].kind in OPEN and not is_vague)):
                result.diagnosis.measured, result.diagnosis.shown_by = [], result.diagnosis.shown_by or name


def with_line(fact, records):
    """The fact that hidden keys get weight, or visible ones none, with the line that meets them, where it is one."""
    if fact.shown and (line := tile_visits.line_without_mask(records, fact.shown)):
        said = f"{fact.sentence} Line {line} works on these keys and puts no mask on their scores."
        question = "does the phase of that line need a mask, or must it begin or end at another tile?"
        return replace(fact, sentence=said, question=question, line=line)
    if fact.shown and len({record.kernel for record in records}) == 1:  # of several, another may be at fault
        masked, left = tile_visits.lines_that_meet(records, fact.shown, (True,))
        if len(masked) == 1 and not left.any():
            said = f"{fact.sentence} Line {masked.pop()} works on them with a mask, which does not hide them."
            return replace(fact, sentence=said, question="what does that mask compare, and which score does it give?")
    lines, left = tile_visits.lines_that_meet(records, fact.lost) if fact.lost and records else ((), None)
    if len(lines) == 1 and not left.any():
        (line,) = lines
        without_mask = tile_visits.line_without_mask(records, fact.lost)
        either = "" if without_mask else "the mask hides them, or "
        said = f"{fact.sentence} Line {line} works on them: {either}their part is lost afterwards."
        question = f"{'does that mask show them, and ' if either else ''}are row_max, row_sum and acc all carried on?"
        return replace(fact, sentence=said, question=question, line=without_mask)
    return fact


def drop_chance(wrong):
    """Where an exact fact is known, a cause that few of the wrong cases show is chance."""
    shown = Counter(kind for result in wrong for kind in {cause.kind for cause in result.diagnosis.causes})
    for result in wrong:
        result.diagnosis.causes = [c for c in result.diagnosis.causes if shown[c.kind] * MOST_SHOW >= len(wrong)]
    telling = {result.case for result in wrong if result.diagnosis.causes or result.diagnosis.measured}
    for result in wrong:
        if result.diagnosis.shown_by not in telling:
            result.diagnosis.shown_by = ""


def order(case):
    """Small cases first, of plain ones with several rows, in which another kv head than the right one can be told."""
    alone = case.shares_heads and case.kv_heads == 1
    size = case.N * case.num_keys * case.B * case.Hq * case.D
    return case.N == 1, case.name.startswith((seeded_cases.PREFIX, "pairs ")) or not case.fits_gpu, alone, size


def measure_case(kind, problem, submission, case, seed):
    """[Measured] of one wrong case: the weights in float32, else those in its own dtype, then the contrasts."""
    if not case.attends:
        return []
    # Rows so far apart, many times over, would fill the memory.
    dense = case if case.fits_gpu else replace(case, layout="contiguous")
    known = weights.measure(kind, submission, dense, seed)
    exact = weight_facts.EXACT if submission.device == "cpu" else weight_facts.TF32
    found = weight_facts.tell(known, exact) if known else []
    if not found and case.dtype != "float32":
        own = weights.measure(kind, submission, dense, seed, case.dtype)
        found = weight_facts.tell(own, weight_facts.COARSE) if own else []
    if any(fact.kind == "nan" for fact in found) and submission.device == "cpu":
        bad = first_bad(kind, problem, submission, case, seed, tell_bad)
        found = [replace(f, question=bad[0].question) if bad and f.kind == "nan" else f for f in found] + bad
    if not found or found[0].kind in VAGUE:
        found += contrast.find(kind, submission, case, seed)
    return found


def tell_bad(bad):
    """The Measured line that makes the first number that is NaN or infinite; it is no cause. bad: a FirstBad."""
    said = f"The first number that is {bad.what} is made in line {bad.line}, `{bad.source}`"
    question = "which operands of this line can be infinite, or 0?"
    highest = max(bad.exponents, key=lambda each: each.highest, default=None)
    lowest = min(bad.exponents, key=lambda each: each.lowest, default=None)
    if bad.what == "infinite" and bad.exponent is not None and bad.exponent > 0:
        said += f", where the exponent is {bad.exponent:.3g}; with the largest score so far subtracted it is at most 0"
        question = LARGEST
    elif highest and highest.highest > ROUNDING:
        said += f". The exponent in line {highest.line} reaches {highest.highest:.3g}; with the row's largest score "
        said += "subtracted it is at most 0"
        question = SAME_SCALE
    elif lowest and lowest.lowest < UNDERFLOW and "/" in bad.source:
        said += f": 0 / 0. In line {lowest.line} the largest exponent of a row is {lowest.lowest:.3g}, and its exp are "
        said += "all 0; with the row's largest score subtracted that exponent is 0"
        question = SAME_SCALE
    elif bad.held:
        since = (f" since line {held.line}" if held.line else "" for held in bad.held)
        names = [f"{held.name}, with infinite numbers{line}" for held, line in zip(bad.held, since, strict=True)]
        said += f", of {', and '.join(names)}"
    return Measured("first bad", f"{said}.", question, ONLINE)
