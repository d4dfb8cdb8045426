"""The catalogue of mistakes about who sees whom: masks by position, and what the tiles that were met would give."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from grader.kinds.attention import softmax_mistakes
from grader.kinds.attention.case import Case
from grader.kinds.attention.known_mistakes import DIAGONAL, AttentionSpec, KnownMistake, with_zeros
from grader.kinds.attention.masks import Visibility

WINDOW = SINKS = PHASES = "notebooks/04_masks_and_phases.ipynb: From the mask to a loop"


def by_position(spec: AttentionSpec, case: Case) -> Iterator[KnownMistake]:
    """Masks that are wrong by position, whatever the tiles."""
    seen, window, sinks = case.visibility, case.window, case.sinks or 0

    def mistakes(section, *rules):
        for equals, question, weight in rules:
            yield KnownMistake(equals, question, section, replace(spec, weight=weight), by_nan=True)

    def by_age(rule):
        """rule(the key's age, its position, whether the query should see it), each (Nq, Nk)."""
        return lambda q, k: rule(q[:, None] - k[None, :], k[None, :], seen.mask(q, k))

    yield from mistakes(
        DIAGONAL,
        ("attention without a mask",
         "is there a mask, is it applied before the maximum, and are its conditions joined by `&`?", Visibility().mask),
        ("attention that sees the future only", "which side of the diagonal is hidden?",
         by_age(lambda age, key, seen: age <= 0)),
        ("attention whose causal mask hides the query's own key", "does a query see itself: `<` or `<=`?",
         by_age(lambda age, key, seen: seen & (age != 0))),
        ("attention whose causal mask shows one key too many", "does a query see the next key: `<` or `<=`?",
         by_age(lambda age, key, seen: seen | (age == -1))),
    )  # fmt: skip
    if window is not None:
        edge = "how far back may keys be: `<` or `<=`?"
        part = "how far back may keys be: are the sinks part of the window?"
        other = {end + step: edge for end in {window, min(window, case.N)} for step in (-1, 1)}
        other |= {window - sinks: part, window + sinks: part} if sinks else {}
        yield from mistakes(
            WINDOW,
            *((f"a window of {n}", asked, replace(seen, window=n).mask) for n, asked in other.items() if n > 0),
            ("a causal mask without a window", "which keys are too old?", Visibility(causal=True).mask),
        )  # fmt: skip
        # Zeros padded in front of the keys, which a window by age alone shows to the first queries.
        changed = with_zeros(spec, lambda q: (min(window, case.N) - 1 - q).clamp(min=0))
        equals = "a window in which zeros count that lie before the first key"
        yield KnownMistake(equals, "does a key before the first one exist?", WINDOW, changed)
    if sinks and window is not None:
        yield from mistakes(
            SINKS,
            *((f"{count} sink{'s' * (count > 1)}", "which key is the last sink: `<` or `<=`?",
               replace(seen, sinks=count).mask) for count in (sinks - 1, sinks + 1) if count),
            ("a window without sinks", "is a sink visible when it is too old for the window?",
             replace(seen, sinks=0).mask),
            ("sinks that are visible to queries before them", "may a query see a sink that comes after it?",
             by_age(lambda age, key, seen: seen | (key < sinks))),
            (f"attention without its first {sinks} keys", "which phase shows the sinks?",
             by_age(lambda age, key, seen: seen & (key >= sinks))),
            (f"attention that hides the key {window - 1} tokens back, of the sinks too",
             "at which age does a key leave the window, and where do the sinks begin?",
             by_age(lambda age, key, seen: seen & (age != window - 1))),
            ("sinks that count twice where the window sees them too", "which of two loops hides a key that both see?",
             by_age(lambda age, key, seen: seen * (1 + (age >= 0) * (age < window) * (key < sinks)))),
        )  # fmt: skip


def by_visits(spec: AttentionSpec, case: Case, visits: torch.Tensor, past: torch.Tensor) -> Iterator[KnownMistake]:
    """What the tiles that the kernel really met would give.

    visits: (B, Hq, Nq, Nk), how often it met each pair; past: (B, Hq, Nq, 1), how many lanes past the end.
    """
    q, k = torch.arange(case.N), torch.arange(case.num_keys)
    seen, met = case.visibility.mask(q, k), visits > 0

    def mistake(equals, question, weight, zeros=None, section=PHASES):
        changed = replace(spec, weight=weight) if zeros is None else with_zeros(spec, zeros, weight)
        return KnownMistake(equals, question, section, changed, by_nan=True, general=True)

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


def no_visit(spec: AttentionSpec) -> KnownMistake:
    nothing = replace(spec, weight=lambda q, k: torch.zeros(len(q), len(k)))
    question = "does the loop over the keys run at all?"
    return KnownMistake("attention over no key", question, PHASES, nothing, by_nan=True, general=True)


def missed_or_twice(
    seen: torch.Tensor, visits: torch.Tensor, past: torch.Tensor, mistake: Callable
) -> Iterator[KnownMistake]:
    """Keys that no tile holds, keys that two tiles hold, or both."""
    missed, twice = seen & (visits == 0), seen & (visits > 1)
    which = "which phase should load them, and where does its loop begin and end?"
    if missed.any() and twice.any():
        equals = f"attention that leaves out {name_stretch(missed)}, and counts others more than once"
        yield mistake(equals, "what moves from one step of the loop to the next?", seen * visits)
    elif missed.any():
        yield mistake(f"attention that leaves out {name_stretch(missed)}", which, seen & (visits > 0))
    elif twice.any():
        question = "which two phases load the same tile?"
        yield mistake(f"attention that counts twice {name_stretch(twice)}", question, seen * visits)
        equals = f"attention that counts twice, with the mask and without, {name_stretch(twice)}"
        again = seen * visits + (~seen & (visits > 1))
        yield mistake(equals, question, again)
        if past.any():
            yield mistake(f"{equals}, zeros past the end too", question, again, past / 2)


def name_stretch(missed: torch.Tensor) -> str:
    """`the visible keys among keys 0-31 for query rows 32-63`: around the row that misses most."""
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
    return "the visible keys among " * bool(keys[0] != keys[-1]) + f"key{span} for query row{rows}"


def name_range(first: int, last: int) -> str:
    """What follows `key` or `row`: ` 32`, or `s 0-31`."""
    return f" {first}" if first == last else f"s {first}-{last}"
