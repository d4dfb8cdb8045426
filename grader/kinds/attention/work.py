"""Work counted: what a kernel loaded of K and V against what its mask needs, and copies that nobody needs."""

from collections import Counter, defaultdict

import torch

from grader.course.masks import whole_mask
from grader.course.problem import LONG_ROW
from grader.processes.unfinished import needs_review
from grader.result import Outcome

SLACK_TILES = 2  # a tile of queries may meet this many tiles of keys more than it needs, for each stretch of the mask
WHOLE_MATRIX = 8  # a tensor of N x Nk elements is one where that is this many times the elements of q


ONE_TILE = 256  # keys whose scores a program may hold at once, on a row of LONG keys and more
LONG = 1024
ACCOUNTED = 1.6  # times the FLOPs that the visible pairs need, where keys cannot be followed
PADDED = 6  # times the FLOPs of the tiles needed: a head dim of 16 may be computed as 64
HIDDEN = 0.25  # times the tiles needed
EDGE = 32  # keys of a tile that is half visible, at each end of a mask


def judge(results):
    """(outcome, sentence, facts) on the work of a problem: the long row is right, and nothing that is right wastes."""
    wasteful = [r for r in results if r.outcome is Outcome.PASSED and r.facts.get("waste")]
    if wasteful:  # the long row says it most plainly
        first = max(wasteful, key=lambda result: result.case == LONG_ROW)
        sentence, facts = first.facts["waste"]
        if facts.get("unfollowed"):
            return needs_review([sentence])
        return Outcome.WASTEFUL, f'"{first.case}": {sentence}', facts | {"picture": first.facts.get("picture")}
    long_row = next((result for result in results if result.case == LONG_ROW), None)
    if long_row is not None and long_row.outcome is Outcome.GRADER_FAULT:
        return Outcome.GRADER_FAULT, long_row.sentence, {}
    if long_row is None or long_row.outcome is not Outcome.PASSED:
        return Outcome.NOT_RUN, f'not judged: "{LONG_ROW}" must be right first', {"earned": False}
    return Outcome.PASSED, "", {}


def name_short_kernels(cases, results):
    """Say with the long row which kernels were launched on shorter rows alone: no long one tells of them."""
    right = [(cases[r.case], r) for r in results if r.case in cases and r.outcome is Outcome.PASSED]
    long_row = next((result for case, result in right if case.name == LONG_ROW), None)
    long = {name for case, result in right if case.num_keys >= LONG for name in result.facts.get("kernels", ())}
    short = {name for case, result in right for name in result.facts.get("kernels", ())} - long
    if long_row is not None and short:
        long_row.facts["short_kernels"] = names = sorted(short)
        said = f"launched on shorter rows alone, and not judged on long ones: {', '.join(names)}"
        long_row.sentence = f"{long_row.sentence or 'right'}; {said}"


def wasted(case, reply):
    """(sentence, facts) where the kernel did or held more than the mask needs, else None.

    reply: the runner's, its trace included.
    """
    return whole_row(case, reply) or whole_matrix(case, reply) or needless(case, reply)


def needless(case, reply):
    """The same of what a program loads: copies, and tiles that no query sees."""
    for judged in (copied_out, needless_tiles, hidden_tiles, unaccounted):
        if found := judged(case, reply["trace"]):
            return found
    return None


def whole_row(case, reply):
    """The scores of a whole row at once: then no online softmax is needed, and none was learned."""
    held = reply["trace"]["live_scores"]
    if case.num_keys < LONG:
        return None
    queries = max((record["rows"] for record in reply["trace"]["visits"]), default=0)
    if queries > ONE_TILE:
        return f"One tile holds {queries} queries: no key is hidden from all of them. Take smaller tiles.", {}
    if held["keys"] <= ONE_TILE:
        return None
    kernel = f"{held['kernel']} writes" if held["kernel"] else "A program holds"
    sentence = (
        f"{kernel} the scores of {held['keys']} keys of a row at once: one tile holds the whole row, no online "
        f"softmax. Take tiles of at most {ONE_TILE} keys, one after the other."
    )
    return sentence, {"keys_at_once": held["keys"]}


def unaccounted(case, trace):
    """On a long row: more products than the visible pairs need, in blocks whose keys could not be followed."""
    if case.num_keys < LONG or case.tile_letters:
        return None
    if followed(case, trace["visits"]):
        return too_many_products(case, trace)
    mask = whole_mask(case.visibility, case.N, case.num_keys)
    needed = 4 * int(mask.sum()) * case.B * case.Hq * case.D
    flops = sum(total["dot_flops"] for total in trace["totals"].values())
    edges = 4 * case.B * case.Hq * case.N * case.D * 2 * EDGE  # tiles are whole where the mask begins and ends
    if needed / 2 <= flops <= ACCOUNTED * needed + edges and not case.shares_heads:
        return None
    if flops <= ACCOUNTED * needed + edges:
        return "What the kernels load of K could not be followed to what they multiply.", {"unfollowed": True}
    sentence = (
        f"The kernels do {flops} FLOPs in dots where the visible pairs need {needed}: tiles are multiplied that no "
        "query sees."
    )
    return sentence, {"flops": flops, "flops_needed": needed}


def too_many_products(case, trace):
    """Products far beyond those of the tiles that the mask needs, although those were met, too."""
    visits = [record for record in trace["visits"] if record["tiles"]]
    flops = sum(total["dot_flops"] for total in trace["totals"].values())
    of_kernel = defaultdict(list)
    for record in visits:
        of_kernel[record["kernel"]].append(record)
    needed = 0
    for kernel, records in of_kernel.items():
        area = max(record["rows"] for record in records) * spans_of(records)[kernel]
        needed = max(needed, 4 * case.D * area * need(case, records)["tiles"])
    if flops <= PADDED * needed:
        return None
    sentence = f"The kernels do {flops} FLOPs in dots where the tiles that this mask needs have {needed}."
    return sentence, {"flops": flops, "flops_needed": needed}


def followed(case, visits):
    """True where every visible pair was seen to meet in a dot or a product; heads that share K may share a tile."""
    visible = whole_mask(case.visibility, case.N, case.num_keys)
    met, group = torch.zeros(case.B, case.kv_heads, *visible.shape, dtype=torch.bool), case.Hq // case.kv_heads
    for record in visits:
        first, last = record["q"]
        for start, end in record["tiles"]:
            met[record["batch"], record["head"] // group, first : last + 1, start : end + 1] = True
    return not bool((visible & ~met).any())


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
    if not trace["copied_out"] or not case.shares_heads:
        return None
    copies, names = trace["copied_out"].values(), " and ".join(role.upper() for role in trace["copied_out"])
    loaded, needed = sum(copy["elements"] for copy in copies), sum(copy["needed"] for copy in copies)
    sentence = (
        f"{names} {'is' if len(copies) == 1 else 'are'} copied out to {case.Hq} heads before the kernel runs: {loaded} "
        f"elements are loaded where {needed} are different. The kernel can read its head where it is."
    )
    return sentence, {"elements_copied": loaded, "elements_needed": needed}


def needless_tiles(case, trace):
    """Tiles of keys that no query of the tile sees, or that are loaded again and again.

    All kernels together may load what the one needs that needs most: a second pass has no allowance of its own.
    SLACK_TILES more are allowed each time that a tile of queries is taken up, for tiles that do not start at
    multiples of their size, twice where there are sinks apart from the window. Loaded is what the dots met or what the
    programs loaded, whichever is more.
    """
    visits = [record for record in trace["visits"] if record["tiles"]]
    seen, spans, needed = Seen(case), spans_of(visits), need(case, visits)
    rows = {(entry["kernel"], entry["program"]): max(entry["k"], entry["v"]) for entry in trace["key_rows"]}
    by_program, by_kernel = defaultdict(list), Counter()
    for record in visits:
        by_program[record["kernel"], record["program"]].append(record)
    loaded = slack = tiles = 0
    worst = None
    for program, records in by_program.items():
        span = spans[program[0]]
        needs = sum(len(seen.tiles(record["q"], span)) * record["key_heads"] for record in records)
        loads = max(sum(tiles_met(case, record, span) for record in records), rows.get(program, 0) / span)
        tiles, loaded = tiles + loads, loaded + loads * span
        by_kernel[program[0]] += needs * span
        slack += SLACK_TILES * (2 if case.sinks else 1) * len(records) * span
        if worst is None or loads - needs > worst[0]:
            worst = loads - needs, records, loads, needs, span
    allowed = slack + max(by_kernel.values(), default=0)
    if loaded <= allowed:
        return None
    _, records, loads, needs, span = worst
    sentence = (
        f"{records[0]['kernel']} loads {tiles:.0f} tiles of keys where this mask needs {needed['tiles']} of "
        f"{needed['of']}: query rows {show_rows(records)} load {loads:.0f} tiles of {span} and see keys in {needs}"
    )
    if len(by_kernel) > 1 and worst[0] <= SLACK_TILES * 2:
        sentence = (
            f"{' and '.join(sorted(by_kernel))} together load {tiles:.0f} tiles of keys where one pass over them needs "
            f"{needed['tiles']}: the online softmax needs one pass"
        )
    facts = {"tiles_loaded": round(tiles), "tiles_needed": needed["tiles"], "tiles_allowed": round(allowed / span)}
    return f"{sentence}{unseen(seen, records)}.", facts | {"tiles": needed["of"]}


def hidden_tiles(case, trace):
    """On a long row: tiles that are multiplied although a mask of their load hides every key of them.

    Loops of a fixed length have some at their end; half as many as are needed is a loop over all tiles.
    """
    if case.num_keys < LONG or case.tile_letters or not case.causal:
        return None
    visits = [record for record in trace["visits"] if record["tiles"]]
    span = max(spans_of(visits).values(), default=1)
    tiles, needed = trace["empty_rows"] / span, need(case, visits)
    if tiles <= HIDDEN * needed["tiles"] + SLACK_TILES * len(visits):
        return None
    sentence = (
        f"The kernels multiply {tiles:.0f} tiles of keys of which the mask of their load hides every key, where this "
        f"mask needs {needed['tiles']} of {needed['of']}: end the loop before them."
    )
    return sentence, {"tiles_hidden": round(tiles), "tiles_needed": needed["tiles"]}


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
