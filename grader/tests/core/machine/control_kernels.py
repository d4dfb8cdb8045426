"""Kernels of Python's control flow as Triton has it. Eight programs, whose number p makes them go different ways."""

import triton
import triton.language as tl

from grader.tests.core.machine.entries import Entry, Tensor

PROGRAMS, LANES = 8, 16


@triton.jit
def doubled(a):
    return a * 2


@triton.jit
def nested(a, b):
    c = doubled(a) + doubled(b)
    return c, c - a


@triton.jit
def early(a, o):
    if a > 4:
        return a
    tl.store(o + 15, a)
    return a + 100


@triton.jit
def three_ways(a):
    if a < 3:
        return a
    if a < 6:
        return a * 10
    return -a


@triton.jit(noinline=True)
def apart(a, b):
    return a * b + 1


@triton.jit(noinline=True)
def apart_early(a, o):
    if a > 4:
        return a, a + 1
    tl.store(o + 14, a)
    return a * 3, a


@triton.jit(noinline=True)
def apart_nothing(a, o):
    tl.store(o + 13, a)


@triton.jit
def collatz(a):
    steps = 0
    while a != 1:
        if a % 2 == 0:
            a = a // 2
        else:
            a = a * 3 + 1
        steps += 1
    return steps


@triton.jit
def moved(pair, k):
    return pair[0] + k, pair[1] * 2


@triton.jit
def fors(o, n, OP: tl.constexpr, L: tl.constexpr):
    p = tl.program_id(0)
    o += p * L
    i = tl.arange(0, L)
    block = tl.zeros([L], tl.int32)
    s = 0
    if OP == "range(n)":
        for k in range(n):
            s += k
    if OP == "range(p)":
        for k in range(p):
            s += k * k
            block += i * k
    if OP == "range(p, n)":
        for k in range(p, n, 2):
            block += k
    if OP == "range(n, p, -3)":
        for k in range(n, p, -3):
            s = s * 3 + k
    if OP == "range(-p, p, p + 1)":
        for k in range(-p, p, p + 1):
            s = s * 5 + k
    if OP == "no rounds":
        for k in range(n, 0):
            s += k
    if OP == "constant bounds":
        for k in range(2, 11, 4):
            s = s * 2 + k
    if OP == "down from a constant":
        for k in range(10, 0, -3):
            s = s * 2 + k
    if OP == "int64":
        for k in range(p.to(tl.int64) + 3):
            s += k.to(tl.int32)
    if OP == "tl.range":
        for k in tl.range(0, n, 3, num_stages=3):
            s += k
        for k in tl.range(p, n, loop_unroll_factor=2, flatten=True, disallow_acc_multi_buffer=True):
            block += k
        for k in tl.range(p, disable_licm=True):
            block += k
    if OP == "tl.static_range":
        for k in tl.static_range(1, 8, 3):
            s = s * 2 + k * p
    if OP == "nested":
        for k in range(p):
            for j in range(k, n):
                if j % 2 == 0:
                    s += j
                else:
                    block += k
            t = k
            while t > 0:
                t -= 2
                s -= t
    if OP == "stores":
        for k in range(p):
            tl.store(o + k, k + 1)
    if OP == "pointers":
        q = o
        for k in range(p):
            tl.store(q, k)
            q += 2
        s = p
    if OP == "last value":
        k = -1
        for j in range(p):
            k = j
        s = k
    if OP == "two blocks swap":
        other = i
        for _ in range(p):
            block, other = other, block + other
    if OP == "tuples":
        pair = (o, 1)
        for _ in range(p):
            pair = moved(pair, 1)
        tl.store(pair[0], pair[1])
        s = pair[1]
    if OP != "stores" and OP != "pointers" and OP != "tuples":
        tl.store(o + i, block)
    if OP != "stores":
        tl.store(o + 15, s)


@triton.jit
def whiles(o, n, OP: tl.constexpr, L: tl.constexpr):
    p = tl.program_id(0)
    o += p * L
    i = tl.arange(0, L)
    block = tl.zeros([L], tl.int32)
    s = p
    if OP == "while s < n":
        while s < n:
            s = s * 2 + 1
            block += s
    if OP == "two conditions":
        while (s > 0) and (s < 40):
            s += s
    if OP == "a load decides":
        while tl.load(o) < n + p:
            tl.store(o, tl.load(o) + 3)
            s += 1
    if OP == "sum decides":
        while tl.sum(block, 0) < p * 20:
            block += i
    if OP == "nested":
        while s > 0:
            t = s
            while t < n:
                t += 3
                block += t
            s -= 2
    if OP == "for inside":
        while s < n:
            for k in range(s):
                block += k
            s += 5
    if OP == "if inside":
        while s < n:
            if s % 3 == 0:
                s += 2
                block += 1
            else:
                s += 1
    if OP == "collatz":
        s = collatz(p + 1)
    if OP != "a load decides":
        tl.store(o + i, block)
    tl.store(o + 15, s)


@triton.jit
def ifs(o, f, n, OP: tl.constexpr, L: tl.constexpr):
    p = tl.program_id(0)
    o += p * L
    i = tl.arange(0, L)
    block = i
    s = 0
    if OP == "if" and p > 3:
        s = 1
        tl.store(o + 3, p)
    if OP == "elif":
        if p < 2:
            s = 1
            block = block + 1
        elif p < 4:
            s = 2
            block *= 3
        elif p == 5:
            tl.store(o + 3, p)
        else:
            s = p
    if OP == "nested":
        if p > 1:
            if p % 2 == 0:
                block += p
            elif n > 3:
                s = n
            else:
                s = 7
        else:
            s = -1
    if OP == "expression":
        s = p if p > 3 else n
        block = i if p > 3 else i * 2
        x = f if p == 2 else 0.5
        s += (x * 4).to(tl.int32)
    if OP == "and, or, not":
        if (p > 2 and p < 6) or not (n > p):
            s = 5
        s += 16 * ((p > 1) and (n > 3)).to(tl.int32)
    if OP == "a number decides":
        if p:
            s += 1
        if p & 1:
            s += 2
        if f > 1.0:
            s += 4
    if OP == "a block decides" and tl.max(i * p, 0) > 40:
        s = 1
    if OP == "chained" and 1 < p < 5:
        s = 3
    if OP == "constant":
        if L > 8:
            s = 3
        else:
            s = 4
        if OP is None:
            s = 5
    if OP == "pointer":
        q = o
        if p > 4:
            q = o + 2
        tl.store(q, p)
    if OP == "types widen":
        t = p.to(tl.int64)
        if p > 4:
            t = t + 1
        s = t.to(tl.int32)
    if OP != "pointer":
        tl.store(o + i, block, mask=i > 4)
    tl.store(o + 15, s)


@triton.jit
def returns(o, f, n, OP: tl.constexpr, L: tl.constexpr):
    p = tl.program_id(0)
    o += p * L
    i = tl.arange(0, L)
    if OP == "at the top" and p > 4:
        return
    if OP == "after a store" and p > 4:
        tl.store(o + 3, p)
        return
    if OP == "elif":
        if p > 5:
            return
        elif p > 3:
            tl.store(o, 9)
        else:
            if p == 2:
                tl.store(o, 8)
                return
            tl.store(o, 7)
    if OP == "both ways":
        if p % 2 == 0:
            tl.store(o, 3)
            return
        else:
            tl.store(o, 4)
            return
    if OP == "twice":
        if p == 1:
            return
        tl.store(o + 1, p)
        if p * n > 20:
            return
        tl.store(o + 2, p)
        if p == 2:
            return
    if OP == "all programs":
        return
    tl.store(o + i, i, mask=i > 4)


@triton.jit
def calls(o, f, n, OP: tl.constexpr, L: tl.constexpr):
    p = tl.program_id(0)
    o += p * L
    s = 0
    if OP == "nested":
        a, b = nested(p, n)
        s = a * 100 + b
    if OP == "early return":
        s = early(p, o)
    if OP == "early return in a loop":
        for k in range(n):
            s = s * 2 + three_ways(k + p)
    if OP == "early return in an if" and p > 1:
        s = early(p, o)
    if OP == "early return in a while":
        s = n
        while s < 40:
            s += 9 + three_ways(p)
    if OP == "noinline":
        s = apart(p, n) - apart(n, n)
    if OP == "noinline, early return":
        a, b = apart_early(p, o)
        s = a * 100 + b
    if OP == "noinline in a loop":
        for k in range(p):
            a, b = apart_early(k, o)
            s += a * b
    if OP == "noinline, no result":
        apart_nothing(p, o)
    if OP == "tuples":
        t = (p, n, (f, 3))
        u, v = moved(t, 5)
        s = u + v * t[2][1] + (t[2][0] * 2).to(tl.int32)
    tl.store(o + 12, s)


@triton.jit
def tuple_argument(pair, o, L: tl.constexpr):
    i = tl.arange(0, L)
    x, rest = pair
    tl.store(o + tl.program_id(0) * L + i, tl.load(x + i) * rest[0] + rest[1])


@triton.jit
def numbers(o, a, b, c, d, e, OTHER: tl.constexpr, L: tl.constexpr):
    """a: a bool; b: a float; c: an int; d: one that needs 64 bits; e: 1, which is a constant to a GPU."""
    i = tl.arange(0, L)
    s = (d // 1000000007 + c * e).to(tl.int32) + (b * 8).to(tl.int32)
    if a:
        s += OTHER
    tl.store(o + tl.program_id(0) * L + i, s + i)


@triton.jit
def alone(o, L: tl.constexpr):
    """Bounds that each program loads, and a block that lives through all of it."""
    p = tl.program_id(0)
    i = tl.arange(0, L)
    first = tl.load(o + p * L)
    block = i * p
    for k in range(first, first + p):
        if (k + p) % 3 == 0:
            block = tl.where(i > k, block + k, block - p)
    tl.store(o + p * L + i, block)


RESULT = Tensor("i32", PROGRAMS * LANES, "out")
L = {"L": LANES}


def of(kernel, name, *between, **more):
    constants = {"OP": name, **L}
    full = f"{kernel.__name__}: {name}"
    return Entry(full, kernel, (RESULT, *between), grid=(PROGRAMS,), constants=constants, **more)


FORS = (
    "range(n)", "range(p)", "range(p, n)", "range(n, p, -3)", "range(-p, p, p + 1)", "no rounds", "constant bounds",
    "down from a constant", "int64", "tl.range", "tl.static_range", "nested", "stores", "pointers", "last value",
    "two blocks swap", "tuples",
)  # fmt: skip
WHILES = (
    "while s < n", "two conditions", "a load decides", "sum decides", "nested", "for inside", "if inside", "collatz",
)  # fmt: skip
IFS = (
    "if", "elif", "nested", "expression", "and, or, not", "a number decides", "a block decides", "constant", "pointer",
    "types widen",
)  # fmt: skip
RETURNS = ("at the top", "after a store", "elif", "both ways", "twice", "all programs")
CALLS = (
    "nested", "early return", "early return in a loop", "early return in an if", "early return in a while", "noinline",
    "noinline, early return", "noinline in a loop", "noinline, no result", "tuples",
)  # fmt: skip
PAIR = (Tensor("i32", 64), (3, 5))

CONTROL = [
    *(of(fors, name, 9) for name in FORS),
    *(of(whiles, name, 9) for name in WHILES),
    *(of(ifs, name, 2.5, 5) for name in IFS),
    of(ifs, "chained", 2.5, 5, since=(3, 9)),
    *(of(returns, name, 2.5, 5) for name in RETURNS),
    *(of(calls, name, 2.5, 5) for name in CALLS),
    Entry("a tuple as an argument", tuple_argument, (PAIR, RESULT), grid=(PROGRAMS,), constants=L),
    Entry("arguments of all kinds", numbers, (RESULT, True, 2.5, 7, 10**15, 1), grid=(PROGRAMS,),
          constants={"OTHER": 4, **L}),
    Entry("loaded bounds", alone, (RESULT,), grid=(PROGRAMS,), constants=L),
]  # fmt: skip
