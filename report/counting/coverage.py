"""Is each visible key counted exactly once? Every program of every small case, by brute force over cost.py.

And which rows have seen nothing yet when their first tile is behind them: those that need a finite pivot.
"""

from functools import lru_cache
from itertools import product

import torch

from grader.kinds.attention.cases import Case

LONGEST, BLOCKS = 20, (2, 4, 8)  # tokens; sides of a tile


def shape(N, window=None, sinks=None):
    """A causal case: its sizes are all that the phases depend on."""
    return Case("", N=N, causal=True, window=window, sinks=sinks)


@lru_cache(maxsize=16)
def seen(visibility, N):
    """[query][key]: whether the query sees the key."""
    return visibility.mask(torch.arange(N), torch.arange(N)).tolist()


def fault(case, phases, block_q, block_k):
    """What is wrong with the phases on this case, in a sentence; None where each visible key is met exactly once.

    phases: as cost.phases. Whole tiles, those of the phase `>`, must show every key to every query that exists,
    and reach no key past the end.
    """
    sees, words = seen(case.visibility, case.N), f"{case.N} tokens, {case.visibility}, tiles of {block_q} x {block_k}"
    for q_start in range(0, case.N, block_q):
        rows = range(q_start, min(q_start + block_q, case.N))
        who = f"the queries {rows[0]} to {rows[-1]}"
        met = [0] * (case.N + block_k)
        for letter, tiles in phases(case, q_start, block_q, block_k).items():
            for k_start in tiles:
                for j in range(k_start, k_start + block_k):
                    met[j] += 1
                    if letter == ">" and not (j < case.N and all(sees[i][j] for i in rows)):
                        return f"{words}: key {j} is met without a mask by {who}"
        for j in range(case.N):
            if met[j] > 1 or (not met[j] and any(sees[i][j] for i in rows)):
                return f"{words}: key {j} is met {met[j]} times by {who}"
    return None


def shapes():
    """Every causal shape of up to LONGEST tokens, with each window and each number of sinks, past the end too."""
    for N in range(1, LONGEST + 1):
        yield shape(N)
        for window, sinks in product(range(1, N + 2), range(N + 2)):
            yield shape(N, window, sinks)


def checked(phases):
    """(number of shapes and tiles tried, the first fault or None)."""
    tried = 0
    for case, block_q, block_k in product(shapes(), BLOCKS, BLOCKS):
        tried += 1
        if found := fault(case, phases, block_q, block_k):
            return tried, found
    return tried, None


def blind_rows(case, phases, block_q, block_k, order=list):
    """How many rows see no key at all in the first tile that their program visits.

    order: of the visited tiles, left to right by default; `sorted(..., reverse=True)` is right to left.
    """
    sees, blind = seen(case.visibility, case.N), 0
    for q_start in range(0, case.N, block_q):
        visited = order([k for tiles in phases(case, q_start, block_q, block_k).values() for k in tiles])
        first = slice(visited[0], visited[0] + block_k)
        blind += sum(not any(sees[i][first]) for i in range(q_start, min(q_start + block_q, case.N)))
    return blind
