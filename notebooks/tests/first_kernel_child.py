"""In a process of its own, in the machine: the instrument of notebook 03, against what its pictures plan."""

from collections import Counter

from grader.core import in_process

in_process.begin()

import torch
import triton
import triton.language as tl

from notebooks.pictures import first_triton_kernel as plan
from notebooks.pictures import kernel_runs
from notebooks.pictures.watched import Watched
from solutions import p3_flash_attention as p3

FAULTS = ("out-of-bounds load", "write of another program's element", "element written twice by one store")


@triton.jit
def tiles_sum(X, OUT, stride_r, stride_c, ROWS, COLUMNS, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    acc = tl.zeros([BLOCK_R], tl.float32)
    for start in range(0, COLUMNS, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        here = (r[:, None] < ROWS) & (c[None, :] < COLUMNS)
        acc += tl.sum(tl.load(X + r[:, None] * stride_r + c[None, :] * stride_c, mask=here, other=0.0), 1)
    tl.store(OUT + r, acc, mask=r < ROWS)


@triton.jit
def faulty(X, OUT, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(X + i)
    y = tl.load(X + i, mask=i < 3)
    tl.store(OUT + i * 0, x + y)


def steps_are_the_planned_tiles(shape, block, view):
    """The loads of x are the tiles of `walk`, in its order; each sum is stored by the band's program."""
    rows, columns = shape
    out = torch.empty(rows)
    programs = -(-rows // block[0])
    with Watched() as seen:
        tiles_sum[(programs,)](view, out, *view.stride(), rows, columns, *block)
    at = plan.addresses(view.storage_offset(), view.stride(), shape)
    planned = [(p, tile) for p, tiles in enumerate(plan.walk(rows, columns, *block)) for tile in tiles]
    loads = seen.of("X")
    assert len(loads) == len(planned)
    for step, (program, (r, r_end, c, c_end)) in zip(loads, planned, strict=True):
        assert step.program == program
        assert sorted(step.elements.tolist()) == sorted(at[r:r_end, c:c_end].flat)
        assert step.off == block[0] * block[1] - (r_end - r) * (c_end - c)
    assert kernel_runs.writers(seen) == {row: [row // block[0]] for row in range(rows)}
    assert seen.moved() == {"X": 4 * rows * columns, "OUT": 4 * rows}
    assert torch.allclose(out, view.sum(1), atol=1e-5) and not seen.report.make().faults


def faults_are_seen():
    x, out = torch.randn(5), torch.empty(1)
    with Watched() as seen:
        faulty[(2,)](x, out, 8)
    kinds = Counter(fault.kind for fault in seen.report.make().faults)
    assert kinds == dict.fromkeys(FAULTS, 1)
    (undefined,) = seen.report.make().undefined
    assert undefined.lanes == 2 * 5 and undefined.source.startswith("y = ")
    assert {len(who) for who in kernel_runs.writers(seen).values()} == {16}
    assert sum((step.elements >= 5).sum() for step in seen.of("X", 0)) == 3


def reverse_is_reverse_and_is_taken_back():
    x, out = torch.randn(8, 4), torch.empty(8)
    orders = []
    for backwards in (True, True, False):
        with Watched(backwards) as seen:
            tiles_sum[(4,)](x, out, 4, 1, 8, 4, 2, 4)
        orders.append([int(step.elements[0]) for step in seen.of("OUT")])
    assert orders == [[6, 4, 2, 0], [6, 4, 2, 0], [0, 2, 4, 6]]


def p3_moves_what_the_words_say():
    n, d = 150, 16
    q, k, v = (torch.randn(1, 1, n, d, dtype=torch.float16) for _ in range(3))
    with Watched() as seen:
        p3.flash_attention_forward(q, k, v)
    assert seen.moved() == {"Q": 4800, "K": 3 * 4800, "V": 3 * 4800, "O": 4800}
    assert [step.argument for step in seen.of("Q", 2) + seen.of("K", 2) + seen.of("O", 2)] == ["Q", *"KKKKK", "O"]


if __name__ == "__main__":
    numbers = torch.randn(40, 60)
    views = {(18, 27): numbers[:18, :27].contiguous(), (27, 18): numbers[:18, :27].T, (1, 1): numbers[3:4, 7:8]}
    views |= {(20, 30): numbers[::2, ::2], (16, 32): numbers[4:20, 8:40]}
    for shape, view in views.items():
        for block in ((4, 8), (32, 32), (2, 16)):
            steps_are_the_planned_tiles(shape, block, view)
    faults_are_seen()
    reverse_is_reverse_and_is_taken_back()
    p3_moves_what_the_words_say()
