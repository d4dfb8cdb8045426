"""The catalogue of mistakes: what an output may equal instead, each with one question that leads to the fix.

A suspect is plain data and a changed Question; mistaken.py computes what it would give. Who sees whom is changed in
suspect_masks.py.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from grader import mistaken

GUESSED_TILES = (16, 32, 64, 128)  # where no trace tells them


@dataclass(frozen=True)
class Question:
    """What is computed: the inputs and rules of one case. A what-if is a Question with one thing changed.

    q (B, Hq, Nq, D); k, v (B, Hkv, Nk, D). k_from, v_from: (B, Hq, 2), the batch and head that a query head reads.
    weight: (q_pos, k_pos) -> how often each key counts, or a tensor (B, Hq, Nq, Nk). method: of mistaken.py.
    met: None, or a tensor (B, Hq, Nq, Nk): True where a tile of queries met a tile of keys.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    k_from: torch.Tensor
    v_from: torch.Tensor
    weight: Callable | torch.Tensor
    scale: float
    method: Callable = mistaken.whole
    met: torch.Tensor | None = None

    def answer(self, pairs):
        """(o, size), each (P, Nq, D), for P pairs (batch, query head)."""
        batch, head = pairs.unbind(1)
        k_batch, k_head = self.k_from[batch, head].unbind(1)
        v_batch, v_head = self.v_from[batch, head].unbind(1)
        q, k, v = self.q[batch, head], self.k[k_batch, k_head], self.v[v_batch, v_head]
        if isinstance(self.weight, torch.Tensor):
            weight = self.weight[batch, head].double()
        else:
            weight = self.weight(torch.arange(q.shape[1]), torch.arange(k.shape[1])).double()
        more = {} if self.met is None else {"met": self.met[batch, head]}
        return self.method(q.double(), k.double(), v.double(), weight, self.scale, **more)


@dataclass(frozen=True)
class Suspect:
    """One possible mistake. equals: completes "Your output equals ...". question: leads to the fix. section: to read.

    rounding: True where the mistake is one of rounding, which is reproduced nearly, not exactly. kind: two suspects of
    different kinds may be combined; empty for those that are not. general: named only where nothing more specific fits.
    """

    equals: str
    question: str
    section: str
    asked: Question
    rounding: bool = False
    kind: str = ""
    general: bool = False
    facts: dict = field(default_factory=dict)


SCALE = "1 memory wall: the scale"
SOFTMAX = "1 memory wall: a stable softmax"
ONLINE = "2 online softmax: the running maximum"
RESCALE = "2 online softmax: why rescale"
POINTERS = "3 first kernel: pointers, strides and masks"
TAILS = "3 first kernel: the ragged tail"
HEADS = "4 masks and phases: who reads which head"


def scales(asked):
    """The score scaled otherwise."""
    D, ln2 = asked.q.shape[3], math.log(2.0)
    for equals, question, scale in (
        ("attention without a scale", "where does 1 / sqrt(D) go?", 1.0),
        (
            "attention scaled by 1 / D, that is, by 1 / sqrt(D) twice",
            "is the square root there, and is the scale applied once?", 1.0 / D,
        ),
        ("attention scaled by sqrt(D)", "is the score multiplied where it should be divided?", math.sqrt(D)),
        (
            "attention with log2(e) missing from the scale",
            "exp2 is not exp: what must be folded into the scale?", ln2 / math.sqrt(D),
        ),
        (
            "attention with log2(e) in the scale twice, or with exp where the scale is made for exp2",
            "exp2(x * log2(e)) is exp(x): which of the two is yours, and how often?", 1.0 / (ln2 * math.sqrt(D)),
        ),
    ):  # fmt: skip
        yield Suspect(equals, question, SCALE, replace(asked, scale=scale), kind="scale")


def heads_and_batches(asked, case):
    """K, V or both read from another head or batch."""
    group, Hkv = case.Hq // case.kv_heads, case.kv_heads
    head, batch = torch.arange(case.Hq), torch.arange(case.B)[:, None]

    def moved(batches, heads):
        return torch.stack(torch.broadcast_tensors(batches, heads), -1)

    right = head // group
    changes = []
    if group > 1 and Hkv > 1:
        changes.append(("kv head = head % Hkv", "which query heads share a kv head: neighbours?", head % Hkv, batch))
        if group != Hkv and int((head // Hkv).max()) < Hkv:
            changes.append(("kv head = head // Hkv", "how many query heads share one kv head?", head // Hkv, batch))
    if Hkv > 1:
        question = "do K and V both move with their head?"
        changes.append(("kv head 0 for every query head", question, head * 0, batch))
    if case.B > 1:
        question = "do K and V both move with their batch?"
        changes.append(("the keys of batch 0 in every batch", question, right, batch * 0))
    for equals, question, heads, batches in changes:
        other = moved(batches, heads)
        for whose, change in (
            ("", {"k_from": other, "v_from": other}), (" for K alone", {"k_from": other}),
            (" for V alone", {"v_from": other}),
        ):  # fmt: skip
            yield Suspect(
                f"attention with {equals}{whose}", question, HEADS, replace(asked, **change), kind="heads",
            )  # fmt: skip
    if asked.k.shape[2] == asked.v.shape[2]:
        question = "whose pointer is loaded?"
        yield Suspect("attention with K in the place of V", question, POINTERS, replace(asked, v=asked.k), kind="heads")
        yield Suspect("attention with V in the place of K", question, POINTERS, replace(asked, k=asked.v), kind="heads")


def strides(asked, placed):
    """One tensor read with the strides of another, where that stays inside its buffer."""
    for at, name in enumerate("qkv"):
        mine = placed[at]
        for other, its in zip("qkv", placed, strict=True):
            for what, mixed in mixed_strides(mine.strides, its.strides):
                last = mine.offset + sum((size - 1) * step for size, step in zip(mine.shape, mixed, strict=True))
                if last >= mine.base.numel():
                    continue
                read = mine.base.as_strided(mine.shape, mixed, mine.offset)
                yield Suspect(
                    f"attention that reads {name.upper()} with the {what} of {other.upper()}",
                    "which strides go with which pointer?", POINTERS, replace(asked, **{name: read}), kind="heads",
                )  # fmt: skip


def mixed_strides(mine, its):
    """(words, strides) that differ from `mine` by one or all of `its`."""
    for dimension, what in enumerate(("batch stride", "head stride", "row stride")):
        mixed = (*mine[:dimension], its[dimension], *mine[dimension + 1 :])
        if mixed not in (mine, its):
            yield what, mixed
    if its != mine:
        yield "strides", its


def tails(asked, tile):
    """Keys past the end counted, or the last ones left out, where nothing is causal."""
    keys, D = asked.k.shape[2], asked.q.shape[3]

    def padded(count):
        zeros = asked.k.new_zeros(*asked.k.shape[:2], count, D)
        return replace(asked, k=torch.cat([asked.k, zeros], 2), v=torch.cat([asked.v, zeros], 2))

    extra = -keys % tile
    if extra:
        yield Suspect(
            f"attention over {keys + extra} keys, the last {extra} of them zeros",
            "a key past the end is loaded as zeros: what is its score, and its exp?", TAILS, padded(extra),
        )  # fmt: skip
    if extra != 1:
        yield Suspect(
            f"attention over {keys + 1} keys, the last of them zeros", "is it `<` or `<=`?", TAILS, padded(1),
        )  # fmt: skip
    for kept, equals in (
        (keys // tile * tile if extra else 0, "attention over the first {kept} keys only, without the ragged tile"),
        (keys // tile * tile - tile, "attention over the first {kept} keys only, without the last whole tile"),
    ):
        if kept > 0:
            short = replace(asked, k=asked.k[:, :, :kept], v=asked.v[:, :, :kept])
            yield Suspect(equals.format(kept=kept), "does your loop reach the last tile?", TAILS, short)
    if keys > tile:
        late = replace(asked, k=asked.k[:, :, tile:], v=asked.v[:, :, tile:])
        yield Suspect(f"attention without the first {tile} keys", "where does your loop begin?", TAILS, late)


def whole_softmax(asked):
    """The softmax itself, whatever the tiles."""
    one_for_all = partial(mistaken.online, tile=1 << 30, maximum="shared", rows=1 << 30)
    for equals, question, method in (
        (
            "attention that is not divided by the sum", "what must the row be divided by, and when?",
            partial(mistaken.whole, divide=False),
        ),
        (
            "a softmax over the queries", "over which dimension do the probabilities of one query add up to 1?",
            partial(mistaken.whole, softmax_dim=-2),
        ),
        (
            "attention in float32 without a maximum", "what is exp(100) in float32?",
            partial(mistaken.online, tile=1 << 30, maximum="none"),
        ),
        (
            "attention in float32 with one maximum for all rows",
            "a row far below the maximum: what do its exp add up to?", one_for_all,
        ),
    ):  # fmt: skip
        yield Suspect(equals, question, SOFTMAX, replace(asked, method=method))


def online_softmax(asked, tile, rows, half_p):
    """The online softmax over tiles of keys of this size, its tiles of queries `rows` high.

    half_p: the probabilities are rounded to the input's dtype for their dot, as kernels do.
    """
    common = {"tile": tile, "p_dtype": asked.q.dtype if half_p else torch.float32}
    tiles = f" (tiles of {tile})"
    changes = [
        (
            f"attention whose {what} is not rescaled when the maximum changes{tiles}",
            "what were the older parts measured against?", RESCALE, {"forget": what},
        )
        for what in ("acc", "row_sum", "acc and row_sum")
    ]  # fmt: skip
    changes += [
        (
            f"attention whose {what} is rescaled after the new tile was added{tiles}",
            "which parts were measured against the old maximum, and which against the new?", RESCALE, {"late": what},
        )
        for what in ("acc", "row_sum", "acc and row_sum")
    ]  # fmt: skip
    changes += [
        (
            f"attention that is divided by the sum after each tile{tiles}", "what is the sum before the last tile?",
            RESCALE, {"divide": "each tile"},
        ),
        (
            f"attention in float32 whose maximum is that of the last tile alone{tiles}",
            "what is alpha when the new maximum lies far below the old one?", ONLINE, {"maximum": "tile"},
        ),
        (
            f"attention in float32 whose maximum starts at 0{tiles}",
            "what if every score of a row lies far below 0?", ONLINE, {"maximum": "from zero"},
        ),
        (
            f"attention in float32 with one maximum for the {rows} rows of a tile",
            "a row far below the maximum: what do its exp2 add up to?", ONLINE, {"maximum": "shared", "rows": rows},
        ),
        (
            f"attention with NaN for rows whose first tile hides every key{tiles}",
            "a row that has seen nothing has the maximum -inf: what is -inf - (-inf)?", ONLINE, {"bare": True},
        ),
    ]  # fmt: skip
    for equals, question, section, change in changes:
        yield Suspect(equals, question, section, replace(asked, method=partial(mistaken.online, **common, **change)))


def half_scores(asked):
    """Scores rounded to half precision before they are scaled."""
    for dtype in halves(asked):
        method = partial(mistaken.online, tile=1 << 30, keep="scores", dtype=dtype)
        yield Suspect(
            f"attention whose scores are rounded to {name_of(dtype)}",
            "in which dtype does the dot add up, and in which does it return?", SOFTMAX, replace(asked, method=method),
            rounding=True,
        )  # fmt: skip


def half_precision(asked, tile):
    """Something kept in half precision between tiles."""
    for dtype in halves(asked):
        for what, question in (
            ("acc", "in which dtype do hundreds of tiles add up?"),
            ("row_sum", "how many ones can a half count before 1 is lost?"),
        ):
            method = partial(mistaken.online, tile=tile, keep=what, dtype=dtype)
            equals = f"attention whose {what} is rounded to {name_of(dtype)} at each tile (tiles of {tile})"
            yield Suspect(equals, question, ONLINE, replace(asked, method=method), rounding=True)


def halves(asked):
    return sorted({torch.float16, asked.q.dtype} - {torch.float32}, key=str)


def name_of(dtype):
    return str(dtype).removeprefix("torch.")
