"""The catalogue of mistakes: what an output may equal instead, each with one question that leads to the fix.

A mistake is plain data and a changed AttentionSpec; variants.py computes what it would give. Here are the scale,
heads and pointers, and the tail; the softmax is changed in softmax_mistakes.py, who sees whom in mask_mistakes.py.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from grader.course.tensors import Placed
from grader.kinds.attention import variants
from grader.kinds.attention.case import Case


class Memory(dict):
    """{name: the last value, and what it was made of}: mistakes that are tried one after the other share much."""

    def recall(self, name: str, parts: tuple, make: Callable):
        """The value made of these very parts."""
        last, value = self.get(name, ((), None))
        if len(last) != len(parts) or any(one is not other for one, other in zip(last, parts, strict=True)):
            value = make()
            self[name] = (parts, value)
        return value


@dataclass(frozen=True)
class AttentionSpec:
    """What is computed: the inputs and rules of one case. A mistake is an AttentionSpec with one thing changed.

    q (B, Hq, Nq, D); k, v (B, Hkv, Nk, D). k_from, v_from: (B, Hq, 2), the batch and head that a query head reads.
    weight: (q_pos, k_pos) -> how often each key counts, or a tensor (B, Hq, Nq, Nk). method, changes: the attention of
    variants.py, and {step: what stands in its place}; tiles and met (B, Hq, Nq, Nk): as its Inputs have them.
    dtype: of all steps; float32 where what overflows is the mistake. by_row: each row can be asked for alone.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    k_from: torch.Tensor
    v_from: torch.Tensor
    weight: Callable | torch.Tensor
    scale: float
    method: Callable = variants.whole
    changes: variants.Steps = field(default_factory=dict)
    tiles: list[tuple[int, int, int, int]] | None = None
    met: torch.Tensor | None = None
    dtype: torch.dtype = torch.float64
    by_row: bool = True

    def answer(
        self, pairs: torch.Tensor, rows: torch.Tensor | None = None, memory: Memory | None = None
    ) -> variants.Answer:
        """For P pairs (batch, query head), (P, 2); rows: positions, where not all are asked for.

        memory: of the calls before, for the same pairs and rows.
        """
        memory = Memory() if memory is None else memory
        batch, head = pairs.unbind(1)
        at = torch.arange(self.q.shape[2]) if rows is None else rows
        read = (self.q, self.k, self.v, self.k_from, self.v_from, self.dtype)
        q, k, values = inputs = memory.recall("inputs", read, lambda: self.read_inputs(batch, head, at))
        keys = memory.recall("keys", (k,), lambda: torch.arange(k.shape[1]))
        weight = memory.recall("weight", (inputs, self.weight), lambda: self.weigh(batch, head, at, keys))
        cut = memory.recall("cut", (inputs, weight, self.scale, self.tiles), list)
        met = None if self.met is None else self.met[batch, head][:, at]
        found = variants.Inputs(q, k, values, weight, self.scale, met, self.tiles, at, cut)
        return self.method(found, self.changes)

    def read_inputs(self, batch, head, at):
        q = self.q[batch, head][:, at].to(self.dtype)
        k, v = self.k[self.k_from[batch, head].unbind(1)], self.v[self.v_from[batch, head].unbind(1)]
        return q, k.to(self.dtype), variants.add_sizes(v.to(self.dtype))

    def weigh(self, batch, head, at, keys):
        if isinstance(self.weight, torch.Tensor):
            return self.weight[batch, head][:, at].to(self.dtype)
        return self.weight(at, keys).to(self.dtype)

    @property
    def only_masks(self) -> bool:
        """True where a row is 0 / 0 because it sees nothing, not because something overflows."""
        return self.method is variants.whole


@dataclass(frozen=True)
class KnownMistake:
    """One possible mistake. equals: completes "Your output equals ...". question: leads to the fix. section: to read.

    rounding: True where the mistake is one of rounding, which is reproduced nearly, not exactly. by_nan: True if NaN or
    0 in rows that this mistake leaves without keys may show it. general: named only where nothing more specific fits.
    """

    equals: str
    question: str
    section: str
    spec: AttentionSpec
    rounding: bool = False
    by_nan: bool = False
    general: bool = False


IN_FLOAT32 = ", so that exp leaves float32's range"  # how a mistake ends that shows by overflow alone

SCALE = "notebooks/01_memory_wall.ipynb: The formula"
SOFTMAX = "notebooks/02_online_softmax.ipynb: Why the maximum?"
LSE = "notebooks/02_online_softmax.ipynb: One number that remembers the sum: lse"
ONLINE = "notebooks/02_online_softmax.ipynb: Tile by tile"
RESCALE = "notebooks/02_online_softmax.ipynb: Why rescale?"
POINTERS = "notebooks/03_first_triton_kernel.ipynb: Where are they? Pointers and strides"
TAILS = "notebooks/03_first_triton_kernel.ipynb: Masks"
HEADS = "notebooks/04_masks_and_phases.ipynb: Fewer heads of keys: GQA"
DIAGONAL = "notebooks/04_masks_and_phases.ipynb: From the mask to a loop"
LOADED_AS_ZEROS = "a key past the end is loaded as zeros: what is its score, and its exp?"


def scales(spec: AttentionSpec) -> Iterator[KnownMistake]:
    """The score scaled otherwise."""
    D, ln2 = spec.q.shape[3], math.log(2.0)
    for equals, question, scale in (
        ("without a scale", "where does 1 / sqrt(D) go?", 1.0),
        ("scaled by 1 / D, that is, by 1 / sqrt(D) twice",
         "is the square root there, and is the scale applied once?", 1.0 / D),
        ("scaled by sqrt(D)", "is the score multiplied where it should be divided?", math.sqrt(D)),
        ("with log2(e) missing from the scale",
         "exp2 is not exp: what must be folded into the scale?", ln2 / math.sqrt(D)),
        ("with log2(e) in the scale twice, or with exp where the scale is made for exp2",
         "exp2(x * log2(e)) is exp(x): which do you call, and how often is log2(e) multiplied in?",
         1.0 / (ln2 * math.sqrt(D))),
        ("with neither 1 / sqrt(D) nor log2(e) in its scale", "what does exp2 want of the score?", ln2),
        ("that multiplies by its scale twice, 1 / sqrt(D) and log2(e) in it",
         "where is the scale applied, and where once more?", 1.0 / (ln2 * D)),
    ):  # fmt: skip
        yield KnownMistake(f"attention {equals}", question, SCALE, replace(spec, scale=scale))


def heads_and_batches(spec: AttentionSpec, case: Case) -> Iterator[KnownMistake]:
    """K, V or both read from another head or batch, and Q; and K in the place of V."""
    group, Hkv, (head, batch) = case.Hq // case.kv_heads, case.kv_heads, (torch.arange(case.Hq), torch.arange(case.B))
    right, batch, batches = head // group, batch[:, None], case.B > 1
    shared = group > 1 and Hkv > 1
    fits = shared and group != Hkv and int((head // Hkv).max()) < Hkv
    own_head = "which number divides the query head, and do K and V both move with that kv head?"
    own_batch = "do K and V both move with their batch?"
    both = "do K and V move with their batch and their head?"
    for applies, equals, question, heads, of_batch in (
        (shared, "kv head = head % Hkv", "which query heads share a kv head: neighbours?", head % Hkv, batch),
        (fits, "kv head = head // Hkv", "how many query heads share one kv head?", head // Hkv, batch),
        (Hkv > 1, "kv head 0 for every query head", own_head, head * 0, batch),
        (Hkv > 1, "the kv head after the right one", own_head, (right + 1) % Hkv, batch),
        (Hkv > 1, "the kv head before the right one", own_head, (right - 1) % Hkv, batch),
        (batches, "the keys of batch 0 in every batch", own_batch, right, batch * 0),
        (batches and Hkv > 1, "the keys of batch 0 and head 0 in every batch and head", both, head * 0, batch * 0),
    ):
        other = torch.stack(torch.broadcast_tensors(of_batch, heads), -1)
        for whose, names in (("", ("k_from", "v_from")), (" for K alone", ("k_from",)), (" for V alone", ("v_from",))):
            if applies:
                changed = replace(spec, **dict.fromkeys(names, other))
                yield KnownMistake(f"attention with {equals}{whose}", question, HEADS, changed)
    for what, count, first in (("head", case.Hq, spec.q[:, :1]), ("batch", case.B, spec.q[:1])):
        if count > 1:
            equals = f"attention with the queries of {what} 0 in every {what}"
            changed = replace(spec, q=first.expand_as(spec.q))
            yield KnownMistake(equals, f"does Q move with its {what}?", HEADS, changed)
    if spec.k.shape[2] == spec.v.shape[2]:
        swapped = replace(spec, v=spec.k)
        yield KnownMistake("attention with K in the place of V", "whose pointer is loaded?", POINTERS, swapped)


def strides(spec: AttentionSpec, placed: Sequence[Placed]) -> Iterator[KnownMistake]:
    """One tensor read with the strides of another, where that stays inside its buffer."""
    for name, mine in zip("qkv", placed, strict=True):
        for other, its in zip("qkv", placed, strict=True):
            for what, mixed in mix_strides(mine.strides, its.strides):
                last = mine.offset + sum((size - 1) * step for size, step in zip(mine.shape, mixed, strict=True))
                if last < mine.base.numel():
                    equals = f"attention that reads {name.upper()} with the {what} of {other.upper()}"
                    changed = replace(spec, **{name: mine.base.as_strided(mine.shape, mixed, mine.offset)})
                    question = "which strides go with which pointer?"
                    yield KnownMistake(equals, question, POINTERS, changed)


def mix_strides(mine: tuple[int, ...], its: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(words, strides) that differ from `mine` by one or all of `its`."""
    for dimension, what in enumerate(("batch stride", "head stride", "row stride")):
        mixed = (*mine[:dimension], its[dimension], *mine[dimension + 1 :])
        if mixed not in (mine, its):
            yield what, mixed
    if its != mine:
        yield "strides", its


def first_tile(spec: AttentionSpec, tile: int) -> Iterator[KnownMistake]:
    """K, V or both loaded from the first tile at every step, where the walk begins at the first key."""
    keys = spec.k.shape[2]
    if keys <= tile:
        return
    again = torch.arange(keys) % tile
    for whose, names in (("V", "v"), ("K", "k"), ("K and V", "kv")):
        changed = replace(spec, **{name: getattr(spec, name)[:, :, again] for name in names})
        equals = f"attention that reads {whose} of the first tile at every step (tiles of {tile})"
        yield KnownMistake(equals, "what moves from one tile to the next?", POINTERS, changed)


def with_zeros(
    spec: AttentionSpec, count: Callable | torch.Tensor, weight: Callable | torch.Tensor | None = None
) -> AttentionSpec:
    """`spec` with one more key, of zeros, and its weight: count(q_pos), or a tensor (B, Hq, Nq, 1)."""
    weight = spec.weight if weight is None else weight
    zeros = spec.k.new_zeros(*spec.k.shape[:2], 1, spec.k.shape[3])
    if isinstance(weight, torch.Tensor) and isinstance(count, torch.Tensor):
        both = torch.cat([weight.double(), count.double()], -1)
    else:

        def both(q_pos, k_pos):
            return torch.cat([weight(q_pos, k_pos[:-1]).double(), count(q_pos)[:, None].double()], 1)

    return replace(spec, k=torch.cat([spec.k, zeros], 2), v=torch.cat([spec.v, zeros], 2), weight=both)


def more_zeros(spec: AttentionSpec, tile: int) -> Iterator[KnownMistake]:
    """Zeros counted up to a whole group of tiles."""
    keys = spec.k.shape[2]
    for extra in sorted({-keys % (tile * group) for group in (2, 4, 8)} - {-keys % tile}):
        yield replace(add_zeros(spec, extra, LOADED_AS_ZEROS), general=True)


def add_zeros(spec: AttentionSpec, extra: int, question: str) -> KnownMistake:
    keys = spec.k.shape[2]
    only = f"the last {extra} of them zeros" if extra > 1 else "the last of them zeros"
    changed = with_zeros(spec, lambda q_pos: torch.full_like(q_pos, extra))
    return KnownMistake(f"attention over {keys + extra} keys, {only}", question, TAILS, changed)


def tails(spec: AttentionSpec, tile: int) -> Iterator[KnownMistake]:
    """Keys past the end counted, or the last ones left out, where nothing is causal."""
    keys = spec.k.shape[2]
    extra = -keys % tile
    if extra:

        def again(q_pos, k_pos):
            return spec.weight(q_pos, k_pos).double() + extra * (k_pos == keys - 1)

        yield add_zeros(spec, extra, LOADED_AS_ZEROS)
        question = "an address past the end was turned back to the last key: is its score hidden?"
        equals = f"attention that counts the last key {extra + 1} times"
        yield KnownMistake(equals, question, TAILS, replace(spec, weight=again))
    if extra != 1:
        yield add_zeros(spec, 1, "is it `<` or `<=`?")
    whole, reach = keys // tile * tile, "reach the last tile, and are acc, row_max and row_sum handed on in one order"
    for kept, equals, question in (
        (whole if extra else 0, "over the first {kept} keys only, without the ragged tile", reach),
        (whole - tile, "over the first {kept} keys only, without the last whole tile", reach),
        (keys - 1 if keys - 1 != whole else 0, "without the last key", "end at the last key: `<` or `<=`"),
    ):
        if kept > 0:
            short = replace(spec, k=spec.k[:, :, :kept], v=spec.v[:, :, :kept])
            yield KnownMistake(f"attention {equals.format(kept=kept)}", f"does your loop {question}?", TAILS, short)
    if keys > tile:
        late = replace(spec, k=spec.k[:, :, tile:], v=spec.v[:, :, tile:])
        yield KnownMistake(f"attention without the first {tile} keys", "where does your loop begin?", TAILS, late)
