"""What must hold of an order of programs: one sentence on the first thing that does not.

The order is (head, tile) of each program, in a list or an array (programs, 2), as the skeleton's `program_order` says.
No property asks for one certain order: kv heads may be dealt to the dies in any way and run one by one or side by side.
"""

import numpy as np


def check_order(order, num_tiles, num_heads, num_dies=8, heads_per_kv=1):
    """None, or a sentence on what is wrong with the order and where.

    Checked in turn: every tile of every head once; of the kv heads as many whole on one die as the dies can share
    evenly; the same work on all dies, in causal tiles of keys, to within one tile of queries; on each die the rows of
    a kv head from the longest to the shortest.
    """
    programs = num_tiles * num_heads
    try:
        order = np.asarray(order)
    except ValueError:  # rows of several lengths
        order = np.asarray(None)
    if order.shape != (programs, 2) or order.dtype.kind not in "iu":
        return (
            f"the order must have two integers, head and tile, for each of {programs} programs "
            f"({num_tiles} tiles of each of {num_heads} heads); got an array {order.shape} of {order.dtype}"
        )
    head, tile = order.T
    dies = np.arange(programs) % num_dies
    return (
        not_a_bijection(head, tile, num_tiles, num_heads)
        or split_heads(head // heads_per_kv, dies, num_heads // heads_per_kv, num_dies)
        or out_of_balance(tile, dies, num_tiles, num_dies)
        or short_before_long(head // heads_per_kv, tile, dies, num_dies)
    )


def not_a_bijection(head, tile, num_tiles, num_heads):
    outside = (head < 0) | (head >= num_heads) | (tile < 0) | (tile >= num_tiles)
    if outside.any():
        p = int(outside.argmax())
        return (
            f"program {p} computes tile {tile[p]} of head {head[p]}; there are {num_tiles} tiles and {num_heads} heads"
        )
    place = head * num_tiles + tile
    count = np.bincount(place, minlength=num_tiles * num_heads)
    if count.max() == 1:
        return None
    missing, again = int((count == 0).argmax()), int((count > 1).argmax())
    first, second, *_ = np.flatnonzero(place == again)
    return (
        f"{(count == 0).sum()} of {len(count)} tiles are never computed, first tile {missing % num_tiles} of head "
        f"{missing // num_tiles}, and {(count > 1).sum()} more than once, first tile {again % num_tiles} of head "
        f"{again // num_tiles}, by programs {first} and {second}"
    )


def split_heads(kv_head, dies, kv_heads, num_dies):
    """A sentence where fewer kv heads stay on one die than could; those that the dies cannot share evenly may split."""
    on = np.bincount(kv_head * num_dies + dies, minlength=kv_heads * num_dies).reshape(kv_heads, num_dies)
    dies_of = (on > 0).sum(1)
    whole, needed = (dies_of == 1).sum(), kv_heads - kv_heads % num_dies
    if whole >= needed:
        return None
    first = int((dies_of > 1).argmax())
    return (
        f"{whole} of {kv_heads} kv heads have all their tiles on one die, where {needed} can: the tiles of kv head "
        f"{first} are on {dies_of[first]} dies, and each of them loads its K and V"
    )


def out_of_balance(tile, dies, num_tiles, num_dies):
    work = np.bincount(dies, weights=tile + 1, minlength=num_dies).astype(int)  # tile t of queries sees t + 1 of keys
    if work.max() - work.min() <= num_tiles:
        return None
    return (
        f"die {work.argmax()} has {work.max()} tiles of keys to visit and die {work.argmin()} {work.min()}: they may "
        f"differ by {num_tiles}, what one tile of queries costs at most"
    )


def short_before_long(kv_head, tile, dies, num_dies):
    line = kv_head * num_dies + dies
    runs = np.argsort(line, kind="stable")  # programs of one kv head on one die stand together, in their order
    wrong = (np.diff(line[runs]) == 0) & (np.diff(tile[runs]) > 0)
    if not wrong.any():
        return None
    before, after = runs[wrong.argmax()], runs[wrong.argmax() + 1]
    return (
        f"on die {dies[before]} tile {tile[before]} of kv head {kv_head[before]} runs before its tile {tile[after]}, "
        f"which takes longer"
    )
