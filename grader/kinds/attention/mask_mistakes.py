"""The catalogue of mistakes about who sees whom: masks by position, and what the tiles that were met would give."""

from dataclasses import replace

import torch

from grader.course.masks import Visibility
from grader.kinds.attention import softmax_mistakes
from grader.kinds.attention.known_mistakes import DIAGONAL, KnownMistake, with_zeros

WINDOW = "4 masks and phases: the window"
SINKS = "4 masks and phases: sinks"
PHASES = "4 masks and phases: which phase visits which tile"


def by_position(spec, case):
    """Masks that are wrong by position, whatever the tiles."""
    seen = case.visibility

    def mistake(equals, question, section, weight):
        return KnownMistake(equals, question, section, replace(spec, weight=weight), kind="mask")

    question = "is there a mask, is it applied before the maximum, and are its conditions joined by `&`?"
    yield mistake("attention without a mask", question, DIAGONAL, Visibility().mask)
    yield mistake(
        "attention that sees the future only", "which side of the diagonal is hidden?", DIAGONAL,
        lambda q, k: q[:, None] <= k[None, :],
    )  # fmt: skip
    yield mistake(
        "a causal mask that hides the query's own key", "does a query see itself: `<` or `<=`?", DIAGONAL,
        lambda q, k: seen.mask(q, k) & (q[:, None] != k[None, :]),
    )  # fmt: skip
    yield mistake(
        "a causal mask that shows one key too many", "does a query see the next key: `<` or `<=`?", DIAGONAL,
        lambda q, k: seen.mask(q, k) | (k[None, :] == q[:, None] + 1),
    )  # fmt: skip
    if case.window is not None:
        yield from windows_by_position(case, mistake)
        yield zeros_in_front(spec, case)
    if case.sinks:
        yield from sinks_by_position(case, mistake)


def windows_by_position(case, mistake):
    seen, sinks = case.visibility, case.sinks or 0
    ends = {case.window, min(case.window, case.N)}
    other = {end + step: "`<` or `<=`?" for end in ends for step in (-1, 1)}
    if sinks:
        other |= {case.window - sinks: "are the sinks part of the window?"}
        other |= {case.window + sinks: "are the sinks part of the window?"}
    for window, question in other.items():
        if window > 0:
            equals = f"a window of {window}"
            yield mistake(equals, f"how old may a key be: {question}", WINDOW, replace(seen, window=window).mask)
    yield mistake(
        "a causal mask without a window", "which keys are too old?", WINDOW, Visibility(causal=True).mask,
    )  # fmt: skip
    yield mistake(
        "a window that hides no key of the future", "which two conditions make a window?", WINDOW,
        lambda q, k: (q[:, None] - k[None, :] < case.window) | (k[None, :] < sinks),
    )  # fmt: skip


def zeros_in_front(spec, case):
    """Zeros padded in front of the keys, which a window by age alone shows to the first queries."""
    window = min(case.window, case.N)
    changed = with_zeros(spec, lambda q: (window - 1 - q).clamp(min=0))
    equals = "a window in which zeros count that lie before the first key"
    return KnownMistake(equals, "does a key before the first one exist?", WINDOW, changed)


def sinks_by_position(case, mistake):
    seen, sinks = case.visibility, case.sinks
    for count in (sinks - 1, sinks + 1):
        if count:
            equals = f"{count} sink{'s' * (count > 1)}"
            yield mistake(equals, "which key is the last sink: `<` or `<=`?", SINKS, replace(seen, sinks=count).mask)
    yield mistake(
        "a window without sinks", "is a sink visible when it is too old for the window?", SINKS,
        replace(seen, sinks=0).mask,
    )  # fmt: skip
    yield mistake(
        "sinks that are visible to queries before them", "may a query see a sink that comes after it?", SINKS,
        lambda q, k: seen.mask(q, k) | (k[None, :] < sinks),
    )  # fmt: skip
    yield mistake(
        f"attention without its first {sinks} keys", "which phase shows the sinks?", SINKS,
        lambda q, k: seen.mask(q, k) & (k[None, :] >= sinks),
    )  # fmt: skip
    yield mistake(
        f"attention that hides the key {case.window - 1} tokens back, of the sinks too",
        "at which age does a key leave the window, and where do the sinks begin?", SINKS,
        lambda q, k: seen.mask(q, k) & (q[:, None] - k[None, :] != case.window - 1),
    )  # fmt: skip
    yield mistake(
        "sinks that count twice where the window sees them too", "which of two loops hides a key that both see?", SINKS,
        lambda q, k: seen.mask(q, k) * (1 + replace(seen, sinks=0).mask(q, k) * (k[None, :] < sinks)),
    )  # fmt: skip


def by_visits(spec, case, visits, past):
    """What the tiles that the kernel really met would give.

    visits: (B, Hq, Nq, Nk), how often it met each pair; past: (B, Hq, Nq, 1), how many lanes past the end.
    """
    q, k = torch.arange(case.N), torch.arange(case.num_keys)
    seen, met = case.visibility.mask(q, k), visits > 0

    def mistake(equals, question, weight, zeros=None, section=PHASES):
        changed = replace(spec, weight=weight) if zeros is None else with_zeros(spec, zeros, weight)
        return KnownMistake(equals, question, section, changed, kind="mask", general=True)

    yield from missed_or_twice(seen, visits, past, mistake)
    if not case.causal:
        return
    if past.any():
        equals = "attention without a mask, inside the tiles that are loaded, zeros past the end too"
        yield mistake(equals, "what hides a key inside a tile that is loaded?", met, past)
    for other in by_position(spec, case):
        if callable(other.spec.weight) and other.spec.k is spec.k:
            weight = other.spec.weight(q, k)
            inside = weight * met
            if not torch.equal(inside, weight * torch.ones_like(met)) and not torch.equal(inside, seen * met):
                equals = f"{other.equals}, inside the tiles that are loaded"
                yield mistake(equals, other.question, inside, section=other.section)
    if case.sinks:
        window = replace(case.visibility, sinks=0).mask(q, k) & (k < case.sinks)
        equals = "sinks that count twice where the window sees them too, in the tiles that both load"
        question = "which of two loops hides a key that both see?"
        yield mistake(equals, question, seen * (1 + window * (visits > 1)), section=SINKS)
    shown = replace(spec, weight=seen.expand_as(met))
    yield from softmax_mistakes.masked_wrongly(shown, met)
    if past.any():
        shown = with_zeros(shown, torch.zeros_like(past))
        yield from softmax_mistakes.masked_wrongly(shown, torch.cat([met.double(), past], -1), past=True)


def no_visit(spec):
    nothing = replace(spec, weight=lambda q, k: torch.zeros(len(q), len(k)))
    question = "does the loop over the keys run at all?"
    return KnownMistake("attention that meets no key", question, PHASES, nothing, kind="mask", general=True)


def missed_or_twice(seen, visits, past, mistake):
    """Keys that no tile holds, keys that two tiles hold, or both."""
    missed, twice = seen & (visits == 0), seen & (visits > 1)
    which = "which phase should load them, and where does its loop begin and end?"
    if missed.any() and twice.any():
        equals = f"attention that leaves out {stretch(missed)}, and counts others more than once"
        yield mistake(equals, "what moves from one step of the loop to the next?", seen * visits)
    elif missed.any():
        yield mistake(f"attention that leaves out {stretch(missed)}", which, seen & (visits > 0))
    elif twice.any():
        question = "which two phases load the same tile?"
        yield mistake(f"attention that counts twice {stretch(twice)}", question, seen * visits)
        equals = f"attention that counts twice {stretch(twice)}, once without a mask"
        again = seen * visits + (~seen & (visits > 1))
        yield mistake(equals, question, again)
        if past.any():
            yield mistake(f"{equals}, zeros past the end too", question, again, past / 2)


def stretch(missed):
    """`the visible ones of keys 0-31 for query rows 32-63`: around the row that misses most."""
    rows = missed.flatten(0, 1).any(0)
    worst = int(rows.sum(1).argmax())
    alike = (rows.any(1) & ~(rows & ~rows[worst]).any(1)).tolist()
    first = last = worst
    while first > 0 and alike[first - 1]:
        first -= 1
    while last + 1 < len(alike) and alike[last + 1]:
        last += 1
    keys = rows[worst].nonzero()
    span, rows = (name_range(*pair) for pair in ((int(keys[0]), int(keys[-1])), (first, last)))
    return (
        f"key{span} for query row{rows}"
        if keys[0] == keys[-1]
        else f"the visible ones of key{span} for query row{rows}"
    )


def name_range(first, last):
    """What follows `key` or `row`: ` 32`, or `s 0-31`."""
    return f" {first}" if first == last else f"s {first}-{last}"
