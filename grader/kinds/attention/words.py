"""Rows, keys and pairs of them -> words."""

import torch

from grader.engine.compare_values import ranges
from grader.engine.locate import show

EQUAL = "In a second run, on inputs that make all scores equal, "


def name_pairs(flags: torch.Tensor) -> str:
    """Words for the pairs (query, key) that are True: by distance where that is one for all rows, else by position.

    `keys i-63 to 63 for each query row i of 64-126`, `keys 0-7 for query row 3 (and other keys for 2 more rows)`.
    """
    rows = flags.any(1)
    first = int(rows.nonzero()[0])
    if int(rows.sum()) > 1 and (keys := name_distances(flags, rows)):
        if keys == "key i":
            return f"the query's own key, for query {name_rows(rows)}"
        return f"{keys} for each query row i of {name_rows(rows).partition(' ')[2]}"
    last, what = name_stretch(flags, first)
    each = "each query row i of" if "i" in what else "query row" if first == last else "query rows"
    others = int(rows.sum()) - (last - first + 1)
    more = f" (and other keys for {others} more row{'s' * (others > 1)})" if others else ""
    return f"key{what} for {each} {show([(first, last)])}{more}"


def name_stretch(flags: torch.Tensor, first: int) -> tuple[int, str]:
    """(the last row of those after `first` whose keys go by one rule, their numbers; i is the row's own)."""
    last = first
    while last + 1 < len(flags) and bool((flags[last + 1] == flags[first]).all()):
        last += 1
    keys = ranges(flags[first].nonzero().flatten().tolist())
    what = f"{'s' * (keys != [(keys[0][0],) * 2])} {show(keys)}"
    if len(keys) > 1 or last > first:
        return last, what
    start, end = keys[0]
    rules = (
        (f"s {name_place(start - first)} to {end}", 1, 0),
        (f"s {start} to {name_place(end - first)}", 0, 1),
    )
    for words, moves_start, moves_end in rules:
        after = first + 1
        while after < len(flags):
            moved = after - first
            expected = (start + moves_start * moved, end + moves_end * moved)
            if ranges(flags[after].nonzero().flatten().tolist()) != [expected]:
                break
            after += 1
        if after - 1 > last:
            last, what = after - 1, words
    return last, what


def name_place(distance: int) -> str:
    """A key by its distance to query i: `i`, `i-63`, `i+1`."""
    return f"i{distance:+d}" if distance else "i"


def name_distances(flags: torch.Tensor, rows: torch.Tensor) -> str:
    """`key i` or `keys i-40 to i-32`, where that says all of these rows, else ""."""
    query, key = flags.nonzero().unbind(1)
    distance = (key - query).unique()
    low, high = int(distance.min()), int(distance.max())
    if len(distance) != high - low + 1 or high - low > len(flags) // 4:
        return ""
    i, j = torch.arange(flags.shape[0])[:, None], torch.arange(flags.shape[1])[None, :]
    if not bool((((j - i >= low) & (j - i <= high))[rows] == flags[rows]).all()):
        return ""
    return f"key {name_place(low)}" if low == high else f"keys {name_place(low)} to {name_place(high)}"


def name_rows(flags: torch.Tensor) -> str:
    return f"row{'s' * (int(flags.sum()) > 1)} {show(ranges(flags.nonzero().flatten().tolist()))}"


def agree(flags: torch.Tensor, one: str, several: str) -> str:
    """The verb for as many as are True."""
    return several if int(flags.sum()) > 1 else one
