"""The numbers behind the picture of one case, small plain data: where the output is off, what the kernel visited.

Made where the verdict has the tensors; the faces in render/ draw it and decide nothing.
"""

import functools
import itertools
from collections import Counter

import torch
from msgspec import to_builtins

from grader import failures
from grader.engine.error_map import TILE, error_maps, pool, step_for
from grader.kinds.attention import tile_visits
from grader.kinds.attention.masks import whole_mask
from grader.kinds.attention.tile_visits import Visit

MOST_EDGES = 12  # of a row of the mask
MASK_CELLS = (8, 32)  # at most, down and along, of the mask in text


def draw(case, visited=(), trace=None, compared=(), complete=True):
    """What can be drawn of one case: {"size", "mask", "errors", "heads", "visits", "need", "totals"}, what is known,
    and "shown" where no visits are.

    visited: the Visits. trace: what was observed beside them, or None. compared: (name, got, expected, allowed) of the
    output that is wrong, if one is; got (B, H, N, D) or (B, H, N) in its own dtype, the others in float64. complete:
    False where tiles may be missing though nothing was compared. A failure in here is ours and costs only the picture:
    {"fault": see the log}.
    """
    with failures.harmless("a picture"):
        visited = [visit for visit in visited if visit.tiles]
        picture, place = {"size": [case.N, case.num_keys]}, None
        if compared:
            picture |= error_maps(*compared, tile_rows(visited))
            place = picture["errors"]["place"]
        if visited:
            picture["visits"] = visits(case, visited, place, complete=complete and not compared)
            picture["need"] = need(case, visited, trace.costs.inputs if trace else {})
            place = picture["visits"]["place"]
        visibility = case.seen_at(*(place or (0, 0)))
        if "visits" not in picture:
            picture["shown"] = mask_cells(whole_mask(visibility, case.N, case.num_keys))
        picture["mask"] = mask_outlines(case, visibility)
        picture |= case.letters(visibility)
        if trace:
            picture["totals"] = to_builtins(trace.kernels)
        return picture
    return {"fault": f"see {failures.LOG}"}


def draw_right(case, shown):
    """The picture of what a right kernel visits, and where it needs a mask, with the tiles that `shown` has.

    Where it has no visits, that of the mask alone.
    """
    bands = [band for band in (shown.get("visits") or {}).get("bands", ()) if band["tiles"]]
    if not bands:
        return draw(case)
    batch, head = shown["visits"]["place"]
    block_q = max(band["q"][1] - band["q"][0] + 1 for band in bands)
    block_k = max(last - first + 1 for band in bands for first, last, *_ in band["tiles"])
    mask, records = whole_mask(case.seen_at(batch, head), case.N, case.num_keys), []
    for start in range(0, case.N, block_q):
        rows, tiles, masked = mask[start : start + block_q], [], []
        for first in range(0, case.num_keys, block_k):
            part = rows[:, first : first + block_k]
            tile = (first, first + part.shape[1] - 1)
            tiles += [tile] if part.any() else []
            masked += [tile] if part.any() and (not part.all() or part.shape[1] < block_k) else []
        q = start, start + len(rows) - 1
        records.append(Visit("a right kernel", len(records), q, batch, head, tiles, block_k, masked=masked))
    return draw(case, records)


def mask_cells(mask):
    """The mask as cells of `step` (queries, keys): "." where nothing is visible, "o" where all is, "+" else."""
    step = [step_for(size, most) for size, most in zip(mask.shape, MASK_CELLS, strict=True)]
    some, hides = (pool(each[None], step)[0] for each in (mask, ~mask))
    return {"step": step, "cells": ["".join(".+o"[sign] for sign in row) for row in (some + 1 - hides).tolist()]}


def tile_rows(records):
    """Rows of the kernel's tiles of queries as it has them most often, or TILE where they are not known."""
    counted = Counter(record.q[1] - record.q[0] + 1 for record in records)
    return max(counted, key=lambda size: (counted[size], size), default=TILE)


# Visits --------------------------------------------------------------------------------------------------------------


@functools.cache  # a lane's forks have them, as they have the answers
def mask_outlines(case, visibility=None):
    """Lines [[key, row], ...] around the pairs that the mask shows; a staircase becomes a slanted line."""
    mask = whole_mask(visibility or case.visibility, case.N, case.num_keys)
    if (mask[:, 1:] != mask[:, :-1]).sum(1).max() > MOST_EDGES:  # no outline, but dust
        mask = solid(mask, case.block if case.tile_letters else (TILE, TILE))
    parts, before = [], -1
    for row, stretches in enumerate(stretches_of(mask)):
        if len(stretches) != before:
            parts += [(row, []) for _ in stretches]
            before = len(stretches)
        for (_, edges), stretch in zip(parts[len(parts) - before :], stretches, strict=True):
            edges.append(stretch)
    return [line for start, edges in parts for line in outline(start, edges, len(mask))]


def solid(mask, cell):
    """The mask with each cell of (rows, keys) pairs filled where one of them is visible."""
    rows, keys = mask.shape
    return pool(mask[None], cell)[0].bool().repeat_interleave(cell[0], 0).repeat_interleave(cell[1], 1)[:rows, :keys]


def stretches_of(mask):
    """For each row the [first, after the last] of its stretches of True."""
    edges = torch.nn.functional.pad(mask.to(torch.int8), (1, 1)).diff()
    found = [[] for _ in mask]
    pairs = zip((edges == 1).nonzero().tolist(), (edges == -1).nonzero()[:, 1].tolist(), strict=True)
    for (row, first), after in pairs:
        found[row].append([first, after])
    return found


def outline(start, edges, rows):
    """The lines around one part of the mask: right and left, and across where the first or the last row is."""
    end = start + len(edges)
    heights = [float(start), *(start + i + 0.5 for i in range(len(edges))), float(end)]
    edges = [edges[0], *edges, edges[-1]]
    sides = [[[float(edge[i]), y] for edge, y in zip(edges, heights, strict=True)] for i in (1, 0)]
    across = [[side[i] for side in sides] for i, there in ((0, start == 0), (-1, end == rows)) if there]
    return [*map(straightened, sides), *across]


def straightened(points):
    kept = points[:1]
    for point, after in itertools.pairwise(points[1:]):
        (x0, y0), (x1, y1), (x2, y2) = kept[-1], point, after
        if (x1 - x0) * (y2 - y1) != (x2 - x1) * (y1 - y0):
            kept.append(point)
    return kept + points[-1:]


def visits(case, records, place, complete):
    """What the kernel visited for one batch and head, by tile of queries.

    place: (batch, head), or None for the one with most that is not needed. complete: every row was right, so that
    nothing needed can be missing even where a visit could not be told. Tiles: [first key, last key, times, needed];
    masked: those [first key, last key] on whose scores a mask was put.
    """
    by_place = {}
    for record in records:
        by_place.setdefault((record.batch, record.head), []).append(record)
    if place is None or tuple(place) not in by_place:
        place = max(by_place, key=lambda p: needless(case, by_place[p]))
    seen, bands, masked = tile_visits.Seen(case, case.seen_at(*place)), {}, {}
    for record in by_place[tuple(place)]:
        masked.setdefault(record.q, []).extend(record.masked)
        tiles = bands.setdefault(record.q, Counter())
        for tile, times in distinct(record).items():
            tiles[tile] += times
    if not complete:
        rows = torch.ones(case.N, dtype=torch.bool)
        for first, last in bands:
            rows[first : last + 1] = False
        untouched = [piece for stretch in stretches_of(rows[None])[0] for piece in pieces(*stretch, tile_rows(records))]
        bands |= {tuple(piece): Counter() for piece in untouched}
    span, shown = max(tile_visits.spans_of(records).values()), []
    for q, tiles in sorted(bands.items()):
        covered = torch.zeros(case.num_keys, dtype=torch.bool)
        for first, last in tiles:
            covered[first : last + 1] = True
        unmet = stretches_of((seen.keys(q) & ~covered)[None])[0] if not complete else []
        missing = [piece for first, after in unmet for piece in pieces(first, after, span)]
        listed = [[*tile, times, seen.any(q, tile)] for tile, times in tiles.items()]
        shown.append(
            {"q": list(q), "tiles": listed, "missing": missing, "masked": [list(tile) for tile in masked.get(q, [])]}
        )
    kernels = list(dict.fromkeys(r.kernel for r in by_place[tuple(place)]))
    return {"kernels": kernels, "place": list(place), "of": len(by_place), "bands": shown}


def pieces(first, after, span):
    """first ... after - 1, cut at multiples of span: [[first, last], ...]"""
    cuts = [first, *range((first // span + 1) * span, after, span), after]
    return [[a, b - 1] for a, b in itertools.pairwise(cuts)]


def distinct(record):
    """{(first key, last key): times}; a tile of several key heads counts once for them all."""
    heads = max(1, record.key_heads)
    return {tile: -(-times // heads) for tile, times in Counter(record.tiles).items()}


def needless(case, records):
    """Keys visited that are not needed, or visited again."""
    seen_by, total = tile_visits.seen_of(case), 0
    for record in records:
        seen = seen_by(record.batch, record.head)
        for (first, last), times in distinct(record).items():
            total += (last - first + 1) * (times - seen.any(record.q, (first, last)))
    return total


def need(case, records, loaded_of):
    """What the records visited and loaded of K and V, in tiles and in bytes, against what the mask needs.

    loaded_of: {name of an input: elements that programs loaded of it}.
    """
    needed, spans = tile_visits.needed_tiles(case, records), tile_visits.spans_of(records)
    row = case.D * getattr(torch, case.dtype).itemsize
    visited = sum(last - first + 1 for record in records for first, last in record.tiles)
    loaded = (loaded_of.get("k", 0) + loaded_of.get("v", 0)) / case.D or 2 * visited
    seen = tile_visits.seen_of(case)
    pairs = sum(int(seen(batch, head).mask.sum()) for batch in range(case.B) for head in range(case.Hq))
    return {
        "visited_tiles": round(sum(tile_visits.tiles_met(case, record, spans[record.kernel]) for record in records)),
        "needed_tiles": len(needed),
        "loaded_bytes": round(loaded * row), "needed_bytes": 2 * sum(needed) * row,
        "pairs": pairs, "pair_flops": 4 * pairs * case.D,
    }  # fmt: skip
