"""A closer look at wrong cases: their weights, and which one thing about the case makes it wrong."""

import time
from dataclasses import replace

from grader.diagnosis.cause import Measured
from grader.kinds.attention import contrasts, drawn, inputs, weight_facts, weights
from grader.kinds.attention.known_mistakes import ONLINE

SECONDS = 5.0  # for all of a problem's cases
CASES = 3  # the smallest that are wrong
VAGUE = ("nan", "scores", "uneven", "precision")  # facts that leave open where it comes from


def look(kind, problem, cases, seed, results, submission):
    """Add what is measured to the diagnoses of wrong outputs."""
    wrong = [result for result in results if result.diagnosis and not result.facts["unwritten"]]
    wrong.sort(key=lambda result: (result.diagnosis.what != "output", *order(cases[result.case])))
    until, shown = time.monotonic() + SECONDS, []
    for result in wrong[:CASES]:
        if time.monotonic() > until:
            break
        case = cases[result.case]
        if result.diagnosis.what == "output":
            found = measure_case(kind, problem, submission, case, seed)
        else:
            found = contrasts.find(kind, problem, submission, case, seed)
        result.diagnosis.measured = found
        shown += [(found[0].kind in VAGUE, f'In case "{result.case}": ', found)] if found else []
    if shown:
        _, where, (first, *others) = min(shown, key=lambda each: each[0])
        for result in wrong:
            if not result.diagnosis.measured:
                result.diagnosis.measured = [replace(first, sentence=where + first.sentence), *others]


def order(case):
    """Small cases first, of those with several rows, in which another kv head than the right one can be told."""
    alone = case.shares_heads and case.kv_heads == 1
    size = case.N * case.num_keys * case.B * case.Hq * case.D
    return case.N == 1, case.name.startswith(drawn.PREFIX), alone, size


def measure_case(kind, problem, submission, case, seed):
    """[Measured] of one wrong case: the weights in float32, else those in its own dtype, then the contrasts."""
    if not case.attends:
        return []
    known = weights.measure(kind, submission, case, seed)
    exact = weight_facts.EXACT if submission.device == "cpu" else weight_facts.TF32
    found = weight_facts.tell(known, exact) if known else []
    if not found and case.dtype != "float32":
        own = weights.measure(kind, submission, case, seed, case.dtype)
        found = weight_facts.tell(own, weight_facts.COARSE) if own else []
    if found and any(fact.kind == "nan" for fact in found) and submission.device == "cpu":
        found += first_bad(kind, problem, submission, case, seed)
    if not found or found[0].kind in VAGUE:
        found += contrasts.find(kind, problem, submission, case, seed)
    return found


def first_bad(kind, problem, submission, case, seed):
    """[Measured]: the line after which a number is NaN or infinite for the first time; it is no cause."""
    request, files = kind.request(problem, case, inputs.make(case, seed), submission.device)
    reply = submission.run(request, files, op="first bad")
    if reply["status"] != "returned" or not reply["found"]:
        return []
    bad = reply["found"]
    said = f"The first number that is {bad['what']} is made in line {bad['line']}, `{bad['source']}`."
    return [Measured("first bad", said, "which operands of this line can be infinite, or 0?", ONLINE)]
