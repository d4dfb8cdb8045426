"""The known mistakes of decode: the output with steps otherwise, in words, as steps, and the question that they ask."""

import itertools
from types import SimpleNamespace

import torch

from grader.engine.mistakes import Mistake, about
from grader.kinds.attention.known_mistakes import HEADS, POINTERS, RESCALE, SCALE
from grader.kinds.decode.reference import LOG2_E, STEPS, finite, gather, in_pieces, weigh

MASK = "notebooks/09_decode.ipynb: Which keys a new token sees"
MERGE = "notebooks/09_decode.ipynb: Pieces and their merge"
EMPTY = "notebooks/09_decode.ipynb: A piece that a row does not see"
PAGES = "notebooks/09_decode.ipynb: Pages"
LOGIT = "notebooks/09_decode.ipynb: A learned sink logit"

WINDOW = "how old may a key be: `<` or `<=`? And from which new token is its age counted?"
NEWEST = "at which position is the first new token, at which is the last, and does lengths count them?"
LAST = "keys 0 to length - 1 exist: which is the last key of the last piece?"
CAUSAL = "may a new token see those that are newer?"
OWN = "how old is a token's own key, and may the token see it: `>` or `>=`?"
PAGE = "which entry of block_table has the page of key j, and which row of the page is it?"
CAPACITY = "how many tokens can a sequence have whose row of block_table has so many pages?"
IN_PAGES = "which page has key j, which row of the page is it, and by which stride does each move?"
WEIGHTS = "a piece with a larger sum of exponentials counts more: how much, and what does its lse say of that?"
BASE = "exp2 takes a logarithm in base 2: in which base is the lse that the pieces store?"
WHICH_LSE = "lse is the logarithm of the sum of all exponentials: which two numbers of the online softmax make it?"
ALL_PIECES = "how many pieces does this sequence have, the last, shorter one with them, and which is the first?"
NONE_SEEN = "what does a piece store for a row that sees no key of it, and what does that add in the merge?"
HIDDEN = "the exponential of a hidden score is to be 0, whatever the maximum is: of which number is it exactly 0?"
SINK = "exp(sink) joins the denominator of every row of its own head: once, in base e, and without a value. Where?"
NO_SINK = "what joins the denominator where sink_logits is None: exp(0) is 1, and exp of which number is 0?"
BEGAN = "which number is still what it began with: acc, a sum, or a maximum of -inf, which makes each weight 0?"
WHERE_WINDOW = "where does the window begin: for the mask, for the first key loaded, and for the merged pieces?"
PIVOT = "which number must be taken from every lse, and from the sink logit, so that no exponential overflows?"
GROUP = "query heads h * group to h * group + group - 1 share kv head h: which row of a tile is which head and token?"
WHOSE = "from which number of the grid does this address come?"
FACTOR = "by what are scores multiplied before the softmax, and how often?"

STEP = 16  # pieces that the given merge adds up at a time
PIECES = (16, 32, 64, 128, 256, 512)  # tokens of a piece; a kernel may have its own

# When ----------------------------------------------------------------------------------------------------------------


WHEN = SimpleNamespace(
    paged=lambda case: case.page is not None,
    windowed=lambda case: case.window is not None and case.window < case.N + case.Nq,
    several_new=lambda case: case.Nq > 1,
    several_sequences=lambda case: case.B > 1,
    several_kv_heads=lambda case: case.Hkv > 1,
    grouped=lambda case: case.group > 1,
    grouped_new=lambda case: case.group > 1 and case.Nq > 1,
    new_in_window=lambda case: case.Nq > 1 and case.window is not None and case.window < case.N + case.Nq,
    new_or_window=lambda case: case.Nq > 1 or (case.window is not None and case.window < case.N + case.Nq),
    has_sinks=lambda case: bool(case.sink),
)


def in_tiles(case):
    """Tiles of keys."""
    return tuple({"tile": tile} for tile in (16, 32, 64, 128))


def by_pieces(case):
    return tuple({"piece": piece} for piece in dict.fromkeys((case.piece, *(p for p in PIECES if p < case.N))))


def by_both(case):
    return tuple(piece | tile for piece, tile in itertools.product(by_pieces(case), in_tiles(case)[:-1]))


# Which keys ----------------------------------------------------------------------------------------------------------


def q_pos(position):
    return {"q_pos": lambda x: position(x) + 0 * x.token + 0 * x.lengths}


def first_new(x):
    return x.lengths - x.case.Nq


def seen_where(rule):
    return {"seen": lambda x: x.inside & rule(x)}


KEYS = (
    *about(LAST, MASK,
        ("attention without the last key of each sequence", {"end": lambda x: x.lengths - 1}),
        ("attention with one key more than each sequence has",
         {"end": lambda x: x.lengths + 1, "q_pos": lambda x: first_new(x) + 1 + x.token}),
        ("attention with one key more than each sequence has",
         {"end": lambda x: x.lengths + 1, "age": lambda x: x.q_pos + 1 - x.k_pos,
          **seen_where(lambda x: (x.age >= 0) & (x.age <= x.window))}),
    ),
    *about(CAUSAL, MASK,
        ("new tokens that see newer ones, too", seen_where(lambda x: x.age < x.window)), when=WHEN.several_new),
    *about(CAUSAL, MASK,
        ("new tokens that see newer ones, too, in every tile but the last",
         seen_where(lambda x: (x.age < x.window) & ((x.age >= 0) | (x.k_pos < (x.lengths - 1) // x.tile * x.tile)))),
        when=WHEN.several_new, vary=in_tiles),
    *about(NEWEST, MASK,
        ("lengths with the new tokens twice", {"lengths": lambda x: x.lengths + x.case.Nq}),
        ("lengths without the new tokens", {"lengths": lambda x: x.lengths - x.case.Nq}),
        ("new tokens that all stand at the last position", q_pos(lambda x: x.lengths - 1), WHEN.several_new),
        ("new tokens at positions behind the length, as if it did not count them",
         {**q_pos(lambda x: x.lengths + x.token), "first": lambda x: (x.lengths + 1 - x.window).clamp(min=0)},
         WHEN.new_or_window),
        ("new tokens at positions behind the length, as if it did not count them",
         q_pos(lambda x: x.lengths + x.token), WHEN.new_or_window),
        ("new tokens at positions 0, 1, 2 ..., as if there were no cache", q_pos(lambda x: x.token)),
        *(
            ("rows whose position counts the heads of their group",
             q_pos(lambda x, of=of: first_new(x) + of(x, (torch.arange(x.case.Hq) % x.group)[:, None, None])),
             WHEN.grouped)
            for of in (lambda x, member: member, lambda x, member: member * x.case.Nq + x.token)
        ),
        ("new tokens that see key 0 where their position is negative",
         q_pos(lambda x: (first_new(x) + x.token).clamp(min=0)), lambda case: min(case.lengths) < case.Nq),
        ("new tokens in the reverse order", q_pos(lambda x: x.lengths - 1 - x.token), WHEN.several_new),
    ),
    *about(OWN, MASK,
        ("attention in which no token sees its own key", seen_where(lambda x: (x.age > 0) & (x.age < x.window)))),
    *about(WINDOW, MASK,
        ("a window that is one too long", {"window": lambda x: x.window + 1}),
        ("a window that is one too long", seen_where(lambda x: (x.age >= 0) & (x.age <= x.window))),
        ("a window that is one too short", {"window": lambda x: x.window - 1}),
        ("a window that is one too short for the first new token",
         {"first": lambda x: (first_new(x) + 2 - x.window).clamp(min=0)}),
        ("a window that begins for all new tokens where that of the last one does",
         {"first": lambda x: (x.lengths - x.window).clamp(min=0)}, WHEN.new_in_window),
        ("a window that begins for all new tokens where that of the first one does",
         seen_where(lambda x: x.age >= 0), WHEN.new_in_window),
        when=WHEN.windowed),
    *about(CAPACITY, PAGES,
        ("a window of as many tokens as block_table has pages for a sequence",
         {"window": lambda x: min(x.window, x.table.shape[1])}), when=WHEN.paged),
    *about(WHOSE, POINTERS,
        ("every sequence with the length of the first one", {"lengths": lambda x: x.lengths[:1]}),
        when=WHEN.several_sequences),
)  # fmt: skip

# Where they lie, heads and rows --------------------------------------------------------------------------------------


def entry_at(x, index):
    """The page at this index of each sequence's row of the table; -1 past its end."""
    most = x.table.shape[1]
    return torch.where(index < most, x.table[:, index.clamp(max=most - 1)], -1)


def come_from(at):
    """(what comes from there, the steps) of keys and values, of keys alone, of values alone; at(x): (page, row)."""
    sides = {"keys and values": ("k", "v"), "keys": ("k",), "values": ("v",)}
    for said, names in sides.items():
        yield said, {name: lambda x, name=name: gather(getattr(x, f"pages_{name}"), *at(x)) for name in names}


def lying(ask, read, words, at, when, **more):
    return tuple(Mistake(f"attention whose {said} {words}", ask, read, changes, when, **more)
                 for said, changes in come_from(at))  # fmt: skip


def swap_rows(x, tensor):
    """(B, Hq, Nq, D) whose rows of a group are taken in the other order: new tokens first, heads second."""
    rows = tensor.unflatten(1, (-1, x.group)).flatten(2, 3)
    return rows.unflatten(2, (x.case.Nq, x.group)).transpose(2, 3).flatten(1, 2)


PLACES = (
    *lying(PAGE, PAGES, "come from the pages in their own order, without block_table",
           lambda x: ((x.k_pos // x.page_size).expand_as(x.page), x.row), WHEN.paged),
    *lying(WHOSE, POINTERS, "come from the pages of sequence 0", lambda x: (x.page[:1].expand_as(x.page), x.row),
           lambda case: WHEN.paged(case) and WHEN.several_sequences(case)),
    *lying(WHOSE, POINTERS, "come from sequence 0", lambda x: (0 * x.page, x.row),
           lambda case: not WHEN.paged(case) and WHEN.several_sequences(case)),
    *lying(PAGE, PAGES, "come from the first row of their page", lambda x: (x.page, 0 * x.row), WHEN.paged),
    *lying(PAGE, PAGES, "come from the next page",
           lambda x: (x.table.roll(-1, 1)[:, x.k_pos // x.page_size], x.row), WHEN.paged),
    *lying(PAGE, PAGES, "come from pages and rows in each other's place",
           lambda x: (entry_at(x, x.k_pos % x.page_size), (x.k_pos // x.page_size).expand_as(x.row)), WHEN.paged),
    *lying(PAGE, PAGES, "come from row `j & (page_size - 1)` of their page: `j % page_size` for powers of two alone",
           lambda x: (x.page, (x.k_pos & (x.page_size - 1)).expand_as(x.row)), WHEN.paged),
    *lying(PAGE, PAGES, "stand in each page in the reverse order",
           lambda x: (x.page, x.page_size - 1 - x.row), WHEN.paged),
    *lying(PAGE, PAGES, "come from the page of the first key of their tile",
           lambda x: (x.table[:, x.k_pos // x.tile * x.tile // x.page_size], x.row), WHEN.paged, vary=in_tiles),
    *about(WHOSE, POINTERS,
        ("values taken from the keys", {"v": lambda x: gather(x.pages_k, x.page, x.row)})),
    *about(GROUP, HEADS,
        ("query heads given to kv heads by h % Hkv, not h // group",
         {"kv_head": lambda x: torch.arange(x.case.Hq) % x.case.Hkv}, lambda case: WHEN.grouped(case) and case.Hkv > 1),
        ("attention over kv head 0 for every head",
         {"kv_head": lambda x: torch.zeros(x.case.Hq).long()}, WHEN.several_kv_heads),
        ("attention over the keys of kv head 0 for every head",
         {"keys": lambda x: x.k[:, 0 * x.kv_head]}, WHEN.several_kv_heads),
        ("attention over the values of kv head 0 for every head",
         {"values": lambda x: x.v[:, 0 * x.kv_head]}, WHEN.several_kv_heads),
        ("every new token with the q of the first one",
         {"q": lambda x: x.q[:, :, :1].expand_as(x.q)}, WHEN.several_new),
        ("rows that are loaded as heads x tokens and stored as tokens x heads",
         {"o": lambda x: swap_rows(x, STEPS["o"](x))}, WHEN.grouped_new),
        ("q whose rows are taken as tokens x heads", {"q": lambda x: swap_rows(x, x.q)}, WHEN.grouped_new)),
)  # fmt: skip

# Scores and softmax --------------------------------------------------------------------------------------------------


def scaled(scale):
    return {"scale": scale}


def not_rescaled(x):
    """part_p in which each tile of keys is relative to the maximum so far, not to that of the piece."""
    scores = in_pieces(x.part_scores, min(x.tile, x.piece))
    so_far = finite(scores.amax(-1).cummax(-1).values)[..., None]
    return torch.exp(scores - so_far).flatten(-2)[..., : x.piece]


def hidden_at(score):
    """{step} where a hidden pair in the tiles of keys that a sequence's programs load has this score, not -inf."""

    def part_scores(x):
        parts = STEPS["part_scores"](x)
        position = torch.arange(parts.shape[-2] * x.piece)
        loaded = (position >= x.first // x.tile * x.tile) & (position < (x.end + x.tile - 1) // x.tile * x.tile)
        return torch.where((parts == -torch.inf) & loaded.unflatten(-1, parts.shape[-2:]), score, parts)

    return {"part_scores": part_scores}


SCORES = (
    *about(FACTOR, SCALE,
        ("scores that are not scaled", scaled(lambda x: 1.0)),
        ("scores that are scaled twice", scaled(lambda x: x.scale**2)),
        ("scores that are scaled by 1 / D", scaled(lambda x: 1.0 / x.case.D)),
        ("scores that are scaled by 1 / sqrt(D), whatever softmax_scale is",
         scaled(lambda x: x.case.D**-0.5), lambda case: bool(case.scale)),
        ("scores that are scaled by 1 / sqrt(D), as if a softmax_scale of 0 were none",
         scaled(lambda x: x.case.D**-0.5), lambda case: case.scale == 0),
        ("scores that are scaled by softmax_scale and by 1 / sqrt(D)",
         scaled(lambda x: x.scale * x.case.D**-0.5), lambda case: case.scale is not None),
        ("scores multiplied by log2(e), under exp", scaled(lambda x: x.scale * LOG2_E)),
        ("scores without the factor log2(e), under exp2", scaled(lambda x: x.scale / LOG2_E))),
    *about(WHICH_LSE, RESCALE,
        ("pieces whose acc is not rescaled when the maximum grows",
         {"part_acc": lambda x: weigh(not_rescaled(x), x.values, x.seen, x.piece)}),
        ("pieces whose sum is not rescaled when the maximum grows", {"part_sum": lambda x: not_rescaled(x).sum(-1)}),
        when=lambda case: case.N > 16, vary=by_both),
    *about(HIDDEN, MASK,
        ("attention in which each hidden pair of a tile has the score 0 and counts", hidden_at(0.0)),
        ("attention in which hidden pairs have a large negative score and count where all are hidden", hidden_at(-1e4)),
        vary=lambda case: [p | t for p, t in itertools.product(by_pieces(case), in_tiles(case))]),
)  # fmt: skip

# The merge -----------------------------------------------------------------------------------------------------------


def alike(x):
    """The weight 1 of each piece."""
    return x.exists.double().expand_as(x.lse)


def from_0(x):
    """part_p of float32, relative to a maximum that is never below 0."""
    return torch.exp(x.part_scores - x.part_max[..., None]).float().double()


def pieces_but(keep):
    """{step} where only the pieces of each sequence for which keep(number, number of the last one) count."""

    def lse(x):
        number = x.exists.long().cumsum(-1) - 1
        last = x.exists.sum(-1, keepdim=True) - 1
        return torch.where(x.exists & keep(number, last), x.part_lse, -torch.inf)

    return {"lse": lse}


def last_step(x):
    """x.weight of the last STEP pieces of a sequence, from a multiple of STEP on; 0 of the others."""
    number, last = x.exists.long().cumsum(-1) - 1, x.exists.sum(-1, keepdim=True) - 1
    return torch.where(x.exists & (number >= last // STEP * STEP), x.weight, 0.0)


def not_relative(lse):
    """Weights of float32 that are not relative to a maximum: infinite where they overflow."""
    return torch.exp(lse).float().double()


def part_lse(of):
    return {"part_lse": of}


def weight(of):
    return {"weight": of}


def merged(ask, *mistakes, read=MERGE):
    return about(ask, read, *mistakes, when=lambda case: case.N > 16, vary=by_pieces)


PIECES_MERGED = (
    *merged(WEIGHTS,
        ("the mean of the pieces, not weighed by their lse",
         {**weight(alike), "sink_weight": lambda x: torch.exp(x.sink_score)}),
        ("the mean of the pieces, not weighed by their lse", weight(alike)),
        ("the sum of the pieces, not weighed by their lse", {**weight(alike), "total": lambda x: x.pivot * 0 + 1}),
        ("pieces weighed by their lse, not by its exponential",
         weight(lambda x: torch.where(x.exists, x.part_lse * LOG2_E, 0.0))),
        ("pieces weighed by their lse relative to the largest, not by its exponential",
         weight(lambda x: (x.lse - x.pivot[..., None]) * LOG2_E)),
        ("pieces weighed the wrong way round, the smallest most",
         weight(lambda x: torch.where(x.lse > -torch.inf, torch.exp(x.pivot[..., None] - x.lse), 0.0))),
        ("pieces that were not divided by their own sum", {"part_o": lambda x: x.part_acc}),
        ("pieces that were not divided by their own sum, merged by their maximum",
         {"part_o": lambda x: x.part_acc, **part_lse(lambda x: x.part_max)}),
        ("the merge without its division by the denominator", {"o": lambda x: x.acc})),
    *merged(PIVOT,
        *(("pieces whose weights are not relative to the largest lse",
           {**weight(lambda x: not_relative(x.lse)), **sink})
          for sink in ({"sink_weight": lambda x: not_relative(x.sink_score) + 0 * x.pivot}, {}))),
    *merged(BASE,
        ("pieces weighed by exp of an lse in base 2",
         {**weight(lambda x: torch.exp((x.lse - x.pivot[..., None]) * LOG2_E)),
          "sink_weight": lambda x: torch.exp((x.sink_score - x.pivot) * LOG2_E)}),
        ("pieces weighed by exp of an lse in base 2",
         weight(lambda x: torch.exp((x.lse - x.pivot[..., None]) * LOG2_E))),
        ("pieces weighed by exp2 of a natural lse",
         {**weight(lambda x: torch.exp2(x.lse - x.pivot[..., None])),
          "sink_weight": lambda x: torch.exp2(x.sink_score - x.pivot)}),
        ("pieces weighed by exp2 of a natural lse",
         {"lse": lambda x: torch.where(x.exists, x.part_lse / LOG2_E, -torch.inf)})),
    *merged(WHICH_LSE,
        ("pieces whose lse is the maximum alone", part_lse(lambda x: x.part_max)),
        ("pieces whose lse is the logarithm of the sum alone, without the maximum",
         part_lse(lambda x: x.part_sum.log())),
        ("pieces whose lse is the sum of exponentials itself", part_lse(lambda x: x.part_sum / LOG2_E)),
        ("pieces whose lse is the maximum plus the sum, without its logarithm",
         part_lse(lambda x: x.part_max + x.part_sum / LOG2_E)),
        ("pieces whose lse has the natural logarithm of the sum beside a maximum in base 2",
         part_lse(lambda x: x.part_max + x.part_sum.log() / LOG2_E)),
        ("pieces whose lse has the logarithm of the sum subtracted", part_lse(lambda x: x.part_max - x.part_sum.log())),
        ("pieces whose running maximum begins at 0, so that exponentials of low scores vanish",
         {"part_max": lambda x: x.part_scores.amax(-1).clamp(min=0.0), "part_p": from_0})),
    *merged(ALL_PIECES,
        ("all pieces but the last", pieces_but(lambda number, last: number < last)),
        ("all pieces but the first", pieces_but(lambda number, last: number > 0)),
        ("the pieces that are full alone", {"end": lambda x: x.lengths // x.piece * x.piece}),
        ("at most the first 16 pieces", pieces_but(lambda number, last: number < 16)),
        (f"a denominator of the last step of {STEP} pieces alone, under the acc of all",
         {"total": lambda x: last_step(x).sum(-1) + x.sink_weight}),
        (f"acc of the last step of {STEP} pieces alone, over the denominator of all",
         {"acc": lambda x: (last_step(x)[..., None] * x.part_o).sum(-2)})),
    *merged(NONE_SEEN,
        ("a merge in which a piece that a row does not see counts as one with lse 0",
         {"lse": lambda x: torch.where(x.exists & (x.part_sum > 0), x.part_lse,
                                       torch.where(x.exists, 0.0, -torch.inf))}),
        ("a merge in which a row gets NaN of a piece that it does not see",
         {"part_o": lambda x: torch.where(x.exists[..., None], x.part_acc / x.part_sum[..., None], 0.0)}),
        ("a merge in which a row gets NaN where it sees nothing at all", {"o": lambda x: x.acc / x.total[..., None]}),
        read=EMPTY),
)  # fmt: skip

# The sink logit ------------------------------------------------------------------------------------------------------


def sink_of(score):
    return {"sink_score": lambda x: score(x.sink)[:, None]}


def without(sink):
    return torch.full_like(sink, -torch.inf)


def value_of_sink(value):
    """{step} where the sink has a value (B, Hq, 1, D), or one that broadcasts."""
    return {"acc": lambda x: (x.weight[..., None] * x.part_o).sum(-2) + x.sink_weight[..., None] * value(x)}


def counted(times):
    return {"sink_weight": lambda x: torch.exp(x.sink_score - x.pivot) * times(x)}


SINKS = (
    *about(SINK, LOGIT,
        ("attention without the sink logits", sink_of(without)),
        ("attention without the sink logits", {"total": lambda x: x.weight.sum(-1)}),
        ("sink logits times the scale", {"sink_score": lambda x: (x.sink * x.scale)[:, None]}),
        ("sink logits times 1 / sqrt(D)", {"sink_score": lambda x: (x.sink * x.case.D**-0.5)[:, None]}),
        ("sink logits in base 2: without their log2(e)", sink_of(lambda sink: sink / LOG2_E)),
        ("sink logits with log2(e) twice", sink_of(lambda sink: sink * LOG2_E)),
        ("sink logits that were exponentiated before", sink_of(lambda sink: sink.exp())),
        ("sink logits that were exponentiated before", sink_of(lambda sink: sink.exp() / LOG2_E)),
        ("sink logits that were exponentiated before", sink_of(lambda sink: (sink * LOG2_E).exp() / LOG2_E)),
        ("sink logits with their sign turned", sink_of(lambda sink: -sink)),
        ("the sink logit of head 0 for every head", sink_of(lambda sink: sink[:1].expand_as(sink))),
        ("the sink logit of the sequence's number for every head",
         {"sink_score": lambda x: x.sink[torch.arange(x.case.B).clamp(max=x.case.Hq - 1)][:, None, None]}),
        ("a sink logit that adds exp(sink), while the pieces are relative to the maximum",
         {"sink_weight": lambda x: x.sink_score.exp() + 0 * x.pivot}),
        ("a sink logit with the value 1", value_of_sink(lambda x: 1.0)),
        ("a sink logit that is counted twice", counted(lambda x: 2)),
        when=WHEN.has_sinks),
    *about(SINK, LOGIT,
        ("a sink logit that is counted once for each piece", counted(lambda x: x.exists.sum(-1))),
        ("a sink logit that is counted for each piece and once more", counted(lambda x: x.exists.sum(-1) + 1)),
        when=WHEN.has_sinks, vary=by_pieces),
    *about(SINK, LOGIT,
        ("the first key as a sink token, which every row sees, without the sink logits",
         {"seen": lambda x: STEPS["seen"](x) | (x.k_pos == 0) & (x.q_pos >= 0), **sink_of(without)}),
        when=lambda case: WHEN.has_sinks(case) and WHEN.windowed(case)),
    *about(NO_SINK, LOGIT,
        ("attention with a sink logit of 0 where none is given", {"sink": lambda x: torch.zeros_like(x.sink)}),
        when=lambda case: not WHEN.has_sinks(case) and case.values == "normal"),
    *about(BEGAN, MERGE, ("all zero", {"o": lambda x: 0 * x.q})),
)  # fmt: skip

EVERY = (*KEYS, *PLACES, *SCORES, *PIECES_MERGED, *SINKS)
