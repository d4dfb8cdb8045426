"""Which types the results of an operation have: rule(operation, types of its operands), which raises NotIR.

A rule reads what else the operation's text says, once, into `operation.prepared`: the number of a constant, an axis, a
function.
"""

import re
from collections.abc import Callable
from typing import Any

import torch

from grader.core.machine.batch import Value
from grader.core.machine.libdevice import LIBDEVICE
from grader.core.machine.text import NotIR, Operation, Type, Types, need, parse_type
from grader.core.protocol.program import Refused

Rule = Callable[[Operation, Types], Types]

INTEGERS = {"i1", "i8", "i16", "i32", "i64"}
FLOATS = {"f16", "bf16", "f32", "f64"}
EIGHT_BITS = {"f8E4M3FN", "f8E5M2"}


def numbers(kind: Type, among: set[str]) -> bool:
    return kind.kind == "number" and kind.element in among


def one(operation: Operation, given: Types, count: int) -> Type:
    """The one type that an operation's text has, which is that of its `count` operands."""
    need(len(operation.types) == 1 and given == operation.types * count, operation)
    return operation.types[0]


def two(operation: Operation, given: Types, count: int = 1) -> tuple[Type, Type]:
    """(the type of its `count` operands, that of what comes of them)."""
    need(len(operation.types) == 2 and given == operation.types[:1] * count, operation)
    return operation.types[0], operation.types[1]


def alike(operation: Operation, origin: Type, target: Type) -> None:
    """Both have elements of one kind; a descriptor has none."""
    need((origin.kind, origin.element) == (target.kind, target.element) and origin.kind != "descriptor", operation)


def axis_of(operation: Operation, most: int) -> int:
    """The axis that the text names, from 0 to `most`."""
    found = re.search(r"axis = (\d) : i32", operation.body, re.ASCII)
    need(found and int(found[1]) <= most, operation)
    return int(found[1])  # type: ignore[index]


# Numbers -------------------------------------------------------------------------------------------------------------


def same(count: int, among: set[str]) -> Rule:
    """`count` operands of one type, which is the result's too."""

    def rule(operation: Operation, given: Types) -> Types:
        no_arithmetic_in_8_bits(operation)
        need(numbers(one(operation, given, count), among), operation)
        return operation.types

    return rule


def no_arithmetic_in_8_bits(operation: Operation) -> None:
    if any(kind.element in EIGHT_BITS for kind in operation.types[:1]):
        raise Refused("no GPU computes with floats of 8 bits but in tl.dot: cast them with .to(tl.float16) first")


def compare(among: set[str], functions: Callable[[str], Any]) -> Rule:
    """functions(name of a predicate): the function behind it, or a KeyError. prepared: (the name, the function)."""

    def rule(operation: Operation, given: Types) -> Types:
        no_arithmetic_in_8_bits(operation)
        kind, name = one(operation, given, 2), word(operation)
        need(numbers(kind, among), operation)
        try:
            operation.prepared = name, functions(name)
        except KeyError:
            raise NotIR(f"`{operation.name}` has no predicate `{name}`") from None
        return (kind.with_element("i1"),)

    return rule


def word(operation: Operation) -> str:
    """The first word behind the name: a predicate, or how an atomic operation changes memory."""
    return operation.body.strip().partition(",")[0]


def cast(origins: set[str], targets: set[str]) -> Rule:
    """prepared: does it round towards zero?"""

    def rule(operation: Operation, given: Types) -> Types:
        operation.prepared = "rtz" in operation.body or "toward_zero" in operation.body
        origin, target = two(operation, given)
        need(numbers(origin, origins) and numbers(target, targets) and origin.shape == target.shape, operation)
        return (target,)

    return rule


def bitcast(operation: Operation, given: Types) -> Types:
    origin, target = two(operation, given)
    same_size = origin.kind == target.kind == "number" and bytes_of(origin) == bytes_of(target)
    pointers = origin.kind == target.kind == "pointer"
    need(origin.shape == target.shape and (same_size or pointers), operation)
    return (target,)


def bytes_of(kind: Type) -> int:
    return 0 if kind.element == "i1" else kind.dtype.itemsize


def extern(operation: Operation, given: Types) -> Types:
    symbol = operation.attributes.get("symbol", "").strip('"')
    need(operation.types[:-1] == given and all(kind.shape == given[0].shape for kind in operation.types), operation)
    need(all(kind.kind == "number" for kind in operation.types), operation)
    if symbol not in LIBDEVICE:
        raise NotIR(f"the machine has no function `{symbol}` of libdevice: this is a limit of the grader")
    need(tuple(kind.element for kind in operation.types) == LIBDEVICE[symbol].elements, operation)
    operation.prepared = LIBDEVICE[symbol].function
    return operation.types[-1:]


def select(operation: Operation, given: Types) -> Types:
    kind = operation.types[-1]
    need(len(given) == 3 and given[1:] == (kind, kind) and numbers(given[0], {"i1"}), operation)
    need(given[0].shape in ((), kind.shape) and kind.kind != "descriptor", operation)
    return (kind,)


# What comes from nothing ---------------------------------------------------------------------------------------------

DECIMAL = re.compile(r"-?\d+\.\d*(?:[eE][+-]?\d+)?", re.ASCII)
WHOLE = re.compile(r"-?\d{1,20}", re.ASCII)
HEXADECIMAL = re.compile(r"0x[0-9A-F]{1,16}", re.ASCII)
OF_WIDTH = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}


def constant(operation: Operation, given: Types) -> Types:
    """prepared: the Value."""
    text = operation.body.partition(" : ")[0].strip()
    kind = parse_type("i1") if operation.body.strip() in ("true", "false") else one(operation, given, 0)
    need(kind.kind == "number", operation)
    operation.prepared = filled(kind, number_of(text[6:-1] if text.startswith("dense<") else text, kind, operation))
    return (kind,)


def filled(kind: Type, number: Any) -> Value:
    return Value(torch.full((1, *(1,) * len(kind.shape)), number, dtype=kind.dtype))


def number_of(text: str, kind: Type, operation: Operation) -> Any:
    """The number of a constant's text; raises NotIR where it is none of its type."""
    width = 8 * kind.dtype.itemsize
    if kind.element == "i1" and text in ("true", "false"):
        return text == "true"
    if kind.dtype.is_floating_point and HEXADECIMAL.fullmatch(text):
        bits = int(text, 16)
        need(bits < 1 << width, operation)
        bits -= (bits >> (width - 1)) << width
        return torch.tensor([bits], dtype=OF_WIDTH[width]).view(kind.dtype).double().item()
    if kind.dtype.is_floating_point and DECIMAL.fullmatch(text):
        need(abs(float(text)) <= torch.finfo(kind.dtype).max, operation)
        return float(text)
    if not kind.dtype.is_floating_point and kind.element != "i1" and WHOLE.fullmatch(text):
        number = int(text)
        need(-(1 << (width - 1)) <= number < 1 << width, operation)
        return number - (number >> (width - 1) << width) if number > 0 else number
    raise NotIR(f"a constant that is no single number of its type: `{text[:60]}`")


def poison(operation: Operation, given: Types) -> Types:
    kind = one(operation, given, 0)
    need(kind.kind != "descriptor", operation)
    operation.prepared = filled(kind, float("nan") if kind.dtype.is_floating_point else 0)
    return (kind,)


def make_range(operation: Operation, given: Types) -> Types:
    """prepared: (its first number, the one after its last)."""
    kind = one(operation, given, 0)
    need({"start", "end"} <= operation.attributes.keys(), operation)
    start, end = (int(operation.attributes[name]) for name in ("start", "end"))
    need(kind.text == f"tensor<{end - start}xi32>" and end < 1 << 31, operation)
    operation.prepared = start, end
    return (kind,)


def of_grid(operation: Operation, given: Types) -> Types:
    """prepared: the axis."""
    need(one(operation, given, 0).text == "i32", operation)
    operation.prepared = "xyz".index(operation.body.strip()[0])
    return operation.types


# Other arrangements of the same numbers, pointers --------------------------------------------------------------------


def rearranged(fits: Callable[[Type, Type], object], operands: int = 1, results: int = 1) -> Rule:
    """The elements of `operands` blocks in blocks that fit them. fits(type of an operand, type of a result)."""

    def rule(operation: Operation, given: Types) -> Types:
        origin, target = two(operation, given, operands)
        alike(operation, origin, target)
        need(fits(origin, target), operation)
        return (target,) * results

    return rule


def spreads(origin: Type, target: Type) -> bool:
    pairs = zip(origin.shape, target.shape, strict=False)
    return len(origin.shape) == len(target.shape) and all(a in (1, b) for a, b in pairs)


splat = rearranged(lambda a, b: not a.shape and b.shape)
broadcast = rearranged(spreads)
reshape = rearranged(lambda a, b: a.elements == b.elements)
join = rearranged(lambda a, b: b.shape == (*a.shape, 2), operands=2)
cat = rearranged(lambda a, b: len(a.shape) == 1 and b.shape == (2 * a.shape[0],), operands=2)
split = rearranged(lambda a, b: a.shape == (*b.shape, 2), results=2)


def expand(operation: Operation, given: Types) -> Types:
    """prepared: the new axis."""
    axis = operation.prepared = axis_of(operation, len(given[0].shape))
    return rearranged(lambda a, b: b.shape == (*a.shape[:axis], 1, *a.shape[axis:]))(operation, given)


def transpose(operation: Operation, given: Types) -> Types:
    """prepared: which axis of the operand each axis is."""
    listed = operation.attributes.get("order", "").partition(":")[2]
    order = operation.prepared = [int(number) for number in re.findall(r"\d{1,3}", listed)]
    need(sorted(order) == list(range(len(given[0].shape))), operation)
    return rearranged(lambda a, b: b.shape == tuple(a.shape[axis] for axis in order))(operation, given)


def unsplat(operation: Operation, given: Types) -> Types:
    kind = one(operation, given, 1)
    need(kind.shape and kind.elements == 1 and kind.kind != "descriptor", operation)
    return (Type(kind.element, kind.kind, (), kind.element) if kind.kind == "pointer" else parse_type(kind.element),)


def addptr(operation: Operation, given: Types) -> Types:
    need(len(operation.types) == 2 and given == operation.types, operation)
    pointer, offset = given
    need(pointer.kind == "pointer" and numbers(offset, INTEGERS - {"i1"}), operation)
    need(pointer.shape == offset.shape, operation)
    return (pointer,)


def int_to_ptr(operation: Operation, given: Types) -> Types:
    origin, target = two(operation, given)
    kinds = {(origin.kind, origin.element), (target.kind, target.element)}
    need(origin.shape == target.shape and ("number", "i64") in kinds, operation)
    need({origin.kind, target.kind} == {"number", "pointer"}, operation)
    return (target,)


# What makes no value -------------------------------------------------------------------------------------------------


def effect(operation: Operation, given: Types) -> Types:
    return ()


def assertion(operation: Operation, given: Types) -> Types:
    need(len(given) == 1 and numbers(given[0], {"i1"}), operation)
    return ()
