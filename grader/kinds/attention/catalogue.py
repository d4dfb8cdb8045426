"""Every known mistake of attention that makes sense for a case, from its tiles and the order of its visits."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from grader.course.problem import Problem
from grader.course.tensors import Placed
from grader.kinds.attention import known_mistakes, mask_mistakes, phase_mistakes, softmax_mistakes, tile_visits
from grader.kinds.attention.case import Case
from grader.kinds.attention.known_mistakes import AttentionSpec, KnownMistake


def every(
    problem: Problem,
    case: Case,
    placed: Sequence[Placed],
    spec: AttentionSpec,
    records: Sequence[dict],
    sizes: list[tuple[int, int]],
    order: int = tile_visits.FORWARD,
) -> Iterator[KnownMistake]:
    """Every known mistake of attention that makes sense for this case.

    sizes: [(BLOCK_Q, BLOCK_K)] of the kernel's tiles; empty where they must be guessed. order: in which it walks over
    them, where the records do not tell; those that depend on another order than tile_visits.py knows are left out.
    """
    yield from known_mistakes.scales(spec)
    yield from known_mistakes.heads_and_batches(spec, case)
    yield from known_mistakes.strides(spec, placed)
    yield from softmax_mistakes.whole_softmax(spec)
    yield from softmax_mistakes.half_scores(spec, 2 if problem.uses_triton else math.e)
    visits = tile_visits.visits_of(case, records)
    guesses = [] if sizes or not problem.tiled else tile_visits.GUESSED_TILES
    seen = case.visibility.mask(*case.positions)
    if case.causal:
        all_met = bool(sizes) if visits is None else bool(visits[..., seen].all())
        yield from mask_mistakes.by_position(spec, case)
        for BLOCK_Q, BLOCK_K in sizes or itertools.product(tile_visits.GUESSED_ROWS if guesses else (), guesses):
            yield from phase_mistakes.by_tile(spec, case, BLOCK_Q, BLOCK_K, known=bool(sizes), all_met=all_met)
            if visits is None:
                loaded = tile_visits.loaded(case, tile_visits.guessed_steps(case, BLOCK_Q, BLOCK_K))
                yield from softmax_mistakes.masked_wrongly(spec, loaded)
        if visits is None:
            yield from softmax_mistakes.masked_wrongly(spec)
    for _, BLOCK_K in sizes or zip(guesses, guesses, strict=True):
        if not case.causal:
            yield from known_mistakes.tails(spec, BLOCK_K)
            yield from known_mistakes.more_zeros(spec, BLOCK_K)
        if not case.window:
            yield from known_mistakes.first_tile(spec, BLOCK_K)
    steps = None
    if visits is not None:
        yield from mask_mistakes.by_visits(spec, case, visits, tile_visits.past_the_end(case, records, sizes))
        times = visits[..., seen]
        if not times.all():
            return  # keys that were never met are what is wrong
        steps = tile_visits.steps_of(records) if times.max() == 1 else None
    elif records and not sizes:
        yield mask_mistakes.no_visit(spec)  # or one of a kind that the trace does not know
        return
    if order == tile_visits.UNKNOWN:
        sizes, guesses = [], []
    for BLOCK_Q, BLOCK_K in sizes or [(tile, tile) for tile in guesses]:
        stepping = replace(spec, tiles=steps or tile_visits.guessed_steps(case, BLOCK_Q, BLOCK_K, order))
        yield from softmax_mistakes.online_softmax(stepping, BLOCK_K, BLOCK_Q, problem.uses_triton)
        yield from softmax_mistakes.half_precision(stepping, BLOCK_K)
