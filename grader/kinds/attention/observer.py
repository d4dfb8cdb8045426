"""In the runner, interpreted: which tiles of keys a kernel visits. It explains and draws; no verdict depends on it.

A kernel visits a tile of keys where a dot (or a product, for kernels without tl.dot) multiplies it with a tile of
queries. A block keeps the input that it was loaded from through casts, transposes, reshapes and scaling. The order of
the loads plays no part. Copies of q, k and v in other tensors are not followed.
"""

from dataclasses import dataclass, field

import numpy as np
from triton.runtime.interpreter import TensorHandle

from grader.core.run.observe import Observer

HIDES = -1e4  # a term that is added to scores and has this or less is a mask
CARRY = (
    "binary_op",
    "ternary_op",
    "unary_op",
    "cast_impl",
    "create_fp_to_fp",
    "create_bitcast",
    "create_reshape",
    "create_trans",
    "create_expand_dims",
    "create_broadcast",
    "create_cat",
    "create_join",
    "create_split",
)


@dataclass(frozen=True, eq=False)
class Origin:
    """Where a block of numbers was loaded from: role "q", "k" or "v"; tokens (first, last); place (batch, head).

    "scores": made of queries and the keys `tokens`; `rows` are the queries', `keys` the Origin of the keys. tiles: how
    much of the rows' width it holds, 1.0 for whole rows. lanes: its rows, those past the end included.
    """

    role: str
    tokens: tuple[int, int]
    place: tuple[int, int]
    tiles: float = 1.0
    lanes: int = 0
    rows: tuple = ()
    keys: object = None


@dataclass
class Record:
    """One tile of queries in one program: the loads of keys that it visited, by their Origin, in order; maybe none.

    visited: {Origin: the kernel's line that led there: that of a call, or of the product itself}. masked: the keys
    (first, last) on whose scores a mask was put; masked_loads: of which loads, since a tile may be visited twice.
    """

    kernel: str
    program: int
    q: Origin
    visited: dict = field(default_factory=dict)
    masked: set = field(default_factory=set)
    masked_loads: set = field(default_factory=set)

    def plain(self):
        """The record as tile_visits.Visit reads it."""
        tiles = {}
        for k in self.visited:
            key = (k.place, k.tokens)
            tiles[key] = tiles.get(key, 0.0) + k.tiles
        return {
            "kernel": self.kernel,
            "program": self.program,
            "q": self.q.tokens,
            "batch": self.q.place[0],
            "head": self.q.place[1],
            "tiles": [tokens for (_, tokens), parts in tiles.items() for _ in range(max(1, round(parts)))],
            "span": max((last - first + 1 for _, (first, last) in tiles), default=0),
            "lanes": max((k.lanes for k in self.visited), default=0),
            "masked": sorted(self.masked),
            "key_heads": len({place for place, _ in tiles}),
            "stretches": self.stretches(),
        }

    def stretches(self):
        """[[line, first key, last key, masked]]: neighbouring tiles that one line visited one after the other."""
        found = []
        for k, line in self.visited.items():
            (first, last), masked = k.tokens, k in self.masked_loads
            if k.tiles < 1 and found and found[-1][0] == line and found[-1][1] <= first and last <= found[-1][2]:
                continue  # another part of the head dim
            same = found and found[-1][0] == line and found[-1][3] == masked
            if same and found[-1][2] + 1 == first:
                found[-1][2] = last
            elif same and found[-1][1] - 1 == last:
                found[-1][1] = first
            else:
                found.append([line, first, last, masked])
        return found


class TileVisits(Observer):
    """The records of all launches; programs are numbered through all of them. origin: of the load that runs."""

    operations = (*CARRY, "create_dot", "create_select", "create_fadd")

    def __init__(self, watch):
        super().__init__(watch)
        self.records, self.origin = {}, None

    def accessed(self, access):
        if access.kind == "load" and access.region.input in ("q", "k", "v"):
            self.origin = find_origin(access)
            if self.origin.role == "q":
                self.find_record(self.origin)

    def loaded(self, block):
        if self.origin:
            block.origin, self.origin = self.origin, None

    def after(self, operation, operands, made):
        if operation == "create_dot":
            scores = self.note_product(*map(origin_of, operands[:2]))
            if scores is not None:
                made.origin = scores
        elif operation == "create_select":
            self.note_mask(operands[0], operands[1:])
        elif operation == "create_fadd":
            for term, block in (operands, operands[::-1]):
                if origin_of(block) and term.data.size and term.data.min() <= HIDES:
                    self.note_mask(term, (block,))
        else:
            self.carry(operands, made)

    def carry(self, operands, made):
        """What an operation makes keeps the origin of what it was made from.

        Of two blocks the one with an origin counts. Two of different roles are a product, which has neither's.
        """
        found = [origin for operand in operands if (origin := origin_of(operand))]
        if len(found) > 1 and found[0].role != found[1].role:
            self.note_product(found[0], found[1])
        elif found:
            for part in made if isinstance(made, tuple | list) else (made,):
                part.origin = found[0]

    def find_record(self, q):
        key = self.watch.kernel, self.watch.program, q.tokens, q.place
        if key not in self.records:
            self.records[key] = Record(self.watch.kernel, self.watch.program, q)
        return self.records[key]

    def note_product(self, a, b):
        """The blocks of origins `a` and `b` were multiplied: a visit where one is of q and the other of k.

        Returns the origin of the scores that came of it, or None.
        """
        if a is None or b is None or {a.role, b.role} != {"q", "k"}:
            return None
        q, k = (a, b) if a.role == "q" else (b, a)
        self.find_record(q).visited[k] = self.watch.kernel_line()
        return Origin("scores", k.tokens, q.place, rows=q.tokens, keys=k)

    def note_mask(self, by, blocks):
        """`by`, a condition or a term, may hide some keys of the scores among `blocks`.

        One value for a whole row, spread over its keys, hides none of them: it guards against -inf - -inf.
        """
        scores = next((origin for block in blocks if (origin := origin_of(block))), None)
        a_row = by.data.ndim < 2 or by.data.strides[-1] == 0 or origin_of(by)
        if scores and scores.role == "scores" and not a_row:
            record = self.records.get((self.watch.kernel, self.watch.program, scores.rows, scores.place))
            if record:
                record.masked.add(scores.tokens)
                record.masked_loads.add(scores.keys)

    def report(self):
        return [record.plain() for record in self.records.values()]


OBSERVER = TileVisits


def origin_of(operand):
    """The Origin of a block, or None."""
    if type(operand) is not TensorHandle:  # not by getattr: triton 3.6's tuples answer it with a ValueError
        return None
    return operand.__dict__.get("origin")


def find_origin(access):
    """The Origin of what a load reads of q, k or v: (B, H, N, D)."""
    region = access.region
    width = region.tensor.shape[-1]
    tokens, place = find_tokens(access.offsets, region.view)
    rows = tokens[1] - tokens[0] + 1  # lanes past the end may have been turned back to a row that is there
    part = min(1.0, access.offsets.size / (rows * width))
    return Origin(region.input, tokens, place, part, count_lanes(access.shape, width))


def find_tokens(offsets, view):
    """((first, last) token, (batch, head)) of legal byte offsets: of the first lane's head.

    A tile of a flattened tensor can reach into the next head.
    """
    left, token, place, here = offsets - view.start, np.zeros(1, np.int64), [0, 0], None
    for stride, _, dim in view.dims:
        if dim == 3:  # columns tell no place
            break
        index = left // stride
        left = left - index * stride
        if dim == 2:
            token = index
        elif dim < 2:
            place[dim] = int(index[0])
            if (index != index[0]).any():
                same = index == index[0]
                here = same if here is None else here & same
    token = token if here is None or token.size == 1 else token[here]
    return (int(token.min()), int(token.max())), tuple(place)


def count_lanes(shape, width):
    """How many rows a block of this shape holds: one of its two sides, the other is the head dim."""
    sides = [side for side in shape if side > 1]
    if width in sides:
        sides.remove(width)
    return sides[0] if sides else 1
