"""The ladder as plain data: its seven problems; their cases stand in rows.csv."""

from dataclasses import replace
from pathlib import Path

from grader.course.problem import Problem
from grader.kinds.attention import rows
from grader.kinds.attention.case import Case

WHOLE_MATRIX = (
    Case("never the whole score matrix", N=192, Nk=1024, D=16, dtype="float32"),
    Case("never the whole causal mask", N=1101, D=16, dtype="float32", causal=True),
)
SPEED_SHAPE = Case("speed", B=4, Hq=16, N=4096, D=128, gpu=True)


def gpu_cases(longest=4096, group=1, **fixed):
    """What a laptop is spared: thousands of tokens, and rows beyond 1100 tokens with many heads or a wide head dim.

    fixed: what the problem adds to each. group: query heads that share a kv head, where the case says no other.
    """
    cases = (
        Case("bfloat16, many tiles", B=2, Hq=2, N=257, D=64, dtype="bfloat16", gpu=True),
        Case("bfloat16 with a large offset, many tiles", N=700, D=128, dtype="bfloat16", values="offset", gpu=True),
        Case("float32, ragged", B=5, Hq=5, N=1333, D=128, dtype="float32", layout="odd rows", gpu=True),
        Case("head dim 256", Hq=9, N=1300, D=256, layout="mixed", values="high", gpu=True),
        Case("head dim 256 in float32", Hq=2, N=1130, D=256, dtype="float32", layout="slice", values="lower", gpu=True),
        Case(f"{longest} tokens", Hq=4, N=longest, D=128, gpu=True),
        Case(f"{longest - 1} tokens in bfloat16", Hq=4, N=longest - 1, D=64, dtype="bfloat16", gpu=True),
    )
    heads = {"float32, ragged": (8, 4), "head dim 256": (16, 8)}  # and groups
    return tuple(replace(fit(case, *heads.get(case.name, (case.Hq, group)), group > 1), **fixed) for case in cases)


def fit(case, heads, group, shared):
    """`case` with so many query heads, and where the problem shares kv heads, `group` of them for each."""
    if not shared:
        return case
    heads = max(heads, group)
    return replace(case, Hq=heads, Hkv=heads // group)


def windowed(cases):
    """A window for each: wide where a row is long."""
    windows = {"offset": 250}
    return tuple(replace(case, window=windows.get(case.values, 32 if case.N < 4000 else 1000)) for case in cases)


OBSERVER = Path(__file__).with_name("observer.py")
PROBLEMS: tuple[Problem, ...] = (
    Problem(
        "p1", "naive attention", "p1_naive_attention.py", "naive_attention",
        "naive_attention(q, k, v, is_causal=False) -> (o, lse)",
        (*rows.OF["p1"], *gpu_cases()), uses_triton=False, tiled=False,
        returns_lse=True,
    ),
    Problem(
        "p2", "online softmax", "p2_online_softmax.py", "flash_attention_forward",
        "flash_attention_forward(q, k, v, is_causal=False) -> (o, lse)",
        (*rows.OF["p2"], *gpu_cases(longest=2048)), uses_triton=False, returns_lse=True,
        refused=("_softmax", "_log_softmax"),
        memory_cases=WHOLE_MATRIX,
    ),
    Problem(
        "p3", "FlashAttention", "p3_flash_attention.py", "flash_attention_forward",
        "flash_attention_forward(q, k, v, is_causal=False) -> o",
        (*rows.OF["p3"], *gpu_cases()), speed_case=SPEED_SHAPE,
    ),
    Problem(
        "p4", "causal", "p4_causal.py", "flash_attention_forward",
        "flash_attention_forward(q, k, v, is_causal=True) -> o",
        (*rows.OF["p4"], *gpu_cases(causal=True)), speed_case=replace(SPEED_SHAPE, causal=True), counts_work=True,
        lesson=("whole tiles", "ragged tail"),
    ),
    Problem(
        "p5", "grouped-query attention", "p5_gqa.py", "flash_attention_forward",
        "flash_attention_forward(q, k, v, is_causal=True) -> o",
        (*rows.OF["p5"], *gpu_cases(causal=True, group=2)),
        speed_case=replace(SPEED_SHAPE, Hkv=4, causal=True), counts_work=True,
        lesson=("groups of four", "every batch and head its own"),
    ),
    Problem(
        "p6", "sliding window", "p6_sliding_window.py", "flash_attention_forward",
        "flash_attention_forward(q, k, v, is_causal=True, window_size=128) -> o",
        (*rows.OF["p6"], *windowed(gpu_cases(causal=True, group=2))),
        speed_case=replace(SPEED_SHAPE, Hkv=4, causal=True, window=1024), counts_work=True,
        lesson=("window smaller than a tile", "window not a multiple of a tile"),
    ),
    Problem(
        "p7", "sinks and window", "p7_sinks_and_window.py", "flash_attention_forward",
        "flash_attention_forward(q, k, v, is_causal=True, window_size=128, sink_size=4) -> o",
        (*rows.OF["p7"], *windowed(gpu_cases(causal=True, group=2, sinks=4))),
        speed_case=replace(SPEED_SHAPE, Hkv=4, causal=True, window=1024, sinks=4), counts_work=True,
        lesson=("one sink", "sinks not a multiple of a tile", "sinks overlapping the window"),
    ),
)  # fmt: skip
COMPILED = {"B": 2, "N": 2048}  # the rest is the speed case's: sizes that no argument's value of 1 specialises
PROBLEMS = tuple(
    replace(problem, observer=OBSERVER, compile_case=problem.speed_case and replace(problem.speed_case, **COMPILED))
    for problem in PROBLEMS
)
