"""Rows, keys and pairs of them -> words."""

import torch

from grader.diagnosis.compare import ranges
from grader.diagnosis.locate import show


def name_pairs(flags: torch.Tensor) -> str:
    """Words for the pairs (query, key) that are True: by age where that is the same for all rows, else by position."""
    rows = flags.any(1)
    first = int(rows.nonzero()[0])
    if int(rows.sum()) > 1 and (age := name_ages(flags, rows)):
        return f"{age}, for query {name_rows(rows)}"
    last, what = name_stretch(flags, first)
    who = f"query row {first}" if first == last else f"query rows {first}-{last}"
    others = int(rows.sum()) - (last - first + 1)
    return f"{what} for {who}" + (f" (and others for {others} more row{'s' * (others > 1)})" if others else "")


def name_stretch(flags: torch.Tensor, first: int) -> tuple[int, str]:
    """(the last row of those after `first` whose keys go by one rule, words for these keys)."""
    last = first
    while last + 1 < len(flags) and bool((flags[last + 1] == flags[first]).all()):
        last += 1
    keys = ranges(flags[first].nonzero().flatten().tolist())
    what = f"key {show(keys)}" if len(keys) == 1 and keys[0][0] == keys[0][1] else f"keys {show(keys)}"
    if len(keys) > 1 or last > first:
        return last, what
    start, end = keys[0]
    rules = (
        (f"the keys from {name_neighbour(start - first)} to key {end}", 1, 0),
        (f"the keys from key {start} to {name_neighbour(end - first)}", 0, 1),
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


def name_neighbour(distance: int) -> str:
    """A key by its distance to the query."""
    if distance == 0:
        return "the query's own"
    tokens = f"{abs(distance)} token{'s' * (abs(distance) > 1)}"
    return f"the one {tokens} {'after' if distance > 0 else 'before'} the query"


def name_ages(flags: torch.Tensor, rows: torch.Tensor) -> str:
    """`the query's own key` or `the key 32 tokens before the query`, where that says all of these rows, else ""."""
    query, key = flags.nonzero().unbind(1)
    distance = (query - key).unique()
    low, high = int(distance.min()), int(distance.max())
    if len(distance) != high - low + 1 or high - low > len(flags) // 4:
        return ""
    i, j = torch.arange(flags.shape[0])[:, None], torch.arange(flags.shape[1])[None, :]
    if not bool((((i - j >= low) & (i - j <= high))[rows] == flags[rows]).all()):
        return ""
    if low == high == 0:
        return "the query's own key"
    near, far = sorted((abs(low), abs(high)))
    if low <= 0 <= high:
        return f"the keys from {high} before to {-low} after the query"
    span = f"key {near} tokens" if near == far else f"keys {near}-{far} tokens"
    return f"the {span} {'before' if low > 0 else 'after'} the query"


def name_rows(flags: torch.Tensor) -> str:
    return f"row{'s' * (int(flags.sum()) > 1)} {show(ranges(flags.nonzero().flatten().tolist()))}"


def agree(flags: torch.Tensor, one: str, several: str) -> str:
    """The verb for as many as are True."""
    return several if int(flags.sum()) > 1 else one
