"""Which types the results of operations on memory and on whole blocks have: rules as in rules.py."""

import math
import re

from grader.core.machine.combining import ATOMICS, FLOAT_ATOMICS, FLOAT_REDUCES, REDUCES, REDUCTIONS, only_operation
from grader.core.machine.rules import EIGHT_BITS, FLOATS, axis_of, numbers, word
from grader.core.machine.text import NotIR, Operation, Type, Types, need, parse_type

NO_ATOMICS = (*EIGHT_BITS, "i1", "i8")


# Memory --------------------------------------------------------------------------------------------------------------


def pointed(operation: Operation, pointer: Type, values: Types, mask: Types = ()) -> Type:
    """What lies behind a pointer, or a block of pointers; it is what the values are, and the mask fits it."""
    need(pointer.kind == "pointer" and "boundaryCheck" not in operation.attributes, operation)
    shape = "x".join(map(str, pointer.shape))
    made = parse_type(f"tensor<{shape}x{pointer.element}>" if pointer.shape else pointer.element)
    need(all(value == made for value in values), operation)
    need(all(numbers(kind, {"i1"}) and kind.shape == pointer.shape for kind in mask), operation)
    return made


def load(operation: Operation, given: Types) -> Types:
    need(1 <= len(given) <= 3 and operation.types == given[:1], operation)
    return (pointed(operation, given[0], given[2:], given[1:2]),)


def store(operation: Operation, given: Types) -> Types:
    need(2 <= len(given) <= 3 and operation.types == given[:1], operation)
    pointed(operation, given[0], given[1:2], given[2:])
    return ()


def atomic_load(operation: Operation, given: Types) -> Types:
    need(1 <= len(given) <= 3 and operation.types[:-1] == given, operation)
    return (pointed(operation, given[0], (*given[2:], operation.types[-1]), given[1:2]),)


def atomic(operation: Operation, given: Types) -> Types:
    """prepared: the function that changes memory."""
    need(2 <= len(given) <= 3 and operation.types[:-1] == given, operation)
    made = pointed(operation, given[0], (given[1], operation.types[-1]), given[2:])
    operation.prepared = (FLOAT_ATOMICS if made.dtype.is_floating_point else ATOMICS).get(word(operation))
    need(operation.prepared and made.element not in NO_ATOMICS, operation)
    return (made,)


def compare_and_swap(operation: Operation, given: Types) -> Types:
    need(len(given) == 3 and operation.types[:-1] == given, operation)
    made = pointed(operation, given[0], (*given[1:], operation.types[-1]))
    need(made.element not in NO_ATOMICS, operation)
    return (made,)


# Descriptors ---------------------------------------------------------------------------------------------------------


def make_descriptor(operation: Operation, given: Types) -> Types:
    need(len(operation.types) == 2 and operation.types[1].kind == "descriptor", operation)
    base, *sizes = given
    made = operation.types[1]
    need(base.kind == "pointer" and base.element == made.element and not base.shape, operation)
    need(len(sizes) == 2 * len(made.shape) and all(kind.text in ("i32", "i64") for kind in sizes), operation)
    return (made,)


def described(operation: Operation, given: Types, starts: Types) -> Type:
    """The type of the block of a descriptor that begins at `starts`."""
    kind, block = given[0], operation.types[-1]
    need(kind.kind == "descriptor" and kind == operation.types[0] and block.kind == "number", operation)
    need(len(starts) == len(kind.shape) and all(start.text == "i32" for start in starts), operation)
    need(block.element == kind.element and block.elements == kind.elements, operation)
    return block


def load_described(operation: Operation, given: Types) -> Types:
    return (described(operation, given, given[1:]),)


def store_described(operation: Operation, given: Types) -> Types:
    need(described(operation, given, given[1:-1]) == given[-1], operation)
    return ()


def reduce_described(operation: Operation, given: Types) -> Types:
    """prepared: the function that changes memory."""
    element = given[0].element
    operation.prepared = (FLOAT_REDUCES if element in FLOATS else REDUCES).get(word(operation))
    need(operation.prepared and element not in NO_ATOMICS, operation)
    return store_described(operation, given)


def rows_described(operation: Operation, given: Types) -> Type:
    (kind, rows, column), block = given[:3], operation.types[-1]
    need(kind.kind == "descriptor" and len(kind.shape) == 2 and kind.shape[0] == 1, operation)
    need(rows.text == f"tensor<{math.prod(rows.shape)}x{rows.element}>" and column.text == "i32", operation)
    need(rows.element in ("i16", "i32") and block.kind == "number", operation)
    need(block.shape == (rows.shape[0], kind.shape[1]) and block.element == kind.element, operation)
    return block


def gather_described(operation: Operation, given: Types) -> Types:
    need(len(given) == 3, operation)
    return (rows_described(operation, given),)


def scatter_described(operation: Operation, given: Types) -> Types:
    need(len(given) == 4 and given[3] == rows_described(operation, given), operation)
    return ()


# Products ------------------------------------------------------------------------------------------------------------


def dot(operation: Operation, given: Types) -> Types:
    need(given == operation.types and len(given) == 3 and len(given[0].shape) in (2, 3), operation)
    a, b, c = given
    *batch, rows, depth = a.shape
    need((*batch, depth) == b.shape[:-1] and c.shape == (*batch, rows, b.shape[-1]), operation)
    integers = a.element == b.element == "i8" and c.element == "i32"
    halves = {a.element, b.element} <= FLOATS | EIGHT_BITS and c.element in ("f16", "f32", "f64")
    need((integers or halves) and a.kind == b.kind == c.kind == "number", operation)
    return (c,)


ELEMENTS = {"e2m1": "i8", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2", "fp16": "f16", "bf16": "bf16"}
FORMATS = re.compile(r"lhs = (\w+) rhs = (\w+)")


def scaled(operation: Operation, given: Types) -> Types:
    """prepared: of both sides (its format, has it a scale?)."""
    need(given == operation.types and all(len(kind.shape) == 2 for kind in given), operation)
    (*left, c), found = given, FORMATS.search(operation.body)
    need(found, operation)
    texts = operation.body.partition(" lhs =")[0].split(", ")
    sides = operation.prepared = [
        (form, " scale " in text)
        for text, form in zip(texts, found.groups(), strict=False)  # type: ignore[union-attr]
    ]
    depths = []
    for at, (form, has_scale) in enumerate(sides):
        block, scale = left.pop(0), left.pop(0) if has_scale else None
        depths.append(block.shape[1 - at] * (2 if form == "e2m1" else 1))
        need(block.shape[at] == c.shape[at] and numbers(block, {ELEMENTS.get(form, "")}), operation)
        need(scale is None or scale.text == f"tensor<{c.shape[at]}x{depths[0] // 32}xi8>", operation)
    need(depths[0] == depths[1] and c.element == "f32", operation)
    return (c,)


# Reductions, scans, gathering ----------------------------------------------------------------------------------------


def inner_types(operation: Operation, kinds: Types) -> None:
    """The region is one block, which is given numbers of these types."""
    entry = operation.regions[0].entry
    need(tuple(kind.text for kind in entry.types) == tuple(kind.element for kind in kinds), operation)
    need(len(operation.regions[0].blocks) == 1, operation)


def reduce(operation: Operation, given: Types) -> Types:
    """prepared: (the axis, the function that reduces along it, or None: the region does)."""
    count = len(given)
    results = operation.types[count:]
    need(given and operation.types[:count] == given and len(results) == count, operation)
    axis = axis_of(operation, len(given[0].shape) - 1)
    left = (*given[0].shape[:axis], *given[0].shape[axis + 1 :])
    for origin, target in zip(given, results, strict=True):
        need(origin.kind == "number" and origin.shape == given[0].shape, operation)
        need((target.kind, target.shape, target.element) == ("number", left, origin.element), operation)
    inner_types(operation, given * 2)
    operation.prepared = axis, REDUCTIONS.get(only_operation(operation.regions[0])) if count == 1 else None
    return results


def scan(operation: Operation, given: Types) -> Types:
    """prepared: (the axis, does it begin at its end?)."""
    need(given and operation.types == (*given, *given), operation)
    need(all(kind.kind == "number" and kind.shape == given[0].shape for kind in given), operation)
    operation.prepared = axis_of(operation, len(given[0].shape) - 1), "reverse = true" in operation.body
    inner_types(operation, given * 2)
    return given


def map_elements(operation: Operation, given: Types) -> Types:
    results = operation.types[len(given) :]
    need(given and operation.types[: len(given)] == given and results, operation)
    need(all(kind.kind == "number" and kind.shape == given[0].shape for kind in operation.types), operation)
    if not operation.body.strip().endswith("<{pack = 1 : i32}> (") or len(operation.regions[0].blocks) > 1:
        raise NotIR(
            "the machine runs no tl.map_elementwise with a pack, or with a return inside: a limit of the grader"
        )
    inner_types(operation, given)
    return results


def gather(operation: Operation, given: Types) -> Types:
    """prepared: the axis."""
    need(len(operation.types) == 3 and given == operation.types[:2], operation)
    origin, index, target = operation.types
    axis = operation.prepared = axis_of(operation, len(origin.shape) - 1)
    need(len(origin.shape) == len(index.shape), operation)
    others = all(a == b for at, (a, b) in enumerate(zip(origin.shape, index.shape, strict=True)) if at != axis)
    need(others and target == Type(target.text, "number", index.shape, origin.element), operation)
    need(origin.kind == "number" and numbers(index, {"i8", "i16", "i32", "i64"}), operation)
    return (target,)


def histogram(operation: Operation, given: Types) -> Types:
    need(len(operation.types) == 2 and len(given) in (1, 2), operation)
    origin, target = operation.types
    need(given[0] == origin and len(origin.shape) == len(target.shape) == 1, operation)
    need(numbers(origin, {"i32", "i64"}) and numbers(target, {"i32", "i64"}), operation)
    need(len(given) == 1 or given[1] == origin.with_element("i1"), operation)
    return (target,)
