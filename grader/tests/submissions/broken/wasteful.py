"""Kernels that are right and load what no query of theirs sees: each is wasteful, with both numbers.

In P4 to P7 their case passes, and the problem's work does not."""

from grader.result import Outcome
from grader.tests.submissions.broken.mistakes import mistake

CASE = "long row"
ONE_PASS = "times what one pass over the tiles that this mask needs has to load"
COPIED = "K or V is copied out to 16 heads"
END = "k_end = tl.minimum(q_start + BLOCK_Q, N)"
MASKED = "masked_start = q_start // BLOCK_K * BLOCK_K"
FIRST = "first = tl.maximum(0, q_start - window_size + 1) // BLOCK_K * BLOCK_K"
INSIDE = "inside = tl.minimum("
DIAGONAL = "diagonal = q_start // BLOCK_K * BLOCK_K"
PHASE_1 = "    # Phase 1: whole tiles, no mask."
TWICE = """
    for again in range(0, N, BLOCK_K):
        rows = again + tl.arange(0, BLOCK_K)
        k = tl.load(K + rows.to(tl.int64)[:, None] * stride_kn + d[None, :], mask=rows[:, None] < N, other=0.0)
        N += tl.minimum(tl.abs(tl.sum(k)), 0.0).to(tl.int32)  # 0: what nothing uses would not be loaded
"""
LAST = "    state = attend(state, queries, keys, masked_start, k_end, BLOCK_K, IS_CAUSAL, MASKED=True)\n"
WORDS = """
    wide: tl.constexpr = D * K.dtype.element_ty.primitive_bitwidth // 64
    zero = q_start * 0
    for above in range(k_end, N if N > 1000 else 0, BLOCK_K):  # several numbers at a time
        rows = above + tl.arange(0, BLOCK_K)[:, None]
        words = (K + rows.to(tl.int64) * stride_kn).to(tl.pointer_type(tl.int64)) + tl.arange(0, wide)[None, :]
        zero += tl.minimum(tl.abs(tl.sum(tl.load(words, mask=rows < N, other=0))), 0).to(tl.int32)
    N += zero
"""


SEEN_BY_SOME = (
    "(k_pos[:, None] < N) & (k_pos[:, None] <= tl.max(q_pos)) & (k_pos[:, None] > tl.min(q_pos) - window_size)"
)

# One tensor that nobody needs, made in the wrapper.
CHECKED = "    B, Hq, N, D = q.shape\n"
SCORES = "    scores = q.float() @ k.float().repeat_interleave(q.shape[1] // k.shape[1], 1).mT\n"
REPEATED = "".join(f"    {t} = {t}.repeat_interleave(q.shape[1] // {t}.shape[1], 1)\n" for t in "kv")
EXPANDED = REPEATED.replace(".repeat_interleave(", "[:, :, None].expand(-1, -1, ").replace(
    ", 1)", ", -1, -1).reshape(q.shape)"
)
ONE_AT_A_TIME = """
    for k_start in range(masked_start, k_end, BLOCK_K):
        for again in range(0, 4):
            rows = tl.arange(0, BLOCK_K)[:, None]
            k = tl.load(K + rows * stride_kn + d[None, :], mask=rows < N, other=0.0)
            N += tl.minimum(tl.abs(tl.sum(k)), 0.0).to(tl.int32)
    # Phase 2"""


def wasteful(problem, name, was, now, case=CASE, because="hold a visible pair", **rest):
    return mistake(problem, name, was, now, case, outcome=Outcome.WASTEFUL, because=because, **rest)


WASTEFUL = (
    wasteful("p3", "every key loaded twice", PHASE_1, TWICE, because=ONE_PASS),
    wasteful("p4", "tiles above the diagonal as wide words", LAST, LAST + WORDS, because=ONE_PASS),
    wasteful("p4", "no causal skip", END, "k_end = N"),
    wasteful("p4", "all tiles masked", (MASKED, END), ("masked_start = 0", "k_end = N")),
    wasteful("p4", "diagonal tiles loaded five times", "    # Phase 2", ONE_AT_A_TIME, because=ONE_PASS),
    wasteful(
        "p3",
        "the whole matrix beside the kernel",
        "    B, H, N, D = q.shape\n",
        "    B, H, N, D = q.shape\n    whole = torch.empty(B, H, N, N)\n",
        because="PyTorch makes tensors of",
    ),
    wasteful(
        "p5",
        "the scores computed by torch first",
        CHECKED,
        CHECKED + SCORES,
        because="Outside of kernels PyTorch does",
    ),
    wasteful("p5", "K and V by repeat_interleave", CHECKED, CHECKED + REPEATED, because=COPIED),
    wasteful("p5", "K and V expanded and copied", CHECKED, CHECKED + EXPANDED, because=COPIED),
    wasteful(
        "p5",
        "K alone copied out",
        (CHECKED, "*k.stride()[:3]", "Hq // k.shape[1]", "stride_kb + kv_head"),
        (CHECKED + REPEATED.splitlines()[0] + "\n", "*k.stride()[:3]", "Hq // v.shape[1]", "stride_kb + head"),
        because=COPIED,
    ),
    wasteful("p6", "K and V by repeat_interleave", CHECKED, CHECKED + REPEATED, because=COPIED),
    wasteful("p5", "no causal skip", END, "k_end = N"),
    wasteful(  # a kernel that writes k.T where ours writes tl.trans(k)
        "p5",
        "no causal skip",
        "tl.minimum(q_start + BLOCK_Q, N)",
        "N",
        base="p5_device_descriptors",
    ),
    wasteful("p6", "a window without a start", FIRST, "first = 0"),
    wasteful("p6", "no causal skip", END, "k_end = N"),
    wasteful(
        "p6",
        "no phases at all",
        (FIRST, END, INSIDE, DIAGONAL),
        ("first = 0", "k_end = N", "inside = 0 * tl.minimum(", "diagonal = q_start * 0"),
    ),
    wasteful(  # no load of a tile in vain: its mask hides every key, and it is multiplied all the same
        "p6",
        "all tiles, hidden by the mask of the load",
        ("in_bounds = k_pos[:, None] < N", FIRST, END),
        (f"in_bounds = {SEEN_BY_SOME}", "first = 0", "k_end = N"),
    ),
    wasteful("p7", "a window without a start", FIRST, "first = 0"),
    wasteful("p7", "sinks by scanning the prefix", "sink_end = tl.minimum(sink_size, first)", "sink_end = first"),
    wasteful("p7", "no causal skip", END, "k_end = N"),
)
