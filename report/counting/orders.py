"""Orders of programs: each a function of a program's number that gives the head and the tile of queries it computes.

An order is `order(program, num_tiles, num_heads, num_dies, heads_per_kv) -> (head, tile)`, for the programs 0 to
num_tiles * num_heads - 1. Program p runs on die p % num_dies: GPUs of several dies hand programs out in turn. Tile 0
holds the first queries, the shortest row of a causal mask; heads_per_kv neighbouring heads share K and V.
"""


def identity(program, num_tiles, num_heads, num_dies=8, heads_per_kv=1):
    """The plain grid (num_tiles, num_heads): head after head, from the shortest row to the longest."""
    return program // num_tiles, program % num_tiles


def longest_first(program, num_tiles, num_heads, num_dies=8, heads_per_kv=1):
    """The plain grid with its tiles reversed: head after head, from the longest row to the shortest."""
    return program // num_tiles, num_tiles - 1 - program % num_tiles


def published(program, num_tiles, num_heads, num_dies=8, heads_per_kv=1):
    """A published remap of each head's tiles for 8 dies: a block of neighbouring tiles to each of them.

    It has two faults. Causal rows grow with their tile, so the last die gets the longest ones. And it is a bijection
    only for one tile a head and for multiples of 8 up to 64: of 128 tiles it computes 64 twice and leaves 64 out, and
    where 8 does not divide the tiles (12, say) it computes some twice and leaves others out as well.
    """
    head, m = program // num_tiles, program % num_tiles
    die = (m // 8) % 8
    return head, (m % 8) * (num_tiles // 8) + die


def head_first(program, num_tiles, num_heads, num_dies=8, heads_per_kv=1):
    """Whole kv heads on one die, one after the other, the longest rows of each first; what is left over is spread.

    As many kv heads as all dies can share evenly stay whole. The others, fewer than num_dies, are spread over all dies
    tile by tile, the longest rows first: balance wins over the one cache. `solutions/x2_program_order.py` explains.
    """
    die, slot = program % num_dies, program // num_dies
    kv_heads = num_heads // heads_per_kv
    rounds, spread = divmod(kv_heads, num_dies)
    size = num_tiles * heads_per_kv  # programs of a kv head
    if slot < rounds * size:
        turn, at = divmod(slot, size)
        row, member = divmod(at, heads_per_kv)
        kv_head = turn * num_dies + die
    else:
        at, nth = divmod(program - rounds * size * num_dies, spread)
        row, member = divmod(at, heads_per_kv)
        kv_head = rounds * num_dies + nth
    return kv_head * heads_per_kv + member, num_tiles - 1 - row


def listed(order, num_tiles, num_heads, num_dies=8, heads_per_kv=1):
    """[(head, tile) of each program] of an order."""
    return [order(p, num_tiles, num_heads, num_dies, heads_per_kv) for p in range(num_tiles * num_heads)]
