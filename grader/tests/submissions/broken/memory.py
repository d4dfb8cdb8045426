"""Kernels that touch memory they may not touch, many with the right values: each is unsafe, at the right line."""

from grader.result import Outcome
from grader.tests.submissions.broken.mistakes import mistake

K_LOAD, V_LOAD = (f"{t} = tl.load({t}_ptrs, mask=in_bounds, other=0.0)" for t in "kv")
STORE = "tl.store(o_ptrs, o.to(O.dtype.element_ty), mask=q_pos[:, None] < N)"
Q_LOAD = "q = tl.load(q_ptrs, mask=q_pos[:, None] < N, other=0.0)"
Q_OFFSET = "Q += batch * stride_qb + head * stride_qh"
O_OFFSET = "O += batch * stride_ob + head * stride_oh"
RACE = "another program has written"
GRID = "(triton.cdiv(N, BLOCK_Q), H, B)"
O_ROWS = "O + q_pos.to(tl.int64)[:, None] * stride_on"


def unsafe(problem, name, was, now, case, because):
    return mistake(problem, name, was, now, case, outcome=Outcome.UNSAFE, because=because)


MEMORY = (
    unsafe("p3", "q unmasked", Q_LOAD, "q = tl.load(q_ptrs)", "ragged tail", "outside Q"),
    unsafe("p3", "q unmasked, its line", Q_LOAD, "q = tl.load(q_ptrs)", "poison past the end",
           "`q = tl.load(q_ptrs)`"),
    unsafe("p3", "k unmasked, scores masked", K_LOAD, "k = tl.load(k_ptrs)", "ragged tail",
           "`k = tl.load(k_ptrs)`"),
    unsafe("p3", "v unmasked", V_LOAD, "v = tl.load(v_ptrs)", "ragged tail", "outside V"),
    unsafe("p3", "store unmasked", STORE, STORE.replace(", mask=q_pos[:, None] < N", ""), "one token",
           "outside O"),
    unsafe("p3", "q mask one too far", Q_LOAD, Q_LOAD.replace("< N", "<= N"), "ragged tail",
           "reads 64 elements outside Q"),
    unsafe("p3", "k mask one too far", "k_pos[:, None] < N", "k_pos[:, None] <= N", "ragged tail", "outside K"),
    unsafe("p3", "store mask one too far", STORE, STORE.replace("< N", "<= N"), "ragged tail", "of O"),
    unsafe("p3", "v without other", V_LOAD, "v = tl.load(v_ptrs, mask=in_bounds)", "ragged tail",
           "left undefined"),
    unsafe("p3", "grid with B and H swapped", GRID, GRID.replace("H, B", "B, H"), "every batch and head its own",
           "that another program has written"),
    unsafe("p3", "tiles that overlap, with the same values",
           ("tl.program_id(0) * BLOCK_Q", "triton.cdiv(N, BLOCK_Q)"),
           ("tl.program_id(0) * (BLOCK_Q // 2)", "2 * triton.cdiv(N, BLOCK_Q)"), "whole tiles", RACE),
    unsafe("p3", "O without its batch", O_OFFSET, "O += head * stride_oh", "ragged tail",
           "another program has written"),
    unsafe("p3", "O without its head", O_OFFSET, "O += batch * stride_ob", "whole tiles",
           "another program has written"),
    unsafe("p3", "Q one batch too far", Q_OFFSET, Q_OFFSET.replace("batch *", "(batch + 1) *"), "whole tiles",
           "outside Q"),
    unsafe("p3", "columns two apart", "stride_kn + d[None, :]", "stride_kn + 2 * d[None, :]", "whole tiles",
           "outside K"),
    unsafe("p3", "two rows stored as one", O_ROWS, O_ROWS.replace("q_pos", "(q_pos // 2)"), "whole tiles",
           "twice in one store"),
    unsafe("p4", "keys past the end, hidden by the mask", K_LOAD, "k = tl.load(k_ptrs)",
           "fewer tokens than a tile", "`k = tl.load(k_ptrs)`"),
    unsafe("p5", "O moved by the kv head", O_OFFSET, O_OFFSET.replace("+ head", "+ kv_head"), "whole tiles", RACE),
    unsafe("p6", "a window that starts before the first token",
           "tl.maximum(0, q_start - window_size + 1) // BLOCK_K", "(q_start - window_size + 1) // BLOCK_K",
           "window not a multiple of a tile", "outside K"),
    unsafe("p6", "a sum with the window overflows int32",
           ("(age < window_size)", "window_size = min(window_size, N)"),
           ("(k_pos[None, :] + window_size > q_pos[:, None])", "pass"), "window of everything",
           "positions or offsets that pass 2^31"),
    unsafe("p7", "a sum with the window overflows int32",
           ("(age < window_size)", "min(window_size, N), min(sink_size, N)"),
           ("(q_pos[:, None] < k_pos[None, :] + window_size)", "window_size, min(sink_size, N)"),
           "window of everything", "positions or offsets that pass 2^31"),
    unsafe("p7", "keys past the end, hidden by the mask", K_LOAD, "k = tl.load(k_ptrs)", "one sink",
           "`k = tl.load(k_ptrs)`"),
)  # fmt: skip
