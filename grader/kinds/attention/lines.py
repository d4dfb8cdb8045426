"""The lines where a wrong kernel is probably wrong, where no cause is known: found by repair search."""

from grader.diagnosis.repair.search import Trial, find
from grader.result import Outcome

SECONDS = 8.0  # of a core, for a problem
LONGEST = 512  # tokens: longer cases take longer, and tell the same
WRONG = 8  # cases that are wrong, on which a repair must be right
PASSING = 2  # the largest cases that are right


def look(kind, problem, cases, seed, results, submission, order, show):
    """Add the suspects to what is said of a problem's wrong and unsafe cases, where none of them has a cause.

    order(case): by which the smallest comes first. show(words) is called now and then. Raises what a submission's
    processes raise.
    """
    diagnosed = [result for result in results if result.diagnosis and result.diagnosis.what == "output"]
    if not problem.uses_triton or submission.device != "cpu" or any(result.diagnosis.causes for result in diagnosed):
        return
    if any(fact.line for result in diagnosed for fact in result.diagnosis.measured):
        return  # it is known
    unsafe = [r for r in results if r.outcome is Outcome.UNSAFE and r.aspect.concerns_case and r.case in cases]
    wrong = diagnosed + unsafe
    wrong.sort(key=lambda result: order(cases[result.case]))
    right = [cases[result.case] for result in results if result.outcome is Outcome.PASSED and result.case in cases]
    right = sorted((case for case in right if case.num_keys <= LONGEST), key=order)[-PASSING:]
    asked = spread([cases[result.case] for result in wrong if is_short(cases[result.case])])
    if not asked:
        return
    measured = next((result.diagnosis.measured for result in diagnosed if result.diagnosis.measured), ())
    trials = [trial(kind, problem, case, seed, False) for case in asked]
    trials += [trial(kind, problem, case, seed, True) for case in right]

    def progress(tried, every):
        show(f"looking for the line: {tried} of {every} small changes tried")

    suspects = find(submission, trials, [fact.kind for fact in measured], SECONDS, progress)
    for result in diagnosed:
        result.diagnosis.suspects = suspects
    for result in unsafe if suspects else ():
        result.facts["suspects"] = [suspects[0].sentence]  # its addresses say the rest
        result.sentence = " ".join([result.sentence, *result.facts["suspects"]])


def spread(cases):
    """At most WRONG of the cases, in order: the first half of them the smallest, the rest from all sizes."""
    half = WRONG // 2
    rest = cases[half:]
    return cases[:half] + rest[:: max(1, -(-len(rest) // half))]


def is_short(case):
    return case.attends and case.num_keys <= LONGEST


def trial(kind, problem, case, seed, passes):
    placed = kind.inputs(case, seed)
    request, files = kind.request(problem, case, placed, "cpu")
    right = kind.right(problem, case, placed, "cpu")[0]
    return Trial(request, files, right.expected, right.allowed, right.dtype, passes)
