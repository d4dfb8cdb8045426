"""Kernels of the functions of triton.language that change a block's shape, or make one number of many."""

import triton
import triton.language as tl

from grader.tests.core.machine.entries import FLOATS, INTEGERS, NUMBERS, Entry, Tensor

WIDE = ("fp32", "fp64")
M, N = 16, 32
SHAPE = {"M": M, "N": N}
GRID_OF = Tensor(size=M * N)
WHOLE = Tensor(size=M * N, fill="whole")
LINE = Tensor(size=64)


@triton.jit
def added(a, b):
    return a + b


@triton.jit
def larger(a, b):
    if a > b:
        r = a
    else:
        r = b
    return r


@triton.jit
def returns_early(a, b):  # two ways out: Triton's inliner leaves the call
    if a > b:
        return a
    return b


@triton.jit
def with_place(a, i, b, j):
    first = (a > b) | ((a == b) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def affine(a, b, c, d):  # x -> a x + b, then x -> c x + d
    return a * c, b * c + d


@triton.jit
def reduced(x, o, OP: tl.constexpr, AXIS: tl.constexpr, KEEP: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None]
    j = tl.arange(0, N)[None, :]
    a = tl.load(x + i * N + j)
    if OP == "sum":
        r = tl.sum(a, AXIS, keep_dims=KEEP)
    if OP == "max":
        r = tl.max(a, AXIS, keep_dims=KEEP)
    if OP == "min":
        r = tl.min(a, AXIS, keep_dims=KEEP)
    if OP == "xor_sum":
        r = tl.xor_sum(a, AXIS, keep_dims=KEEP)
    if OP == "reduce_or":
        r = tl.reduce_or(a, AXIS, keep_dims=KEEP)
    if OP == "argmax":
        r = tl.argmax(a, AXIS, keep_dims=KEEP)
    if OP == "argmin":
        r = tl.argmin(a, AXIS, keep_dims=KEEP)
    if OP == "argmax any":
        r = tl.argmax(a, AXIS, tie_break_left=False, keep_dims=KEEP)
    if OP == "own sum":
        r = tl.reduce(a, AXIS, added, keep_dims=KEEP)
    if OP == "own max":
        r = tl.reduce(a, AXIS, larger, keep_dims=KEEP)
    if OP == "early return":
        r = tl.reduce(a, AXIS, returns_early, keep_dims=KEEP)
    if OP == "two results":
        best, place = tl.reduce((a, i * N + j + tl.zeros([M, N], tl.int32)), AXIS, with_place, keep_dims=KEEP)
        r = place
    if OP == "max with index":
        best, place = tl.max(a, AXIS, return_indices=True, keep_dims=KEEP)
        r = place + (best == best).to(tl.int32)
    if AXIS is None:
        tl.store(o, r)
    elif KEEP:
        tl.store(o + i * N + j, tl.broadcast_to(r, M, N))
    elif AXIS == 0:
        tl.store(o + tl.arange(0, N), r)
    else:
        tl.store(o + tl.arange(0, M), r)


@triton.jit
def scanned(x, o, OP: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None]
    j = tl.arange(0, N)[None, :]
    a = tl.load(x + i * N + j)
    if OP == "cumsum":
        r = tl.cumsum(a, AXIS, reverse=REVERSE)
    if OP == "cumprod":
        r = tl.cumprod(a, AXIS, reverse=REVERSE)
    if OP == "own max":
        r = tl.associative_scan(a, AXIS, larger, reverse=REVERSE)
    if OP == "affine":
        r, s = tl.associative_scan((a * 0 + 1, a), AXIS, affine, reverse=REVERSE)
        r = r + s
    if OP == "with place":
        place = i * N + j + tl.zeros([M, N], tl.int32)
        s, r = tl.associative_scan((a, place), AXIS, with_place, reverse=REVERSE)
    tl.store(o + i * N + j, r)


@triton.jit
def shaped(x, y, o, OP: tl.constexpr, N: tl.constexpr):
    """o: 2 N numbers, of which the kernel writes the first where it has no more."""
    i = tl.arange(0, N)
    both = tl.arange(0, 2 * N)
    a = tl.load(x + i)
    b = tl.load(y + i)
    if OP == "sort":
        tl.store(o + i, tl.sort(a))
    if OP == "sort down":
        tl.store(o + i, tl.reshape(tl.sort(tl.reshape(a, N // 8, 8), descending=True), N))
    if OP == "topk":
        tl.store(o + tl.arange(0, 8), tl.topk(a, 8))
    if OP == "flip":
        tl.store(o + i, tl.reshape(tl.flip(tl.reshape(a, N // 8, 8), 1), N))
    if OP == "join":
        tl.store(o + both, tl.reshape(tl.join(a, b), 2 * N))
    if OP == "interleave":
        tl.store(o + both, tl.interleave(a, b))
    if OP == "split":
        even, odd = tl.split(tl.reshape(tl.interleave(b, a), N, 2))
        tl.store(o + i, odd)
        tl.store(o + N + i, even)
    if OP == "cat":
        tl.store(o + both, tl.cat(a, b, dim=0))
    if OP == "cat any order":
        tl.store(o, tl.max(tl.cat(a, b, can_reorder=True), 0))
    if OP == "permute":
        tl.store(o + i, tl.reshape(tl.permute(tl.reshape(a, N // 8, 2, 4), 2, 0, 1), N))
    if OP == "trans":
        tl.store(o + i, tl.ravel(tl.trans(tl.reshape(a, N // 8, 8))))
    if OP == "view":
        tl.store(o, tl.max(tl.max(a.view(8, N // 8), 1), 0))
    if OP == "broadcast":
        u, v = tl.broadcast(tl.expand_dims(a, 1), tl.arange(0, 2)[None, :].to(a.dtype))
        tl.store(o + both, tl.reshape(u + v, 2 * N))
    if OP == "broadcast_to":
        tl.store(o + both, tl.reshape(tl.broadcast_to(a[None, :], 2, N), 2 * N))
    if OP == "zeros":
        tl.store(o + both, tl.zeros([2 * N], o.dtype.element_ty))
        tl.store(o + i, tl.zeros_like(a))
    if OP == "one number":
        tl.store(o, tl.load(x + tl.arange(0, 1)).reshape([1, 1]).item())
    if OP == "split numbers":
        u, v = tl.split(tl.join(tl.load(x), tl.load(y)))
        tl.store(o, v)
        tl.store(o + 1, u)
    if OP == "softmax":
        tl.store(o + i, tl.softmax(a))


@triton.jit
def counted(x, o, MASKED: tl.constexpr, N: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    if MASKED:
        r = tl.histogram(a, BINS, mask=i % 3 == 0)
    else:
        r = tl.histogram(a, BINS)
    tl.store(o + tl.arange(0, BINS), r)


@triton.jit
def gathered(x, index, o, AXIS: tl.constexpr):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(o + i, tl.gather(tl.load(x + i), tl.load(index + i), AXIS))


@triton.jit
def swizzled(o, p, M: tl.constexpr, N: tl.constexpr):
    for i in range(M):
        for j in range(N):
            u, v = tl.swizzle2d(i, j, M, N, 2)
            tl.store(o + i * N + j, u)
            tl.store(p + i * N + j, v)


@triton.jit
def drawn(o, seed, OP: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    if OP == "randint":
        r = tl.randint(seed, i)
    if OP == "randint4x":
        a, b, c, d = tl.randint4x(seed, i)
        r = a ^ b ^ c ^ d
    if OP == "rand":
        r = tl.rand(seed, i)
    if OP == "rand of int64":
        r = tl.rand(seed, i.to(tl.int64))
    if OP == "rand4x":
        a, b, c, d = tl.rand4x(seed, i)
        r = tl.where(i % 2 == 0, a, d)
    if OP == "randn":
        r = tl.randn(seed, i)
    tl.store(o + i, r)


@triton.jit
def multiplied(x, y, z, o, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr,
               ADD: tl.constexpr, CHUNK: tl.constexpr):  # fmt: skip
    i = tl.arange(0, M)
    j = tl.arange(0, N)
    k = tl.arange(0, K)
    out = i[:, None] * N + j[None, :]
    left = i[:, None] * K + k[None, :]
    right = k[:, None] * N + j[None, :]
    if B > 1:
        batch = tl.arange(0, B)[:, None, None]
        out = batch * M * N + out[None, :, :]
        left = batch * M * K + left[None, :, :]
        right = batch * K * N + right[None, :, :]
    a = tl.load(x + left)
    b = tl.load(y + right)
    T: tl.constexpr = z.dtype.element_ty
    if ADD:
        c = tl.load(z + out)
        r = tl.dot(a, b, c, input_precision=PRECISION, max_num_imprecise_acc=CHUNK, out_dtype=T)
    else:
        r = tl.dot(a, b, input_precision=PRECISION, max_num_imprecise_acc=CHUNK, out_dtype=T)
    tl.store(o + out, r)


@triton.jit
def scaled(x, sx, y, sy, o, LEFT: tl.constexpr, RIGHT: tl.constexpr, K: tl.constexpr):
    i = tl.arange(0, 32)
    k = tl.arange(0, K)
    s = i[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :]
    if LEFT == "e2m1":
        half = tl.arange(0, K // 2)
        a = tl.load(x + i[:, None] * (K // 2) + half[None, :])
        b = tl.load(y + half[:, None] * 32 + i[None, :])
    else:
        a = tl.load(x + i[:, None] * K + k[None, :])
        b = tl.load(y + k[:, None] * 32 + i[None, :])
    if RIGHT == "none":
        r = tl.dot_scaled(a, tl.load(sx + s), LEFT, b, None, LEFT)
    else:
        r = tl.dot_scaled(a, tl.load(sx + s), LEFT, b, tl.load(sy + s), RIGHT)
    tl.store(o + i[:, None] * 32 + i[None, :], r)


@triton.jit
def scalar_map(a, b):
    if a > b:
        return a - b
    if a < 0:
        return a * 2
    return b


@triton.jit
def pair_map(a, b):
    if a > b:
        r, s = a, b
    else:
        r, s = b, a
    return r, s


@triton.jit
def mapped(x, y, o, p, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    b = tl.load(y + i)
    if OP == "ways out":
        r = tl.map_elementwise(scalar_map, a, b)
        s = r
    if OP == "two results":
        r, s = tl.map_elementwise(pair_map, a, b)
    tl.store(o + i, r)
    tl.store(p + i, s)


def reduction(name, types, axis, keep=False, x=GRID_OF, out="T", **more):
    constants = {"OP": name, "AXIS": axis, "KEEP": keep, **SHAPE}
    size = M * N if keep else {0: N, 1: M, None: 1}[axis]
    kept = ", keep_dims" if keep else ""
    arguments = (x, Tensor(out, size=size, fill="out"))
    return Entry(f"reduce {name}, axis {axis}{kept}", reduced, arguments, types, constants=constants, **more)


def scan(name, types, axis, reverse, x=WHOLE, out="T", **more):
    constants = {"OP": name, "AXIS": axis, "REVERSE": reverse, **SHAPE}
    back = ", reverse" if reverse else ""
    arguments = (x, Tensor(out, size=M * N, fill="out"))
    return Entry(f"scan {name}, axis {axis}{back}", scanned, arguments, types, constants=constants, **more)


def shape(name, types=("i32", "i8", "fp16", "fp32", "u64"), **more):
    arguments = (LINE, LINE, Tensor(size=128, fill="out"))
    return Entry(name, shaped, arguments, types, constants={"OP": name, "N": 64}, **more)


def product(types, fill="whole", precision=None, add=True, chunk=None, batch=1, **more):
    """types: (of the operands, of the sum)"""
    constants = {"B": batch, "M": 32, "N": 32, "K": 32, "PRECISION": precision, "ADD": add, "CHUNK": chunk}
    a, c = Tensor(size=batch * 1024, fill=fill), Tensor("V", size=batch * 1024, fill=fill)
    parts = [precision or "", "acc" if add else "", f"chunk {chunk}" if chunk else "", "3-D" if batch > 1 else "", fill]
    name = "dot " + ", ".join(part for part in parts if part)
    arguments = (a, Tensor("U", size=batch * 1024, fill=fill), c, Tensor("V", size=batch * 1024, fill="out"))
    return Entry(name, multiplied, arguments, types, constants=constants, **more)


def scaled_product(name, left, right, x, sizes):
    scale = Tensor("u8", size=128, low=120, high=133)  # 2**-7 to 2**5
    codes = Tensor(x, size=sizes, high=112) if x == "u8" else Tensor(x, size=sizes, fill="finite")  # no NaN
    arguments = (codes, scale, codes, scale, Tensor("fp32", size=1024, fill="out"))
    constants = {"LEFT": left, "RIGHT": right, "K": 64}
    return Entry(name, scaled, arguments, constants=constants, ulps=64, judged=False, may_refuse=True)


ORDERED = (*INTEGERS, *FLOATS)
HALF = [("fp16", "fp16", "fp32"), ("bf16", "bf16", "fp32"), ("fp16", "fp16", "fp16")]
FULL = [("fp32", "fp32", "fp32")]
EIGHT = [("fp8e5", "fp8e5", "fp32"), ("fp8e4nv", "fp8e4nv", "fp32"), ("fp8e5", "fp8e4nv", "fp32")]
INDEX = Tensor("i32", size=256, low=0, high=16)

BLOCKS = [
    *(reduction("sum", NUMBERS, axis, x=WHOLE) for axis in (0, 1)),
    reduction("sum", ("i32", "u64", *WIDE), None, x=WHOLE),
    reduction("sum", ("fp16", "bf16", *WIDE), 1, True, ulps=4, absolute=0.05, judged=False),
    *(reduction(name, ORDERED, axis) for name in ("max", "min") for axis in (0, 1, None)),
    reduction("max", ("fp32", "i16"), 1, True),
    *(reduction("xor_sum", INTEGERS, axis) for axis in (0, None)),
    *(reduction("reduce_or", INTEGERS, axis) for axis in (1, None)),
    *(reduction(name, ORDERED, axis, x=WHOLE, out="i32") for name in ("argmax", "argmin") for axis in (0, 1)),
    *(reduction(name, ("fp32", "bf16"), 1, out="i32", judged=False) for name in ("argmax", "argmin")),
    reduction("argmax any", ("fp32", "i32"), 1, out="i32", judged=False),
    reduction("own sum", ("i32", "fp32"), 0, x=WHOLE),
    *(reduction(name, ("i32", "fp32"), axis, x=WHOLE) for name in ("own max", "early return") for axis in (0, None)),
    reduction("two results", ("i32", "fp32"), 1, x=WHOLE, out="i32"),
    reduction("max with index", ("i32", "fp32"), 0, x=WHOLE, out="i32"),
    *(scan("cumsum", (*INTEGERS, *WIDE), axis, reverse) for axis in (0, 1) for reverse in (False, True)),
    *(scan("cumprod", (*INTEGERS[:4], *WIDE), axis, axis == 1, Tensor(size=M * N, fill="powers")) for axis in (0, 1)),
    *(scan("own max", ("i32", "fp32", "u8"), axis, axis == 0, Tensor(size=M * N, fill="finite")) for axis in (0, 1)),
    *(scan("affine", ("i32", "fp32"), 1, reverse) for reverse in (False, True)),
    *(scan("with place", ("i32", "fp32"), 0, reverse, out="i32") for reverse in (False, True)),
    *(shape(name) for name in ("join", "interleave", "split", "permute", "trans", "broadcast_to", "zeros")),
    *(shape(name) for name in ("split numbers", "one number")),
    shape("cat", since=(3, 7)),
    *(shape(name, INTEGERS) for name in ("cat any order", "view", "broadcast", "flip")),
    *(shape(name, INTEGERS) for name in ("sort", "sort down", "topk")),
    *(
        Entry(f"{name} of floats", shaped, (finite, finite, Tensor(size=128, fill="out")), FLOATS,
              constants={"OP": name, "N": 64})
        for name in ("sort", "sort down", "topk", "flip") for finite in [Tensor(size=64, fill="finite")]
    ),
    shape("softmax", ("fp32",), ulps=16, absolute=1e-6),
    *(
        Entry(f"histogram{', masked' if masked else ''}", counted,
              (Tensor(size=256, low=0, high=32), Tensor("i32", size=32, fill="out")), ("i32", "u32"),
              constants={"MASKED": masked, "N": 256, "BINS": 32}, since=(3, 6))
        for masked in (False, True)
    ),
    *(
        Entry(f"gather, axis {axis}", gathered, (Tensor(size=256), INDEX, Tensor(size=256, fill="out")),
              ("i32", "fp16", "fp32", "i8", "fp64"), constants={"AXIS": axis})
        for axis in (0, 1)
    ),
    Entry("swizzle2d", swizzled, (Tensor("i32", size=35, fill="out"), Tensor("i32", size=35, fill="out")),
          constants={"M": 5, "N": 7}),
    *(
        Entry(name, drawn, (Tensor("T", size=512, fill="out"), 1234567), types, grid=(4,),
              constants={"OP": name, "N": 128}, ulps=ulps, absolute=absolute)
        for name, types, ulps, absolute in [
            ("randint", ("i32",), 0, 0.0), ("randint4x", ("i32",), 0, 0.0), ("rand", ("fp32",), 0, 0.0),
            ("rand of int64", ("fp32",), 0, 0.0), ("rand4x", ("fp32",), 0, 0.0), ("randn", ("fp32",), 16, 1e-5),
        ]
    ),
    product([*HALF, *FULL, ("i8", "i8", "i32"), *EIGHT, ("fp64", "fp64", "fp64")]),
    product([*HALF, *FULL, ("i8", "i8", "i32"), *EIGHT], add=False),
    *(product(FULL, precision=way) for way in ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")),
    *(product(HALF[:1], precision="ieee", batch=batch) for batch in (1, 2)),
    product([*HALF, ("i8", "i8", "i32")], batch=2),
    product(EIGHT, chunk=16),
    product(HALF[:2], fill="finite", judged=False, absolute=0.05),
    product(FULL, fill="finite", precision="ieee", absolute=1e-4, judged=False),
    product(FULL, fill="finite", precision="tf32", absolute=0.2, judged=False),
    scaled_product("dot_scaled e4m3", "e4m3", "e4m3", "u8", 2048),
    scaled_product("dot_scaled e5m2", "e5m2", "e5m2", "u8", 2048),
    scaled_product("dot_scaled e2m1", "e2m1", "e2m1", "u8", 1024),
    scaled_product("dot_scaled, one scale", "e4m3", "none", "u8", 2048),
    scaled_product("dot_scaled bf16", "bf16", "none", "bf16", 2048),
    *(
        Entry(f"map_elementwise, {name}", mapped, (LINE, LINE, *[Tensor(size=64, fill="out")] * 2), ("fp32", "i32"),
              constants={"OP": name, "N": 64}, may_refuse=name == "ways out")
        for name in ("ways out", "two results")
    ),
]  # fmt: skip
