"""A closer look at wrong cases: their weights, and which one thing about the case makes it wrong."""

import time
from dataclasses import replace

from grader.diagnosis.cause import Measured
from grader.kinds.attention import drawn, inputs, weight_facts, weights
from grader.kinds.attention.known_mistakes import HEADS, ONLINE, POINTERS, SOFTMAX, TAILS

SECONDS = 5.0  # for all of a problem's cases
CASES = 3  # the smallest that are wrong
WHOLE = 128  # tokens: a multiple of every tile
VAGUE = ("nan", "scores", "uneven", "precision")  # facts that leave open where it comes from


def look(kind, problem, cases, seed, results, submission):
    """Add what is measured to the diagnoses of wrong outputs."""
    wrong = [result for result in results if result.diagnosis]
    wrong.sort(key=lambda result: (result.diagnosis.what != "output", *order(cases[result.case])))
    until, shown = time.monotonic() + SECONDS, []
    for result in wrong[:CASES]:
        if time.monotonic() > until:
            break
        case = cases[result.case]
        if result.diagnosis.what == "output":
            found = measure_case(kind, problem, submission, case, seed)
        else:
            found = contrasts(kind, problem, submission, case, seed)
        result.diagnosis.measured = found
        shown += [(found[0].kind in VAGUE, f'In case "{result.case}": ', found)] if found else []
    if shown:
        _, where, (first, *others) = min(shown, key=lambda each: each[0])
        for result in wrong:
            if not result.diagnosis.measured:
                result.diagnosis.measured = [replace(first, sentence=where + first.sentence), *others]


def order(case):
    """Small cases first, of those that have several rows, and whose name tells nothing but the name."""
    return case.N == 1, case.name.startswith(drawn.PREFIX), case.N * case.num_keys * case.B * case.Hq * case.D


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
        found += contrasts(kind, problem, submission, case, seed)
    return found


def contrasts(kind, problem, submission, case, seed):
    """[Measured]: the one thing about the case without which its output is right."""
    for what, changed, words, question, section in (
        ("dtype", {"dtype": "float32"}, "in float32", "which numbers are rounded to the input's dtype?", SOFTMAX),
        ("layout", {"layout": "contiguous"}, "with dense tensors", "which stride of which tensor is taken?", POINTERS),
        ("values", {"values": "normal"}, "with scores of ordinary size",
         "what is subtracted from a score before exp, and when is what was summed before rescaled?", SOFTMAX),
        ("groups", {"Hkv": case.Hq}, "where each query head has its own K and V", "which kv head is read?", HEADS),
        ("heads", {"B": 1, "Hq": 1, "Hkv": case.Hkv and 1}, "with one batch and one head",
         "what moves from one head, or batch, to the next?", HEADS),
        ("tail", {"N": -(-case.N // WHOLE) * WHOLE, "Nk": case.Nk and -(-case.Nk // WHOLE) * WHOLE},
         f"with {-(-case.N // WHOLE) * WHOLE} tokens, whole tiles", "what lies past the end of the last tile?", TAILS),
    ):  # fmt: skip
        other = replace(case, **changed)
        if other != case and is_right(kind, problem, submission, other, seed):
            return [Measured(what, f"The same case comes out right {words}.", question, section)]
    return []


def first_bad(kind, problem, submission, case, seed):
    """[Measured]: the line after which a number is NaN or infinite for the first time; it is no cause."""
    request, files = kind.request(problem, case, inputs.make(case, seed), submission.device)
    reply = submission.run(request, files, op="first bad")
    if reply["status"] != "returned" or not reply["found"]:
        return []
    bad = reply["found"]
    said = f"The first {bad['what']} number is made in line {bad['line']}, `{bad['source']}`."
    return [Measured("first bad", said, "which operands of this line can be infinite, or 0?", ONLINE)]


def is_right(kind, problem, submission, case, seed):
    placed = inputs.make(case, seed)
    right = kind.right(problem, case, placed, submission.device)
    for output, each in enumerate(right):
        found = weights.run_sets(kind, submission, case, [tuple(tensor.tensor for tensor in placed)], output)
        if found is None or not bool(
            (((found[0] - each.expected).abs() <= each.allowed) | (found[0] == each.expected)).all()
        ):
            return False
    return True
