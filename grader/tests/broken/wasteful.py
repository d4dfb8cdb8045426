"""Kernels that are right and load what no query of theirs sees: each is wasteful, with both numbers."""

from grader.result import Outcome
from grader.tests.broken.mistakes import mistake

CASE = "many tiles"
END = "k_end = tl.minimum(q_start + BLOCK_Q, N)"
MASKED = "masked_start = q_start // BLOCK_K * BLOCK_K"
FIRST = "first = tl.maximum(0, q_start - window_size + 1) // BLOCK_K * BLOCK_K"
INSIDE = "inside = tl.minimum("
DIAGONAL = "diagonal = q_start // BLOCK_K * BLOCK_K"
PHASE_1 = "    # Phase 1: whole tiles, no mask."
TWICE = """
    for again in range(0, N, BLOCK_K):
        rows = again + tl.arange(0, BLOCK_K)
        tl.load(K + rows.to(tl.int64)[:, None] * stride_kn + d[None, :], mask=rows[:, None] < N)
"""


def wasteful(problem, name, was, now):
    because = "tiles of keys where this mask needs"
    return mistake(problem, name, was, now, CASE, outcome=Outcome.WASTEFUL, because=because)


WASTEFUL = (
    wasteful("p3", "every key loaded twice", PHASE_1, TWICE),
    wasteful("p4", "no causal skip", END, "k_end = N"),
    wasteful("p4", "all tiles masked", (MASKED, END), ("masked_start = 0", "k_end = N")),
    wasteful("p5", "no causal skip", END, "k_end = N"),
    wasteful("p6", "a window without a start", FIRST, "first = 0"),
    wasteful("p6", "no causal skip", END, "k_end = N"),
    wasteful(
        "p6",
        "no phases at all",
        (FIRST, END, INSIDE, DIAGONAL),
        ("first = 0", "k_end = N", "inside = 0 * tl.minimum(", "diagonal = q_start * 0"),
    ),
    wasteful("p7", "a window without a start", FIRST, "first = 0"),
    wasteful("p7", "sinks by scanning the prefix", "sink_end = tl.minimum(sink_size, first)", "sink_end = first"),
    wasteful("p7", "no causal skip", END, "k_end = N"),
)
