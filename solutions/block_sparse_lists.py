"""X1's tiles taken apart and listed anew for fast_block_sparse.py: what each program visits, decided before the launch.

A kernel runs well with tiles of its own size, not with those in which a mask happens to be cut. So the tiles become
units of 64 x 64, each with a code, and every program gets a list of units:

    units    code 0, nothing is visible; 1, all; 2, the triangle; 3 and more, where the bits lie
    lists    a program works on a group of neighbours, 64 queries each: their list is the union of theirs. First the
             units of which all of them see all, which need no mask, then the others, with a code for each neighbour
    order    the groups with the longest lists come first: what is started last should end soon

All of it happens on the tiles' own device, without a wait but one.

Source: Dao et al., "FlashAttention", 2022, section 3.3; Graham, "Bounds on multiprocessing timing anomalies", 1969, for
the longest first.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

SIZE = 64  # queries and keys of a unit
NOTHING, ALL, TRIANGLE, BITS = range(4)  # BITS + an address: 64-bit words from the beginning of the mask's bits


@triton.jit
def units_kernel(
    Starts, Columns, Places, Grid, strips, units,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Take the tiles of one row apart: the code of each of its units into Grid (maps, strips, units)."""
    row, this_map = tl.program_id(0), tl.program_id(1)
    Starts += (this_map * tl.num_programs(0) + row) * 4
    causal, partial, end = tl.load(Starts + 1), tl.load(Starts + 2), tl.load(Starts + 3)
    for first in range(tl.load(Starts), end, BLOCK):
        entry = first + tl.arange(0, BLOCK)
        column = tl.load(Columns + entry, mask=entry < end, other=0)
        place = tl.load(Places + entry, mask=entry < end, other=0).to(tl.int64)
        for r in tl.static_range(BLOCK_Q // 64):
            for c in tl.static_range(BLOCK_K // 64):
                in_triangle = 1 if c < r else (2 if c == r else 0)
                bits = 3 + (place * BLOCK_Q + r * 64) * (BLOCK_K // 64) + c
                code = tl.where(entry < causal, 1, tl.where(entry < partial, in_triangle, bits))
                strip, unit = row * (BLOCK_Q // 64) + r, column * (BLOCK_K // 64) + c
                here = (this_map.to(tl.int64) * strips + strip) * units + unit
                tl.store(Grid + here, code.to(tl.int32), mask=(entry < end) & (unit < units) & (strip < strips))


@triton.jit
def lists_kernel(
    Grid, Units, Codes, Records, strips, units,
    NEIGHBOURS: tl.constexpr, PER_STEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One group's list and its record. A strip past the last one has no say."""
    group, this_map = tl.program_id(0), tl.program_id(1)
    Grid += this_map.to(tl.int64) * strips * units
    here = (this_map * tl.num_programs(0) + group).to(tl.int64)
    unit = tl.arange(0, BLOCK)
    all_see_all, some_see_some = unit < units, unit < 0
    for n in tl.static_range(NEIGHBOURS):
        strip = group * NEIGHBOURS + n
        code = tl.load(Grid + strip * units + unit, mask=(unit < units) & (strip < strips), other=0)
        all_see_all &= (code == 1) | (strip >= strips)
        some_see_some |= code > 0
    first = all_see_all.to(tl.int32)
    second = (some_see_some & (first == 0)).to(tl.int32)
    unmasked = tl.sum(first, 0)
    length = unmasked + tl.sum(second, 0)
    place = tl.where(first == 1, tl.cumsum(first, 0), unmasked + tl.cumsum(second, 0)) - 1
    tl.store(Units + here * units + place, unit, mask=some_see_some)
    for n in tl.static_range(NEIGHBOURS):
        strip = group * NEIGHBOURS + n
        code = tl.load(Grid + strip * units + unit, mask=(unit < units) & (strip < strips), other=0)
        tl.store(Codes + (here * units + place) * NEIGHBOURS + n, code, mask=some_see_some)
    Records += here * 8
    tl.store(Records, group)
    tl.store(Records + 1, tl.maximum(tl.cdiv(length, PER_STEP), 1))
    tl.store(Records + 2, unmasked // PER_STEP)
    tl.store(Records + 3, length)
    tl.store(Records + 4 + place, unit, mask=some_see_some & (place < 4))
    tl.store(Records + 4 + unit, units, mask=(unit >= length) & (unit < 4))  # past the end of the keys


@dataclass(frozen=True)
class Lists:
    """One way to divide a mask among programs.

    records: int32 (maps, groups, 8), longest first: a group, its steps (at least one), the first step with a mask, the
    length of its list, and the first four of it, so that a program need not look further to begin. units: int32 (maps,
    groups, units of keys), the groups' lists. codes: int32 (maps, groups, units of keys, neighbours). cost: what all
    programs compute, in pairs of queries and keys.
    """

    records: torch.Tensor
    units: torch.Tensor
    codes: torch.Tensor
    cost: int


@dataclass(frozen=True)
class Prepared:
    """The Tiles, the head dim that the lists were made for, and the lists of neighbours together and of each alone."""

    tiles: object
    D: int
    together: Lists
    alone: Lists


def prepare_lists(tiles, D, together, alone):
    """The Prepared form of x1's Tiles, on their device.

    together, alone: (keys in a step, neighbours) of each way to divide. Raises ValueError unless the tiles' sides are
    multiples of 64.
    """
    if tiles.block_q % SIZE or tiles.block_k % SIZE:
        raise ValueError(f"tiles must have sides of multiples of {SIZE}; got {tiles.block_q} x {tiles.block_k}")
    maps, rows, _ = tiles.starts.shape
    strips, units = triton.cdiv(tiles.queries, SIZE), triton.cdiv(tiles.keys, SIZE)
    grid = torch.zeros(maps, strips, units, dtype=torch.int32, device=tiles.starts.device)
    units_kernel[(rows, maps)](
        tiles.starts, tiles.columns, tiles.places, grid, strips, units, tiles.block_q, tiles.block_k, 128
    )
    ways = [lists_of(grid, *way) for way in (together, alone)]
    steps = torch.stack([records[..., 1].sum() for records, _, _ in ways]).tolist()
    costs = [
        count * keys * neighbours * SIZE for count, (keys, neighbours) in zip(steps, (together, alone), strict=True)
    ]
    return Prepared(tiles, D, *(Lists(*way, cost) for way, cost in zip(ways, costs, strict=True)))


def lists_of(grid, keys_in_step, neighbours):
    """(records, units, codes) of the codes (maps, strips, units)."""
    maps, strips, units = grid.shape
    groups = triton.cdiv(strips, neighbours)
    records = torch.empty(maps, groups, 8, dtype=torch.int32, device=grid.device)
    listed = torch.empty(maps, groups, units, dtype=torch.int32, device=grid.device)
    codes = torch.empty(maps, groups, units, neighbours, dtype=torch.int32, device=grid.device)
    lists_kernel[(groups, maps)](
        grid,
        listed,
        codes,
        records,
        strips,
        units,
        neighbours,
        keys_in_step // SIZE,
        max(triton.next_power_of_2(units), 4),
    )
    longest_first = records[..., 1].argsort(dim=1, descending=True, stable=True)
    return records.gather(1, longest_first[..., None].expand_as(records)), listed, codes
