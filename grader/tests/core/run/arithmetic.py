"""Run by test_faithful in a process of its own: a kernel for each operation on 16-bit floats, compared with torch.

Prints a line for each operation whose bits differ; with the argument "plain" the interpreter is left as it is.
"""

import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parents[4]))

import numpy as np
import torch
import triton
import triton.language as tl

from grader.core.interpret import semantics

np.seterr(all="ignore")
if "plain" in sys.argv:
    semantics.index_with_scalars()
else:
    semantics.enable()

N = 1024


@triton.jit
def elementwise(A, B, C, O, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b, c = tl.load(A + i), tl.load(B + i), tl.load(C + i)
    if OP == "a + b":
        o = a + b
    elif OP == "a - b":
        o = a - b
    elif OP == "a * b":
        o = a * b
    elif OP == "a / b":
        o = a / b
    elif OP == "-a":
        o = -a
    elif OP == "abs":
        o = tl.abs(a)
    elif OP == "maximum":
        o = tl.maximum(a, b)
    elif OP == "minimum":
        o = tl.minimum(a, b)
    elif OP == "maximum with NaN":
        o = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "clamp":
        o = tl.clamp(a, -1.0, 1.0)
    elif OP == "fma":
        o = tl.fma(a, b, c)
    elif OP == "a * 0.3 + 1":
        o = a * 0.3 + 1
    elif OP == "2 * a (int)":
        o = 2 * a
    elif OP == "a * float32":
        o = a * b.to(tl.float32)
    elif OP == "a < b":
        o = a < b
    elif OP == "a >= b":
        o = a >= b
    elif OP == "a == b":
        o = a == b
    elif OP == "a != b":
        o = a != b
    elif OP == "where":
        o = tl.where(a < b, a, c)
    elif OP == "where with a number":
        o = tl.where(a < b, a, 0.3)
    elif OP == "to int":
        o = tl.clamp(tl.where(a == a, a, 0.0).to(tl.float32), -1e6, 1e6).to(O.dtype.element_ty).to(tl.int32)
    elif OP == "from int":
        o = (i * 77).to(O.dtype.element_ty)
    elif OP == "from bool":
        o = (a < b).to(O.dtype.element_ty)
    elif OP == "exp":
        o = tl.exp(a.to(tl.float32)).to(O.dtype.element_ty)
    elif OP == "full":
        o = tl.full([N], 0.3, O.dtype.element_ty) + tl.zeros([N], O.dtype.element_ty)
    elif OP == "other":
        o = tl.load(A + i, mask=i % 2 == 0, other=0.3)
    tl.store(O + i, o)


def fmax(a, b):
    return torch.fmax(a.float(), b.float()).to(a.dtype)


WANTED = {
    "a + b": lambda a, b, c: a + b,
    "a - b": lambda a, b, c: a - b,
    "a * b": lambda a, b, c: a * b,
    "a / b": lambda a, b, c: (a.float() / b.float()).to(a.dtype),
    "-a": lambda a, b, c: 0.0 - a,
    "abs": lambda a, b, c: a.abs(),
    "maximum": lambda a, b, c: fmax(a, b),
    "minimum": lambda a, b, c: -fmax(-a, -b),
    "maximum with NaN": lambda a, b, c: torch.maximum(a, b),
    "clamp": lambda a, b, c: fmax(a, torch.full_like(a, -1.0)).clamp(max=1.0),
    "fma": lambda a, b, c: (a.double() * b.double() + c.double()).float().to(a.dtype),
    "a * 0.3 + 1": lambda a, b, c: a * torch.tensor(0.3, dtype=a.dtype) + torch.tensor(1.0, dtype=a.dtype),
    "2 * a (int)": lambda a, b, c: a + a,
    "a * float32": lambda a, b, c: (a.float() * b.float()).to(a.dtype),
    "a < b": lambda a, b, c: (a < b).to(a.dtype),
    "a >= b": lambda a, b, c: (a >= b).to(a.dtype),
    "a == b": lambda a, b, c: (a == b).to(a.dtype),
    "a != b": lambda a, b, c: (a != b).to(a.dtype),
    "where": lambda a, b, c: torch.where(a < b, a, c),
    "where with a number": lambda a, b, c: torch.where(a < b, a, torch.tensor(0.3, dtype=a.dtype)),
    "to int": lambda a, b, c: torch.where(a.isnan(), 0, a).float().clamp(-1e6, 1e6).to(a.dtype).int().to(a.dtype),
    "from int": lambda a, b, c: (torch.arange(N) * 77).float().to(a.dtype),
    "from bool": lambda a, b, c: (a < b).to(a.dtype),
    "exp": lambda a, b, c: torch.from_numpy(np.exp(a.float().numpy())).to(a.dtype),
    "full": lambda a, b, c: torch.full_like(a, 0.3),
    "other": lambda a, b, c: torch.where(torch.arange(N) % 2 == 0, a, torch.tensor(0.3, dtype=a.dtype)),
}


@triton.jit
def reductions(X, M, O, R: tl.constexpr, C: tl.constexpr):
    """Rows of O (C numbers each): sum, max, min over rows; cumulative sum of row 0; the product M @ M."""
    rows, columns = tl.arange(0, R), tl.arange(0, C)
    x = tl.load(X + rows[:, None] * C + columns[None, :])
    tl.store(O + columns, tl.sum(x, 0))
    tl.store(O + C + columns, tl.max(x, 0))
    tl.store(O + 2 * C + columns, tl.min(x, 0))
    tl.store(O + 3 * C + columns, tl.cumsum(tl.load(X + columns).to(tl.float32), 0))
    tl.store(O + 4 * C + columns, tl.argmax(x, 0))
    square = columns[:, None] * C + columns[None, :]
    m = tl.load(M + square)
    tl.store(O + 5 * C + square, tl.dot(m, m, tl.dot(m, m)))


@triton.jit
def add_atomically(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(O + i % 8, tl.load(X + i), mask=i < N - 3)


def tree(x):
    while len(x) > 1:
        x = x[: len(x) // 2] + x[len(x) // 2 :]
    return x[0]


def special(dtype, generator):
    """Every kind of number: random of all sizes, ties, denormals, the largest, infinities, NaN."""
    bits = torch.randint(-(2**15), 2**15, (N,), generator=generator, dtype=torch.int32).to(torch.int16)
    everything = bits.view(dtype)
    usual = torch.randn(N, generator=generator).to(dtype)
    edges = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 256.0, 257.0, 1 / 256])
    mixed = torch.where(torch.rand(N, generator=generator) < 0.5, everything, usual)
    mixed[: len(edges) ** 2] = (
        edges.to(dtype).repeat(len(edges))
        if generator.initial_seed() % 2
        else (edges.to(dtype).repeat_interleave(len(edges)))
    )
    return mixed


def same(got, want):
    return bool(((got == want) | (got.isnan() & want.isnan())).all())


def check(dtype):
    a, b, c = (special(dtype, torch.Generator().manual_seed(seed)) for seed in (1, 2, 3))
    for name, wanted in WANTED.items():
        out = torch.empty(N, dtype=dtype)
        try:
            elementwise[(1,)](a, b, c, out, name, N)
        except Exception as error:
            print(f"{dtype} {name}: {error}")
            continue
        want = wanted(a, b, c)
        if not same(out, want):
            i = int(((out != want) & ~(out.isnan() & want.isnan())).nonzero()[0])
            print(f"{dtype} {name}: {a[i]} {b[i]} {c[i]} gave {out[i]}, not {want[i]}")
    check_reductions(dtype)


def check_reductions(dtype, R=32, C=16):
    x = torch.randn(R, C, generator=torch.Generator().manual_seed(4)).to(dtype)
    m = torch.randn(C, C, generator=torch.Generator().manual_seed(5)).to(dtype)
    out = torch.empty(5 + C, C, dtype=dtype)
    reductions[(1,)](x, m, out, R, C)
    wanted = {"sum": tree(x), "max": x.amax(0), "min": x.amin(0), "cumsum": x[0].float().cumsum(0).to(dtype)}
    wanted |= {"argmax": x.argmax(0).to(dtype), "dot": ((m.float() @ m.float()) * 2).to(dtype)}
    for name, got, want in zip(wanted, [*out[:5], out[5:]], wanted.values(), strict=True):
        if not (torch.allclose(got.float(), want.float(), rtol=1e-2) if name == "dot" else same(got, want)):
            print(f"{dtype} {name}: {got} instead of {want}")
    out = torch.zeros(8, dtype=dtype)
    add_atomically[(1,)](x, out, R * C)
    want = torch.zeros(8, dtype=dtype)
    for i in range(R * C - 3):
        want[i % 8] += x.flatten()[i]
    if not same(out, want):
        print(f"{dtype} atomic_add: {out} instead of {want}")


for dtype in (torch.bfloat16, torch.float16):
    try:
        check(dtype)
    except Exception as error:
        print(f"{dtype}: {type(error).__name__}: {error}")
