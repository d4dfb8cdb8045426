"""Each function of libdevice, through the one operation that calls it."""

import inspect

import triton
import triton.language as tl
from triton.language import core
from triton.language.extra.cuda import libdevice

from grader.tests.core.machine.entries import FLOATS, Entry, Tensor

FORMS = {"int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64", "fp32": "fp32", "fp64": "fp64"}
OPEN = ("fast_", "j", "y", "cyl_", "lgamma", "tgamma", "normcdf", "erfcinv", "erfinv")  # a library may be farther off
SIZE = 1024


@triton.jit
def external(x, y, z, w, o, F: tl.constexpr, COUNT: tl.constexpr, N: tl.constexpr):
    """F: a function of libdevice, of COUNT operands."""
    i = tl.arange(0, N)
    a = tl.load(x + i)
    if COUNT == 1:
        r = F(a)
    if COUNT == 2:
        r = F(a, tl.load(y + i))
    if COUNT == 3:
        r = F(a, tl.load(y + i), tl.load(z + i))
    if COUNT == 4:
        r = F(a, tl.load(y + i), tl.load(z + i), tl.load(w + i))
    tl.store(o + i, r)


class Table(dict):
    """(types of the operands): (symbol, type of the result)"""

    def to(self, *_, **__):
        return self


def table_of(function):
    """What an external function says to Triton's front end, without the front end."""
    truth = core.extern_elementwise
    core.extern_elementwise = lambda library, path, operands, table, is_pure, _semantic=None: Table(table)
    try:
        inner = inspect.unwrap(function)
        return inner(*[None] * (len(inspect.signature(inner).parameters) - 1))
    finally:
        core.extern_elementwise = truth


def entries():
    for name, function in inspect.getmembers(libdevice, inspect.isfunction):
        for operands, (symbol, result) in table_of(function).items():
            forms, out = [FORMS[str(operand)] for operand in operands], FORMS[str(result)]
            mixed = forms[0] in FLOATS and len(set(forms)) > 1  # a power or a number of places
            tensors = [argument(form, out, mixed and form not in FLOATS) for form in forms]
            tensors += [tensors[0]] * (4 - len(tensors))
            constants = {"F": function, "COUNT": len(forms), "N": SIZE}
            exact = not any(form in FLOATS for form in (*forms, out))
            yield Entry(
                f"libdevice.{name} ({symbol})",
                external,
                (*tensors, Tensor(out, SIZE, "out")),
                constants=constants,
                ulps=0 if exact else 4,
                absolute=0.0 if exact else 1e-6,
                judged=not name.startswith(OPEN),
                may_refuse=True,
            )


def argument(form, out, few):
    if few:
        return Tensor(form, SIZE, low=-10, high=10)
    within = out if form in FLOATS and out not in FLOATS else None
    return Tensor(form, SIZE, "normal" if form == "fp32" else "any", within=within)  # where subnormals count as 0


LIBRARY = list(entries())
