"""What holds a kernel back, most likely, and what to try: rules over a Reading, the first that applies.

A hint and no proof: the next profile tells whether it was good.
"""

from grader.gpu.profile.counters import at_least, below
from grader.gpu.profile.stalls import STALLS

BUSY = 60.0  # percent of its peak from which a unit counts as a limit, as in Nsight Compute's own rules
SLACK = 70.0  # the same where much of it is idle by nature

RULES = (
    (
        lambda r: at_least(r.spilled, 0.1 * r.case.least_bytes),
        "registers spill to memory. Try smaller BLOCK_Q or BLOCK_K, or more num_warps.",
    ),
    (
        lambda r: below(r.tensor, 2),
        "no tensor cores. Send every product through tl.dot, its operands in the inputs' dtype.",
    ),
    (
        lambda r: at_least(r.work, 1.3),
        "products that nobody sees. Try to skip the tiles that the mask hides whole.",
    ),
    (
        lambda r: at_least(r.tensor, 75),
        "the tensor cores themselves. What is left is small: only fewer FLOPs would be a big step.",
    ),
    (
        lambda r: at_least(r.dram, BUSY),
        "memory. Try a larger BLOCK_Q, so that K and V are read less often, and an order of programs in which the "
        "tiles of one head run side by side and find K and V in L2.",
    ),
    (
        lambda r: below(r.at_work, 80),
        "multiprocessors without work. Try the longest rows first, a smaller BLOCK_Q, or programs that take tile after "
        "tile (a persistent grid).",
    ),
    (
        lambda r: at_least(r.shared, 30) and at_least(r.conflicting, 20),
        "bank conflicts in shared memory. Try tensor descriptors, or loads of K that need no tl.trans afterwards.",
    ),
    (
        lambda r: at_least(r.shared, SLACK),
        "shared memory. Try larger tiles: each operand that is read then serves more products.",
    ),
    (
        lambda r: at_least(r.special, BUSY),
        "exp2. Try to take fewer: one for each visible score, none in hidden tiles, and never exp where exp2 will do.",
    ),
    (
        lambda r: at_least(r.issued, SLACK),
        "instructions beside the products. Try a mask only where it cuts a tile, the scale folded into exp2, and one "
        "division at the end.",
    ),
)


def likeliest_limit(r):
    """One sentence on the limit and one on what to try."""
    for applies, sentence in RULES:
        if applies(r):
            return sentence
    if not r.stalls:
        return "nothing that was measured stands out."
    stall = STALLS[r.stalls[0][0]]
    return f"waiting, mostly {stall.words}. Try {stall.advice}."
