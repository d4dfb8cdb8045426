"""Mistakes of a piece's end, of the merge and of the sink logit."""

import torch

from grader.kinds.attention.known_mistakes import RESCALE
from grader.kinds.decode.mistakes import (
    ALL_PIECES,
    BASE,
    BEGAN,
    EMPTY,
    HIDDEN,
    LOGIT,
    MASK,
    MERGE,
    NO_SINK,
    NONE_SEEN,
    PIVOT,
    SINK,
    TILES,
    WEIGHTS,
    WHICH_LSE,
    Mistake,
    has_sinks,
    windowed,
)
from grader.kinds.decode.steps import LOG2_E, finite, in_pieces, weigh

STEP = 16  # pieces that the given merge adds up at a time


def alike(x):
    """The weight 1 of each piece."""
    return x.exists.double().expand_as(x.lse)


def not_rescaled(x, tile):
    """part_p in which each tile of keys is relative to the maximum so far, not to that of the piece."""
    scores = in_pieces(x.part_scores, min(tile, x.piece))
    so_far = finite(scores.amax(-1).cummax(-1).values)[..., None]
    return torch.exp(scores - so_far).flatten(-2)[..., : x.piece]


def hidden_at(score, tile):
    """{step} where a hidden pair in the tiles of keys that a sequence's programs load has this score, not -inf."""

    def part_scores(x):
        parts = in_pieces(x.scores, x.piece)
        position = torch.arange(parts.shape[-2] * x.piece)
        loaded = (position >= x.first // tile * tile) & (position < (x.end + tile - 1) // tile * tile)
        return torch.where((parts == -torch.inf) & loaded.unflatten(-1, parts.shape[-2:]), score, parts)

    return {"part_scores": part_scores}


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


def sink_of(score):
    return {"sink_score": lambda x: score(x.sink)[:, None]}


def without(sink):
    return torch.full_like(sink, -torch.inf)


def not_relative(lse):
    """Weights of float32 that are not relative to a maximum: infinite where they overflow."""
    return torch.exp(lse).float().double()


def value_of_sink(value):
    """{step} where the sink has a value (B, Hq, 1, D), or one that broadcasts."""
    return {"acc": lambda x: (x.weight[..., None] * x.part_o).sum(-2) + x.sink_weight[..., None] * value(x)}


def newest(x):
    at = (x.lengths[:, 0, 0, 0] - 1).clamp(min=0)
    return x.values[torch.arange(len(at)), :, at][:, :, None]


MERGE_AND_SINK = (
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
            *(
                ("pieces whose weights are not relative to the largest lse", PIVOT,
                 {"weight": lambda x: not_relative(x.lse), **of_sink})
                for of_sink in ({"sink_weight": lambda x: not_relative(x.sink_score) + 0 * x.pivot}, {})
            ),
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
            ("pieces whose running maximum begins at 0, so that exponentials of low scores vanish", WHICH_LSE,
             {"part_max": lambda x: x.part_max.clamp(min=0.0), "part_p": from_0}),
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
            (f"a denominator of the last step of {STEP} pieces alone, under the acc of all", ALL_PIECES,
             {"total": lambda x: last_step(x).sum(-1) + x.sink_weight}),
            (f"acc of the last step of {STEP} pieces alone, over the denominator of all", ALL_PIECES,
             {"acc": lambda x: (last_step(x)[..., None] * x.part_o).sum(-2)}),
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
    *(
        Mistake(f"{words} (tiles of {tile})", HIDDEN, MASK, hidden_at(score, tile), pieces=True)
        for words, score in (
            ("attention in which each hidden pair of a tile has the score 0 and counts", 0.0),
            ("attention in which hidden pairs have a large negative score and count where all are hidden", -1e4),
        )
        for tile in TILES
    ),
    # the sink logit
    *(
        Mistake(words, SINK, LOGIT, changes, has_sinks, pieces)
        for words, changes, pieces in (
            ("attention without the sink logits", sink_of(without), False),
            ("attention without the sink logits", {"total": lambda x: x.weight.sum(-1)}, False),
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
             "sink_score": lambda x: without(x.sink)[:, None]},
            lambda case: has_sinks(case) and windowed(case)),
    Mistake("attention with a sink logit of 0 where none is given", NO_SINK, LOGIT,
            {"sink": lambda x: torch.zeros_like(x.sink)},
            lambda case: not has_sinks(case) and case.values == "normal"),
    Mistake("all zero", BEGAN, MERGE, {"o": lambda x: torch.zeros_like(x.q)}),
)  # fmt: skip
