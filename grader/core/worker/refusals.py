"""Inside a child: what Triton's own words mean, for who knows PyTorch: which shapes or dtypes do not fit, what does.

Triton raises an AssertionError or a TypeError deep in its own files. The blocks at fault are then variables of the
function that raised: what is said of them is read from there, and nothing is said where they are not there.
"""

import ast
import re
from collections.abc import Callable, Iterable
from typing import Any


def in_words(error: BaseException, source: str) -> str:
    """A sentence for what `error` refuses, or "" where nothing better is known than its text. source: the line."""
    text, (function, names) = getattr(error, "error_message", None) or str(error), raised_in(error)
    for pattern, where, sentence in REFUSALS:
        if re.search(pattern, text) and re.fullmatch(where, function):
            try:
                return sentence.format(**SHAPES[function](names) if function in SHAPES else {})
            except Exception:  # another triton, with other variables
                return ""
    of_axis = re.search(r"axis|out of bounds for shape|no attribute 'type'|`_semantic`", text)
    if of_axis and re.search(r"\btl\.(max|min)\(", source):
        return REDUCTION
    return ""


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
    "_store_legacy": lambda names: {  # compiled, ptr is of the block's shape by then
        "a": size(names["val"].shape), "b": size(names.get("ptr_shape", names["ptr"].shape)),
    },
}  # fmt: skip
SHAPES["_broadcast_ptr_val_mask"] = SHAPES["_store_legacy"]  # since triton 3.9

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
    ("pointer argument to have shape|Value argument|Mask argument", "_store_legacy|_broadcast_ptr_val_mask",
        "tl.store writes a block of {a} through pointers of {b}: both must have one shape. Has a column [:, None], "
        "or keep_dims, been used once too often?"),
    ("unsupported tensor index", "__getitem__", INDEX),
    ("pointer.*(fp|float)|(fp|float).*pointer", ".*",
        f"a pointer moves by whole numbers, and this one by a float: {WHOLE}."),
    ("^unexpected type (fp|bf|float)", ".*", f"`//` and `%` take whole numbers, and one of these is a float: {WHOLE}."),
    ("is not string$", ".*", 'a GPU\'s compiler takes a text first in a kernel\'s print: print("x", x).'),
    ("cannot be interpreted as an integer|bounds and step must all be ints", ".*",
        f"a whole number is needed here, and this is a float: {WHOLE}; or are two arguments of the launch exchanged?"),
    ("unexpected keyword argument '(dim|keepdim|keepdims)'", ".*",
        "Triton's reductions have other names than PyTorch's: axis for dim, keep_dims for keepdim."),
    (r"operand type\(s\) for @|'MatMult'", ".*",
        "`@` does not exist inside a kernel: the product of two blocks is tl.dot."),
    ("power of 2", ".*",
        "each size of a block must be a power of 2: take the next larger one, and mask what is too much."),
)  # fmt: skip

# Words for a text alone -----------------------------------------------------------------------------------------------

WORDS = {
    ast.Lambda: "lambda", ast.FunctionDef: "def", ast.ClassDef: "class", ast.Try: "try", ast.With: "with",
    ast.Import: "import", ast.ImportFrom: "import", ast.Global: "global", ast.Nonlocal: "nonlocal",
    ast.NamedExpr: ":=", ast.Dict: "a dictionary", ast.Set: "a set", ast.Yield: "yield", ast.Await: "await",
    ast.DictComp: "a comprehension", ast.SetComp: "a comprehension", ast.GeneratorExp: "a generator",
    ast.Raise: "raise", ast.Delete: "del",
}  # fmt: skip
NO_BLOCK_POINTERS = "Triton has none since 3.9: use tl.make_tensor_descriptor, or pointers and masks"
# What Triton has where PyTorch, or an older Triton, has an attribute or a function of this name.
INSTEAD = {
    "t": "tl.trans transposes", "transpose": "tl.trans transposes", "mT": "tl.trans transposes",
    "float": ".to(tl.float32) casts", "half": ".to(tl.float16) casts", "bfloat16": ".to(tl.bfloat16) casts",
    "type_as": ".to(other.dtype) casts", "masked_fill": "tl.where chooses element by element",
    "masked_fill_": "tl.where chooses element by element", "unsqueeze": "[:, None] and [None, :] add an axis",
    "view": "tl.reshape does", "size": "it is `.shape`", "dim": "its axes are len(block.shape)",
    "stride": "pass the strides as arguments of the launch", "exp": "tl.exp does", "exp2": "tl.exp2 does",
    "log": "tl.log does", "maximum": "tl.maximum does", "amax": "tl.max(block, axis) does",
    "amin": "tl.min(block, axis) does", "matmul": "tl.dot does", "bmm": "tl.dot does", "mm": "tl.dot does",
    "inf": 'float("inf") is the number', "logsumexp": "put it together from tl.max, tl.exp and tl.sum",
    "tensor": "tl.full makes a block", "ones": "tl.full makes a block", "empty": "tl.zeros does",
    "make_block_ptr": f"it is of block pointers; {NO_BLOCK_POINTERS}",
    "advance": f"it is of block pointers; {NO_BLOCK_POINTERS}",
}  # fmt: skip
PLAIN_WORDS = (
    (r"op operand #0 must be 1-bit signless integer, but got 'tensor<([x\d]+)xi1>'", "an `if` or a `while` needs one "
     "value, not a block of {0} int1: choose element by element with tl.where, or reduce the condition first"),
    (r"Cannot bitcast data-type of size \d+ to data-type of size 1$", "`and`, `or` and `not` take booleans: compare "
     "first"),
    (r"^'tensor' object has no attribute '(?P<attribute>\w+)'", "`.{attribute}` is no attribute that a kernel has"
     "{instead}"),
    (r"^module '(?P<module>triton[\w.]*)' has no attribute '(?P<name>\w+)'", "`{module}.{name}` does not exist inside "
     "a kernel{instead}"),
    (r"^Block pointers have been removed", f"a block pointer does not exist inside a kernel: {NO_BLOCK_POINTERS}"),
    (r"^(abs|all|any|bool|enumerate|map|pow|round|sorted|str|sum|zip) is not defined", "Python's `{0}` does not exist "
     "inside a kernel: use what tl has"),
    (r"Boolean value of Tensor with more than one value", "`if`, `while`, `and`, `or` and `not` take one number, and "
     "this is a whole block: choose with tl.where, and combine with &, | and ~"),
    (r"multiple comparison is not supported", "a comparison like a <= b < c is not compiled: write (a <= b) & (b < c)"),
    (r"Input shapes should have (.*)", "the tiles of this tl.dot are too small: it needs {0}"),
    (r"(?:must be real number, not tensor|(?:float|int)\(\) argument must be)", "a function of Python is called on a "
     "value that only the GPU knows: use that of tl, or compute it before the launch"),
    (r"Unsupported function referenced: <(?:built-in method|function|built-in function) (\w+)", "a kernel cannot call "
     "`{0}`: only functions of tl and your own @triton.jit functions"),
    (r"Cannot access global variable (\w+)", "the global variable {0} is no constant for the compiler: write "
     "{0} = tl.constexpr(...), or pass it as an argument"),
    (r"unsupported AST node type: (?P<syntax>Break|Continue)", "`{syntax}` does not exist inside a kernel: put the "
     "condition into the loop's bounds, or use a mask"),
    (r"unsupported AST node type: (?P<syntax>\w+)", "`{syntax}` does not exist inside a kernel"),
    (r"f-string containing non-constexpr", "an f-string inside a kernel shows only a tl.constexpr, as {{D}}: print "
     'takes values apart, print("D", D)'),
    (r"cannot convert (.*) of type <class 'str'> to tensor", "the string {0!r} is no value that a kernel can hold"),
    (r"only tuple comprehensions", "a list comprehension is not compiled: use tl.static_range"),
    (r"Loop-carried variable (\w+) has initial type (.+) but is re-assigned to (.+) in loop", "{0} changes its type in "
     "a loop: it is {1} before and {2} after one round; give it one type and shape"),
    (r"Mismatched type for (\w+) between then block \((.+)\) and else block \((.+)\)", "{0} has two types: {1} after "
     "the `if`, {2} after the `else`; give it one type and shape"),
    (r"^breakpoint is not defined", "no debugger stops in a kernel: print(x) shows the numbers of program 0"),
    (r"^(\w+) is not defined", "{0} is not defined here: give it a value before the loop or `if` that sets it"),
    (r"__setitem__ is not supported", "a block cannot be changed in place: build a new one with tl.where"),
    (r"arange's arguments must be of type tl.constexpr", "tl.arange counts between numbers that are known when the "
     "kernel is compiled: begin at 0, and add what the loop counts to the block; a size is a `tl.constexpr` argument"),
    (r"must (?:be of|have) type .?(?:tl\.)?constexpr", "{text}: the size must be a `tl.constexpr` argument"),
    (r"ptxas fatal.*[Mm]emory", "ptxas, NVIDIA's assembler, ran out of memory: smaller tiles and fewer unrolled loops "
     "need less"),
    (r"failed to legalize unresolved materialization", "Triton's compiler gave up on this function: does it `return` "
     "values before its end? Choose between them with tl.where, or with if and else"),
    (r"PassManager::run failed", "Triton's compiler gave up on it and names no place"),
)  # fmt: skip


def in_plain_words(text: str) -> str:
    """Triton's words, said so that a student knows what to do; as they are where nothing better is known."""
    wrapped = re.fullmatch(r"\w+\((['\"])(.*)\1\)", text.strip(), re.DOTALL)
    assembler = re.search(r"ptxas (?:fatal|error)\s*: *(.*)", text)
    text = first_line(assembler[0] if assembler else wrapped[2] if wrapped else text).rstrip(".")
    for pattern, words in PLAIN_WORDS:
        if found := re.search(pattern, text):
            named = found.groupdict()
            syntax = named.pop("syntax", "")
            named["syntax"] = WORDS.get(getattr(ast, syntax, object), syntax.lower())
            instead = INSTEAD.get(named.get("attribute") or named.get("name") or "")
            named["instead"] = f": {instead}" if instead else ""
            return words.format(*map(type_name, found.groups()), text=text, **named)
    return text


def type_name(text: str) -> str:
    """`<['128'], fp32>` -> `a block (128) of fp32`; `64x32` -> `64 x 32`."""
    if re.fullmatch(r"\d+(x\d+)+", text):
        return text.replace("x", " x ")
    found = re.fullmatch(r"<\[(.*)\], (\w+)>", text)
    return f"a block ({found[1].replace(chr(39), '')}) of {found[2]}" if found else text


def first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or ["no words"])[0][:300]
