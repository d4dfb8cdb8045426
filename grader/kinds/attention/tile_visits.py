"""Which tiles of keys each tile of queries met, and in which order: from the trace, or as a kernel of ours would."""

import itertools
from collections import defaultdict

import msgspec
import torch
from msgspec import Struct

from grader.engine.locate import joined
from grader.kinds.attention import mask_mistakes
from grader.kinds.attention.masks import whole_mask


class Stretch(Struct, array_like=True, frozen=True):
    """Neighbouring tiles of keys that one line visited one after the other. masked: a mask was put on their scores."""

    line: int
    first: int
    last: int
    masked: bool


class Visit(Struct, frozen=True):
    """One tile of queries in one program, and the tiles of keys that it visited, in order: observer.py found it.

    q, tiles, masked: (first, last) token. span: keys of the largest tile; lanes: those past the end included. masked:
    tiles on whose scores a mask was put. key_heads: how many kv heads were read.
    """

    kernel: str
    program: int
    q: tuple[int, int]
    batch: int
    head: int
    tiles: list[tuple[int, int]]
    span: int
    lanes: int = 0
    masked: list[tuple[int, int]] = []
    key_heads: int = 1
    stretches: list[Stretch] = []


FORWARD, BACKWARD, UNKNOWN = 1, -1, 0  # how a kernel walks over the keys

GUESSED_TILES = (16, 32, 48, 64, 96, 128, 256)  # of keys, where no trace tells them
GUESSED_ROWS = (16, 32, 64, 128)  # of queries
MOST_STRETCHES = 6  # of keys that are told of one tile of queries


def read(trace):
    """The Visits of a trace, as the course's observer reported them; none without a trace."""
    return msgspec.json.decode(trace.own, type=list[Visit] | None) or [] if trace else []


def tile_sizes(records):
    """[(BLOCK_Q, BLOCK_K)] as the trace saw them; empty without one."""
    if not any(record.tiles for record in records):
        return []
    rows = max(record.q[1] - record.q[0] + 1 for record in records)
    return [(rows, max(max(record.span, record.lanes) for record in records))]


def visits_of(case, records):
    """How often each query's tile met each key's tile, (B, Hq, N, Nk); None where the trace does not tell for all."""
    heads = {(record.batch, record.head) for record in records}
    if len(heads) < case.B * case.Hq or not any(record.tiles for record in records):
        return None
    visits = torch.zeros(case.B, case.Hq, case.N, case.num_keys, dtype=torch.long)
    for record in records:
        rows = visits[record.batch, record.head, record.q[0] : record.q[1] + 1]
        for first, last in record.tiles:
            rows[:, first : last + 1] += 1
    return visits


def past_the_end(case, records, sizes):
    """How many lanes beyond the last key each query's tiles held, (B, Hq, N, 1); sizes: as tile_sizes gives them."""
    lanes = torch.zeros(case.B, case.Hq, case.N, 1, dtype=torch.double)
    BLOCK_K = max((BLOCK_K for _, BLOCK_K in sizes), default=0)
    for record in records:
        for first, last in record.tiles:
            if last == case.num_keys - 1:
                rows = lanes[record.batch, record.head, record.q[0] : record.q[1] + 1]
                rows += max(0, BLOCK_K - (last - first + 1))
    return lanes


def steps_of(records):
    """[(first row, end row, first key, end key)] of the first head, in the order in which the tiles were met.

    None where a tile of queries was taken up more than once: its parts are put together in a way not known here.
    """
    lists = {}
    for record in records:
        if (record.batch, record.head) == (0, 0):
            if record.q in lists:
                return None
            lists[record.q] = record.tiles
    for order in (FORWARD, BACKWARD):
        if walks(lists, order):
            return by_keys(lists, order)
    return [(q[0], q[1] + 1, k[0], k[1] + 1) for q, tiles in lists.items() for k in tiles]


def walks(lists, order):
    """True where every tile of queries meets its tiles of keys in this order, each once."""
    pairs = [pair for tiles in lists.values() for pair in itertools.pairwise(tiles)]
    return all(order * a[0] < order * b[0] for a, b in pairs)


def order_of(records, sizes):
    """FORWARD or BACKWARD over tiles that begin at multiples of BLOCK_K, else UNKNOWN; without a trace FORWARD."""
    if not sizes:
        return FORWARD
    lists = {(n, *record.q): record.tiles for n, record in enumerate(records)}
    aligned = all(first % sizes[0][1] == 0 for tiles in lists.values() for first, _ in tiles)
    return next((order for order in (FORWARD, BACKWARD) if aligned and walks(lists, order)), UNKNOWN)


def by_keys(lists, order):
    """The same steps, those that share their keys in one where their rows are neighbours: fewer and larger."""
    rows = {}
    for q, tiles in sorted(lists.items()):
        for tile in tiles:
            runs = rows.setdefault(tile, [])
            if runs and runs[-1][1] == q[0]:
                runs[-1][1] = q[1] + 1
            else:
                runs.append([q[0], q[1] + 1])
    ordered = sorted(rows.items(), key=lambda item: order * item[0][0])
    return [(*run, first, last + 1) for (first, last), runs in ordered for run in runs]


def guessed_steps(case, BLOCK_Q, BLOCK_K, order=FORWARD):
    """The steps of a kernel that walks over the tiles that hold a visible pair."""
    q, k = torch.arange(case.N), torch.arange(case.num_keys)
    seen = case.visibility.mask(q, k)
    lists = {}
    for first in range(0, case.N, BLOCK_Q):
        last = min(first + BLOCK_Q, case.N) - 1
        keys = seen[first : last + 1].any(0).nonzero().flatten() // BLOCK_K
        lists[first, last] = [
            (tile * BLOCK_K, min((tile + 1) * BLOCK_K, case.num_keys) - 1) for tile in keys.unique().tolist()
        ]
    return by_keys(lists, order)


def in_words(records, place):
    """`For query rows 32-63, line 128 works on keys 0-31 and line 133 on keys 32-63 with a mask.` of the tile that
    holds `place`, (batch, head, row); empty where no trace tells, or there is too much to say.
    """
    batch, head, row = place
    for record in records:
        first, last = record.q
        if (record.batch, record.head) == (batch, head) and first <= row <= last:
            stretches = record.stretches
            rows = f"or query row{mask_mistakes.name_range(first, last)}"
            if not stretches:
                return f"F{rows} no line works on a key."
            if len(stretches) > MOST_STRETCHES or not all(stretch.line for stretch in stretches):
                return ""
            told = [
                f"line {each.line} {'works ' * (not n)}on key{mask_mistakes.name_range(each.first, each.last)}"
                + " with a mask" * each.masked
                for n, each in enumerate(stretches)
            ]
            return f"F{rows}, {joined(told)}."
    return ""


def line_without_mask(records, shown):
    """The only line that met all these pairs in stretches without a mask, or None. shown: (batch, head, (N, Nk))."""
    lines, left = lines_that_meet(records, shown, (False,))
    return lines.pop() if len(lines) == 1 and not left.any() else None


def lines_that_meet(records, pairs, masked=(False, True)):
    """({lines that met some of these pairs}, which pairs no line met). pairs: (batch, head, (N, Nk)).

    masked: which stretches count, those that put a mask on the scores or those that put none.
    """
    batch, head, left = pairs[0], pairs[1], pairs[2].clone()
    lines = set()
    for record in records:
        if (record.batch, record.head) == (batch, head):
            rows = left[record.q[0] : record.q[1] + 1]
            for each in record.stretches:
                if each.masked in masked and rows[:, each.first : each.last + 1].any():
                    lines.add(each.line)
                    rows[:, each.first : each.last + 1] = False
    return lines, left


def loaded(case, steps):
    """True where a tile of queries meets a tile of keys in these steps, (B, Hq, N, Nk)."""
    pairs = torch.zeros(case.N, case.num_keys, dtype=torch.bool)
    for first_row, end_row, first_key, end_key in steps:
        pairs[first_row:end_row, first_key:end_key] = True
    return pairs.expand(case.B, case.Hq, -1, -1)


# What the visits needed: for pictures and advice -------------------------------------------------------------------


def needed_tiles(case, records):
    """Keys in each tile of keys that the mask needs, those of every kv head that a record has.

    A tile of queries needs the tiles of keys, of the kernel's own size, that hold a key which one of its queries sees.
    Programs that share a tile of queries need them once, between them.
    records: of the trace, those that met keys.
    """
    seen, spans, needed = seen_of(case), spans_of(records), {}
    for record in records:
        tile = (record.batch, record.head, *record.q)
        if tile not in needed:
            needed[tile] = seen(*tile[:2]).tiles(record.q, spans[record.kernel]) * record.key_heads
    return list(itertools.chain(*needed.values()))


def spans_of(records):
    """{kernel: keys in its largest tile}: an end cuts some off, others are small for the diagonal or the sinks."""
    spans = defaultdict(int)
    for record in records:
        spans[record.kernel] = max(spans[record.kernel], record.span)
    return spans


def tiles_met(case, record, span):
    """Tiles of `span` keys that a record met: a smaller one is a part of one, but whole where the sequence ends."""
    return sum(1 if last == case.num_keys - 1 else (last - first + 1) / span for first, last in record.tiles)


def seen_of(case):
    """(batch, head) -> its Seen; one for all that share a mask."""
    made = {}

    def seen(batch, head):
        visibility = case.seen_at(batch, head)
        if visibility not in made:
            made[visibility] = Seen(case, visibility)
        return made[visibility]

    return seen


class Seen:
    """Which keys the queries of a tile see; asked often for the same tiles."""

    def __init__(self, case, visibility=None):
        self.mask = whole_mask(visibility or case.visibility, case.N, case.num_keys).numpy()
        self.answers = {}

    def keys(self, q):
        return torch.from_numpy(self.mask[q[0] : q[1] + 1].any(0))

    def tiles(self, q, span):
        """Keys in each tile of `span` keys of which the queries see one."""
        key = (*q, span)
        if key not in self.answers:
            starts = (self.keys(q).nonzero().flatten() // span).unique() * span
            self.answers[key] = [min(span, self.mask.shape[1] - start) for start in starts.tolist()]
        return self.answers[key]

    def any(self, q, tile):
        key = (*q, *tile)
        if key not in self.answers:
            self.answers[key] = bool(self.mask[q[0] : q[1] + 1, tile[0] : tile[1] + 1].any())
        return self.answers[key]
