"""X1's tiles taken apart and listed anew for fast_block_sparse.py: what each program visits, decided before the launch.

A kernel runs well with tiles of its own size, not with those in which a mask happens to be cut. So the tiles become
units of 64 x 64, each with a code, and every program gets a list of units:

    units    code 0, nothing is visible; 1, all; 2, the triangle; 3 and more, where the bits lie
    lists    a program works on a group of neighbours, 64 queries each: their list is the union of theirs. First the
             units of which all of them see all, which need no mask, then the others
    words    what the units show in steps where one needs a mask, whatever their code: a program need not look up where.
             A last step that is not full has words too: what fills it is hidden
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
MOST_STRIPS = 65535  # of 64 queries: a grid's size in its second dimension


@triton.jit
def units_kernel(
    Starts, Columns, Places, Inside, Grid, strips, units,
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
                at = (place * (BLOCK_Q // 64) + r) * (BLOCK_K // 64) + c
                inside = tl.load(Inside + at, mask=(entry >= partial) & (entry < end), other=0)
                bits = 3 + (place * BLOCK_Q + r * 64) * (BLOCK_K // 64) + c
                code = tl.where(entry < partial, in_triangle, tl.where(inside == 3, bits, inside))
                code = tl.where(entry < causal, 1, code)
                strip, unit = row * (BLOCK_Q // 64) + r, column * (BLOCK_K // 64) + c
                here = (this_map.to(tl.int64) * strips + strip) * units + unit
                tl.store(Grid + here, code.to(tl.int32), mask=(entry < end) & (unit < units) & (strip < strips))


@triton.jit
def lists_kernel(Grid, Units, Records, strips, units, NEIGHBOURS: tl.constexpr, BLOCK: tl.constexpr):
    """One group's list and its record, but for where its words begin. A strip past the last one has no say."""
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
    if unmasked == 0:  # the last unit comes second: at a border of documents each row sees the first unit or the last
        place = tl.where(place == length - 1, tl.minimum(place, 1), tl.where(place > 0, place + 1, place))
    tl.store(Units + here * units + place, unit, mask=some_see_some)
    Records += here * 8
    tl.store(Records, group)
    tl.store(Records + 1, unmasked)
    tl.store(Records + 2, length)
    tl.store(Records + 4 + place, unit, mask=some_see_some & (place < 4))
    tl.store(Records + 4 + unit, units, mask=(unit >= length) & (unit < 4))  # past the end of the keys


@triton.jit
def words_kernel(
    Grid, Units, Records, Bits, Words, strips, units,
    NEIGHBOURS: tl.constexpr, PARTS: tl.constexpr, WORDS_A_ROW: tl.constexpr,
):  # fmt: skip
    """The words (NEIGHBOURS, 64, 2) of one unit of a step of one group's list, if the step needs any.

    Grid: (places in a list, groups, maps).
    """
    place, group, this_map = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    here = this_map * tl.num_programs(1) + group
    unmasked, length = tl.load(Records + here * 8 + 1), tl.load(Records + here * 8 + 2)
    first, end = unmasked // PARTS * PARTS, tl.maximum(tl.cdiv(length, PARTS), 1) * PARTS
    if (place >= first) & (place < end):
        unit = tl.load(Units + here * units + place, mask=place < length, other=0)
        at = tl.load(Records + here * 8 + 3).to(tl.int64) + place - first
        row, half = tl.arange(0, 64)[:, None], tl.arange(0, 2)[None, :]
        ones = tl.minimum(tl.maximum(row + 1 - 32 * half, 0), 32)
        triangle = tl.where(ones == 32, -1, (1 << ones) - 1)
        for n in tl.static_range(NEIGHBOURS):
            strip = group * NEIGHBOURS + n
            listed = (strip < strips) & (place < length)
            code = tl.load(Grid + (this_map * strips + strip) * units + unit, mask=listed, other=0)
            bits = (code - 3).to(tl.int64) * 2 + row * WORDS_A_ROW + half
            words = tl.load(Bits + bits, mask=(code >= 3) & (row >= 0) & (half >= 0), other=0)
            words = tl.where((code == 1) | (place < unmasked), -1, tl.where(code == 2, triangle, words))
            tl.store(Words + (at * NEIGHBOURS + n) * 128 + row * 2 + half, words)


@dataclass(frozen=True)
class Lists:
    """One way to divide a mask among programs.

    records: int32 (maps, groups, 8), those with the longest lists first: a group, how many units of its list need no
    mask, how many units it has, where its words begin, and the first four units, so that a program need not look
    further to begin. units: int32 (maps, groups, units of keys), the groups' lists; what lies past a list's length is
    never set. words: int32 (units of steps that need words, neighbours, 64, 2), bit k % 32 of word k // 32 is key k.
    cost: what all programs compute, in pairs of queries and keys.
    """

    records: torch.Tensor
    units: torch.Tensor
    words: torch.Tensor
    cost: int


@dataclass(frozen=True)
class Prepared:
    """The Tiles, the head dim that the lists were made for, and the lists of neighbours together and of each alone.

    The two are one object where the kernel divides in one way only.
    """

    tiles: object
    D: int
    together: Lists
    alone: Lists


def prepare_lists(tiles, D, together, alone):
    """The Prepared form of x1's Tiles, on their device.

    together, alone: (keys in a step, neighbours) of each way to divide. Raises ValueError unless the tiles' sides are
    multiples of 64, for more queries than a launch takes, and where a code cannot hold the last address of their bits.
    """
    if tiles.block_q % SIZE or tiles.block_k % SIZE:
        raise ValueError(f"tiles must have sides of multiples of {SIZE}; got {tiles.block_q} x {tiles.block_k}")
    if triton.cdiv(tiles.queries, SIZE) > MOST_STRIPS:
        raise ValueError(f"a mask may have {MOST_STRIPS * SIZE} queries at the most; got {tiles.queries}")
    if 3 + tiles.bits.numel() // 2 > 2**31:
        raise ValueError(
            f"a mask's bits must fit in 2^31 words of 64; got {len(tiles.bits)} PARTIAL tiles of {tiles.block_q} x "
            f"{tiles.block_k}: give the heads a mask that they share, or split the batch"
        )
    maps, rows, _ = tiles.starts.shape
    strips, units = triton.cdiv(tiles.queries, SIZE), triton.cdiv(tiles.keys, SIZE)
    grid = torch.zeros(maps, strips, units, dtype=torch.int32, device=tiles.starts.device)
    units_kernel[(rows, maps)](
        tiles.starts, tiles.columns, tiles.places, codes_inside(tiles), grid, strips, units,
        tiles.block_q, tiles.block_k, 128,
    )  # fmt: skip
    lists = [lists_of(tiles, grid, *way) for way in ([alone] if together == alone else [alone, together])]
    return Prepared(tiles, D, together=lists[-1], alone=lists[0])


def codes_inside(tiles):
    """int32 (PARTIAL tiles, rows and columns of units): of a large tile's units some may show nothing, or all."""
    words = tiles.bits.view(-1, tiles.block_q // SIZE, SIZE, tiles.block_k // SIZE, 2)
    some, every = (words != 0).any(4).any(2), (words == -1).all(4).all(2)
    return torch.where(every, 1, torch.where(some, 3, 0)).int()


def lists_of(tiles, grid, keys_in_step, neighbours):
    """The Lists of codes (maps, strips, units) for groups of that many neighbours."""
    maps, strips, units = grid.shape
    groups = triton.cdiv(strips, neighbours)
    records = torch.empty(maps, groups, 8, dtype=torch.int32, device=grid.device)
    listed = torch.empty(maps, groups, units, dtype=torch.int32, device=grid.device)
    block = max(triton.next_power_of_2(units), 4)
    lists_kernel[(groups, maps)](grid, listed, records, strips, units, neighbours, block)
    unmasked, length = records[..., 1], records[..., 2]
    parts = keys_in_step // SIZE
    steps = ((length + parts - 1) // parts).clamp(min=1)
    masked = (steps - unmasked // parts) * parts  # units of steps that need words
    ends = masked.flatten().cumsum(0, dtype=torch.int32).view(maps, groups)
    records[..., 3] = ends - masked
    all_masked, all_steps = torch.stack([ends[-1, -1], steps.sum()]).tolist()
    words = torch.empty(all_masked, neighbours, SIZE, 2, dtype=torch.int32, device=grid.device)
    if all_masked:
        words_kernel[(triton.cdiv(units, parts) * parts, groups, maps)](
            grid, listed, records, tiles.bits, words, strips, units, neighbours, parts, tiles.block_k // 32, num_warps=2
        )
    longest_first = length.argsort(dim=1, descending=True, stable=True)
    records = records.gather(1, longest_first[..., None].expand_as(records))
    return Lists(records, listed, words, all_steps * keys_in_step * neighbours * SIZE)
