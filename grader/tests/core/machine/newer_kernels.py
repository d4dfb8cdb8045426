"""Kernels of what only some versions of Triton have."""

import triton
import triton.language as tl

from grader.tests.core.machine.entries import Entry, Tensor

N = {"N": 64}
LINE, OUT, FLAG = Tensor(size=64), Tensor(size=64, fill="out"), Tensor("i32", 1, "zero")


@triton.jit
def read_and_written(x, o, N: tl.constexpr):
    """Atomic loads and stores."""
    i = tl.arange(0, N)
    tl.atomic_store(o + i, tl.atomic_load(x + i, mask=i > 2), mask=i > 2)
    tl.atomic_store(o, tl.atomic_load(x + 1, sem="relaxed", scope="sys"), sem="relaxed")


@triton.jit
def polled(flag, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_poll(flag, 0)
    tl.store(o + i, i)


@triton.jit
def divided(x, y, o, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    b = tl.load(y + i)
    if OP == "approx":
        r = tl.fdiv(a, b, approx=True)
    if OP == "ieee_rounding":
        r = tl.fdiv(a, b, ieee_rounding=True)
    tl.store(o + i, r)


@triton.jit
def dependent(x, o, N: tl.constexpr):
    """Until 3.8 this is inline assembly."""
    i = tl.arange(0, N)
    tl.extra.cuda.gdc_wait()
    tl.store(o + i, tl.load(x + i))
    tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def expected(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.expect_zero(tl.load(x + i), i > 3))


@triton.jit
def squeezed(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.squeeze(tl.unsqueeze(tl.load(x + i), 0), 0))


NEWER = [
    Entry("atomic_load, atomic_store", read_and_written, (LINE, OUT), ("i32", "i64", "fp32"), constants=N,
          since=(3, 9)),
    Entry("atomic_poll", polled, (FLAG, Tensor("i32", 64, "out")), constants=N, may_refuse=True, since=(3, 9)),
    *(
        Entry(f"fdiv, {name}", divided, (LINE, LINE, OUT), types, constants={"OP": name, **N}, ulps=ulps,
              absolute=2e-38 if ulps else 0.0, since=(3, 9))
        for name, types, ulps in [("approx", ("fp32",), 2), ("ieee_rounding", ("fp32", "fp64"), 0)]
    ),
    Entry("grid dependency", dependent, (LINE, OUT), ("fp32",), constants=N, may_refuse=True, since=(3, 7)),
    Entry("expect_zero", expected, (LINE, OUT), ("fp32",), constants=N, since=(3, 8)),
    Entry("squeeze, unsqueeze", squeezed, (LINE, OUT), ("fp32", "i8"), constants=N, since=(3, 7)),
]  # fmt: skip
