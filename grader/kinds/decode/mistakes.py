"""The known mistakes of decode: the output with one step otherwise, in words and as the step."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from grader.kinds.attention.known_mistakes import HEADS, POINTERS, RESCALE, SCALE
from grader.kinds.decode.steps import LOG2_E, finite, gather, in_pieces, positive, weigh

MASK = "notebooks/09_decode.ipynb: Which keys a new token sees"
MERGE = "notebooks/09_decode.ipynb: Pieces and their merge"
EMPTY = "notebooks/09_decode.ipynb: A piece that a row does not see"
PAGES = "notebooks/09_decode.ipynb: Pages"
LOGIT = "notebooks/09_decode.ipynb: A learned sink logit"
TILES = (16, 32, 64, 128)  # keys


@dataclass(frozen=True)
class Mistake:
    """words: what the output equals. changes: {step of steps.STEPS or input: function of x}. applies(case): whether it
    can make a difference there. pieces: whether it depends on how long a piece is."""

    words: str
    question: str
    section: str
    changes: dict
    applies: Callable = lambda case: True
    pieces: bool = False


def paged(case):
    return case.page is not None


def windowed(case):
    return case.window is not None and case.window < case.N + case.Nq


def several_new(case):
    return case.Nq > 1


def several_sequences(case):
    return case.B > 1


def grouped(case):
    return case.group > 1


def has_sinks(case):
    return bool(case.sink)


def new_in_window(case):
    return several_new(case) and windowed(case)


def new_or_window(case):
    return several_new(case) or windowed(case)


def alike(x):
    """The weight 1 of each piece."""
    return x.exists.double().expand_as(x.lse)


def swap_rows(x, tensor):
    """(B, Hq, Nq, D) whose rows of a group are taken in the other order: new tokens first, heads second."""
    rows = tensor.unflatten(1, (-1, x.group)).flatten(2, 3)
    return rows.unflatten(2, (x.case.Nq, x.group)).transpose(2, 3).flatten(1, 2)


def not_rescaled(x, tile):
    """part_p in which each tile of keys is relative to the maximum so far, not to that of the piece."""
    scores = in_pieces(x.part_scores, min(tile, x.piece))
    so_far = finite(scores.amax(-1).cummax(-1).values)[..., None]
    return torch.exp(scores - so_far).flatten(-2)[..., : x.piece]


def first_of_tile(x, tile):
    return x.table[:, x.k_pos // tile * tile // x.page_size]


def pieces_but(keep):
    """{step} where only the pieces of each sequence for which keep(number, number of the last one) count."""

    def lse(x):
        number = x.exists.long().cumsum(-1) - 1
        last = x.exists.sum(-1, keepdim=True) - 1
        return torch.where(x.exists & keep(number, last), x.part_lse, -torch.inf)

    return {"lse": lse}


WHICH_WINDOW = "how old may a key be: `<` or `<=`? And from which new token is its age counted?"
NEWEST = "at which position is the first new token, at which is the last, and does lengths count them?"
LAST = "keys 0 to length - 1 exist: which is the last key of the last piece?"
CAUSAL = "may a new token see those that are newer?"
PAGE = "which entry of block_table has the page of key j, and which row of the page is it?"
WEIGHTS = "a piece with a larger sum of exponentials counts more: how much, and what does its lse say of that?"
BASE = "exp2 takes a logarithm in base 2: in which base is the lse that the pieces store?"
WHICH_LSE = "lse is the logarithm of the sum of all exponentials: which two numbers of the online softmax make it?"
ALL_PIECES = "how many pieces does this sequence have, the last, shorter one with them, and which is the first?"
NONE_SEEN = "what does a piece store for a row that sees no key of it, and what does that add in the merge?"
SINK = "exp(sink) joins the denominator of every row of its own head: once, in base e, and without a value. Where?"
GROUP = "query heads h * group to h * group + group - 1 share kv head h: which row of a tile is which head and token?"
WHOSE = "from which number of the grid does this address come?"
WHICH_SCALE = "by what are scores multiplied before the softmax, and how often?"


def sink_of(score):
    return {"sink_score": lambda x: score(x.sink)[:, None]}


def value_of_sink(value):
    """{step} where the sink has a value (B, Hq, 1, D), or one that broadcasts."""
    return {"acc": lambda x: (x.weight[..., None] * x.part_o).sum(-2) + x.sink_weight[..., None] * value(x)}


EVERY = (
    # which keys
    Mistake("attention without the last key of each sequence", LAST, MASK, {"end": lambda x: x.lengths - 1}),
    Mistake("attention with one key more than each sequence has", LAST, MASK,
            {"end": lambda x: x.lengths + 1, "q_pos": lambda x: x.lengths - x.case.Nq + 1 + x.token}),
    Mistake("attention with one key more than each sequence has", LAST, MASK,
            {"end": lambda x: x.lengths + 1, "age": lambda x: x.q_pos + 1 - x.k_pos,
             "seen": lambda x: x.inside & (x.age >= 0) & (x.age <= x.window)}),
    Mistake("attention over everything that the cache holds, past the lengths too", LAST, MASK,
            {"end": lambda x: x.lengths * 0 + x.case.tokens, "seen": lambda x: x.inside & (x.age < x.window)}),
    Mistake("new tokens that see newer ones, too", CAUSAL, MASK,
            {"seen": lambda x: x.inside & (x.age < x.window)}, several_new),
    Mistake("new tokens that all stand at the last position", NEWEST, MASK,
            {"q_pos": lambda x: x.lengths - 1 + 0 * x.token}, several_new),
    Mistake("new tokens that all stand at the first new position", NEWEST, MASK,
            {"q_pos": lambda x: x.lengths - x.case.Nq + 0 * x.token}, several_new),
    Mistake("new tokens one position too early", NEWEST, MASK,
            {"q_pos": lambda x: x.lengths - x.case.Nq - 1 + x.token}),
    Mistake("new tokens one position too late", NEWEST, MASK, {"q_pos": lambda x: x.lengths - x.case.Nq + 1 + x.token},
            new_or_window),
    Mistake("new tokens at positions behind the length, as if it did not count them", NEWEST, MASK,
            {"q_pos": lambda x: x.lengths + x.token, "first": lambda x: (x.lengths + 1 - x.window).clamp(min=0)},
            new_or_window),
    Mistake("new tokens at positions behind the length, as if it did not count them", NEWEST, MASK,
            {"q_pos": lambda x: x.lengths + x.token}, new_or_window),
    Mistake("new tokens at positions 0, 1, 2 ..., as if there were no cache", NEWEST, MASK,
            {"q_pos": lambda x: x.token + 0 * x.lengths}),
    Mistake("new tokens in the reverse order", NEWEST, MASK, {"q_pos": lambda x: x.lengths - 1 - x.token}, several_new),
    Mistake("attention in which no token sees its own key", CAUSAL, MASK,
            {"seen": lambda x: x.inside & (x.age > 0) & (x.age < x.window)}),
    Mistake("attention without the window", WHICH_WINDOW, MASK, {"window": lambda x: x.case.tokens}, windowed),
    Mistake("a window that is one too long", WHICH_WINDOW, MASK, {"window": lambda x: x.window + 1}, windowed),
    Mistake("a window that is one too long", WHICH_WINDOW, MASK,
            {"seen": lambda x: x.inside & (x.age >= 0) & (x.age <= x.window)}, windowed),
    Mistake("a window that is one too short", WHICH_WINDOW, MASK, {"window": lambda x: x.window - 1}, windowed),
    Mistake("a window that is one too short for the first new token", WHICH_WINDOW, MASK,
            {"first": lambda x: (x.lengths - x.case.Nq + 2 - x.window).clamp(min=0)}, windowed),
    Mistake("a window that begins for all new tokens where that of the last one does", WHICH_WINDOW, MASK,
            {"first": lambda x: (x.lengths - x.window).clamp(min=0)}, new_in_window),
    Mistake("a window that begins for all new tokens where that of the first one does", WHICH_WINDOW, MASK,
            {"seen": lambda x: x.inside & (x.age >= 0)}, new_in_window),
    Mistake("the window's first keys alone: the window is taken for a length", WHICH_WINDOW, MASK,
            {"first": lambda x: x.lengths * 0, "seen": lambda x: x.inside & (x.age >= 0) & (x.k_pos < x.window)},
            windowed),
    Mistake("every sequence with the length of the first one", WHOSE, POINTERS, {"lengths": lambda x: x.lengths[:1]},
            several_sequences),
    Mistake("every sequence with the longest length", WHOSE, POINTERS,
            {"lengths": lambda x: x.lengths.amax(0, keepdim=True).expand_as(x.lengths)}, several_sequences),
    # where they lie
    *(
        Mistake(f"attention whose {said} {words}", question, PAGES if question is PAGE else POINTERS,
                {name: lambda x, pages=pages, at=at: gather(getattr(x, pages), *at(x)) for name, pages in sides},
                applies)
        for said, sides in (
            ("keys and values", (("k", "pages_k"), ("v", "pages_v"))), ("keys", (("k", "pages_k"),)),
            ("values", (("v", "pages_v"),)),
        )
        for words, question, at, applies in (
            ("come from the pages in their own order, without block_table", PAGE,
             lambda x: ((x.k_pos // x.page_size).expand_as(x.page), x.row), paged),
            ("come from the pages in their own order, a sequence after the other", PAGE,
             lambda x: (torch.arange(x.case.B)[:, None] * x.table.shape[1] + x.k_pos // x.page_size, x.row), paged),
            ("come from the page that stands at the token's own number in block_table", PAGE,
             lambda x: (by_token(x), x.row), paged),
            ("come from the pages of sequence 0", WHOSE, lambda x: (x.page[:1].expand_as(x.page), x.row),
             lambda case: paged(case) and several_sequences(case)),
            ("come from sequence 0", WHOSE, lambda x: (0 * x.page, x.row),
             lambda case: not paged(case) and several_sequences(case)),
            ("come from the first row of their page", PAGE, lambda x: (x.page, 0 * x.row), paged),
            ("come from the next page", PAGE,
             lambda x: (x.table.roll(-1, 1)[:, x.k_pos // x.page_size], x.row), paged),
            ("come from pages and rows in each other's place", PAGE,
             lambda x: (by_row(x), (x.k_pos // x.page_size).expand_as(x.row)), paged),
            ("stand in each page in the reverse order", PAGE, lambda x: (x.page, x.page_size - 1 - x.row), paged),
            *(
                (f"come from the page of the first key of their tile (tiles of {tile})", PAGE,
                 lambda x, tile=tile: (first_of_tile(x, tile), x.row), paged)
                for tile in TILES
            ),
            *(
                (f"come from one page for each tile (tiles of {tile}), entry after entry", PAGE,
                 lambda x, tile=tile: (x.table[:, (x.k_pos // tile).clamp(max=x.table.shape[1] - 1)], x.row), paged)
                for tile in TILES
            ),
        )
    ),
    Mistake("attention over whole pages alone, without the last one that is not full", LAST, MASK,
            {"end": lambda x: x.lengths // x.page_size * x.page_size}, paged),
    Mistake("values taken from the keys", WHOSE, POINTERS, {"v": lambda x: gather(x.pages_k, x.page, x.row)}),
    Mistake("keys taken from the values", WHOSE, POINTERS, {"k": lambda x: gather(x.pages_v, x.page, x.row)}),
    Mistake("q of sequence 0 for every sequence", WHOSE, POINTERS, {"q": lambda x: x.q[:1].expand_as(x.q)},
            several_sequences),
    # heads and rows
    Mistake("query heads given to kv heads by h % Hkv, not h // group", GROUP, HEADS,
            {"kv_head": lambda x: torch.arange(x.case.Hq) % x.case.Hkv}, lambda case: grouped(case) and case.Hkv > 1),
    Mistake("attention over kv head 0 for every head", GROUP, HEADS,
            {"kv_head": lambda x: torch.zeros(x.case.Hq).long()}, lambda case: case.Hkv > 1),
    Mistake("every query head of a group with the q of its first one", GROUP, HEADS,
            {"q": lambda x: x.q[:, torch.arange(x.case.Hq) // x.group * x.group]}, grouped),
    Mistake("every new token with the q of the first one", GROUP, HEADS, {"q": lambda x: x.q[:, :, :1].expand_as(x.q)},
            several_new),
    Mistake("rows that are loaded as heads x tokens and stored as tokens x heads", GROUP, HEADS,
            {"o": lambda x: swap_rows(x, x.acc / positive(x.total)[..., None])},
            lambda case: grouped(case) and several_new(case)),
    Mistake("q whose rows are taken as tokens x heads", GROUP, HEADS, {"q": lambda x: swap_rows(x, x.q)},
            lambda case: grouped(case) and several_new(case)),
    # scores
    Mistake("scores that are not scaled", WHICH_SCALE, SCALE, {"scale": lambda x: 1.0}),
    Mistake("scores that are scaled twice", WHICH_SCALE, SCALE, {"scale": lambda x: x.scale**2}),
    Mistake("scores that are scaled by 1 / D", WHICH_SCALE, SCALE, {"scale": lambda x: 1.0 / x.case.D}),
    Mistake("scores that are scaled by 1 / sqrt(D), whatever softmax_scale is", WHICH_SCALE, SCALE,
            {"scale": lambda x: x.case.D**-0.5}, lambda case: case.scale is not None),
    Mistake("scores that are scaled by softmax_scale and by 1 / sqrt(D)", WHICH_SCALE, SCALE,
            {"scale": lambda x: x.scale * x.case.D**-0.5}, lambda case: case.scale is not None),
    Mistake("scores multiplied by log2(e), under exp", WHICH_SCALE, SCALE,
            {"scale": lambda x: x.scale * LOG2_E, "part_lse": lambda x: x.part_max + x.part_sum.log()}),
    Mistake("scores without the factor log2(e), under exp2", WHICH_SCALE, SCALE,
            {"scale": lambda x: x.scale / LOG2_E, "sink": lambda x: x.sink}),
    # the merge
    *(
        Mistake(words, question, EMPTY if question is NONE_SEEN else MERGE, changes, lambda case: case.N > 16, True)
        for words, question, changes in (
            ("the mean of the pieces, not weighed by their lse", WEIGHTS,
             {"weight": alike, "sink_weight": lambda x: torch.exp(x.sink_score)}),
            ("the mean of the pieces, not weighed by their lse", WEIGHTS,
             {"weight": alike}),
            ("the sum of the pieces, not weighed by their lse", WEIGHTS,
             {"weight": alike, "total": lambda x: x.pivot * 0 + 1}),
            ("pieces weighed by their lse, not by its exponential", WEIGHTS,
             {"weight": lambda x: torch.where(x.exists, x.part_lse * LOG2_E, 0.0)}),
            ("pieces weighed by their lse relative to the largest, not by its exponential", WEIGHTS,
             {"weight": lambda x: (x.lse - x.pivot[..., None]) * LOG2_E}),
            ("pieces weighed by exp of an lse in base 2", BASE,
             {"weight": lambda x: torch.exp((x.lse - x.pivot[..., None]) * LOG2_E),
              "sink_weight": lambda x: torch.exp((x.sink_score - x.pivot) * LOG2_E)}),
            ("pieces weighed by exp of an lse in base 2", BASE,
             {"weight": lambda x: torch.exp((x.lse - x.pivot[..., None]) * LOG2_E)}),
            ("pieces weighed by exp2 of a natural lse", BASE,
             {"weight": lambda x: torch.exp2(x.lse - x.pivot[..., None]),
              "sink_weight": lambda x: torch.exp2(x.sink_score - x.pivot)}),
            ("pieces weighed by exp2 of a natural lse", BASE,
             {"lse": lambda x: torch.where(x.exists, x.part_lse / LOG2_E, -torch.inf)}),
            ("pieces weighed the wrong way round, the smallest most", WEIGHTS,
             {"weight": lambda x: torch.where(x.lse > -torch.inf, torch.exp(x.pivot[..., None] - x.lse), 0.0)}),
            ("pieces whose lse is the maximum alone", WHICH_LSE, {"part_lse": lambda x: x.part_max}),
            ("pieces whose lse is the logarithm of the sum alone, without the maximum", WHICH_LSE,
             {"part_lse": lambda x: x.part_sum.log()}),
            ("pieces whose lse is the sum of exponentials itself", WHICH_LSE,
             {"part_lse": lambda x: x.part_sum / LOG2_E}),
            ("pieces whose lse is the maximum plus the sum, without its logarithm", WHICH_LSE,
             {"part_lse": lambda x: x.part_max + x.part_sum / LOG2_E}),
            ("pieces whose lse has the natural logarithm of the sum beside a maximum in base 2", WHICH_LSE,
             {"part_lse": lambda x: x.part_max + x.part_sum.log() / LOG2_E}),
            ("pieces whose lse has the logarithm of the sum subtracted", WHICH_LSE,
             {"part_lse": lambda x: x.part_max - x.part_sum.log()}),
            ("pieces that were not divided by their own sum", WEIGHTS, {"part_o": lambda x: x.part_acc}),
            ("pieces that were not divided by their own sum, merged by their maximum", WEIGHTS,
             {"part_o": lambda x: x.part_acc, "part_lse": lambda x: x.part_max}),
            ("the merge without its division by the denominator", WEIGHTS, {"o": lambda x: x.acc}),
            ("the last piece alone", ALL_PIECES, pieces_but(lambda number, last: number == last)),
            ("the first piece alone", ALL_PIECES, pieces_but(lambda number, last: number == 0)),
            ("all pieces but the last", ALL_PIECES, pieces_but(lambda number, last: number < last)),
            ("all pieces but the first", ALL_PIECES, pieces_but(lambda number, last: number > 0)),
            ("the pieces that are full alone", ALL_PIECES,
             {"end": lambda x: x.lengths // x.piece * x.piece}),
            ("at most the first 16 pieces", ALL_PIECES, pieces_but(lambda number, last: number < 16)),
            ("at most the last 16 pieces", ALL_PIECES,
             pieces_but(lambda number, last: number >= (last // 16 * 16).clamp(min=0))),
            ("a merge in which a piece that a row does not see counts as one with lse 0", NONE_SEEN,
             {"lse": lambda x: torch.where(x.exists & (x.part_sum > 0), x.part_lse,
                                           torch.where(x.exists, 0.0, -torch.inf))}),
            ("a merge in which a row gets NaN of a piece that it does not see", NONE_SEEN,
             {"part_o": lambda x: torch.where(x.exists[..., None], x.part_acc / x.part_sum[..., None], 0.0)}),
            ("a merge in which a row gets NaN where it sees nothing at all", NONE_SEEN,
             {"o": lambda x: x.acc / x.total[..., None]}),
        )
    ),
    *(
        Mistake(f"pieces whose {said} not rescaled when the maximum grows (tiles of {tile})", WHICH_LSE, RESCALE,
                {step: lambda x, tile=tile, of=of: of(x, not_rescaled(x, tile))}, lambda case: case.N > 16, True)
        for said, step, of in (
            ("acc is", "part_acc", lambda x, p: weigh(p, x.values, x.seen, x.piece)),
            ("sum is", "part_sum", lambda x, p: p.sum(-1)),
        )
        for tile in TILES[:-1]
    ),
    # the sink logit
    *(
        Mistake(words, SINK, LOGIT, changes, has_sinks, pieces)
        for words, changes, pieces in (
            ("attention without the sink logits", sink_of(lambda sink: sink * 0 - torch.inf), False),
            ("sink logits times the scale", {"sink_score": lambda x: (x.sink * x.scale)[:, None]}, False),
            ("sink logits times 1 / sqrt(D)", {"sink_score": lambda x: (x.sink * x.case.D**-0.5)[:, None]}, False),
            ("sink logits in base 2: without their log2(e)", sink_of(lambda sink: sink / LOG2_E), False),
            ("sink logits with log2(e) twice", sink_of(lambda sink: sink * LOG2_E), False),
            ("sink logits that were exponentiated before", sink_of(lambda sink: sink.exp()), False),
            ("sink logits that were exponentiated before", sink_of(lambda sink: sink.exp() / LOG2_E), False),
            ("sink logits that were exponentiated before", sink_of(lambda sink: (sink * LOG2_E).exp() / LOG2_E), False),
            ("sink logits with their sign turned", sink_of(lambda sink: -sink), False),
            ("the sink logit of head 0 for every head", sink_of(lambda sink: sink[:1].expand_as(sink)), False),
            ("the sink logit of the kv head's number for every head of its group",
             {"sink_score": lambda x: x.sink[torch.arange(x.case.Hq) // x.group][:, None]}, False),
            ("the sink logit of the sequence's number for every head",
             {"sink_score": lambda x: x.sink[torch.arange(x.case.B).clamp(max=x.case.Hq - 1)][:, None, None]}, False),
            ("the sink logit of the new token's number for every head",
             {"sink_score": lambda x: x.sink[torch.arange(x.case.Nq).clamp(max=x.case.Hq - 1)][None]}, False),
            ("the sink logit of the next head", sink_of(lambda sink: sink.roll(-1)), False),
            ("a sink logit that adds 1 to the denominator, whatever it is",
             {"sink_weight": lambda x: x.pivot * 0 + 1}, False),
            ("a sink logit that adds exp(sink), while the pieces are relative to the maximum",
             {"sink_weight": lambda x: x.sink_score.exp() + 0 * x.pivot}, False),
            ("a sink logit that is added to the denominator as it is, without exp",
             {"sink_weight": lambda x: x.sink_score + 0 * x.pivot}, False),
            ("a sink logit with the value 1", value_of_sink(lambda x: 1.0), False),
            ("a sink logit with the value of key 0", value_of_sink(lambda x: x.values[:, :, :1]), False),
            ("a sink logit with the value of the newest key", value_of_sink(lambda x: newest(x)), False),
            ("a sink logit that is counted once for each piece",
             {"sink_weight": lambda x: torch.exp(x.sink_score - x.pivot) * x.exists.sum(-1)}, True),
            ("a sink logit that is counted for each piece and once more",
             {"sink_weight": lambda x: torch.exp(x.sink_score - x.pivot) * (x.exists.sum(-1) + 1)}, True),
            ("a sink logit that is counted twice",
             {"sink_weight": lambda x: 2 * torch.exp(x.sink_score - x.pivot)}, False),
        )
    ),
    Mistake("the first key as a sink token, which every row sees, without the sink logits", SINK, LOGIT,
            {"seen": lambda x: (x.inside & (x.age >= 0) & (x.age < x.window)) | (x.k_pos == 0) & (x.q_pos >= 0),
             "sink_score": lambda x: (x.sink * 0 - torch.inf)[:, None]},
            lambda case: has_sinks(case) and windowed(case)),
    Mistake("all zero", "is it computed, and is it stored?", MERGE, {"o": lambda x: torch.zeros_like(x.q)}),
)  # fmt: skip


def by_token(x):
    """The page at the token's own number in the table; -1 past its end."""
    most = x.table.shape[1]
    return torch.where(x.k_pos < most, x.table[:, x.k_pos.clamp(max=most - 1)], -1)


def by_row(x):
    """The page at the number of the token's row in the table; -1 past its end."""
    row, most = x.k_pos % x.page_size, x.table.shape[1]
    return torch.where(row < most, x.table[:, row.clamp(max=most - 1)], -1)


def newest(x):
    at = (x.lengths[:, 0, 0, 0] - 1).clamp(min=0)
    return x.values[torch.arange(len(at)), :, at][:, :, None]
