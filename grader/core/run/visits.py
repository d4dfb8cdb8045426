"""In the runner, interpreted: which tiles of keys a program visits. It explains and draws; no verdict depends on it.

A tile of keys is visited where it meets a tile of queries in a dot (or in a product, for kernels without tl.dot): what
a block of numbers was loaded from stays with it through casts, transposes, reshapes and scaling. The order of the loads
plays no part. Copies of q, k and v in other tensors are not followed.
"""

from dataclasses import dataclass, field

from triton.runtime.interpreter import TensorHandle

CARRY = (
    "binary_op", "ternary_op", "unary_op", "cast_impl", "create_fp_to_fp", "create_bitcast", "create_reshape",
    "create_trans", "create_expand_dims", "create_broadcast", "create_cat", "create_join", "create_split",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Origin:
    """Where a block of numbers was loaded from: role "q", "k" or "v"; tokens (first, last); place (batch, head).

    "scores": made of queries and the keys `tokens`, `rows` are the queries', `keys` where the keys are from. tiles: how
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
    (first, last) on whose scores a mask was put; masked_loads: of which loads, since a tile may be met twice.
    """

    kernel: str
    program: int
    q: Origin
    visited: dict = field(default_factory=dict)
    masked: set = field(default_factory=set)
    masked_loads: set = field(default_factory=set)

    def plain(self):
        tiles = {}
        for k in self.visited:
            key = (k.place, k.tokens)
            tiles[key] = tiles.get(key, 0.0) + k.tiles
        return {
            "kernel": self.kernel, "program": self.program,
            "q": list(self.q.tokens), "batch": self.q.place[0], "head": self.q.place[1],
            "tiles": [list(tokens) for (_, tokens), parts in tiles.items() for _ in range(max(1, round(parts)))],
            "span": max((last - first + 1 for _, (first, last) in tiles), default=0),
            "lanes": max((k.lanes for k in self.visited), default=0),
            "masked": [list(tokens) for tokens in sorted(self.masked)],
            "rows": self.q.lanes, "key_heads": len({place for place, _ in tiles}), "stretches": self.stretches(),
        }  # fmt: skip

    def stretches(self):
        """[[line, first key, last key, masked]]: neighbouring tiles that one line met one after the other."""
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


class TileVisits:
    """The records of all launches; programs are numbered through all of them. line(): of the kernel, that runs."""

    def __init__(self, line):
        self.records, self.program, self.line = {}, -1, line

    def begin_program(self):
        self.program += 1

    def find_record(self, kernel, q):
        key = kernel, self.program, q.tokens, q.place
        if key not in self.records:
            self.records[key] = Record(kernel, self.program, q)
        return self.records[key]

    def note_product(self, kernel, a, b):
        """The blocks of origins `a` and `b` were multiplied: a visit where one is of q and the other of k.

        Returns the origin of the scores that came of it, or None.
        """
        if a is None or b is None or {a.role, b.role} != {"q", "k"}:
            return None
        q, k = (a, b) if a.role == "q" else (b, a)
        self.find_record(kernel, q).visited[k] = self.line()
        return Origin("scores", k.tokens, q.place, rows=q.tokens, keys=k)

    def note_mask(self, kernel, by, blocks):
        """`by`, a condition or a term, may hide some keys of the scores among `blocks`.

        One value for a whole row, spread over its keys, hides none of them: it guards against -inf - -inf.
        """
        scores = next((block.origin for block in blocks if getattr(block, "origin", None)), None)
        a_row = by.data.ndim < 2 or by.data.strides[-1] == 0 or getattr(by, "origin", None)
        if scores and scores.role == "scores" and not a_row:
            record = self.records.get((kernel, self.program, scores.rows, scores.place))
            if record:
                record.masked.add(scores.tokens)
                record.masked_loads.add(scores.keys)

    def report(self):
        """The records as plain data."""
        return [record.plain() for record in self.records.values()]


def count_lanes(shape, width):
    """How many rows a block of this shape holds: one of its two sides, the other is the head dim."""
    sides = [side for side in shape if side > 1]
    if width in sides:
        sides.remove(width)
    return sides[0] if sides else 1


def carry_origins(method, note_product):
    """The builder's method, such that what it makes keeps the origin of what it was made from.

    Of two blocks the one with an origin counts; two of different roles meet, and their product is neither's.
    """

    def carried(builder, *args, **named):
        made = method(builder, *args, **named)
        found = []
        for arg in args:  # not by getattr: triton 3.6's tuples answer it with a ValueError
            if type(arg) is TensorHandle and (origin := arg.__dict__.get("origin")) is not None:
                found.append(origin)
        if found:
            if len(found) > 1 and found[0].role != found[1].role:
                note_product(found[0], found[1])
            else:
                for part in made if isinstance(made, tuple | list) else (made,):
                    part.origin = found[0]
        return made

    return carried
