"""Which known mistake gives the gradients that came back: for dq, and for dk and dv, whose kernels may differ."""

import functools
import time

import torch

from grader.diagnosis import compare_values, locate
from grader.diagnosis.cause import Diagnosis, Measured
from grader.diagnosis.locate import joined
from grader.kinds.backward import mistakes
from grader.result import Cause, mistake_pattern

SIDES = (("dq",), ("dk", "dv"))
MAX_TOKENS, SECONDS = 512, 4.0
CLEARLY = 8  # times the allowance: how far off a mistake must be for a passing case to refute it
NEARLY = 0.01
ROUNDED = "which sums are kept in float32, and what is rounded to 16 bits before it is added up, or too often?"
TOGETHER = ", and also "  # of a cause of two mistakes; there is none


def diagnose(case, got, expected):
    """The Diagnosis of one case: got {name: tensor}, expected a gradients.Expected."""
    wrong = {name: found for name in got if (found := mismatch(name, got, expected))}

    @functools.cache
    def search(only=frozenset()):
        return find(case, got, set(wrong), expected, only), list

    nearly = functools.partial(precision, got, wrong, expected)
    return Diagnosis("output", where(got, wrong), evidence={"search": search, "moved": nearly})


def precision(got, wrong, expected):
    """[Measured] where every wrong gradient is nearly right: something was rounded too early."""
    off = {name: float((got[name].double() - expected.values[name]).abs().max()) for name in wrong}
    most = {name: float(expected.values[name].abs().max()) for name in wrong}
    if not all(off[name] <= NEARLY * most[name] for name in wrong):  # NaN is not near
        return []
    share = max(off[name] / most[name] for name in wrong)
    said = (
        f"The largest error is {share:.0e} of the largest number in {joined(wrong)}: nearly right, but not as near as"
    )
    return [Measured("precision", f"{said} float32 sums come.", ROUNDED, mistakes.SOFTMAX)]


def mismatch(name, got, expected):
    return compare_values.mismatch(got[name], expected.values[name], expected.allowed[name])


def where(got, wrong):
    """`dv is right, dq and dk are not. In dq: first wrong row 32 ...`"""
    right = [name for name in got if name not in wrong]
    said = f"{joined(right)} {'is' if len(right) == 1 else 'are'} right, {joined(wrong)} not" if right else (
        f"{joined(wrong)} are all wrong"
    )  # fmt: skip
    first = next(iter(wrong))
    place = locate.where(wrong[first])
    return f"{said}. In {first}: {place[0].lower()}{place[1:]}"


def find(case, got, wrong, expected, only=frozenset()):
    """The Causes that give every wrong gradient of a side: dq, or dk and dv; of both where one gives all.

    only: the kinds to try; empty for all. A row of more than MAX_TOKENS gets the facts alone, and so does a case that
    takes SECONDS of this thread's time: half of the mistakes would leave half of the answers unknown.
    """
    if case.N > MAX_TOKENS:
        return []
    fits, until = {}, time.thread_time() + SECONDS
    right_sinks = [name for name in SIDES[1] if sinks_are_right(case, name, got, expected)]
    for number, mistake in enumerate(mistakes.EVERY):
        if time.thread_time() > until:
            return []
        asked = not only or any(names_in(kind, mistake) for kind in only)
        if asked and mistake.applies(case) and wrong & set(mistake.touches):
            values = mistakes.answer(mistake, expected.inputs)
            for name in right_sinks:
                values[name] = torch.cat(
                    [expected.values[name][:, :, : case.sinks], values[name][:, :, case.sinks :]], 2
                )
            fits[number] = {name for name in got if expected.fits(name, got[name], values[name])}
    found = [cause(mistakes.EVERY[number], wrong) for number, fitting in fits.items() if wrong <= fitting]
    if found:
        return found
    for side in SIDES:
        here = wrong & set(side)
        sided = [number for number, fitting in fits.items() if here and set(side) <= fitting]
        if not sided and len(here) > 1:  # a mistake of each
            alone = {n: here & fitting & set(mistakes.EVERY[n].touches) for n, fitting in fits.items()}
            found += [cause(mistakes.EVERY[n], names) for n, names in alone.items() if len(names) == 1]
            continue
        found += [cause(mistakes.EVERY[number], here) for number in sided if here & set(mistakes.EVERY[number].touches)]
    return found


def sinks_are_right(case, name, got, expected):
    """True where the sinks' rows are right: their kernel is given, and a mistake may be in the other one alone."""
    if not (case.sinks and case.window):
        return False
    all_rows = expected.values[name], expected.allowed[name], got[name]
    values, allowed, mine = (rows[:, :, : case.sinks] for rows in all_rows)
    return bool(((mine.double() - values).abs() <= allowed).all())


def cause(mistake, names):
    """The Cause of these gradients; those that the mistake does not touch are not named."""
    named = [name for name in mistake.touches if name in names]
    if "swapped" in mistake.changes and len(named) == 1:
        other = next(name for name in mistake.touches if name not in named)
        return Cause(f"{named[0]} with the values of {other}", mistake.question, mistake.section)
    return Cause(f"{joined(named)} {mistake.words}", mistake.question, mistake.section)


def would_show(case, expected, kinds):
    """Those of the kinds of mistake that would make this case fail clearly, in a gradient that they name."""
    shown, sinks = set(), case.sinks if case.sinks and case.window else 0  # their kernel is given
    first = dict.fromkeys(SIDES[1], sinks)
    for mistake in mistakes.EVERY:
        mine = {kind: named for kind in kinds if (named := names_in(kind, mistake))}
        if not mine or not mistake.applies(case):
            continue
        values = mistakes.answer(mistake, expected.inputs)
        off = {
            name for name, value in values.items()
            if bool((~((value - expected.values[name]).abs() <= CLEARLY * expected.allowed[name]))
                    [:, :, first.get(name, 0):].any())
        }  # fmt: skip
        shown |= {kind for kind, named in mine.items() if off & named}
    return shown


def names_in(kind, mistake):
    """The gradients that a kind of cause names, where it is of this mistake; else nothing."""
    words = f" {mistake_pattern(mistake.words)}"
    named = set(kind.removesuffix(words).replace(",", "").split()) - {"and"}
    return named if kind.endswith(words) and named <= set(mistake.touches) else set()
