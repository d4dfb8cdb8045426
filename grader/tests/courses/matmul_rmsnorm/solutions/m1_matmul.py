"""m1: the product of two matrices, a tile of the result for each program."""

import torch
import triton
import triton.language as tl

BLOCK = 32


@triton.jit
def matmul_kernel(A, B, C, M, N, K, stride_a, stride_b, BLOCK: tl.constexpr):
    """One program: BLOCK x BLOCK of C. Grid: (tiles of rows, tiles of columns)."""
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK, BLOCK], tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        # gap 1: load a tile of A and one of B, zeros where they end
        #   `a` (BLOCK, BLOCK) of rows m and columns k, `b` (BLOCK, BLOCK) of rows k and columns n
        a = tl.load(A + m[:, None] * stride_a + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(B + k[:, None] * stride_b + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        # end gap

        # gap 2: add their product to `acc`
        acc = tl.dot(a, b, acc)
        # end gap
    tl.store(C + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def matmul(a, b):
    """a: (M, K), b: (K, N), last stride 1, one dtype. Returns c (M, N), float32."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N, dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK))
    matmul_kernel[grid](a, b, c, M, N, K, a.stride(0), b.stride(0), BLOCK)
    return c
