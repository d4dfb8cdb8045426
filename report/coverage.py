"""Is each visible key counted exactly once? Every program of every small case, by brute force over report/cost.py.

And which rows have seen nothing yet when their first tile is behind them: those that need a finite pivot.
"""

from dataclasses import dataclass
from itertools import product

LONGEST, BLOCKS = 20, (2, 4, 8)  # tokens; sides of a tile


@dataclass(frozen=True)
class Shape:
    """As much of a case as the phases depend on."""

    N: int
    window: int | None = None
    sinks: int = 0
    causal: bool = True

    @property
    def num_keys(self):
        return self.N

    def sees(self, i, j):
        """The ladder's mask, on two positions."""
        if not self.causal:
            return True
        return j <= i and (self.window is None or i - j < self.window or j < self.sinks)


def fault(shape, phases, block_q, block_k):
    """What is wrong with the phases on this shape, in a sentence; None where each visible key is met exactly once.

    phases: as report.cost.phases. Whole tiles, those of the phase `>`, must show every key to every query that exists,
    and reach no key past the end.
    """
    for q_start in range(0, shape.N, block_q):
        rows = range(q_start, min(q_start + block_q, shape.N))
        met = [0] * (shape.N + block_k)
        for letter, tiles in phases(shape, q_start, block_q, block_k).items():
            for k_start in tiles:
                for j in range(k_start, k_start + block_k):
                    met[j] += 1
                    if letter == ">" and not (j < shape.N and all(shape.sees(i, j) for i in rows)):
                        return f"{shape}: key {j} is met without a mask by queries {rows}"
        for j in range(shape.N):
            if met[j] > 1 or (not met[j] and any(shape.sees(i, j) for i in rows)):
                return f"{shape}: key {j} is met {met[j]} times by queries {rows}"
    return None


def shapes():
    """Every causal shape of up to LONGEST tokens, with each window and each number of sinks, past the end too."""
    for N in range(1, LONGEST + 1):
        yield Shape(N)
        for window, sinks in product(range(1, N + 2), range(N + 2)):
            yield Shape(N, window, sinks)


def checked(phases):
    """(number of shapes and tiles tried, the first fault or None)."""
    tried = 0
    for shape, block_q, block_k in product(shapes(), BLOCKS, BLOCKS):
        tried += 1
        if found := fault(shape, phases, block_q, block_k):
            return tried, found
    return tried, None


def blind_rows(shape, phases, block_q, block_k, order=list):
    """How many rows see no key at all in the first tile that their program visits.

    order: of the visited tiles, left to right by default; `sorted(..., reverse=True)` is right to left.
    """
    blind = 0
    for q_start in range(0, shape.N, block_q):
        visited = order([k for tiles in phases(shape, q_start, block_q, block_k).values() for k in tiles])
        first = range(visited[0], min(visited[0] + block_k, shape.N))
        blind += sum(not any(shape.sees(i, j) for j in first) for i in range(q_start, min(q_start + block_q, shape.N)))
    return blind
