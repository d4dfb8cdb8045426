"""Kernels of what reaches memory: loads, stores, atomics, block pointers, descriptors; and prints, asserts, hints."""

import triton
import triton.language as tl

from grader.tests.core.machine.entries import EIGHTS, NUMBERS, SIZE, Described, Entry, Tensor

N = {"N": SIZE}
OUT = Tensor(fill="out")


@triton.jit
def loaded(x, o, n, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    m = i < n
    if OP == "mask, other":
        r = tl.load(x + i, mask=m, other=3)
    if OP == "mask, other is a block":
        r = tl.load(x + i, mask=m, other=i.to(x.dtype.element_ty))
    if OP == "evict_first":
        r = tl.load(x + i, mask=m, other=0, eviction_policy="evict_first")
    if OP == "evict_last":
        r = tl.load(x + i, eviction_policy="evict_last")
    if OP == "cache .ca":
        r = tl.load(x + i, mask=m, other=0, cache_modifier=".ca")
    if OP == "cache .cg":
        r = tl.load(x + i, cache_modifier=".cg")
    if OP == "cache .ca, evict_last":
        r = tl.load(x + i, mask=m, other=0, cache_modifier=".ca", eviction_policy="evict_last")
    if OP == "cache .cv":
        r = tl.load(x + i, cache_modifier=".cv")
    if OP == "volatile":
        r = tl.load(x + i, volatile=True)
    if OP == "one pointer for all":
        r = tl.load(x + i * 0)
    if OP == "a number":
        r = tl.load(x + n)
    if OP == "a masked number":
        r = tl.load(x + n, mask=n > 3, other=7)
    if OP == "a number masked out":
        r = tl.load(x + N + n, mask=n < 3, other=7)
    if OP == "mask of the grid":
        r = tl.load(x + tl.program_id(0) + i, mask=i + tl.program_id(0) < n, other=0)
    tl.store(o + i, r)


@triton.jit
def stored(x, o, n, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    m = i < n
    a = tl.load(x + i)
    if OP == "mask":
        tl.store(o + i, a, mask=m)
    if OP == "mask is a number":
        tl.store(o + i, a, mask=n > 3)
    if OP == "mask is false":
        tl.store(o + i, a, mask=n < 3)
    if OP == "evict_first":
        tl.store(o + i, a, eviction_policy="evict_first")
    if OP == "evict_last":
        tl.store(o + i, a, mask=m, eviction_policy="evict_last")
    if OP == "cache .wb":
        tl.store(o + i, a, cache_modifier=".wb")
    if OP == "cache .cs":
        tl.store(o + i, a, mask=m, cache_modifier=".cs")
    if OP == "cache .cs, evict_last":
        tl.store(o + i, a, mask=m, cache_modifier=".cs", eviction_policy="evict_last")
    if OP == "cache .cg":
        tl.store(o + i, a, cache_modifier=".cg")
    if OP == "cache .wt":
        tl.store(o + i, a, cache_modifier=".wt")
    if OP == "a number":
        tl.store(o + n, tl.load(x))
        tl.store(o, 3)
    if OP == "a masked number":
        tl.store(o + n, tl.load(x), mask=n > 3)
        tl.store(o, 3, mask=n < 3)
    if OP == "stride":
        tl.store(o + (N - 1 - i), a)
    if OP == "after load":
        tl.store(o + i, a)
        tl.debug_barrier()
        tl.store(o + i, tl.load(o + i) + 1, mask=m)


@triton.jit
def offsets(x, o, u, b, s, k, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    if OP == "int64":
        p = x + i.to(tl.int64) * 2
    if OP == "uint32":
        p = x + i.to(tl.uint32)
    if OP == "int16":
        p = x + i.to(tl.int16)
    if OP == "minus":
        p = x + (N - 1) - i
    if OP == "in steps":
        p = (x + 5) + i - 3
    if OP == "index":
        p = x + tl.load(k + i)
    if OP == "numbers of other types":
        p = x + tl.load(u) + tl.load(b) + tl.load(s) + i
    if OP == "as an integer":
        p = (x.to(tl.int64) + 8 + i.to(tl.int64) * 4).to(x.dtype)
    if OP == "other type":
        p = (x.to(tl.pointer_type(tl.int32)) + i).to(x.dtype)
    if OP == "chosen by a number":
        p = tl.where(tl.load(k) >= 0, x + 1, x) + i
    if OP == "chosen for each":
        p = tl.where(i % 2 == 0, x + i, x + 2 * i)
    tl.store(o + i, tl.load(p))


@triton.jit
def bools(x, y, o, n, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i, mask=i < n, other=True)
    tl.store(o + i, a | (tl.load(y + i) != tl.load(x)), mask=i > 2)
    tl.store(o, tl.load(y + 1) and n > 3)


@triton.jit
def rows(x, o, stride, M, N: tl.constexpr):
    """Several programs in three axes."""
    place = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    i = tl.arange(0, N)
    a = tl.load(x + place * stride + i, mask=(place < M) & (i < stride), other=0)
    tl.store(o + place * N + i, a + place)


@triton.jit
def atomics(o, old, x, m, OP: tl.constexpr, WIDTH: tl.constexpr, N: tl.constexpr):
    """WIDTH: how many addresses; fewer than N: several lanes and all programs meet at each."""
    i = tl.arange(0, N)
    p = o + i % WIDTH
    v = tl.load(x + i)
    k = i % 3 != 0
    if OP == "add":
        r = tl.atomic_add(p, v)
    if OP == "add, masked":
        r = tl.atomic_add(p, v, mask=k, sem="relaxed", scope="cta")
    if OP == "max":
        r = tl.atomic_max(p, v)
    if OP == "min":
        r = tl.atomic_min(p, v, mask=k, sem="release", scope="sys")
    if OP == "and":
        r = tl.atomic_and(p, v)
    if OP == "or":
        r = tl.atomic_or(p, v, sem="acquire")
    if OP == "xor":
        r = tl.atomic_xor(p, v, mask=k)
    if OP == "xchg":
        r = tl.atomic_xchg(p, v)
    if OP == "xchg, masked":
        r = tl.atomic_xchg(p, v, mask=k)
    if OP == "cas":
        r = tl.atomic_cas(p, tl.full([N], 1, o.dtype.element_ty), v)
    if WIDTH >= N:
        tl.store(old + i, r, mask=k)


@triton.jit
def counters(o, old, n):
    """Atomics on numbers that are no blocks, of one program after the other."""
    tl.store(old, tl.atomic_add(o, 3))
    tl.store(old + 1, tl.atomic_max(o, n, sem="relaxed"))
    tl.store(old + 2, tl.atomic_xchg(o + 1, 5))
    tl.store(old + 3, tl.atomic_cas(o + 1, 5, n))
    tl.store(old + 4, tl.atomic_cas(o + 1, 5, 77))
    tl.store(old + 5, tl.atomic_add(o + 2, 3, mask=n > 3))


@triton.jit
def locked(lock, o, x, N: tl.constexpr):
    """A lock that spins: every program adds its row."""
    i = tl.arange(0, N)
    a = tl.load(x + tl.program_id(0) * N + i)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(o + i, tl.load(o + i) + a)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def last_one(count, parts, o, x, N: tl.constexpr):
    """The program that counts last adds up what the others left."""
    i = tl.arange(0, N)
    p = tl.program_id(0)
    tl.store(parts + p, tl.sum(tl.load(x + p * N + i), 0))
    tl.debug_barrier()
    if tl.atomic_add(count, 1) == tl.num_programs(0) - 1:
        tl.store(o, tl.sum(tl.load(parts + tl.arange(0, 4), volatile=True), 0))


@triton.jit
def block_pointers(x, o, M, N, OP: tl.constexpr):
    p = tl.make_block_ptr(x, (M, N), (N, 1), (4, 0), (8, 16), (1, 0))
    q = tl.make_block_ptr(o, (M, N), (N, 1), (0, 0), (8, 16), (1, 0))
    if OP == "plain":
        tl.store(q, tl.load(p))
    if OP == "boundary":
        p = tl.advance(p, (0, 16))
        tl.store(tl.advance(q, (5, 8)), tl.load(p, boundary_check=(0, 1), padding_option="zero"), boundary_check=(0, 1))
    if OP == "nan":
        tl.store(q, tl.load(tl.advance(p, (2, 8)), boundary_check=(0, 1), padding_option="nan"))
    if OP == "loop":
        for _ in range(0, N, 16):
            tl.store(q, tl.load(p, boundary_check=(1,)), boundary_check=(1,))
            p = tl.advance(p, (0, 16))
            q = tl.advance(q, (0, 16))


@triton.jit
def described_inside(x, o, M, N, OP: tl.constexpr, PAD: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [M, N], [N, 1], [8, 16], padding_option=PAD)
    e = tl.make_tensor_descriptor(o, [M, N], [N, 1], [8, 16])
    if OP == "plain":
        e.store([8, 16], d.load([0, 0]))
    if OP == "past the end":
        e.store([M - 3, N - 8], d.load([M - 5, N - 8]))
    if OP == "before the start":
        e.store([0, 0], d.load([-3, -8]))
    if OP == "loop":
        for k in range(0, N, 16):
            e.store([0, k], d.load([4, k]) + 1)
    if OP == "functions":
        tl.store_tensor_descriptor(e, [0, 0], tl.load_tensor_descriptor(d, [8, 16]))


@triton.jit
def described_outside(d, e, OP: tl.constexpr):
    if OP == "plain":
        e.store([0, 16], d.load([8, 0]))
    if OP == "past the end":
        e.store([12, 24], d.load([13, 24]))
    if OP == "grid":
        e.store([tl.program_id(0) * 8, tl.program_id(1) * 16], d.load([tl.program_id(0) * 8, tl.program_id(1) * 16]))
    if OP == "atomic_add":
        e.atomic_add([0, 0], d.load([0, 0]))
        e.atomic_add([12, 24], d.load([8, 0]))
    if OP == "atomic_min":
        e.atomic_min([8, 0], d.load([0, 0]))
    if OP == "atomic_max":
        e.atomic_max([8, 0], d.load([0, 0]))
    if OP == "atomic_and":
        e.atomic_and([8, 0], d.load([0, 0]))
    if OP == "atomic_or":
        e.atomic_or([8, 0], d.load([0, 0]))
    if OP == "atomic_xor":
        e.atomic_xor([8, 0], d.load([0, 0]))
    if OP == "shape":
        e.store([d.shape[0] - 16, d.shape[1] - 32], d.load([0, 0]))


@triton.jit
def described_rows(d, e, o, index):
    r = tl.load(index + tl.arange(0, 8))
    e.scatter(d.gather(r, 16), r, 0)


@triton.jit
def hints(x, o, n, N: tl.constexpr):
    tl.assume(n > 0)
    tl.assume(n % 16 == 0)
    tl.static_assert(N == 1024, "as given")
    i = tl.max_contiguous(tl.multiple_of(tl.arange(0, N), N), N)
    a = tl.load(x + tl.multiple_of(n, 16) - n + i)
    tl.debug_barrier()
    tl.store(o + tl.max_constancy(i, 1), a)


@triton.jit
def asserted(x, o, n, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    tl.device_assert(n > 3, 'n is "large"')
    tl.device_assert(i < N, "inside")
    tl.device_assert(i < 5, "masked", mask=i < 5)
    assert n < 1000, "less"
    tl.store(o + i, a)


@triton.jit
def printed(x, o, n):
    tl.device_print("n", n)
    tl.device_print("hex", tl.load(x + tl.arange(0, 4)), n, hex=True)
    tl.device_print("alone")
    tl.store(o, n)


@triton.jit
def assembly(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    tl.store(o + i, tl.inline_asm_elementwise("add.s32 $0, $1, 3;", "=r,r", [a], tl.int32, is_pure=True, pack=1))


@triton.jit
def clocks(o):
    tl.store(o, tl.extra.cuda.globaltimer())


def simple(kernel, name, types, arguments, **more):
    return Entry(name, kernel, arguments, types, constants={**more.pop("constants", {}), **N}, **more)


def of_op(kernel, name, arguments, types=("fp32",), constants=N, **more):
    kind = kernel.__name__.replace("_", " ")
    return Entry(f"{kind}: {name}", kernel, arguments, types, constants={"OP": name, **constants}, **more)


def atomic(name, types, width=8, programs=4, fill="whole", **more):
    arguments = (Tensor(size=64, fill=fill), Tensor(size=64, fill="out"), Tensor(size=64, fill=fill), 0)
    constants = {"OP": name, "WIDTH": width, "N": 64}
    kind = f"atomic {name}, {width} addresses, {programs} programs"
    return Entry(kind, atomics, arguments, types, grid=(programs,), constants=constants, **more)


LONG = Tensor(size=2 * SIZE + 8)
FEW = ("i8", "u16", "i32", "i64", "fp16", "bf16", "fp32", "fp64")
WORDS = ("i32", "u32", "i64", "u64")
COUNTED = (*WORDS, "fp16", "bf16", "fp32", "fp64")
PLACES = Tensor("i32", low=0, high=SIZE)
AT = (LONG, OUT, *(Tensor(dtype, 1, low=0, high=9) for dtype in ("u32", "u8", "i16")), PLACES)
GRID = Tensor(size=16 * 32)
SHEET, BLANK = Described(GRID, (16, 32), (8, 16)), Described(Tensor(size=512, fill="out"), (16, 32), (8, 16))
ADDED = (Described(Tensor(size=512, fill="whole"), (16, 32), (8, 16)),) * 2
LINES = Described(Tensor(size=16 * 32), (16, 32), (1, 16))
LEFT = Described(Tensor(size=16 * 32, fill="out"), (16, 32), (1, 16))

MEMORY = [
    *(of_op(loaded, name, (LONG, OUT, 700), FEW) for name in ("mask, other", "a masked number")),
    of_op(loaded, "mask, other is a block", (LONG, OUT, 700), ("i32", "fp16", "fp32")),
    of_op(loaded, "volatile", (LONG, OUT, 700), (*NUMBERS, *EIGHTS)),
    *(
        of_op(loaded, name, (LONG, OUT, 700))
        for name in ("evict_first", "evict_last", "cache .ca", "cache .cg", "cache .cv", "one pointer for all",
                     "a number", "a number masked out")
    ),
    of_op(loaded, "cache .ca, evict_last", (LONG, OUT, 700), gpu=False),  # PTX has no such load
    of_op(loaded, "mask of the grid", (LONG, OUT, 700)),
    *(of_op(stored, name, (LONG, OUT, 700), FEW) for name in ("mask", "a masked number", "after load")),
    *(
        of_op(stored, name, (LONG, OUT, 700))
        for name in ("mask is a number", "mask is false", "evict_first", "evict_last", "cache .wb", "cache .cs",
                     "cache .cg", "cache .wt", "a number", "stride")
    ),
    of_op(stored, "cache .cs, evict_last", (LONG, OUT, 700), gpu=False),
    *(
        of_op(offsets, name, AT, ("fp32", "i32"))
        for name in ("int64", "uint32", "minus", "in steps", "index", "numbers of other types", "as an integer",
                     "other type", "chosen by a number", "chosen for each")
    ),
    of_op(offsets, "int64", AT, ("i8", "fp16", "fp64")),
    of_op(offsets, "int16", AT),
    simple(bools, "pointers to bool", ((),), (Tensor("i1"), Tensor("i1"), Tensor("i1", fill="out"), 700)),
    Entry("programs in three axes", rows, (Tensor(size=24 * 10), Tensor(size=24 * 16, fill="out"), 10, 23),
          ("fp32", "i32", "fp16"), grid=(4, 3, 2), constants={"N": 16}),
    *(atomic(name, COUNTED) for name in ("add", "add, masked")),
    atomic("add", COUNTED, 64, 1, "any"),
    *(atomic(name, (*WORDS, "fp32", "fp64")) for name in ("max", "min")),
    *(atomic(name, (*WORDS, "fp32", "fp64"), 64, 1, "any") for name in ("max", "min")),
    *(atomic(name, WORDS, width, programs) for name in ("and", "or", "xor") for width, programs in [(8, 4), (64, 1)]),
    *(atomic(name, ("i32", "i64", "fp32", "fp64"), 64, 1, "any") for name in ("xchg", "xchg, masked")),
    atomic("cas", ("i16", *WORDS), 64, 1),
    Entry("atomics on numbers", counters, (Tensor("i32", 4, "whole"), Tensor("i32", 8, "out"), 6)),
    Entry("a lock that spins", locked, (Tensor("i32", 1, "zero"), Tensor("i32", 16, "zero"),
          Tensor("i32", 64, "whole")), grid=(4,), constants={"N": 16}),
    Entry("the last program adds up", last_one, (Tensor("i32", 1, "zero"), Tensor(size=4, fill="zero"),
          Tensor(size=1, fill="zero"), Tensor(size=64, fill="whole")), ("i32", "fp32"), grid=(4,), constants={"N": 16}),
    *(
        of_op(block_pointers, name, (GRID, Tensor(size=512, fill="out"), 16, 32), types, {}, until=(3, 8))
        for name, types in [("plain", FEW), ("boundary", FEW), ("nan", ("fp16", "bf16", "fp32")), ("loop", ("fp32",))]
    ),
    *(
        of_op(described_inside, name, (GRID, Tensor(size=512, fill="out"), 16, 32), types, {"PAD": "zero"})
        for name, types in [
            ("plain", FEW), ("past the end", FEW[1:]), ("before the start", ("fp32", "i32")), ("loop", ("fp32", "i8")),
            ("functions", ("fp16",)),
        ]
    ),
    of_op(described_inside, "past the end", (GRID, Tensor(size=512, fill="out"), 16, 32), ("fp16", "fp32"),
          {"PAD": "nan"}),
    *(
        of_op(described_outside, name, (SHEET, BLANK), types, {})
        for name, types in [("plain", FEW), ("past the end", (*FEW[1:], "u32", "i16")), ("shape", ("fp32",))]
    ),
    # A column that is no multiple of 16 bytes: a Hopper GPU ends with an error.
    of_op(described_outside, "past the end", (SHEET, BLANK), ("i8", "u8"), {}, gpu=False),
    of_op(described_outside, "grid", (SHEET, BLANK), ("fp32", "i8"), {}, grid=(2, 2)),
    of_op(described_outside, "atomic_add", ADDED, ("i32", "u32", "u64", "fp16", "bf16", "fp32"), {}),
    *(of_op(described_outside, f"atomic_{name}", ADDED, WORDS, {}) for name in ("min", "max")),
    *(of_op(described_outside, f"atomic_{name}", ADDED, ("i32", "u32", "u64"), {}) for name in ("and", "or", "xor")),
    Entry("descriptors: gather and scatter", described_rows, (LINES, LEFT, OUT, Tensor("i32", 8, low=0, high=16)),
          ("fp16", "bf16"), gpu=False),
    simple(hints, "hints", ("fp32",), (Tensor(), OUT, 16)),
    simple(asserted, "asserts that hold", ("fp32",), (Tensor(), OUT, 700), options={"debug": True}),
    simple(asserted, "asserts that are left out", ("fp32",), (Tensor(), OUT, 3)),
    Entry("prints", printed, (Tensor("fp32", 4), Tensor("i32", 1, "out"), 7)),
    simple(assembly, "inline assembly", ("i32",), (Tensor(), OUT), refused=True),
    Entry("the clock", clocks, (Tensor("i64", 1, "out"),), refused=True),
]  # fmt: skip
