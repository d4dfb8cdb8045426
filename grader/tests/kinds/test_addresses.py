"""What is told of an address outside its tensor is true: whose stride, which head, which row."""

import pytest

from grader.result import Outcome
from grader.tests.support import grade_text, solution, thorough_but

MISTAKES = {
    "the row stride of V": (
        "p5", "K + k_pos.to(tl.int64)[:, None] * stride_kn", "K + k_pos.to(tl.int64)[:, None] * stride_vn",
        "q, k and v each with another layout", "which is V's stride from row to row",
    ),
    "the query's head": (
        "p5", "K += batch * stride_kb + kv_head * stride_kh", "K += batch * stride_kb + head * stride_kh",
        "whole tiles", "query heads 0, 1, 2, 3 of batch 0 read K at heads 0, 1, 2, 3, and theirs are 0, 0, 1, 1",
    ),
    "the batch stride of K": (
        "p5", "V += batch * stride_vb", "V += batch * stride_kb",
        "q, k and v each with another layout", "which is K's stride from batch to batch",
    ),
    "the head of a group": (
        "p5", "O += batch * stride_ob + head * stride_oh", "O += batch * stride_ob + kv_head * stride_oh",
        "whole tiles", "query heads 0, 1, 2, 3 of batch 0 write O at heads 0, 0, 1, 1, and theirs are 0, 1, 2, 3",
    ),
    "a number that the launch gives": (
        "p5", "N, Hq // k.shape[1], LOG2_E", "N, k.shape[1], LOG2_E",
        "groups of four", "`kv_head * stride_kh`, with kv_head from line 106, where group is 2",
    ),
    "axes of the grid": (
        "p3", "(triton.cdiv(N, BLOCK_Q), H, B)", "(triton.cdiv(N, BLOCK_Q), B, H)",
        "whole tiles", "Which axis of the grid is which",
    ),
    "tiles too near": (
        "p3", "q_start = tl.program_id(0) * BLOCK_Q", "q_start = tl.program_id(0) * BLOCK_K",
        "whole tiles", "tiles of queries begin 32 rows apart, and each has 64 rows",
    ),
    "a tile too many": (
        "p3", "full_end = N // BLOCK_K * BLOCK_K", "full_end = tl.cdiv(N, BLOCK_K) * BLOCK_K",
        "ragged tail", "the tile of K begins at row 128, and K ends with row 128",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", thorough_but(("the row stride of V",), MISTAKES))
def test_what_the_addresses_are_is_told(tmp_path, name):
    problem, old, new, case, told = MISTAKES[name]
    source = solution(problem)
    assert old in source, old
    (result,) = grade_text(tmp_path, problem, source.replace(old, new), names=[case])
    assert result.outcome is Outcome.UNSAFE and told.lower() in result.sentence.lower(), result.sentence
