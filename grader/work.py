"""Work counted: what a kernel loaded of K and V against what its mask needs, and copies that nobody needs."""

from collections import defaultdict

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

    What a tile of queries needs is the tiles of keys, of the kernel's own size, that hold a key which any of its
    queries sees; SLACK_TILES more are allowed for tiles that do not start at multiples of their size, twice where there
    are sinks apart from the window. Loaded is what the dots met or what the programs loaded, whichever is more.
    """
    mask = case.visibility.mask(torch.arange(case.N), torch.arange(case.num_keys))
    rows = {(entry["kernel"], entry["program"]): max(entry["k"], entry["v"]) for entry in trace["key_rows"]}
    by_program = defaultdict(list)
    spans = defaultdict(int)  # of each kernel's whole tiles: the end of the sequence cuts some off
    for record in (record for record in trace["visits"] if record["tiles"]):
        by_program[record["kernel"], record["program"]].append(record)
        spans[record["kernel"]] = max(spans[record["kernel"]], record["span"])
    loaded = needed = allowed = total = 0
    worst = None
    for program, records in by_program.items():
        span = spans[program[0]]
        need = sum(tiles_needed(case, mask, record, span) for record in records)
        met = sum(len(record["tiles"]) for record in records)
        total += sum(-(-case.num_keys // span) * record["key_heads"] for record in records)
        loads = max(met, rows.get(program, 0) / span)
        loaded, needed = loaded + loads, needed + need
        allowed += need + SLACK_TILES * (2 if case.sinks else 1) * len(records)
        if worst is None or loads - need > worst[0]:
            worst = loads - need, records, loads, need
    if loaded <= allowed:
        return None
    facts = {"tiles_loaded": round(loaded), "tiles_needed": needed, "tiles_allowed": allowed, "tiles": total}
    _, records, loads, need = worst
    sentence = (
        f"{records[0]['kernel']} loads {loaded:.0f} tiles of keys where this mask needs {needed} of {total}: query "
        f"rows {show_rows(records)} load {loads:.0f} tiles of {spans[records[0]['kernel']]} and see keys in {need}"
    )
    return f"{sentence}{unseen(mask, records)}.", facts


def tiles_needed(case, mask, record, span):
    """Tiles of `span` keys that hold a key which one of its queries sees, once for each head of keys."""
    first, last = record["q"]
    seen = mask[first : last + 1].any(0)
    padded = torch.nn.functional.pad(seen, (0, -case.num_keys % span))
    return int(padded.view(-1, span).any(1).sum()) * record["key_heads"]


def show_rows(records):
    rows = sorted({tuple(record["q"]) for record in records})
    return f"{rows[0][0]}-{rows[0][1]}" + (f" and {len(rows) - 1} more tiles" if len(rows) > 1 else "")


def unseen(mask, records):
    """`; keys 128-255 none of them sees`: the stretch of tiles met that no query of the first record sees."""
    first, last = records[0]["q"]
    seen = mask[first : last + 1].any(0)
    hidden = [(a, min(b, len(seen) - 1)) for a, b in records[0]["tiles"] if not seen[a : b + 1].any()]
    if not hidden:
        return ""
    return f"; keys {min(a for a, _ in hidden)}-{max(b for _, b in hidden)} hold tiles that none of them sees"
