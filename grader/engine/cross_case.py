"""The cross-case check: what looks alike in a small case differs in a larger one, or is refuted by one that passes."""

from collections import Counter

from grader.result import Outcome

GENERAL = 2  # times as many cases as a specific cause must be explained by a general one
MANY = 5  # failing cases with one cause: a cause that explains a single other case is chance
RARE = 10  # a cause that explains one of so many wrong cases may be chance
WITNESSES = 4  # passing cases that are asked, the smallest first
LONG_WITNESSES = 2  # and of those with more than so many queries, which several tiles share
LONG = 128


def find_all(results, cases, order, whole=False):
    """Say of every wrong output what it equals; returns their diagnoses, the smallest case first.

    A diagnosis's evidence has "search": the kinds to try, empty for all, -> its causes.
    The kinds that explained a case are tried alone where one of them fits, and at last in every case that was asked for
    fewer: so what agrees in most cases is found without trying everything everywhere. whole: every kind is tried in
    every case.
    """
    wrong = [result for result in results if result.diagnosis and "search" in result.diagnosis.evidence]
    wrong = [result.diagnosis for result in sorted(wrong, key=lambda result: order(cases[result.case]))]
    known, narrow = frozenset(), []
    for diagnosis in wrong:
        evidence = diagnosis.evidence
        diagnosis.causes = evidence["search"](known) if known and not whole else []
        if all(cause.general for cause in diagnosis.causes):
            diagnosis.causes = evidence["search"]()
        else:
            narrow.append(diagnosis)
        known |= {cause.kind for cause in diagnosis.causes}
        if not diagnosis.causes:
            diagnosis.measured += evidence.pop("moved", list)()
    for diagnosis in narrow:
        diagnosis.causes = diagnosis.evidence["search"](known)
    return wrong


def check(results, cases, refutes, explains_all):
    """Leave in each result's diagnosis the causes that explain most failing cases and that no passing case refutes.

    cases: those that ran, by name. refutes(case, kinds, diagnosis, failing case) -> the kinds of causes that would make
    this case fail. explains_all(kind): True for a cause that tells so little that it must fit every failure.
    A case that is left without a cause names the first that has one.
    """
    failed = [result for result in results if result.diagnosis and result.diagnosis.what == "output"]
    wrong = [result for result in failed if result.diagnosis.causes]
    if not wrong:
        return
    passed = [cases[result.case] for result in results if result.outcome is Outcome.PASSED and result.case in cases]
    kinds = {cause.kind for result in wrong for cause in result.diagnosis.causes}
    refuted = Counter()
    for case in witnesses([case for case in passed if case.attends]):
        refuted.update(refutes(case, kinds, wrong[0].diagnosis, cases[wrong[0].case]))
    asked = [r for r in failed if r.diagnosis.evidence.get("asked", True)]  # a longer one explains nothing
    with_numbers = [r for r in asked if (m := r.facts.mismatch).total not in (m.nan, m.zero)]
    # NaN equals many mistakes at once: where a cause has no other witness, a case with wrong numbers must show it, too.
    told = {cause.kind for result in filter(has_wrong_numbers, wrong) for cause in result.diagnosis.causes}
    for kind in kinds - told:
        showing = sum(kind in {cause.kind for cause in result.diagnosis.causes} for result in failed)
        refuted[kind] += any(map(has_wrong_numbers, failed)) or 2 * showing < len(failed)
    refuted.update(chance(failed, wrong, cases, refutes))
    for kind in filter(explains_all, kinds):
        refuted[kind] += any(kind not in {cause.kind for cause in result.diagnosis.causes} for result in with_numbers)
    standing = [[cause for cause in result.diagnosis.causes if not refuted[cause.kind]] for result in wrong]
    for result, causes in zip(wrong, agree(standing), strict=True):
        result.diagnosis.causes = causes
    point_to_a_cause(failed)


def chance(failed, wrong, cases, refutes):
    """The kinds of causes that explain few of the cases with wrong numbers, where others of these would show them.

    One that explains hardly any of many is chance, or the smaller of two mistakes.
    """
    numbers = [result for result in failed if has_wrong_numbers(result)]
    shown_by = {}
    for result in wrong:
        for kind in {cause.kind for cause in result.diagnosis.causes}:
            shown_by.setdefault(kind, []).append(result)
    refuted = set()
    for kind, showing in shown_by.items():
        if len(showing) * 2 * RARE <= len(numbers):
            refuted.add(kind)
        if kind in refuted or len(showing) * RARE > len(numbers):
            continue
        names = {result.case for result in showing}
        others = {cases[r.case]: r for r in numbers if r.case not in names and r.case in cases}
        for case in witnesses(others)[:WITNESSES]:
            refuted |= refutes(case, {kind}, others[case].diagnosis, case)  # with its own tiles
    return refuted


def has_wrong_numbers(result):
    found = result.facts.mismatch
    return found.nan + found.inf < found.wrong


def point_to_a_cause(failed):
    """Of results that are wrong, those without a cause name the first that has one."""
    telling = [result.case for result in failed if result.diagnosis.causes]
    for result in failed:
        if telling and not result.diagnosis.causes:
            result.diagnosis.shown_by = telling[0]


def follow_pointers(results):
    """A case that names one which names another names the last; none names itself by way of others."""
    names = {result.case: result.diagnosis.elsewhere for result in results if result.diagnosis}
    for result in results:
        if result.diagnosis:
            passed, last = {result.case}, names[result.case]
            while names.get(last) and last not in passed:
                passed.add(last)
                last = names[last]
            result.diagnosis.shown_by = "" if last in passed else last


def witnesses(cases):
    ordered = sorted(cases, key=lambda case: case.N * case.B * case.Hq)
    rest = [case for case in ordered[WITNESSES:] if case.N > LONG]
    return ordered[:WITNESSES] + rest[:LONG_WITNESSES]


def agree(causes_by_case):
    """Of the causes of several failing cases, keep in each case those that explain the most cases.

    A general cause fits wherever a specific one does: it must explain twice as many. What explains a single case is
    chance where another cause explains many.
    """
    explained = Counter(kind for causes in causes_by_case for kind in {cause.kind for cause in causes})
    alone = 1 if max(explained.values(), default=0) >= MANY else 0

    def weight(cause):
        return explained[cause.kind] / (GENERAL if cause.general else 1)

    kept = []
    for causes in causes_by_case:
        causes = [cause for cause in causes if explained[cause.kind] > alone]
        most = max((weight(cause) for cause in causes), default=0)
        kept.append([cause for cause in causes if weight(cause) == most])
    return kept
