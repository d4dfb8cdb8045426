"""Work counted: what a kernel loaded of K and V against what its mask needs, and copies that nobody needs."""

from collections import Counter, defaultdict

import torch

SLACK_TILES = 2  # a tile of queries may meet this many tiles of keys more than it needs, for each stretch of the mask
WHOLE_MATRIX = 8  # a tensor of N x Nk elements is one where that is this many times the elements of q


def wasted(case, reply):
    """(sentence, facts) where the kernel did or held more than the mask needs, else None.

    reply: the child's, its trace included.
    """
    return whole_matrix(case, reply) or copied_out(case, reply["trace"]) or needless_tiles(case, reply["trace"])


def whole_matrix(case, reply):
    """A score for every pair of tokens, held anywhere: what the online softmax is there to avoid."""
    pairs, q_size = case.N * case.num_keys, case.B * case.Hq * case.N * case.D
    if pairs < WHOLE_MATRIX * q_size or reply["largest"] < pairs:
        return None
    sentence = (
        f"A tensor of {reply['largest']} elements was made; the whole score matrix has {pairs} ({case.N} x "
        f"{case.num_keys}), q and o {q_size} each. Keep one tile of it at a time."
    )
    return sentence, {"largest_tensor": reply["largest"], "limit": pairs}


def copied_out(case, trace):
    """K or V with one copy of each head for every query head that shares it."""
    if not trace["copied_out"]:
        return None
    copies = [copy["heads"] * case.num_keys * case.D * case.B for copy in trace["copied_out"].values()]
    whole = case.kv_heads * case.num_keys * case.D * case.B
    names = " and ".join(role.upper() for role in trace["copied_out"])
    sentence = (
        f"{names} {'is' if len(copies) == 1 else 'are'} copied out to {case.Hq} heads before the kernel runs: "
        f"{sum(copies)} elements where {len(copies) * whole} are there. The kernel can read its head where it is."
    )
    return sentence, {"elements_copied": sum(copies), "elements_needed": len(copies) * whole}


def needless_tiles(case, trace):
    """Tiles of keys that no query of the tile sees, or that are loaded again and again.

    SLACK_TILES more than a tile of queries needs are allowed each time it is taken up, for tiles that do not start at
    multiples of their size, twice where there are sinks apart from the window. Loaded is what the dots met or what the
    programs loaded, whichever is more.
    """
    visits = [record for record in trace["visits"] if record["tiles"]]
    seen, spans, needed = Seen(case), spans_of(visits), need(case, visits)
    rows = {(entry["kernel"], entry["program"]): max(entry["k"], entry["v"]) for entry in trace["key_rows"]}
    by_program = defaultdict(list)
    for record in visits:
        by_program[record["kernel"], record["program"]].append(record)
    loaded = allowed = 0
    worst = None
    for program, records in by_program.items():
        span = spans[program[0]]
        needs = sum(len(seen.tiles(record["q"], span)) * record["key_heads"] for record in records)
        met = sum(tiles_met(case, record, span) for record in records)
        loads = max(met, rows.get(program, 0) / span)
        loaded += loads
        allowed += needs + SLACK_TILES * (2 if case.sinks else 1) * len(records)
        if worst is None or loads - needs > worst[0]:
            worst = loads - needs, records, loads, needs, span
    if loaded <= allowed:
        return None
    _, records, loads, needs, span = worst
    sentence = (
        f"{records[0]['kernel']} loads {loaded:.0f} tiles of keys where this mask needs {needed['tiles']} of "
        f"{needed['of']}: query rows {show_rows(records)} load {loads:.0f} tiles of {span} and see keys in {needs}"
    )
    facts = {"tiles_loaded": round(loaded), "tiles_needed": needed["tiles"], "tiles_allowed": allowed}
    return f"{sentence}{unseen(seen, records)}.", facts | {"tiles": needed["of"]}


def show_rows(records):
    rows = sorted({tuple(record["q"]) for record in records})
    return f"{rows[0][0]}-{rows[0][1]}" + (f" and {len(rows) - 1} more tiles" if len(rows) > 1 else "")


def unseen(seen, records):
    """`; keys 128-255 none of them sees`: the stretch of tiles met that no query of the first record sees."""
    hidden = [tile for tile in records[0]["tiles"] if not seen.any(records[0]["q"], tile)]
    if not hidden:
        return ""
    return f"; keys {min(a for a, _ in hidden)}-{max(b for _, b in hidden)} hold tiles that none of them sees"


# What is needed: the one measure, for the verdict and for the picture ------------------------------------------------


def need(case, records):
    """{"tiles", "keys", "of"}: tiles of keys that the mask needs, the keys in them, and how many tiles there are.

    A tile of queries needs the tiles of keys, of the kernel's own size, that hold a key which one of its queries sees.
    Programs that share a tile of queries need them once, between them.
    records: of the trace, those that met keys.
    """
    seen, spans, counted, taken_up = seen_of(case), spans_of(records), Counter(tiles=0, keys=0, of=0), set()
    for record in records:
        tile = (record["batch"], record["head"], *record["q"])
        if tile not in taken_up:
            taken_up.add(tile)
            span, heads = spans[record["kernel"]], record["key_heads"]
            keys = seen(record["batch"], record["head"]).tiles(record["q"], span)
            counted.update(tiles=len(keys) * heads, keys=sum(keys) * heads, of=-(-case.num_keys // span) * heads)
    return dict(counted)


def spans_of(records):
    """{kernel: keys in its largest tile}: an end cuts some off, others are small for the diagonal or the sinks."""
    spans = defaultdict(int)
    for record in records:
        spans[record["kernel"]] = max(spans[record["kernel"]], record["span"])
    return spans


def tiles_met(case, record, span):
    """Tiles of `span` keys that a record met: a smaller one is a part of one, but whole where the sequence ends."""
    return sum(1 if last == case.num_keys - 1 else (last - first + 1) / span for first, last in record["tiles"])


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
        visibility = visibility or case.visibility
        self.mask = visibility.mask(torch.arange(case.N), torch.arange(case.num_keys)).numpy()
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
