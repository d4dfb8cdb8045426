"""Which tiles fast_attention.py works with, and in which order, so that its programs end at about the same time.

The GPU is done when its last program is. Under a causal mask a tile of queries costs as many tiles of keys as it sees,
so tiles are numbered the longest first, of some heads at a time: if of all, the last tiles are the shortest; if of a
few, their K and V stay in the L2 cache. Where P programs run at a time, three ways to hand tiles out:

    in one direction    program p takes tiles p, P + p, 2 P + p, ...
    there and back      p, 2 P - 1 - p, 2 P + p, ...: whoever had a long one in one turn has a short one in the next
    a program a tile    the GPU gives the next tile to whoever is free, but each tile pays for a program's begin and end

Which way is best, of how many heads at a time, and how many rows a program should have, depends on how the numbers
divide. So before the first launch of a shape they are added up, within about a tenth of a second; of equal ones the
one of fewest heads is taken. Where tiles are very many, the choices differ by little and one is looked at.

Source: Graham, "Bounds on multiprocessing timing anomalies", 1969, for the longest first.
"""

import heapq
import math
from dataclasses import dataclass

import torch

# A form is (BLOCK_K, CONSUMERS, STAGES, programs on a multiprocessor). Here by head dim, tuned on an H200; D = 16 and
# 32 take the forms of 64. Without a window many consumers that share K and V are fastest, where there are tiles enough
# for all multiprocessors; where heads are few, programs of one consumer. So of each form: how long a key takes a
# program that is alone on its multiprocessor, and how much longer for each further one beside it.
FORMS = {
    64: {(64, 4, 3, 1): (4.05, 0), (64, 3, 3, 1): (3.2, 0), (128, 1, 2, 2): (1.94, 0.4), (64, 1, 2, 3): (2.1, 0.7)},
    128: {(64, 3, 3, 1): (3.0, 0), (128, 2, 2, 1): (2.23, 0), (64, 1, 2, 2): (1.9, 0.5)},
    256: {(64, 2, 2, 1): (2.0, 0)},
}
WINDOWS = {64: (64, 3, 3, 1), 128: (64, 3, 3, 1), 256: (64, 2, 2, 1)}
SHORT = {64: (64, 1, 2, 3), 128: (64, 1, 2, 2), 256: (64, 2, 2, 1)}  # short windows, and rows so short that costs err:
SHORT_KEYS = {64: 0, 128: 512, 256: 0}  # up to so many keys, twice as many under a causal mask
SHORT_WINDOW = 256  # in keys, up to which a window is short
# Costs are counted in keys. With these numbers and those of FORMS the plan that is found was the fastest of those
# measured on an H200, or near it, from 512 to 16k tokens and from one head on.
EACH_WITH_A_PROGRAM = 320  # what a tile of queries costs beside its keys, where it starts and ends a program
EACH = {64: 192, 128: 192, 256: 320}  # where the program goes on; at 256 o leaves through q's buffer, and Q must wait
PAST_L2 = 0.02  # so much longer a key takes, for each doubling of the K and V of the heads numbered together,
IN_L2 = 25e6  # from so many bytes on
MANY = 64  # tiles for each program, from which one number of heads is looked at, and one way


@dataclass(frozen=True)
class Plan:
    """form: see FORMS. query_tiles: of one head. programs: of the launch. cost: in keys, until the last one ends.

    heads_at_once: whose tiles are numbered together. there_and_back: in which of the two ways programs take turns.
    """

    form: tuple
    query_tiles: int
    programs: int
    heads_at_once: int
    there_and_back: bool
    cost: float


def forms(N, D, is_causal, window_size, sinks):
    """Those that may be the fastest, as in FORMS. window_size: None where no key is hidden by a window."""
    D = max(D, 64)
    if window_size is not None:
        return {(SHORT if window_size + sinks <= SHORT_WINDOW else WINDOWS)[D]: (1, 0)}
    keys = (N - 1) // 2 if is_causal else N
    return {SHORT[D]: (1, 0)} if keys <= SHORT_KEYS[D] else FORMS[D]


def lengths_of_tiles(N, tokens, BLOCK_K, is_causal, window_size, sinks):
    """Keys that the tiles of queries of one head visit, `tokens` queries each, the longest first.

    Under a window the last tiles of queries may need a tile of keys less. sinks: that are no part of another tile.
    """
    ends = [min(start + tokens, N) if is_causal else N for start in range(0, N, tokens)]
    keys = list(reversed(ends))
    if window_size is not None:
        in_window = [min(end, window_size + tokens) for end in keys]
        keys = [near + min(sinks, end - near) for end, near in zip(keys, in_window, strict=True)]
    return torch.tensor([-(-each // BLOCK_K) * BLOCK_K for each in keys], dtype=torch.float32, device="cpu")


def costs_in_order(lengths, heads, heads_at_once):
    """Keys of each tile of queries, in the order of their numbers, which is find_tile's in the kernel."""
    number = torch.arange(len(lengths) * heads, device="cpu")
    first = number // (len(lengths) * heads_at_once) * heads_at_once
    at_once = (heads - first).clamp(max=heads_at_once)
    return lengths[(number - first * len(lengths)) // at_once]


def cost_in_turns(costs, programs, there_and_back):
    """Of the longest program, where each takes every P-th tile."""
    number = torch.arange(len(costs), device="cpu")
    turn, place = number // programs, number % programs
    if there_and_back:
        place = torch.where(turn % 2 == 1, programs - 1 - place, place)
    return costs.new_zeros(programs).index_add_(0, place, costs).max().item()


def cost_by_programs(costs, places):
    """Until the last program ends, where each tile has one and `places` of them run at a time."""
    ends = [0.0] * places
    for cost in costs.tolist():
        heapq.heapreplace(ends, ends[0] + cost)
    return max(ends)


def plans(form, lengths, each, heads, places, most_heads, bytes_of_head):
    """A Plan for each way to hand the tiles out. each: of EACH. places: programs that run at a time.

    most_heads: that may be numbered together. bytes_of_head: of its K and V.
    """
    tiles = len(lengths) * heads
    programs = min(tiles, places)
    in_one_direction = tiles <= places or tiles > MANY * places
    together = {most_heads >> halved for halved in range(most_heads.bit_length())}
    if tiles > MANY * places:
        together = {max((count for count in together if count * bytes_of_head <= IN_L2), default=1)}
    if bool((lengths == lengths[0]).all()):
        in_one_direction, together = True, {1}  # one head after the other is best for caches
    elif tiles <= places:
        together = {most_heads}  # all begin at once, the longest alone on their multiprocessors
    for heads_at_once in sorted(together):
        doublings = max(0.0, math.log2(heads_at_once * bytes_of_head / IN_L2))
        costs = costs_in_order(lengths, heads, heads_at_once) * (1 + PAST_L2 * doublings)
        for back in (False,) if in_one_direction else (False, True):
            cost = cost_in_turns(costs + each, programs, back)
            yield Plan(form, len(lengths), programs, heads_at_once, back, cost)
        if not in_one_direction:
            cost = cost_by_programs(costs + EACH_WITH_A_PROGRAM, places)
            yield Plan(form, len(lengths), tiles, heads_at_once, False, cost)


def find_plan(q, sharing, tokens, heads, is_causal, window_size, sinks, multiprocessors, form=None):
    """The fastest Plan, as far as one can say before the launch.

    q: (B, Hq, N, D). tokens: queries of one consumer's tile. heads: of all batches, those that share a tile counted as
    one; sharing: of these, those that share K and V. sinks: that get tiles of keys of their own. form: to take,
    instead of the fastest.
    """
    _, _, N, D = q.shape
    if window_size is not None and window_size >= N:
        window_size = None
    bytes_of_head = 2 * N * D * q.element_size() / sharing
    most_heads = heads if window_size is None else 1
    found = []
    for one, (alone, beside) in ({form: (1, 0)} if form else forms(N, D, is_causal, window_size, sinks)).items():
        BLOCK_K, CONSUMERS, _, at_a_time = one
        lengths = lengths_of_tiles(N, CONSUMERS * tokens, BLOCK_K, is_causal, window_size, sinks)
        # Programs on a multiprocessor: in the mean, which told the fastest form better than the greatest number.
        together = min(at_a_time, max(1, len(lengths) * heads / multiprocessors))
        places = multiprocessors * at_a_time
        for plan in plans(one, lengths, EACH[max(D, 64)], heads, places, most_heads, bytes_of_head):
            found.append((plan.cost * (alone + beside * (together - 1)), plan))
    return min(found, key=lambda pair: pair[0])[1]
