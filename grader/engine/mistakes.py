"""Known mistakes: which of them gives the outputs that came back, and which of these another case refutes."""

import functools
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from grader import failures
from grader.engine import careful, cross_case
from grader.engine.compare_values import as_heads, off_by
from grader.engine.locate import joined
from grader.engine.reference import Changes
from grader.result import Cause, Outcome, mistake_pattern

SECONDS = 4.0  # of this thread's time for one case; half of the mistakes would leave half of the answers unknown
LARGEST = 1 << 22  # numbers of the largest step: a larger case gets the facts alone
NEARER = 4  # times as near to what a mistake gives as to what is right
CLEARLY = 8  # times the allowance: how far off a mistake must be for a passing case to refute it
WITNESSES = 5  # cases that pass, for each kind of cause
UNLIKE = 3  # failing cases that would show a cause and do not, for each that does: one match in five is chance
MANY = 10  # failing cases for each case that passes and would show their cause
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Mistake:
    """What an output equals, the question that leads to the fix, and the notebook section to read.

    words: what stands behind "Your output equals"; `{of}` in it is the outputs that show it. changes: {step or input of
    the Reference: function of x}. when(case): whether it can make a difference there. vary(case): {input: value}s that
    a kernel may have, each tried: tiles, pieces. outputs: those that it changes; empty: all.
    """

    words: str
    ask: str
    read: str
    changes: Changes
    when: Callable[[Any], bool] = lambda case: True
    vary: Callable[[Any], Iterable[dict]] = lambda case: ({},)
    outputs: tuple[str, ...] = ()

    def touches(self, outputs):
        """Those of an entry point's outputs that it changes."""
        return tuple(name for name in outputs if name in self.outputs or not self.outputs)

    def cause(self, names):
        """The Cause of these outputs, in the order in which they are returned."""
        return Cause(self.words.replace("{of}", joined(names)), self.ask, self.read, of=tuple(names))


def about(ask, read, *mistakes, **more):
    """Mistakes with one question and section: (words, changes) each, and its own `when`, if that is not in `more`."""
    return tuple(
        Mistake(words, ask, read, changes, **more | ({"when": when[0]} if when else {}))
        for words, changes, *when in mistakes
    )


@functools.cache
def kinds_of(mistake, outputs):
    """{kind of its Causes: the outputs that they name}."""
    touched = mistake.touches(outputs)
    if "{of}" not in mistake.words:
        return {mistake_pattern(mistake.words): frozenset(touched)}
    some = (names for n in range(len(touched), 0, -1) for names in itertools.combinations(touched, n))
    return {mistake_pattern(mistake.cause(names).equals): frozenset(names) for names in some}


# One case ------------------------------------------------------------------------------------------------------------


def find(kind, problem, case, expected, got, only=frozenset()):
    """The Causes that give every wrong output, or all of a side of them, which has a kernel of its own.

    got: {output: tensor}. only: the kinds to try; empty for all.
    """
    if kind.size(case) > LARGEST:
        return []
    outputs = expected.reference.outputs
    wrong = {name for name in got if not within(got[name], expected.values[name], expected.allowed[name])}
    fits, until, known = [], time.thread_time() + SECONDS, {}
    for mistake in kind.mistakes.get(problem.id, ()):
        if time.thread_time() > until:
            return []
        asked = not only or only & kinds_of(mistake, outputs).keys()
        if asked and mistake.when(case) and wrong & set(mistake.touches(outputs)):
            with failures.harmless(f"the known mistake {mistake.words!r}"):
                for values in expected.answers(mistake.changes, mistake.vary(case), known):
                    fits.append((mistake, {name for name in got if explains(kind, case, expected, name, got, values)}))
    found = [(mistake, wrong) for mistake, fitting in fits if wrong <= fitting]
    for side in () if found else kind.sides or (outputs,):
        here = wrong & set(side)
        whole = [(mistake, here) for mistake, fitting in fits if here and set(side) <= fitting]
        alone = [(mistake, here & fitting) for mistake, fitting in fits if len(here & fitting) == 1 < len(here)]
        found += whole or alone
    causes = [mistake.cause([name for name in outputs if name in names & set(mistake.touches(outputs))])
              for mistake, names in found if names & set(mistake.touches(outputs))]  # fmt: skip
    return list({cause.kind: cause for cause in reversed(causes)}.values())[::-1]


def explains(kind, case, expected, name, got, values):
    """Whether an output is right where the mistake leaves it right; else whether it is what the mistake gives, and far
    nearer to that than to what is right. Rows that given code makes may be right."""
    compared = got[name], values[name], expected.values[name], expected.allowed[name]
    first = kind.given_rows(case, name)
    if first and within(*(each[:, :, :first] for each in (compared[0], *compared[2:]))):
        compared = tuple(beyond(each, first) for each in compared)
    got, values, right, allowed = compared
    if within(values, right, allowed) or within(got, right, allowed):
        return within(got, right, allowed) and within(values, right, allowed)
    if not careful.fits(*map(as_heads, (got, values, allowed)), expected.reference.roundings):
        return False
    away, from_right = ((off_by(got, each) / allowed.clamp(min=TINY)).max() for each in (values, right))
    return not bool(away * NEARER > from_right)  # NaN and infinite are not far from anything


def within(got, right, allowed):
    return bool((off_by(got, right) <= allowed).all())


def beyond(tensor, first):
    """Without the rows that given code makes."""
    return tensor[:, :, first:] if first else tensor


# The cases of a problem together -------------------------------------------------------------------------------------


def check(kind, problem, cases, seed, results):
    """Leave in each result's diagnosis the causes that explain most failing cases and that no passing case refutes."""
    wrong = cross_case.find_all(results, cases, kind.order)
    failed = [(cases[result.case], result.diagnosis) for result in results if result.diagnosis in wrong]
    passed = [cases[result.case] for result in results if result.outcome is Outcome.PASSED and result.case in cases]
    tiles = {getattr(cases[result.case], "tiles", None) for result in results if result.diagnosis}
    alike = [case for case in passed if getattr(case, "tiles", None) in tiles]  # with others a mistake may not show
    drop_refuted(kind, problem, failed, alike, seed)
    cross_case.check(results, {}, lambda *of: set(), lambda of: False)


def drop_refuted(kind, problem, failed, passed, seed):
    """Take away the causes that cases which passed would show: the smallest to which each applies are asked.

    One that explains many cases is not refuted by a few: what a mistake reads past an end may not be there. One that
    explains a single case is chance where others that fail, but not so, would show it. failed: [(case, Diagnosis)].
    """
    diagnoses = [diagnosis for _, diagnosis in failed]
    explained = Counter(cause.kind for diagnosis in diagnoses for cause in diagnosis.causes)
    outputs, refuted = kind.reference(problem).outputs, set()
    for words, count in explained.items():
        variants = [each for each in kind.mistakes[problem.id] if words in kinds_of(each, outputs)]
        others = [case for case, diagnosis in failed if words not in {cause.kind for cause in diagnosis.causes}]
        shown, unlike = (
            sum(would_show(kind, problem, case, seed, words) for case in sorted(asked, key=kind.size)[:WITNESSES])
            for asked in (
                [case for case in some if any(each.when(case) for each in variants)] for some in (passed, others)
            )
        )
        if shown * MANY > count or unlike > UNLIKE * count:
            refuted.add(words)
    for diagnosis in diagnoses:
        diagnosis.causes = [cause for cause in diagnosis.causes if cause.kind not in refuted]


def would_show(kind, problem, case, seed, words):
    """Whether each variant of this kind would make the case fail clearly, in an output that the kind names."""
    if kind.size(case) > LARGEST:
        return False
    expected, known = kind.expect(problem, case, kind.inputs(case, seed), "cpu"), {}
    outputs = expected.reference.outputs

    def is_clear(values, name):
        compared = values[name], expected.values[name], CLEARLY * expected.allowed[name]
        return not within(*(beyond(each, kind.given_rows(case, name)) for each in compared))

    variants = [each for each in kind.mistakes[problem.id] if words in kinds_of(each, outputs) and each.when(case)]
    with failures.harmless(f"the known mistake {words!r}"):
        return bool(variants) and all(
            any(is_clear(values, name) for name in kinds_of(each, outputs)[words])
            for each in variants
            for values in expected.answers(each.changes, each.vary(case), known)
        )
    return False
