"""Which keys and values the new tokens see, what to ask where others are read, and work that is not the kernels'."""

import math

import numpy as np
import torch

from grader.engine import output_checks
from grader.engine.cause import Measured
from grader.engine.reads import NOWHERE, Reads
from grader.kinds.attention.known_mistakes import HEADS, POINTERS, TAILS
from grader.kinds.decode import inputs
from grader.kinds.decode.cases import PROBLEM
from grader.kinds.decode.mistakes import EMPTY, GROUP, IN_PAGES, MASK, MERGE, PAGES

CACHES = "k_cache", "v_cache"
FEW_ROWS = 16  # of a tile: so many are taken together by any kernel
TORCH = 4.0  # elements that PyTorch may touch or make, for each of the parts of pieces of FEWEST tokens
FEWEST = 16
PAST = "which positions exist: does the mask of this load know the length of this program's sequence?"
BEFORE = "which is the first key that a new token sees, and does the mask of this load know it?"
WHOSE = "which entry of which row of block_table has the page of this token? Is it asked only for keys that are seen?"
NOBODY_WROTE = "which pieces of this row does the merge load, and did a program of the first kernel store each of them?"
GRID = "does the grid have a program for each tile of rows: query heads of a group times new tokens?"
EITHER = "K and V each have strides of their own: by whose strides, and at which kv head, is this address made?"
SEES_NONE = "a row that sees no key gives 0: which program stores that, and does it come as far as its store?"
OLDEST = "which is the first key that a new token sees, and how long is the window where window_size is None?"
LOST = "which pieces does a sequence have, where does each begin and end, and does the mask show all of it?"


def needed(case):
    seen = np.zeros((case.B, case.Hkv, case.tokens), dtype=bool)
    for sequence, length in enumerate(case.lengths):
        seen[sequence, :, case.first_key(length) : length] = True
    return dict.fromkeys(CACHES, seen)


def index(case, name, rows):
    """(sequence, kv head, token) of each row; NOWHERE of a page that no sequence has."""
    if case.page is None:
        return np.stack(np.unravel_index(rows, (case.B, case.Hkv, case.tokens)), 1)
    table = inputs.block_table(case).numpy()
    used = np.zeros(table.shape, dtype=bool)
    for sequence, length in enumerate(case.lengths):
        used[sequence, list(inputs.used(case, length))] = True
    owner = np.full((table.size + inputs.UNUSED, 2), NOWHERE)
    owner[table[used]] = np.argwhere(used)
    page, row, head = np.unravel_index(rows, (len(owner), case.page, case.Hkv))
    sequence, entry = owner[page].T
    return np.stack([sequence, head, entry * case.page + row], 1)


def asks(case):
    found = {
        "past": (PAST, TAILS), "before": (BEFORE, MASK), "nowhere": (WHOSE, PAGES), "one input": (EITHER, POINTERS),
        "whole": (GROUP, HEADS), "first": (OLDEST, MASK), "lost": (LOST, MERGE), "twice": (LOST, MERGE),
    }  # fmt: skip
    return found if case.page is None else found | {"scattered": (IN_PAGES, PAGES)}


def advice(case):
    rows = [(case.group, "query heads of a group"), (case.Nq, "new tokens")]
    several = " and ".join(f"the {count} {name}" for count, name in rows if count > 1)
    return f"{several} see the same keys. Load a tile of them once for all" if several else "load each key once"


SPARE = 2 * 128  # keys of a sequence and head: the rest of a tile at either end
READS = Reads(
    needed, asks, index, spare=SPARE, advice=advice, once=lambda case: case.group * case.Nq <= FEW_ROWS,
    times=lambda case: math.ceil(case.group * case.Nq / FEW_ROWS), poisons=lambda case: case.rest == "NaN",
)  # fmt: skip


def unwritten(case, trace, found):
    """[Measured] where an element holds what new memory is filled with: it was never stored, or made of such memory."""
    if not found.unwritten:
        return []
    shape = [case.B, case.Hq, case.Nq, case.D]
    size = math.prod(shape) * getattr(torch, case.dtype).itemsize
    named = {each.argument for each in trace.addresses if each.kind == "store" and each.shape == shape} if trace else ()
    kernels = trace.kernels.values() if trace else ()
    stored = [count for kernel in kernels for name, count in kernel.stored.items() if not named or name in named]
    batch, head, token, _ = found.first
    row = f"o of query head {head}, sequence {batch}, new token {token}"
    if size in stored:
        said = f"Every element is stored, but {row} is made of memory that no program wrote."
        return [Measured("unwritten", said, NOBODY_WROTE, MERGE)]
    if case.lengths[batch] - case.Nq + token < 0:
        return [Measured("unwritten", f"No program stores {row}, which sees no key.", SEES_NONE, EMPTY)]
    return [Measured("unwritten", f"No program stores {row}.", GRID, POINTERS)]


def by_torch(case, costs):
    """A sentence where PyTorch does more outside of the kernels than preparing and merging take, else ""."""
    parts = case.B * case.Hq * case.Nq * case.D * (math.ceil(case.tokens / FEWEST) + FEWEST)
    bounds = {"multiply_adds": TORCH, "made": TORCH}
    return output_checks.describe_torch(costs, parts, f"element of pieces of {FEWEST} keys", bounds, PROBLEM.module)
