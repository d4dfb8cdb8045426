"""The cases of one kernel heard together: what looks alike in a small case differs in a larger, or has an alibi."""

from collections import Counter, defaultdict

from grader import diagnose, inputs, oracle, verdict
from grader.result import Outcome

CLEARLY = 8  # times the allowance: how far off a mistake must be for a passing case to refute it
WITNESSES = 4  # passing cases that are asked, the smallest first


def settle(problem, cases, seed, results):
    """Keep of the causes in `results` those that explain most failing cases and that no passing case refutes.

    cases: those that ran, by name. Sentences and facts of the results are changed in place.
    """
    wrong = [result for result in results if result.facts.get("causes") and result.facts["what"] == "output"]
    if not wrong:
        return
    passed = [cases[result.case] for result in results if result.outcome is Outcome.PASSED and result.case in cases]
    tiles = next((result.facts["tiles"] for result in wrong), [])
    refuted = Counter()
    kinds = {cause.kind for result in wrong for cause in result.facts["causes"]}
    for case in sorted(passed, key=lambda case: case.N * case.B * case.Hq)[-WITNESSES:]:
        refuted.update(would_show(problem, case, seed, kinds, tiles, cases[wrong[0].case].dtype))
    heard = [[cause for cause in result.facts["causes"] if not refuted[cause.kind]] for result in wrong]
    for result, causes in zip(wrong, agree(heard), strict=True):
        result.sentence, result.facts = verdict.with_causes(result.facts, causes)


def would_show(problem, case, seed, kinds, tiles, dtype):
    """Those of the kinds of mistake that would make this case fail, whatever their variant.

    dtype: of the failing cases; a mistake of rounding says nothing about another.
    """
    placed = inputs.make(case, seed)
    q, k, v = (tensor.tensor for tensor in placed)
    expected = oracle.expect(q, k, v, case.visibility)
    asked = diagnose.question_of(case, placed)
    shows = defaultdict(list)
    for suspect in diagnose.all_suspects(problem, case, placed, asked, (), tiles):
        kind = diagnose.kind_of(suspect.equals)
        if kind in kinds:
            if suspect.rounding and case.dtype != dtype:
                continue
            o, _ = suspect.asked.answer(diagnose.every_pair(case))
            error = (o - expected.o.flatten(0, 1)).abs()
            shows[kind].append(bool((~(error <= CLEARLY * expected.allowed_o.flatten(0, 1))).any()))
    return [kind for kind, variants in shows.items() if all(variants)]


def agree(found_by_case):
    """Of the causes of several failing cases, keep in each case those that explain the most cases."""
    explained = Counter(kind for found in found_by_case for kind in {cause.kind for cause in found})
    kept = []
    for found in found_by_case:
        most = max((explained[cause.kind] for cause in found), default=0)
        kept.append([cause for cause in found if explained[cause.kind] == most])
    return kept
