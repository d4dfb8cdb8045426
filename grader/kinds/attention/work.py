"""Work is cost: what a program costs, counted where it was replayed, against what the mask of its case needs.

Nobody asks whose numbers a block holds. Who computes a tile that no query sees multiplies it, who keeps a row holds it,
who copies K out to every query head loads the copies, and what PyTorch computes it touches.
"""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from grader.course.problem import LONG_ROW
from grader.engine import output_checks
from grader.kinds.attention import tile_visits
from grader.kinds.attention.masks import whole_mask
from grader.result import Facts, Outcome, Verdict, Waste
from grader.unfinished import needs_review

# The most that is allowed of each of Ratios, and how it was set: report of `python -m grader.tests.kinds.costs`.
PRODUCTS, LOADED, COMPUTED, STORED, DIFFERENT, HELD = 1.2, 1.3, 10.0, 9.0, 1.5, 1.1
TOUCHED, MULTIPLY_ADDS, MADE = 36.0, 16.0, 16.0  # by PyTorch, for each element of q
POINTWISE = 6  # multiplications for each pair that every kernel has beside its products: scale, exp, rescaling
MOST_OF = 0.95  # of all multiplications in dots
ONE_TILE = 256  # queries or keys: a tile of more is held against one of so many
TOO_FAR = 64  # keys: one tile of up to so many may be met beyond an end of the mask, for each tile of queries
SETTLED = 1000  # keys: on shorter rows tiles, and parts of a row, are not yet what they will be
WHOLE = 256  # keys: lengths that differ by a multiple of it end alike in a tile
TIMES = {False: (2, 4), True: (8, 16)}  # whether in PyTorch: how many times as long the longer rows are
FEW_QUERIES = 32  # where the keys are many, in PyTorch
PADDED = 2  # times D: what a head dim is padded to at the most
NARROW = 32  # D: a narrower one may be cut into parts that are padded to what tl.dot takes
FEW = 64  # tokens: a shorter row may be padded to so many
FORWARD = 2  # products for each pair
SHARED = 4  # query heads to a kv head from which copies for each query head show


@dataclass(frozen=True)
class Ratios:
    """What a case's kernels cost, each as a ratio to what its mask needs with the kernels' own tiles.

    tile: queries and keys of a tile, the mean weighed by work. tiles, needed: how many of that size were multiplied,
    and how many hold a visible pair. products: multiplications. loaded, keys_loaded: elements, and of K or V those that
    are read where the call has them. computed: elements of blocks that were made, for each pair needed. stored:
    elements for each of o. different: elements that launches with products load, each counted once, over those of q, k
    and v. without_dots: the part of the products needed that no dot makes.
    """

    tile: tuple[int, int]
    tiles: float
    needed: float
    products: float
    loaded: float
    keys_loaded: float
    computed: float
    stored: float
    different: float
    without_dots: float


def measure(case, costs):
    """The Ratios of a case, of the Costs that the runner counted."""
    queries, shapes = queries_in_a_tile(case, costs), Counter()
    tiles, others = products_by_tile(case, costs)
    for (rows, columns), count in tiles.items():  # some dots may be transposed
        shapes[(columns, rows) if columns == queries != rows else (rows, columns)] += count
    products, tile = sum(shapes.values()), (1, 1)
    if products:
        tile = tuple(round(sum(shape[i] * count for shape, count in shapes.items()) / products) for i in (0, 1))
    each = case.multiplied
    rows = case.B * case.Hq * case.N  # each is divided, if it sees a key or not
    allowed = {shape: max(rows, need(case, *shape)) + slack(case, *shape) for shape in {*shapes, tile}}
    q, keys = case.B * case.Hq * case.N * case.D, case.B * case.kv_heads * case.num_keys * case.D
    area, in_dots = tile[0] * tile[1], sum(dots.count for dots in costs.dots)
    itemsize = getattr(torch, case.dtype).itemsize
    pairs_a_row = allowed[tile] / (queries or min(tile))
    return Ratios(
        tile=tile, tiles=products / each / area, needed=need(case, *tile) / area,
        products=sum(count / each / allowed[shape] for shape, count in shapes.items())
        + max(0.0, others / allowed[tile] - POINTWISE) / each / case.D,
        loaded=(costs.loaded - costs.stored) / (case.D * allowed[tile] * (1 / tile[1] + 2 / tile[0])),
        keys_loaded=max(costs.inputs.get(name, 0) for name in "kv") / (case.D * pairs_a_row),
        computed=costs.computed / allowed[tile],
        stored=costs.stored / q, different=costs.different / itemsize / (q + 2 * keys),
        without_dots=max(0.0, 1 - in_dots / each / case.D / max(1, need(case, *tile))),
    )  # fmt: skip


def products_by_tile(case, costs):
    """({(queries, keys) of a tile: pairs multiplied in tiles of that size, each product of a case a pair of its own},
    all other multiplications).

    A product is a dot, or a multiplication of blocks with an axis for the head dim. A head dim that is padded to PADDED
    times as many makes as many pairs as one that is not.
    """
    dots = [(each.dims, each.count) for each in costs.dots]
    blocks, others = [(tuple(each.shape), each.count) for each in costs.multiplied], 0
    found, width = Counter(), head_axis(case, dots)
    for dims, count in dots:
        axis = next((i for i in (2, 1, 0) if dims[i] == width), 2)
        tile = tuple(side for i, side in enumerate(dims) if i != axis)
        found[tile] += count / min(width, PADDED * case.D)
    alone = not dots and not any(is_product(shape, case.D) for shape, _ in blocks)
    for shape, count in blocks:
        if is_product(shape, case.D) or (alone and case.D in shape):
            sides = list(shape)
            sides.remove(case.D)
            found[tuple([1, 1, *sides][-2:])] += count / case.D
        else:
            others += count
    return found, others


def head_axis(case, dots):
    """The length of the axis that is the head dim in these dots: D, or what all of them pad it to.

    D is the depth of the dots that make scores. What is cut into parts has the products of the whole.
    """
    whole = sum(count for _, count in dots)
    with_it = sum(count for dims, count in dots if case.D in dims)
    deep = sum(count for dims, count in dots if dims[2] == case.D)
    if not dots or (with_it > MOST_OF * whole and deep > whole / 4):
        return case.D
    least = min(min(dims[1:]) for dims, count in dots if count > (1 - MOST_OF) * whole)
    return max(case.D, least)


def queries_in_a_tile(case, costs):
    """How many queries a tile has: a side of the dots that make o; 0 where none tells."""
    dots = {each.dims: each.count for each in costs.dots}
    width, found = head_axis(case, list(dots.items())), Counter()
    for (rows, columns, depth), count in dots.items():
        if depth != width and width in (rows, columns):  # queries x D or, transposed, D x queries
            found[rows if columns == width else columns] += count
    if not found and len(dots) == 1:  # as many keys in a tile as D: both products have one form
        ((rows, columns, _),) = dots
        return rows if columns == width else columns
    return max(found, key=found.get, default=0)


def is_product(shape, D):
    return len(shape) > 2 and D in shape


# What is needed ------------------------------------------------------------------------------------------------------


def need(case, rows, keys):
    """Pairs in all tiles of rows x keys that hold a visible one, over batches and heads."""
    if case.tile_letters:
        rows, keys = case.block  # the lists are of these
    return sum(times * need_of(seen, case.N, case.num_keys, rows, keys) for seen, times in masks(case))


def slack(case, rows, keys):
    """Pairs that may be met beyond an end of the mask; where lists say what to meet, none."""
    if case.tile_letters:
        return 0
    return case.B * case.Hq * -(-case.N // rows) * rows * min(keys, TOO_FAR)


def masks(case):
    """[(a mask's visibility, how many heads of all batches have it)]."""
    if case.one_mask:
        return [(case.visibility, case.B * case.Hq)]
    return list(Counter(case.seen_at(batch, head) for batch in range(case.B) for head in range(case.Hq)).items())


@functools.lru_cache(256)
def need_of(visibility, queries, keys, rows, columns):
    """Pairs in the tiles of rows x columns that hold a visible one.

    Which side of a dot holds the queries is not known: the larger of both counts. What lies past the ends of the mask
    in a tile of up to ONE_TILE goes with its last row and column. A larger tile is held against smaller ones.
    """
    mask, found = whole_mask(visibility, queries, keys).numpy(), []
    for tile in {(rows, columns), (columns, rows)}:
        whole = np.pad(
            mask, [(0, -size % min(side, ONE_TILE)) for size, side in zip(mask.shape, tile, strict=True)], "edge"
        )
        whole = np.pad(whole, [(0, -size % side) for size, side in zip(whole.shape, tile, strict=True)])
        r, c = (side // next(n for n in range(-(-side // ONE_TILE), side + 1) if side % n == 0) for side in tile)
        tiles = whole.reshape(whole.shape[0] // r, r, whole.shape[1] // c, c).any((1, 3))
        found.append(int(tiles.sum()) * r * c)
    return max(found)


# The rules -----------------------------------------------------------------------------------------------------------


def other_length(case, answers, inputs):
    """(case, inputs) of the next length of the long row to ask, or None; answers: [(case, Answer)] so far.

    A row of half the length is asked too. Where less is held there, rows of two and four times the length say whether
    that goes on: a kernel may take larger tiles for longer rows. PyTorch is asked for many keys and few queries. All
    lengths leave the same rest in a tile.
    """
    first = answers[0][1].reply
    if case.name != LONG_ROW or held(first) is None:
        return None
    in_torch, found = first.row_elements is not None, held_by_length(answers)
    shorter, *longer = (case.N + round((times - 1) * case.N / WHOLE) * WHOLE for times in (0.5, *TIMES[in_torch]))
    for length in (shorter, *longer):
        grows_so_far = length in longer and max(found.values()) > HELD * found[shorter]
        if length not in found and (length == shorter or (in_torch and length == longer[0]) or grows_so_far):
            other = of_length(case, length)
            other = replace(other, N=FEW_QUERIES, Nk=length) if in_torch else other
            return other, inputs(other)
    return None


def held_by_length(answers):
    """{keys of a row: elements that one program held at once there}."""
    return {case.num_keys: held(answer.reply) for case, answer in answers}


def of_length(case, length):
    """The same with one kv head and another number of tokens."""
    group = case.Hq // case.kv_heads
    return replace(case, B=1, Hq=group, Hkv=case.Hkv and 1, N=length, Nk=case.Nk and length)


def held(reply):
    """The elements that one program held at once, in PyTorch those that depend on one query's row; None on a GPU."""
    return reply.row_elements or (reply.trace and reply.trace.costs.held)


def wasted(case, answer) -> Waste | None:
    """The Waste where the kernels cost more than the mask needs, else None.

    On short rows tiles, and parts that are merged, hold more than their keys: there only lists say what is needed.
    """
    rules: tuple[Callable, ...] = (multiplies_too_much, loads_too_much)
    if settled(case):
        rules = (copies_heads, *rules, computes_too_much, stores_too_much)
    elif not case.tile_letters:
        return None
    found = measure(case, answer.reply.trace.costs)
    costs = asdict(found)
    if settled(case) and (sentence := grows(held_by_length([(case, answer), *answer.more]))):
        return Waste(sentence, costs)
    for rule in rules:
        if sentence := rule(case, found, answer.reply.trace):
            return Waste(sentence, costs)
    return None


def settled(case):
    """A long row of two, four or more heads: a kernel may take heads, or those of a group, together and pad them."""
    group = case.Hq // case.kv_heads
    return case.num_keys >= SETTLED and case.Hq > 1 and not case.Hq & (case.Hq - 1) and not group & (group - 1)


def grows(found):
    """A sentence where more is held on longer rows, however long, else "". found: of held_by_length."""
    by_length = sorted(found.items())
    if len(by_length) > 3 and by_length[-1][1] > HELD * by_length[-2][1]:
        (short, before), *_, (long, now) = by_length
        return (
            f"A program holds {now / before:.1f} times as many elements on a row of {long} tokens as on one of "
            f"{short}: a tile grows with the row, or tiles of earlier iterations are kept. Take tiles of a fixed size, "
            "one after the other."
        )
    return ""


def copies_heads(case, found, trace):
    if case.multiplied == FORWARD and case.Hq >= SHARED * case.kv_heads and found.different > DIFFERENT:
        return (
            f"The kernels load {found.different:.1f} times as many different elements as q, k and v have: K or V is "
            f"copied out to {case.Hq} heads before. The kernel can read its head where it is."
        )
    return ""


def multiplies_too_much(case, found, trace):
    if found.products <= PRODUCTS or case.D < NARROW:
        return ""
    rows, keys = found.tile
    return in_vain(case, trace) or (
        f"In all heads together the kernels multiply {found.tiles:.0f} tiles of {rows} x {keys}, where "
        f"{found.needed:.0f} hold a visible pair: {ONE_PASS}."
    )


def loads_too_much(case, found, trace):
    of_lists = case.tile_letters  # a kernel may load bits for each tile beside its keys
    times = found.keys_loaded if of_lists else max(found.loaded, found.keys_loaded)
    if case.multiplied == FORWARD and times > LOADED:
        return f"The kernels load {times:.1f} times what one pass over the tiles that this mask needs has to load."
    return ""


def computes_too_much(case, found, trace):
    queries, keys = found.tile
    inputs = case.D * (1 / queries + 1 / keys)  # for each pair: blocks of q, k, v and o, their pointers and masks
    most = case.multiplied * (COMPUTED * (1 + inputs) + 4 * case.D * found.without_dots)
    if found.computed > most:
        return (
            f"The kernels make {found.computed:.0f} elements of blocks for each pair of the tiles that this mask "
            f"needs, where {most:.0f} are enough."
        )
    return ""


def stores_too_much(case, found, trace):
    if found.stored > STORED:
        return (
            f"The kernels store {found.stored:.0f} elements for each element of the output: scores, and an o for "
            "each tile of keys, belong in no tensor. Keep one tile at a time."
        )
    return ""


ONE_PASS = "one pass over them is enough. Are scores computed twice, or tiles multiplied that a mask hides"


def in_vain(case, trace):
    """A sentence on the tiles that a kernel works on in vain, where the visits show some, else empty: how many, and
    what the program with the most of them does in one line."""
    seen, hidden, visits = tile_visits.seen_of(case), defaultdict(list), tile_visits.read(trace)
    for record in visits:
        for each in record.stretches:
            for tile in record.tiles:
                inside = each.first <= tile[0] and tile[1] <= each.last
                if inside and not seen(record.batch, record.head).any(record.q, tile):
                    hidden[record.kernel, record.program, record.head, each.line].append((record.q, tile))
    if not hidden:
        return ""
    (kernel, *_, line), pairs = max(hidden.items(), key=lambda item: len(set(item[1])))
    own = [(each, tile) for each in visits for tile in each.tiles if each.kernel == kernel]
    needed = sum(seen(each.batch, each.head).any(each.q, tile) for each, tile in own)
    sides = zip(*[(each.q, tile) for each, tile in own], strict=True)
    size = " x ".join(str(max(last - first + 1 for first, last in side)) for side in sides)
    queries, keys = (sorted({pair[side] for pair in pairs}) for side in (0, 1))
    if len(queries) > 1 and len(keys) > 1:  # of a program that has one tile of queries after the other, the first
        queries, keys = queries[:1], sorted({tile for q, tile in pairs if q == queries[0]})
    return (
        f"In all heads together {kernel} works on {len(own)} tiles of {size}, of which {needed} hold a visible pair: "
        f"line {line} works for queries {hull(queries)} on keys {hull(keys)}, which none of them sees."
    )


def hull(tiles):
    """`64 to 1029` of tiles, and that there are gaps between them."""
    first, last = min(first for first, _ in tiles), max(last for _, last in tiles)
    gaps = sum(last - first + 1 for first, last in tiles) < last - first + 1
    return f"{first} to {last}" + " (not all)" * gaps


def by_torch(problem, case, reply):
    """A sentence where PyTorch does more outside of the kernels than preparing and merging take, else ""."""
    q = case.B * case.Hq * max(case.N, FEW) * case.D
    return output_checks.describe_torch(reply.wrapper, q, "element of q", BOUNDS, problem.module)


BOUNDS = {"multiply_adds": MULTIPLY_ADDS, "touched": TOUCHED, "made": MADE}


# The work of a problem -----------------------------------------------------------------------------------------------


def judge(results):
    """The Verdict on the work of a problem: the long row is right, and nothing that is right wastes."""
    wasteful = [r for r in results if r.outcome is Outcome.PASSED and r.facts.waste]
    if wasteful:  # the long row says it most plainly
        first = max(wasteful, key=lambda result: result.case == LONG_ROW)
        waste = first.facts.waste
        if waste.uncounted:
            return needs_review([waste.sentence])
        return Verdict(Outcome.WASTEFUL, f'"{first.case}": {waste.sentence}', first.facts)
    long_row = next((result for result in results if result.case == LONG_ROW), None)
    if long_row is not None and long_row.outcome is Outcome.GRADER_FAULT:
        return Verdict(Outcome.GRADER_FAULT, long_row.sentence)
    if long_row is None or long_row.outcome is not Outcome.PASSED:
        return Verdict(Outcome.NOT_RUN, f'not judged yet: first make case "{LONG_ROW}" pass', Facts(earned=False))
    return Verdict(Outcome.PASSED)
