"""In the runner, interpreted: what each program visits, holds, loads and computes, counted.

A tile of keys is visited where it meets a tile of queries in a dot (or in a product, for kernels without tl.dot): what
a block of numbers was loaded from stays with it through casts, transposes, reshapes and scaling. The order of the loads
plays no part.
"""

import weakref
from collections import Counter
from dataclasses import dataclass, field

from triton.runtime.interpreter import TensorHandle

CARRY = (
    "binary_op", "ternary_op", "unary_op", "cast_impl", "create_fp_to_fp", "create_bitcast", "create_reshape",
    "create_trans", "create_expand_dims", "create_broadcast", "create_cat", "create_join", "create_split",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Origin:
    """Where a block of numbers was loaded from: role "q", "k" or "v"; tokens (first, last); place (batch, head).

    Of "kv" both lie in it: it is K where it meets queries. "scores": made of queries and the keys `tokens`, `rows` are
    the queries', `keys` where the keys are from. tiles: how much of the rows' width it holds, 1.0 for whole rows.
    lanes: its rows, those past the end included. labels(): those of its lanes, where they are asked for.
    """

    role: str
    tokens: tuple[int, int]
    place: tuple[int, int]
    tiles: float = 1.0
    lanes: int = 0
    labels: object = None
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
    """The records of all launches, and `loads`: {(kernel, program): {"k": rows, "v": rows}}, rows of D elements.

    Programs are numbered through all launches. line(): of the kernel, that is running.
    """

    def __init__(self, line):
        self.records, self.loads, self.program, self.line = {}, {}, -1, line
        self.empty = {"k": 0.0, "v": 0.0}  # rows that loads would have had whose mask hid every lane

    def begin_program(self):
        self.program += 1

    def load(self, kernel, origin):
        if origin.role in "kv":
            for role in origin.role:
                share = origin.tiles / len(origin.role)
                self.load_rows(kernel, role, share * (origin.tokens[1] - origin.tokens[0] + 1))
        else:
            self.find_record(kernel, origin)

    def load_rows(self, kernel, role, rows):
        self.loads.setdefault((kernel, self.program), {"k": 0.0, "v": 0.0})[role] += rows

    def find_record(self, kernel, q):
        key = kernel, self.program, q.tokens, q.place
        if key not in self.records:
            self.records[key] = Record(kernel, self.program, q)
        return self.records[key]

    def note_product(self, kernel, a, b):
        """The blocks of origins `a` and `b` were multiplied: a visit where one is of q and the other of k.

        Returns the origin of the scores that came of it, or None.
        """
        if a is None or b is None or {a.role, b.role} not in ({"q", "k"}, {"q", "kv"}):
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
        """Plain data: the records and the loads of each program."""
        loads = [{"kernel": kernel, "program": program, **rows} for (kernel, program), rows in self.loads.items()]
        records = [record.plain() for record in self.records.values()]
        return {"visits": records, "key_rows": loads, "empty_rows": max(self.empty.values())}


def count_lanes(shape, width):
    """How many rows a block of this shape holds: one of its two sides, the other is the head dim."""
    sides = [side for side in shape if side > 1]
    if width in sides:
        sides.remove(width)
    return sides[0] if sides else 1


def carry_origins(method, note_product, add_scores):
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
                note_product(found[0], found[1], made.data.size if type(made) is TensorHandle else 0)
            else:
                for part in made if isinstance(made, tuple | list) else (made,):
                    part.origin = found[0]
                    if found[0].role == "scores":
                        add_scores(part)
        return made

    return carried


# Scores that are alive ------------------------------------------------------------------------------------------------


class LiveScores:
    """Scores are blocks made of queries and keys, and what is made of them alone; they end with the last name for them.

    A name of the tile before may still be bound while the next is computed: of several tiles the last does not count.
    """

    def __init__(self):
        self.alive, self.most, self.written, self.newest = {}, {"keys": 0, "kernel": ""}, {}, None

    def begin_program(self):
        self.alive, self.newest = {}, None

    def add(self, block):
        """`block`, a value of the interpreter, has scores as its origin."""
        key, origin = id(block), block.origin
        self.alive[key] = weakref.ref(block), origin
        if (origin.rows, origin.tokens) == self.newest:  # of the same tile: no more keys than before
            return
        self.newest = origin.rows, origin.tokens
        self.alive = {k: entry for k, entry in self.alive.items() if entry[0]() is not None}
        tiles = {other.tokens for _, other in self.alive.values() if other.rows == origin.rows}
        self.note(tiles, origin.tokens, "")

    def stored(self, kernel, origin):
        """Scores were written to memory: there they stay."""
        tiles = self.written.setdefault((origin.place, origin.rows), set())
        tiles.add(origin.tokens)
        self.note(tiles | {(-1, -1)}, (-1, -1), kernel)

    def note(self, tiles, newest, kernel):
        before = count_keys(tiles - {newest})
        keys = max(before, newest[1] - newest[0] + 1)
        if keys > self.most["keys"]:
            self.most = {"keys": keys, "kernel": kernel}

    def report(self):
        return self.most


def count_keys(tiles):
    """How many keys lie in these (first, last), which may overlap."""
    count, end = 0, -2
    for first, last in sorted(tiles):
        count += max(0, last - max(first, end + 1) + 1) if first >= 0 else 0
        end = max(end, last)
    return count


# Loads, stores and arithmetic -----------------------------------------------------------------------------------------


class Traffic:
    """Counters by (kernel, program), programs numbered through all launches.

    Keys: ("loaded" or "stored", argument) in bytes of live lanes, ("loads" or "stores", argument) in operations,
    "dot_flops" (two for each multiply and add), "exponentials" in elements.
    """

    def __init__(self):
        self.programs, self.kernels, self.current = {}, Counter(), Counter()

    def begin_launch(self, kernel):
        self.kernels[kernel] += 1

    def begin_program(self, kernel, program):
        self.current = self.programs[(kernel, program)] = Counter()

    def moved(self, kind, argument, num_bytes):
        bytes_of, count_of = ("loaded", "loads") if kind == "load" else ("stored", "stores")
        self.current[(bytes_of, argument)] += num_bytes
        self.current[(count_of, argument)] += 1

    def dot(self, a_shape, b_shape):
        """Two blocks (..., M, K) and (..., K, N)."""
        flops = 2 * b_shape[-1]
        for size in a_shape:
            flops *= size
        self.current["dot_flops"] += flops

    def exponentials(self, elements):
        self.current["exponentials"] += elements

    def report(self):
        """{kernel: totals over its launches and programs}, plain data."""
        totals = {kernel: {"launches": launches, "programs": 0} for kernel, launches in self.kernels.items()}
        for (kernel, _), counter in self.programs.items():
            totals[kernel]["programs"] += 1
            add_up(totals[kernel], counter)
        return totals

    def by_program(self):
        """The same for each program, in the order in which they ran."""
        return [{"kernel": kernel, **add_up({}, counter)} for (kernel, _), counter in self.programs.items()]


def add_up(total, counter):
    """Add a counter to `total`, whose keys with an argument are {argument: number}."""
    for name in ("loaded", "stored", "loads", "stores"):
        total.setdefault(name, {})
    for name in ("dot_flops", "exponentials"):
        total[name] = total.get(name, 0) + counter[name]
    for key, number in counter.items():
        if isinstance(key, tuple):
            name, argument = key
            total[name][argument] = total[name].get(argument, 0) + number
    return total
