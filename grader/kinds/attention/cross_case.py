"""The cases of one kernel heard together: what looks alike in a small case differs in a larger, or has an alibi."""

import math
from collections import Counter, defaultdict

from grader.course import inputs
from grader.diagnosis import diagnose, known_mistakes, tile_visits
from grader.diagnosis.matcher import TOGETHER
from grader.kinds.attention import verdict
from grader.reference import answers
from grader.result import Outcome

CLEARLY = 8  # times the allowance: how far off a mistake must be for a passing case to refute it
GENERAL = 2  # times as many cases as a specific cause must be explained by a general one
MANY = 5  # failing cases with one cause: a cause that explains a single other case is chance
WITNESSES = 4  # passing cases that are asked, the smallest first


def settle(problem, cases, seed, results):
    """Keep of the causes in `results` those that explain most failing cases and that no passing case refutes.

    cases: those that ran, by name. Sentences and facts of the results are changed in place.
    """
    failed = [result for result in results if result.facts.get("what") == "output"]
    wrong = [result for result in failed if result.facts.get("causes")]
    if not wrong:
        return
    passed = [cases[result.case] for result in results if result.outcome is Outcome.PASSED and result.case in cases]
    passed = [case for case in passed if case.attends]
    refuted = Counter()
    kinds = {cause.kind for result in wrong for cause in result.facts["heard"]}
    for case in smallest(passed):
        refuted.update(would_show(problem, case, seed, kinds, wrong[0].facts, cases[wrong[0].case].dtype))
    # NaN tells little: where that is all that shows, it must be the cause of every failure.
    for kind in kinds:
        if kind.startswith(diagnose.kind_of(known_mistakes.IN_FLOAT32)):
            refuted[kind] += any(kind not in {cause.kind for cause in r.facts["heard"]} for r in failed)
    heard = [[cause for cause in result.facts["heard"] if not refuted[cause.kind]] for result in wrong]
    for result, causes in zip(wrong, agree(heard), strict=True):
        result.sentence, result.facts = verdict.with_causes(result.facts, causes)


def smallest(cases):
    return sorted(cases, key=lambda case: case.N * case.B * case.Hq)[:WITNESSES]


def would_show(problem, case, seed, kinds, facts, dtype):
    """Those of the kinds of mistake that would make this case fail, whatever their variant.

    facts: of a failing case, for its tiles and their order. dtype: of the failing cases; a mistake of rounding says
    nothing about another.
    """
    placed = inputs.make(case, seed)
    expected = answers.to(case, placed)
    asked = diagnose.question_of(case, placed)
    guesses = [[(tile, tile)] for tile in tile_visits.GUESSED_TILES]
    for sizes in guesses if problem.tiled and not facts["tiles"] else [facts["tiles"]]:
        shows = defaultdict(bool)  # all variants of a kind
        for suspect in diagnose.all_suspects(problem, case, placed, asked, (), sizes, facts["order"]):
            kind = diagnose.kind_of(suspect.equals)
            if kind in kinds and not suspect.general and not (suspect.rounding and case.dtype != dtype):
                o, _ = suspect.asked.answer(diagnose.every_pair(case))
                error = (o - expected.o.flatten(0, 1)).abs()
                error = error.nan_to_num(0.0 if suspect.asked.of_masks else math.inf)  # sees nothing: anything
                seen = bool((error > CLEARLY * expected.allowed_o.flatten(0, 1)).any())
                shows[kind] = seen and shows.get(kind, True)
        kinds = {kind for kind in kinds if shows[kind]}
    return kinds


def agree(found_by_case):
    """Of the causes of several failing cases, keep in each case those that explain the most cases.

    A general cause fits wherever a specific one does: it must explain twice as many. What explains a single case is
    chance where another cause explains many.
    """
    explained = Counter(kind for found in found_by_case for kind in {cause.kind for cause in found})
    alone = 1 if max(explained.values(), default=0) >= MANY else 0

    def weight(cause):
        return explained[cause.kind] / (GENERAL if cause.general else 1)

    kept = []
    for found in found_by_case:
        found = [cause for cause in found if explained[cause.kind] > alone or TOGETHER in cause.equals]
        most = max((weight(cause) for cause in found), default=0)
        kept.append([cause for cause in found if weight(cause) == most])
    return kept
