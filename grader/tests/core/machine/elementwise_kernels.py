"""Kernels of one operator or one function of triton.language that takes each element by itself.

The name of an operation is what the kernel computes: OP is a constant, so the front end sees one line of all these.
"""

import triton
import triton.language as tl

from grader.tests.core.machine.entries import (
    EIGHTS,
    FLOATS,
    INTEGERS,
    NUMBERS,
    OUT,
    SIGNED,
    SIZE,
    TRUTHS,
    Entry,
    Tensor,
)

HALVES = ("fp16", "bf16")
WIDE = ("fp32", "fp64")
N = {"N": SIZE}


@triton.jit
def unary(x, o, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    if OP == "-a":
        r = -a
    if OP == "~a":
        r = ~a
    if OP == "not a":
        r = not a
    if OP == "abs":
        r = tl.abs(a)
    if OP == "a + 1.5":
        r = a + 1.5
    if OP == "a * 3":
        r = a * 3
    if OP == "2.0 / a":
        r = 2.0 / a
    if OP == "exp":
        r = tl.exp(a)
    if OP == "exp2":
        r = tl.exp2(a)
    if OP == "log":
        r = tl.log(a)
    if OP == "log2":
        r = tl.log2(a)
    if OP == "sin":
        r = tl.sin(a)
    if OP == "cos":
        r = tl.cos(a)
    if OP == "sqrt":
        r = tl.sqrt(a)
    if OP == "sqrt_rn":
        r = tl.sqrt_rn(a)
    if OP == "rsqrt":
        r = tl.rsqrt(a)
    if OP == "erf":
        r = tl.erf(a)
    if OP == "floor":
        r = tl.floor(a)
    if OP == "ceil":
        r = tl.ceil(a)
    if OP == "sigmoid":
        r = tl.sigmoid(a)
    tl.store(o + i, r)


@triton.jit
def binary(x, y, o, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    b = tl.load(y + i)
    if OP == "a + b":
        r = a + b
    if OP == "a - b":
        r = a - b
    if OP == "a * b":
        r = a * b
    if OP == "a / b":
        r = a / b
    if OP == "a // b":
        r = a // b
    if OP == "a % b":
        r = a % b
    if OP == "a & b":
        r = a & b
    if OP == "a | b":
        r = a | b
    if OP == "a ^ b":
        r = a ^ b
    if OP == "a << b":
        r = a << b
    if OP == "a >> b":
        r = a >> b
    if OP == "a < b":
        r = a < b
    if OP == "a <= b":
        r = a <= b
    if OP == "a > b":
        r = a > b
    if OP == "a >= b":
        r = a >= b
    if OP == "a == b":
        r = a == b
    if OP == "a != b":
        r = a != b
    if OP == "logical_and":
        r = a.logical_and(b)
    if OP == "logical_or":
        r = a.logical_or(b)
    if OP == "minimum":
        r = tl.minimum(a, b)
    if OP == "maximum":
        r = tl.maximum(a, b)
    if OP == "minimum nan":
        r = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    if OP == "maximum nan":
        r = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    if OP == "fdiv":
        r = tl.fdiv(a, b)
    if OP == "div_rn":
        r = tl.div_rn(a, b)
    if OP == "cdiv":
        r = tl.cdiv(a, b)
    if OP == "umulhi":
        r = tl.umulhi(a, b)
    if OP == "where":
        r = tl.where(a > b, a, b)
    tl.store(o + i, r)


@triton.jit
def ternary(x, y, z, o, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    b = tl.load(y + i)
    c = tl.load(z + i)
    if OP == "fma":
        r = tl.fma(a, b, c)
    if OP == "clamp":
        r = tl.clamp(a, tl.minimum(b, c), tl.maximum(b, c))
    if OP == "clamp nan":
        r = tl.clamp(a, tl.minimum(b, c), tl.maximum(b, c), propagate_nan=tl.PropagateNan.ALL)
    if OP == "a * b + c":
        r = a * b + c
    if OP == "where a":
        r = tl.where(a, b, c)
    tl.store(o + i, r)


@triton.jit
def scalars(x, y, o, k, OP: tl.constexpr, N: tl.constexpr):
    """The same on numbers that are no blocks, one element after the other; k: a number of the launch."""
    for i in range(N):
        a = tl.load(x + i)
        b = tl.load(y + i)
        if OP == "a + b":
            r = a + b
        if OP == "a // b":
            r = a // b
        if OP == "a % b":
            r = a % b
        if OP == "min":
            r = min(a, b)
        if OP == "a > b":
            r = tl.where(a > b, a, b)
        if OP == "a * k":
            r = a * k
        if OP == "a if c":
            r = a if a > b else b * 2
        if OP == "exp":
            r = tl.exp(a) + tl.sqrt_rn(b * b) + tl.clamp(a, -1.0, 1.0)
        tl.store(o + i, r)


@triton.jit
def cast(x, o, ROUNDING: tl.constexpr, BITCAST: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    tl.store(o + i, a.to(o.dtype.element_ty, fp_downcast_rounding=ROUNDING, bitcast=BITCAST))


@triton.jit
def cast_number(x, o, N: tl.constexpr):
    for i in range(N):
        tl.store(o + i, tl.load(x + i).to(o.dtype.element_ty))


@triton.jit
def constants(o, WHICH: tl.constexpr, N: tl.constexpr):
    """Literals of all kinds, rounded by the front end or by the store."""
    i = tl.arange(0, N)
    r = tl.full([N], WHICH, o.dtype.element_ty)
    tl.store(o + i, r)
    tl.store(o, WHICH)


def of_one(name, types, ulps=0, absolute=0.0, fill="any", **more):
    tensor = Tensor(fill=fill)
    return Entry(name, unary, (tensor, OUT), types, constants={"OP": name, **N}, ulps=ulps, absolute=absolute, **more)


def of_two(name, types, ulps=0, out=OUT, second=None, **more):
    arguments = (Tensor(), second or Tensor(), out)
    return Entry(name, binary, arguments, types, constants={"OP": name, **N}, ulps=ulps, **more)


def of_three(name, types, first="T", out=OUT, **more):
    arguments = (Tensor(first), Tensor(), Tensor(), out)
    return Entry(name, ternary, arguments, types, constants={"OP": name, **N}, **more)


def of_numbers(name, types, second=None, k=3, **more):
    arguments = (Tensor(size=64), second or Tensor(size=64), Tensor(size=64, fill="out"), k)
    return Entry(f"numbers: {name}", scalars, arguments, types, constants={"OP": name, "N": 64}, **more)


WIDER = Tensor("U", fill="out")
PLACES = Tensor(low=0, high="bits")
DIVISOR = Tensor(fill="divisor")
SMALL = Tensor(low=1, high=100)
QUOTIENTS = [("fp16", "fp32"), ("bf16", "fp32"), ("fp32", "fp32"), ("fp64", "fp64"), *((t, "fp32") for t in INTEGERS)]
MIXED = [
    ("i8", "i32", "i32"), ("u8", "i8", "u8"), ("i32", "u32", "u32"), ("i64", "u32", "i64"), ("i32", "fp16", "fp16"),
    ("i64", "fp32", "fp32"), ("fp16", "bf16", "fp32"), ("bf16", "fp32", "fp32"), ("fp32", "fp64", "fp64"),
    ("i8", "u64", "u64"), ("fp16", "fp32", "fp32"), ("i1", "fp32", "fp32"), ("u8", "fp16", "fp16"),
    ("i1", "i32", "i32"), ("u16", "i32", "i32"),
]  # fmt: skip
BOTH = (Tensor(), Tensor("U"))
COMPARED = (*NUMBERS, "i1")
BITWISE = (*INTEGERS, "i1")
PAIRS = [(t, u) for t in (*NUMBERS, "i1") for u in (*NUMBERS, "i1") if t != u]
INEXACT = [(t, u) for t, u in PAIRS if t in FLOATS and u in INTEGERS]
EIGHT_BITS = [("fp8e5", "fp16"), ("fp8e5", "fp32"), *(("fp8e4nv", u) for u in FLOATS[:3])]
EIGHT_BITS += [(u, t) for t in EIGHTS for u in FLOATS[:3]]
NOT_COMPILED = [(t, "fp64") for t in EIGHTS] + [("fp64", t) for t in EIGHTS]  # Triton 3.6 ends with an error of LLVM
SAME_BITS = [
    ("i32", "fp32"), ("fp32", "u32"), ("fp16", "bf16"), ("i16", "fp16"), ("bf16", "u16"), ("i64", "fp64"),
    ("fp64", "u64"), ("i8", "fp8e5"), ("fp8e4nv", "u8"), ("u32", "i32"), ("i8", "u8"),
]  # fmt: skip
ROUNDED = [("fp32", "fp16"), ("fp32", "bf16")]
TO_ZERO = {"ROUNDING": "rtz", "BITCAST": False, **N}
KEPT = {"ROUNDING": None, "BITCAST": False, **N}

ELEMENTWISE = [
    of_one("-a", (*SIGNED, *FLOATS)),
    of_one("~a", BITWISE),
    of_one("not a", ("i1",)),
    of_one("abs", NUMBERS),
    of_one("a + 1.5", FLOATS),
    of_one("a * 3", NUMBERS),
    Entry("2.0 / a", unary, (Tensor(), WIDER), QUOTIENTS, constants={"OP": "2.0 / a", **N}, ulps=2, absolute=2e-38),
    of_one("exp", WIDE, 8, 2e-38),  # a GPU: 2 to the power of a rounded product
    of_one("exp2", WIDE, 2, 2e-38),
    of_one("log", WIDE, 2, 1e-6),
    of_one("log2", WIDE, 2, 1e-6),
    of_one("sin", WIDE, 2, 1e-6, fill="finite"),
    of_one("cos", WIDE, 2, 1e-6, fill="finite"),
    of_one("sqrt", WIDE, 1, 2e-19),  # subnormals count as 0
    of_one("sqrt_rn", ("fp32",)),
    of_one("rsqrt", WIDE, 2),
    of_one("erf", WIDE, 4, 2e-38),
    of_one("floor", WIDE),
    of_one("ceil", WIDE),
    of_one("sigmoid", WIDE, 4, 2e-38),
    *(of_two(name, NUMBERS) for name in ("a + b", "a - b", "a * b", "minimum", "maximum", "where")),
    *(of_two(name, FLOATS) for name in ("minimum nan", "maximum nan")),
    *(of_two(name, COMPARED, out=TRUTHS) for name in ("a < b", "a <= b", "a > b", "a >= b", "a == b", "a != b")),
    *(of_two(name, BITWISE) for name in ("a & b", "a | b", "a ^ b")),
    *(of_two(name, ("i1",)) for name in ("logical_and", "logical_or")),
    *(of_two(name, INTEGERS, second=PLACES) for name in ("a << b", "a >> b")),
    *(of_two(name, INTEGERS, second=DIVISOR) for name in ("a // b", "a % b")),
    of_two("cdiv", INTEGERS, second=SMALL),
    of_two("umulhi", ("i32", "u32", "i64", "u64")),
    of_two("a / b", QUOTIENTS, 2, WIDER, absolute=2e-38),
    of_two("fdiv", WIDE, 2, absolute=2e-38),
    of_two("div_rn", ("fp32",)),
    of_two("a % b", [("fp16", "fp32"), ("bf16", "fp32"), ("fp32", "fp32"), ("fp64", "fp64")], 0, WIDER, judged=False),
    *(
        Entry(f"mixed: {op}", binary, (*BOTH, Tensor("V", fill="out")), MIXED, constants={"OP": op, **N})
        for op in ("a + b", "a * b", "a - b", "where")
    ),
    Entry("mixed: a < b", binary, (*BOTH, TRUTHS), MIXED, constants={"OP": "a < b", **N}),
    of_three("fma", FLOATS),
    of_three("clamp", FLOATS),
    of_three("clamp nan", FLOATS),
    of_three("where a", NUMBERS, first="i1"),
    of_three("a * b + c", FLOATS, judged=False),  # a GPU makes one operation of it
    of_numbers("a + b", NUMBERS),
    of_numbers("a // b", INTEGERS, Tensor(size=64, fill="divisor")),
    of_numbers("a % b", INTEGERS, Tensor(size=64, fill="divisor")),
    of_numbers("min", ("i32", "u8", "i64", "fp32", "fp64")),
    of_numbers("a > b", NUMBERS),
    of_numbers("a * k", ("i32", "i64", "fp32", "fp16")),
    of_numbers("a * k", ("fp32", "fp64"), k=2.5),
    of_numbers("a if c", ("i32", "fp32")),
    of_numbers("exp", ("fp32",), ulps=8, judged=False),
    Entry("cast", cast, (Tensor(within="U"), WIDER), PAIRS, constants=KEPT),
    Entry("cast past the range", cast, (Tensor(), WIDER), INEXACT, constants=KEPT, judged=False),
    Entry("cast 8 bits", cast, (Tensor(), WIDER), EIGHT_BITS, constants=KEPT),
    # Triton's own conversion, for Hopper, takes an infinity for 65536.
    Entry("cast 8 bits", cast, (Tensor(), WIDER), [("fp8e5", "bf16")], constants=KEPT, judged=False),
    Entry("cast 8 bits", cast, (Tensor(), WIDER), NOT_COMPILED, constants=KEPT, gpu=False),
    Entry("cast, same bits", cast, (Tensor(), WIDER), SAME_BITS, constants={"ROUNDING": None, "BITCAST": True, **N}),
    *(
        Entry(f"cast {way}", cast, (Tensor(), WIDER), ROUNDED, constants={"ROUNDING": way, "BITCAST": False, **N})
        for way in ("rtz", "rtne")
    ),
    Entry("cast rtz", cast, (Tensor(), WIDER), [("fp64", "fp32")], constants=TO_ZERO, gpu=False),
    Entry(
        "numbers: cast",
        cast_number,
        (Tensor(size=64, within="U"), Tensor("U", size=64, fill="out")),
        [
            ("fp32", "fp16"), ("fp32", "bf16"), ("fp32", "i32"), ("u8", "fp32"), ("i64", "i16"), ("i8", "i64"),
            ("i32", "i1"),
        ],
        constants={"N": 64},
    ),
    *(
        Entry(f"constant {value!r}", constants, (OUT,), FLOATS, constants={"WHICH": value, **N})
        for value in (0.1, -0.0, float("inf"), float("-inf"), float("nan"), 1e-30, 16777217.0, 65504.0, -3.0)
    ),
    *(
        Entry(f"constant {value}", constants, (OUT,), types, constants={"WHICH": value, **N})
        for value, types in [
            (-128, SIGNED), (127, NUMBERS), (True, ("i1", "i32", "fp32")), (2**40, ("i64", "u64", "fp32")),
        ]
    ),
    Entry("constant 3000000000", constants, (OUT,), ("u32", "i64", "u64"), constants={"WHICH": 3000000000, **N}),
    Entry("constant 2**64 - 1", constants, (OUT,), ("u64",), constants={"WHICH": 2**64 - 1, **N}),
]  # fmt: skip
