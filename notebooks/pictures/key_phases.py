"""The phases of a column of tiles: the lines of X3's keys_kernel from "gap 2" to "end gap", run as plain Python.

X3 gives the sinks to a kernel of their own; here a column with sinks goes on to the last query that sees one.
"""

import re
import textwrap

import torch

from notebooks.source import ROOT

GAP = re.compile(r"^ *# gap 2:.*?^ *# end gap$", re.MULTILINE | re.DOTALL)
LINES = textwrap.dedent(GAP.search((ROOT / "solutions" / "x3_backward.py").read_text(encoding="utf-8"))[0])
FORMULAS = compile(LINES, "keys_kernel", "exec")


class plain:
    """What the lines need of triton.language, for Python's integers."""

    minimum, maximum = staticmethod(min), staticmethod(max)

    @staticmethod
    def cdiv(a, b):
        return -(-a // b)


def bounds(case, k_start, block_q, block_k):
    """(first, diagonal_end, inside_end, end) of a tile of keys, as keys_kernel computes them, with the sinks."""
    names = {"tl": plain, "N": case.N, "window_size": min(case.window or case.N, case.N), "k_start": k_start,
             "sink_size": min(case.sinks or 0, case.N), "IS_CAUSAL": case.causal,
             "BLOCK_Q": block_q, "BLOCK_K": block_k}  # fmt: skip
    exec(FORMULAS, names)
    sinks = (case.sinks or 0) if case.window else 0
    if k_start < sinks:  # the last query sees a key of this tile
        names["end"] = case.N
    if k_start + block_k <= sinks:  # and all keys of it
        names["inside_end"] = case.N // block_q * block_q
    return tuple(names[name] for name in ("first", "diagonal_end", "inside_end", "end"))


def phases(case, k_start, block_q, block_k):
    """The first queries of the tiles that the three calls of add_queries visit: masked, without a mask, masked."""
    first, diagonal_end, inside_end, end = bounds(case, k_start, block_q, block_k)
    return (
        range(first, min(diagonal_end, end), block_q),
        range(diagonal_end, inside_end, block_q),
        range(max(diagonal_end, inside_end), end, block_q),
    )


def letters(case, k_start, block_q, block_k):
    """[(first query, letter)] of a column of tiles: D, E and S as in X3's first lines, F seen whole, r at the end."""
    diagonal, inside, last = phases(case, k_start, block_q, block_k)
    found = [(q, "D") for q in diagonal] + [(q, "F") for q in inside]
    for q in last:
        youngest = q - (k_start + block_k - 1)  # the smallest age of a pair of this tile
        ragged = q + block_q > case.N and tile(case, q, k_start, block_q, block_k).all()
        found.append((q, "r" if ragged else "E" if youngest < (case.window or case.N) else "S"))
    return found


def tile(case, q_start, k_start, block_q, block_k):
    """Who sees whom in a tile, of the queries and keys that exist."""
    q_pos = torch.arange(q_start, min(q_start + block_q, case.N))
    return case.visibility.mask(q_pos, torch.arange(k_start, min(k_start + block_k, case.N)))


def columns(case, block_q, block_k):
    """[(first key, [(first query, letter), ...]), ...] of all tiles of keys."""
    return [(k, letters(case, k, block_q, block_k)) for k in range(0, case.N, block_k)]
