"""In the runner: what Triton's own words mean, for who knows PyTorch: which shapes or dtypes do not fit, and what does.

Triton raises an AssertionError or a TypeError deep in its own files. The blocks at fault are then variables of the
function that raised: what is said of them is read from there, and nothing is said where they are not there.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any


def in_words(error: BaseException, source: str) -> str:
    """A sentence for what `error` refuses, or "" where nothing better is known than its text. source: the line."""
    text, (function, names) = str(error), raised_in(error)
    for pattern, where, sentence in REFUSALS:
        if re.search(pattern, text) and re.fullmatch(where, function):
            try:
                return sentence.format(**SHAPES[function](names) if function in SHAPES else {})
            except Exception:  # another triton, with other variables
                return ""
    of_axis = re.search(r"axis|out of bounds for shape|no attribute 'type'", text)
    return REDUCTION if of_axis and re.search(r"\btl\.(max|min)\(", source) else ""


def raised_in(error: BaseException) -> tuple[str, dict[str, Any]]:
    """(name, variables) of the function that raised."""
    frame = error.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    return (frame.tb_frame.f_code.co_name, frame.tb_frame.f_locals) if frame else ("", {})


def size(shape: Iterable[Any]) -> str:
    """`64 x 32`"""
    return " x ".join(str(getattr(length, "value", length)) for length in shape) or "one number"


SHAPES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "dot": lambda names: {
        "a": size(names["a_shape"]), "b": size(names["b_shape"]), "c": size(names.get("c_shape", ())),
        "acc": size(names["acc"].shape) if "c_shape" in names and names["acc"] is not None else "",
    } if "a_shape" in names else {"a": names["lhs"].dtype, "b": names["rhs"].dtype},
    "broadcast_impl_value": lambda names: {"a": size(names["lhs_shape"]), "b": size(names["rhs_shape"])},
    "broadcast_impl_shape": lambda names: {"a": size(names["input"].shape), "b": size(names["shape"])},
    "_store_legacy": lambda names: {"a": size(names["val"].shape), "b": size(names["ptr"].shape)},
}  # fmt: skip

WHOLE = "`/` makes a float and `//` a whole number, in the kernel and in the wrapper"
REDUCTION = (
    "tl.max and tl.min reduce one block along an axis: tl.max(block, axis). For the larger or smaller of two values, "
    "element by element, there are tl.maximum and tl.minimum."
)
INDEX = (
    "a block cannot be indexed or cut by position; inside the brackets stand None and `:` alone, which add an axis. "
    "Load the part that is needed, choose with tl.where, or reduce along an axis."
)
# (pattern of the text, of the name of the function that raised, what it means)
REFUSALS = (
    ("equal reduction dimensions", "dot",
        "tl.dot takes M x K and K x N, and was given {a} and {b}: the last size of the first must be the first size "
        "of the second. Is one of them to be transposed (tl.trans), or are they in the wrong order?"),
    ("equal (ranks|batch)", "dot", "tl.dot takes two blocks M x K and K x N, and was given {a} and {b}."),
    ("accumulator shape", "dot",
        "this tl.dot makes a block of {c}, and its accumulator is one of {acc}: make it with that shape "
        "(tl.zeros), and rescale it by a column."),
    ("must be same dtype|must be (of )?the same", "dot",
        "tl.dot takes two blocks of one dtype, and was given {a} and {b}: cast one with .to()."),
    ("incompatible dimensions", "broadcast_impl_value",
        "blocks of {a} and {b} do not fit together: each size must be the same, or 1 in one of them. A vector counts "
        "as a row unless [:, None] makes a column of it; a reduction along axis 1 leaves one number for each row, "
        "along axis 0 one for each column."),
    ("Cannot broadcast", "broadcast_impl_shape",
        "a block of {a} cannot be spread over one of {b}: each size must be the same, or 1. Which of its axes "
        "needs [:, None] or [None, :]?"),
    ("Value argument cannot be block type", "_store_legacy",
        "tl.store is given a block of {a} for one address: reduce it first, or give as many addresses."),
    ("pointer argument to have shape|Value argument|Mask argument", "_store_legacy",
        "tl.store writes a block of {a} through pointers of {b}: both must have one shape. Has a column [:, None], "
        "or keep_dims, been used once too often?"),
    ("unsupported tensor index|not iterable", "__getitem__", INDEX),
    ("0-dimensional arrays can be converted", ".*",
        "a block is no single number, and it cannot be changed in place: choose element by element with tl.where, and "
        "give the whole name a new value."),
    ("item assignment", ".*",
        "a block cannot be changed in place: make a new one with tl.where, or give the whole name a new value."),
    ("pointer.*(fp|float)|(fp|float).*pointer", ".*",
        f"a pointer moves by whole numbers, and this one by a float: {WHOLE}."),
    ("^unexpected type (fp|bf|float)", ".*", f"`//` and `%` take whole numbers, and one of these is a float: {WHOLE}."),
    ("cannot be interpreted as an integer", ".*",
        f"a whole number is needed here, and this is a float: {WHOLE}; or are two arguments of the launch exchanged?"),
    ("unexpected keyword argument '(dim|keepdim|keepdims)'", ".*",
        "Triton's reductions have other names than PyTorch's: axis for dim, keep_dims for keepdim."),
    (r"operand type\(s\) for @", ".*", "`@` does not exist inside a kernel: the product of two blocks is tl.dot."),
    ("power of 2", ".*",
        "each size of a block must be a power of 2: take the next larger one, and mask what is too much."),
)  # fmt: skip
