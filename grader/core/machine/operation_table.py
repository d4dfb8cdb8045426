"""Every operation of Triton's IR that the machine runs: its form in the text, the types that it makes, its function.

What is not in TABLE is refused by its name. Tests: grader/tests/core/machine has, for each, a kernel that contains it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grader.core.machine import accesses, arithmetic, block_operations, descriptors, overflow
from grader.core.machine.batch import Frame, Value, spread
from grader.core.machine.text import NotIR, Operation, Type, need, parse_type
from grader.core.protocol.program import Refused

Types = tuple[Type, ...]
Rule = Callable[[Operation, Types], Types]
Execute = Callable[[Any, Operation, Frame], None]


@dataclass(frozen=True)
class Entry:
    """form: a key of text.FORMS. rule(operation, types of its operands): the types of its results; raises NotIR.

    make(operation): what runs it, execute(machine, operation, frame), which reads and writes the frame.
    """

    form: str
    rule: Rule
    make: Callable[[Operation], Execute]


# Rules ---------------------------------------------------------------------------------------------------------------


INTEGERS = {"i1", "i8", "i16", "i32", "i64"}
FLOATS = {"f16", "bf16", "f32", "f64"}
EIGHT_BITS = {"f8E4M3FN", "f8E5M2"}
NUMBERS = INTEGERS | FLOATS | EIGHT_BITS


def numbers(kind: Type, among: set[str]) -> bool:
    return kind.kind == "number" and kind.element in among


def same(count: int, among: set[str]) -> Rule:
    """`count` operands of one type, which is the result's too."""

    def rule(operation: Operation, given: Types) -> Types:
        (kind,) = one(operation)
        no_arithmetic_in_8_bits(kind)
        need(given == (kind,) * count and numbers(kind, among), operation)
        return (kind,)

    return rule


def no_arithmetic_in_8_bits(kind: Type) -> None:
    if kind.element in EIGHT_BITS:
        raise Refused("no GPU computes with floats of 8 bits but in tl.dot: cast them with .to(tl.float16) first")


def one(operation: Operation) -> Types:
    need(len(operation.types) == 1, operation)
    return operation.types


def two(operation: Operation) -> Types:
    need(len(operation.types) == 2, operation)
    return operation.types


def compare(among: set[str]) -> Rule:
    def rule(operation: Operation, given: Types) -> Types:
        (kind,) = one(operation)
        no_arithmetic_in_8_bits(kind)
        need(given == (kind, kind) and numbers(kind, among), operation)
        return (kind.with_element("i1"),)

    return rule


def cast(origins: set[str], targets: set[str]) -> Rule:
    def rule(operation: Operation, given: Types) -> Types:
        origin, target = two(operation)
        fits = numbers(origin, origins) and numbers(target, targets) and origin.shape == target.shape
        need(given == (origin,) and fits, operation)
        return (target,)

    return rule


def bitcast(operation: Operation, given: Types) -> Types:
    origin, target = two(operation)
    same_size = origin.kind == target.kind == "number" and size(origin) == size(target)
    pointers = origin.kind == target.kind == "pointer"
    need(given == (origin,) and origin.shape == target.shape and (same_size or pointers), operation)
    return (target,)


def size(kind: Type) -> int:
    return 0 if kind.element == "i1" else kind.dtype.itemsize


def select(operation: Operation, given: Types) -> Types:
    kind = operation.types[-1]
    need(len(given) == 3 and given[1:] == (kind, kind) and numbers(given[0], {"i1"}), operation)
    need(given[0].shape in ((), kind.shape) and kind.kind != "descriptor", operation)
    return (kind,)


def reshaping(fits: Callable[[Operation, Type, Type], object]) -> Rule:
    def rule(operation: Operation, given: Types) -> Types:
        origin, target = two(operation)
        need(given == (origin,) and origin.kind == target.kind and origin.element == target.element, operation)
        need(origin.kind != "descriptor", operation)
        need(fits(operation, origin, target), operation)
        return (target,)

    return rule


def expanded(operation: Operation, origin: Type, target: Type) -> bool:
    axis = block_operations.axis_of(operation)
    return axis <= len(origin.shape) and target.shape == (*origin.shape[:axis], 1, *origin.shape[axis:])


def broadcast(operation: Operation, origin: Type, target: Type) -> bool:
    pairs = list(zip(origin.shape, target.shape, strict=False))
    return len(origin.shape) == len(target.shape) and all(a in (1, b) for a, b in pairs)


def order_of(operation: Operation) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,3}", operation.attributes.get("order", "").partition(":")[2])]


def transposed(operation: Operation, origin: Type, target: Type) -> bool:
    order = order_of(operation)
    fits = sorted(order) == list(range(len(origin.shape)))
    return fits and target.shape == tuple(origin.shape[axis] for axis in order)


def constant(operation: Operation, given: Types) -> Types:
    if operation.body.strip() in ("true", "false"):
        return (parse_type("i1"),)
    (kind,) = one(operation)
    need(kind.kind == "number", operation)
    return (kind,)


def made_of_nothing(operation: Operation, given: Types) -> Types:
    (kind,) = one(operation)
    need(not given and kind.kind != "descriptor", operation)
    need(kind.text == "i32" or not operation.name.startswith("tt.get"), operation)
    return (kind,)


def make_range(operation: Operation, given: Types) -> Types:
    (kind,) = made_of_nothing(operation, given)
    need({"start", "end"} <= operation.attributes.keys(), operation)
    start, end = range_of(operation)
    need(kind.text == f"tensor<{end - start}xi32>" and end < 1 << 31, operation)
    return (kind,)


def range_of(operation: Operation) -> tuple[int, int]:
    return int(operation.attributes["start"]), int(operation.attributes["end"])


def addptr(operation: Operation, given: Types) -> Types:
    pointer, offset = two(operation)
    fits = pointer.kind == "pointer" and numbers(offset, INTEGERS - {"i1"}) and pointer.shape == offset.shape
    need(given == (pointer, offset) and fits, operation)
    return (pointer,)


def int_to_ptr(operation: Operation, given: Types) -> Types:
    origin, target = two(operation)
    need(given == (origin,) and origin.shape == target.shape, operation)
    kinds = {(origin.kind, origin.element), (target.kind, target.element)}
    need(("number", "i64") in kinds and {origin.kind, target.kind} == {"number", "pointer"}, operation)
    return (target,)


def clamp(operation: Operation, given: Types) -> Types:
    (kind,) = one(operation)
    need(given == (kind, kind, kind) and numbers(kind, FLOATS), operation)
    return (kind,)


def unsplat(operation: Operation, given: Types) -> Types:
    (kind,) = one(operation)
    need(given == (kind,) and kind.shape and kind.elements == 1 and kind.kind != "descriptor", operation)
    return (Type(kind.element, kind.kind, (), kind.element) if kind.kind == "pointer" else parse_type(kind.element),)


def join(operation: Operation, given: Types) -> Types:
    origin, target = two(operation)
    fits = target.shape == (*origin.shape, 2) and target.element == origin.element and target.kind == origin.kind
    need(given == (origin, origin) and fits and origin.kind != "descriptor", operation)
    return (target,)


def cat(operation: Operation, given: Types) -> Types:
    origin, target = two(operation)
    fits = len(origin.shape) == 1 and target.shape == (2 * origin.shape[0],) and target.element == origin.element
    need(given == (origin, origin) and fits and origin.kind == target.kind != "descriptor", operation)
    return (target,)


def split(operation: Operation, given: Types) -> Types:
    origin, target = two(operation)
    fits = origin.shape == (*target.shape, 2) and target.element == origin.element and target.kind == origin.kind
    need(given == (origin,) and fits and origin.kind != "descriptor", operation)
    return (target, target)


def effect(*among: set[str]) -> Rule:
    """No result."""

    def rule(operation: Operation, given: Types) -> Types:
        need(not operation.results, operation)
        return ()

    return rule


def assertion(operation: Operation, given: Types) -> Types:
    need(len(given) == 1 and numbers(given[0], {"i1"}), operation)
    return ()


def extern(operation: Operation, given: Types) -> Types:
    symbol = operation.attributes.get("symbol", "").strip('"')
    need(operation.types[:-1] == given and all(kind.shape == given[0].shape for kind in operation.types), operation)
    need(all(kind.kind == "number" for kind in operation.types), operation)
    if symbol not in block_operations.LIBDEVICE:
        raise NotIR(f"the machine has no function `{symbol}` of libdevice: this is a limit of the grader")
    need(tuple(kind.element for kind in operation.types) == block_operations.LIBDEVICE[symbol].elements, operation)
    return (operation.types[-1],)


# Functions -----------------------------------------------------------------------------------------------------------


def elementwise(function: Callable[..., Tensor]) -> Callable[[Operation], Execute]:
    """Each element of the result from those in the same place of the operands."""

    def make(operation: Operation) -> Execute:
        operands, (result,) = operation.operands, operation.results

        def execute(machine: Any, operation: Operation, frame: Frame) -> None:
            frame.values[result] = Value(function(*[frame[name].data for name in operands]))

        return execute

    return make


def converting(function: Callable[[Tensor, torch.dtype], Tensor]) -> Callable[[Operation], Execute]:
    def make(operation: Operation) -> Execute:
        dtype = operation.made[0].dtype
        return overflow.handing_on(lambda x: function(x, dtype), operation)

    return make


def moving(change: Callable[[Operation], Callable[[Tensor], Tensor]]) -> Callable[[Operation], Execute]:
    """The same numbers, otherwise arranged."""

    def make(operation: Operation) -> Execute:
        function, (operand,), (result,) = change(operation), operation.operands, operation.results

        def execute(machine: Any, operation: Operation, frame: Frame) -> None:
            value = frame[operand]
            frame.values[result] = value.like(function(value.data))

        return execute

    return make


def splat(operation: Operation) -> Callable[[Tensor], Tensor]:
    ones = (1,) * len(operation.made[0].shape)
    return lambda x: x.reshape(x.shape[0], *ones)


def expand(operation: Operation) -> Callable[[Tensor], Tensor]:
    axis = block_operations.axis_of(operation) + 1
    return lambda x: x.unsqueeze(axis)


def reshape(operation: Operation) -> Callable[[Tensor], Tensor]:
    origin, target = operation.types
    return lambda x: x.expand(x.shape[0], *origin.shape).reshape(x.shape[0], *target.shape)


def transpose(operation: Operation) -> Callable[[Tensor], Tensor]:
    order = [0, *(axis + 1 for axis in order_of(operation))]
    return lambda x: x.permute(order)


def fixed(number: Callable[[Operation], Tensor]) -> Callable[[Operation], Execute]:
    """A value that is the same for all programs and launches."""

    def make(operation: Operation) -> Execute:
        value, (result,) = Value(number(operation)), operation.results

        def execute(machine: Any, operation: Operation, frame: Frame) -> None:
            frame.values[result] = value

        return execute

    return make


def constant_value(operation: Operation) -> Tensor:
    (kind,) = operation.made
    text = operation.body.partition(" : ")[0].strip()
    if text.startswith("dense<"):
        text = text[6:-1]
    return torch.full((1, *(1,) * len(kind.shape)), number_of(text, kind, operation), dtype=kind.dtype)


DECIMAL = re.compile(r"-?\d+\.\d*(?:[eE][+-]?\d+)?", re.ASCII)
WHOLE = re.compile(r"-?\d{1,20}", re.ASCII)
HEXADECIMAL = re.compile(r"0x[0-9A-F]{1,16}", re.ASCII)
OF_WIDTH = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}


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


def count_up(operation: Operation) -> Execute:
    (start, end), (result,) = range_of(operation), operation.results

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        made = frame.values[result] = Value(torch.arange(start, end, dtype=torch.int32)[None])
        made.limits = start, end - 1

    return execute


def poison_value(operation: Operation) -> Tensor:
    (kind,) = operation.made
    return torch.full(
        (1, *(1,) * len(kind.shape)), float("nan") if kind.dtype.is_floating_point else 0, dtype=kind.dtype
    )


def program_id(operation: Operation) -> Execute:
    axis, (result,) = "xyz".index(operation.body.strip()[0]), operation.results

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        frame.values[result] = Value(machine.places[axis][frame.numbers])

    return execute


def program_count(operation: Operation) -> Execute:
    axis, (result,) = "xyz".index(operation.body.strip()[0]), operation.results

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        frame.values[result] = Value(torch.tensor([machine.launch_now.grid[axis]], dtype=torch.int32))

    return execute


def choose(operation: Operation) -> Execute:
    (condition, yes, no), (result,) = operation.operands, operation.results
    kind = operation.made[0]

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        chosen, a, b = frame[condition], frame[yes], frame[no]
        data = spread(chosen, kind) if chosen.data.dim() == 1 and kind.shape else chosen.data
        made = Value(torch.where(data, a.data, b.data), a.buffer if a.buffer is b.buffer else None)
        made.wrapped = a.wrapped or b.wrapped
        frame.values[result] = made

    return execute


def predicate(functions: Callable[[str], Callable[[Tensor, Tensor], Tensor]]) -> Callable[[Operation], Execute]:
    def make(operation: Operation) -> Execute:
        name = operation.body.strip().partition(",")[0]
        try:
            function = functions(name)
        except KeyError:
            raise NotIR(f"`{operation.name}` has no predicate `{name}`") from None
        if operation.name == "arith.cmpi" and name[0] == "s":
            return overflow.using(function, operation, compares=True)
        return elementwise(function)(operation)

    return make


def move_pointer(operation: Operation) -> Execute:
    (pointer, offset), (result,) = operation.operands, operation.results
    itemsize = operation.types[0].pointee.itemsize

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        start, steps = frame[pointer], frame[offset]
        if steps.wrapped:
            overflow.report(machine, steps)
        moved = steps.data.to(torch.int64)
        frame.values[result] = Value(start.data + (moved * itemsize if itemsize > 1 else moved), start.buffer)

    return execute


def cast_bits(operation: Operation) -> Execute:
    (operand,), (result,), (kind,) = operation.operands, operation.results, operation.made
    origin = operation.types[0]
    keeps = kind.kind == "number" or origin.pointee.itemsize == kind.pointee.itemsize

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        value = frame[operand]
        if kind.kind == "pointer":
            machine.aligned = machine.aligned and keeps
            frame.values[result] = Value(value.data, value.buffer if keeps else None)
        else:
            frame.values[result] = Value(arithmetic.same_bits(value.data, kind.dtype))

    return execute


def pointer_of_number(operation: Operation) -> Execute:
    (operand,), (result,) = operation.operands, operation.results

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        machine.aligned = False
        frame.values[result] = Value(frame[operand].data)

    return execute


def joined(operation: Operation) -> Execute:
    (first, second), (result,) = operation.operands, operation.results

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        a, b = torch.broadcast_tensors(frame[first].data, frame[second].data)
        frame.values[result] = Value(torch.stack([a, b], -1))

    return execute


def concatenated(operation: Operation) -> Execute:
    (first, second), (result,) = operation.operands, operation.results
    shape = operation.types[0].shape

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        a, b = frame[first].data, frame[second].data
        count = max(a.shape[0], b.shape[0])
        frame.values[result] = Value(torch.cat([a.expand(count, *shape), b.expand(count, *shape)], 1))

    return execute


def halves(operation: Operation) -> Execute:
    (operand,), (first, second) = operation.operands, operation.results
    shape = operation.types[0].shape

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        data = frame[operand].data
        whole = data.expand(*data.shape[:-1], shape[-1])
        frame.values[first], frame.values[second] = Value(whole[..., 0]), Value(whole[..., 1])

    return execute


def rounding(operation: Operation) -> Execute:
    dtype, towards_zero = operation.made[0].dtype, "rtz" in operation.body or "toward_zero" in operation.body
    return elementwise(lambda x: arithmetic.to_float(x, dtype, towards_zero))(operation)


def clamping(operation: Operation) -> Execute:
    propagate = "propagateNan = all" in operation.body
    return elementwise(lambda x, low, high: arithmetic.clamped(x, low, high, propagate))(operation)


def checked_assert(operation: Operation) -> Execute:
    (operand,) = operation.operands

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        if not bool(frame[operand].data.all()):
            machine.assertion_failed(operation, frame, frame[operand])

    return execute


def printed(operation: Operation) -> Execute:
    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        machine.print_values(operation, frame)

    return execute


def nothing(operation: Operation) -> Execute:
    return lambda machine, operation, frame: None


def barrier(operation: Operation) -> Execute:
    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        machine.hear("barrier", frame)

    return execute


def math_function(function: Callable[[Tensor], Tensor]) -> Entry:
    return Entry("same", same(1, {"f32", "f64", "f16", "bf16"}), elementwise(arithmetic.steady(function)))


def integer(count: int, function: Callable[..., Tensor]) -> Entry:
    return Entry("same", same(count, INTEGERS), elementwise(function))


def floating(count: int, function: Callable[..., Tensor]) -> Entry:
    return Entry("same", same(count, FLOATS), elementwise(function))


def converted(origins: set[str], targets: set[str], function: Callable[[Tensor, torch.dtype], Tensor]) -> Entry:
    return Entry("cast", cast(origins, targets), converting(function))


def wrapping(function: Callable[..., Tensor], wraps: Callable[..., Tensor]) -> Entry:
    return Entry("same", same(2, INTEGERS), lambda operation: overflow.noticing(function, wraps, operation))


TABLE: dict[str, Entry] = {
    # integers
    "arith.addi": wrapping(arithmetic.add, overflow.sum_wraps),
    "arith.subi": wrapping(arithmetic.subtract, overflow.difference_wraps),
    "arith.muli": wrapping(torch.mul, overflow.product_wraps),
    "arith.shli": wrapping(lambda a, b: arithmetic.shifted(a, b, "left"), overflow.shift_wraps),
    "arith.shrsi": integer(2, lambda a, b: arithmetic.shifted(a, b, "right")),
    "arith.shrui": integer(2, lambda a, b: arithmetic.shifted(a, b, "unsigned")),
    "arith.divsi": Entry("same", same(2, INTEGERS), lambda operation: overflow.handing_on(
        lambda a, b: arithmetic.divided(a, b, False), operation)),
    "arith.remsi": integer(2, lambda a, b: arithmetic.divided(a, b, True)),
    "arith.divui": integer(2, lambda a, b: arithmetic.divided_unsigned(a, b, False)),
    "arith.remui": integer(2, lambda a, b: arithmetic.divided_unsigned(a, b, True)),
    "arith.andi": integer(2, torch.bitwise_and),
    "arith.ori": integer(2, torch.bitwise_or),
    "arith.xori": integer(2, torch.bitwise_xor),
    "arith.maxsi": Entry("same", same(2, INTEGERS), lambda operation: overflow.using(
        arithmetic.chosen_by(arithmetic.signed, True), operation)),
    "arith.minsi": Entry("same", same(2, INTEGERS), lambda operation: overflow.using(
        arithmetic.chosen_by(arithmetic.signed, False), operation)),
    "arith.maxui": integer(2, arithmetic.chosen_by(arithmetic.ordered, True)),
    "arith.minui": integer(2, arithmetic.chosen_by(arithmetic.ordered, False)),
    "math.absi": integer(1, torch.abs),
    "tt.mulhiui": integer(2, arithmetic.high_product),
    "arith.cmpi": Entry("compare", compare(INTEGERS), predicate(arithmetic.compared)),
    # floats
    "arith.addf": floating(2, torch.add),
    "arith.subf": floating(2, torch.sub),
    "arith.mulf": floating(2, torch.mul),
    "arith.divf": floating(2, torch.div),
    "arith.remf": floating(2, arithmetic.remainder),
    "arith.negf": floating(1, torch.neg),
    "tt.precise_divf": floating(2, torch.div),
    "tt.approx_divf": floating(2, torch.div),
    "arith.maxnumf": floating(2, arithmetic.fmax),
    "arith.minnumf": floating(2, arithmetic.fmin),
    "arith.maximumf": floating(2, arithmetic.maximum),
    "arith.minimumf": floating(2, arithmetic.minimum),
    "arith.cmpf": Entry("compare", compare(FLOATS), predicate(arithmetic.compared_floats)),
    "math.absf": floating(1, torch.abs),
    "math.floor": floating(1, arithmetic.without_subnormals(torch.floor)),
    "math.ceil": floating(1, arithmetic.without_subnormals(torch.ceil)),
    "math.fma": floating(3, arithmetic.fused),
    "math.sqrt": floating(1, arithmetic.without_subnormals(arithmetic.root)),
    "tt.precise_sqrt": floating(1, arithmetic.root),
    "math.rsqrt": math_function(arithmetic.without_subnormals(torch.rsqrt)),
    "math.exp": math_function(torch.exp),
    "math.exp2": math_function(torch.exp2),
    "math.log": math_function(torch.log),
    "math.log2": math_function(torch.log2),
    "math.sin": math_function(torch.sin),
    "math.cos": math_function(torch.cos),
    "math.tanh": math_function(torch.tanh),
    "math.erf": math_function(torch.erf),
    "tt.clampf": Entry("clamp", clamp, clamping),
    "tt.extern_elementwise": Entry("extern", extern, lambda operation: elementwise(
        block_operations.LIBDEVICE[operation.attributes["symbol"].strip('"')].function)(operation)),
    # conversions
    "arith.extsi": converted(INTEGERS, INTEGERS, arithmetic.extended),
    "arith.extui": converted(INTEGERS, INTEGERS, arithmetic.extended_unsigned),
    "arith.trunci": converted(INTEGERS, INTEGERS, arithmetic.cut),
    "arith.sitofp": converted(INTEGERS, FLOATS, arithmetic.extended),
    "arith.uitofp": converted(INTEGERS, FLOATS, arithmetic.float_of_unsigned),
    "arith.fptosi": converted(FLOATS, INTEGERS, arithmetic.whole_number),
    "arith.fptoui": converted(FLOATS, INTEGERS, arithmetic.whole_number_unsigned),
    "arith.extf": converted(FLOATS | EIGHT_BITS, FLOATS, arithmetic.to_float),
    "arith.truncf": Entry("cast", cast(FLOATS, FLOATS | EIGHT_BITS), rounding),
    "tt.fp_to_fp": Entry("cast", cast(FLOATS | EIGHT_BITS, FLOATS | EIGHT_BITS), rounding),
    "arith.bitcast": Entry("cast", bitcast, cast_bits),
    "tt.bitcast": Entry("cast", bitcast, cast_bits),
    "tt.int_to_ptr": Entry("cast", int_to_ptr, pointer_of_number),
    "tt.ptr_to_int": Entry("cast", int_to_ptr, pointer_of_number),
    # what comes from nothing
    "arith.constant": Entry("constant", constant, fixed(constant_value)),
    "ub.poison": Entry("none", made_of_nothing, fixed(poison_value)),
    "tt.make_range": Entry("range", make_range, count_up),
    "tt.get_program_id": Entry("axis", made_of_nothing, program_id),
    "tt.get_num_programs": Entry("axis", made_of_nothing, program_count),
    # other arrangements of the same numbers
    "arith.select": Entry("select", select, choose),
    "tt.splat": Entry("change", reshaping(lambda operation, a, b: not a.shape and b.shape), moving(splat)),
    "tt.expand_dims": Entry("change", reshaping(expanded), moving(expand)),
    "tt.broadcast": Entry("change", reshaping(broadcast), moving(lambda operation: lambda x: x)),
    "tt.reshape": Entry("change", reshaping(lambda operation, a, b: a.elements == b.elements), moving(reshape)),
    "tt.trans": Entry("change", reshaping(transposed), moving(transpose)),
    "tt.unsplat": Entry("same", unsplat, moving(lambda operation: lambda x: x.reshape(x.shape[0]))),
    "tt.join": Entry("change", join, joined),
    "tt.cat": Entry("change", cat, concatenated),
    "tt.split": Entry("change", split, halves),
    "tt.gather": Entry("gather", block_operations.gather_rule, block_operations.gather),
    "tt.histogram": Entry("change", block_operations.histogram_rule, block_operations.histogram),
    # products, reductions and scans
    "tt.dot": Entry("dot", block_operations.dot_rule, block_operations.dot),
    "tt.dot_scaled": Entry("scaled", block_operations.scaled_rule, block_operations.scaled),
    "tt.reduce": Entry("reduce", block_operations.reduce_rule, block_operations.reduce),
    "tt.scan": Entry("reduce", block_operations.scan_rule, block_operations.scan),
    "tt.map_elementwise": Entry("elementwise", block_operations.map_rule, block_operations.map_elements),
    # memory
    "tt.addptr": Entry("pointer", addptr, move_pointer),
    "tt.load": Entry("memory", accesses.load_rule, accesses.load),
    "tt.store": Entry("memory", accesses.store_rule, accesses.store),
    "tt.atomic_rmw": Entry("atomic", accesses.atomic_rule, accesses.atomic),
    "tt.atomic_cas": Entry("atomic", accesses.cas_rule, accesses.compare_and_swap),
    "tt.atomic_load": Entry("atomic load", accesses.atomic_load_rule, accesses.load),
    "tt.atomic_store": Entry("atomic store", accesses.store_rule, accesses.store),
    "tt.make_tensor_descriptor": Entry("descriptor", descriptors.make_rule, descriptors.make),
    "tt.descriptor_load": Entry("described load", descriptors.load_rule, descriptors.load),
    "tt.descriptor_store": Entry("described store", descriptors.store_rule, descriptors.store),
    "tt.descriptor_reduce": Entry("described reduce", descriptors.reduce_rule, descriptors.reduce),
    "tt.descriptor_gather": Entry("described gather", descriptors.gather_rule, descriptors.gather),
    "tt.descriptor_scatter": Entry("described scatter", descriptors.scatter_rule, descriptors.scatter),
    # what makes no value
    "tt.print": Entry("print", effect(), printed),
    "tt.assert": Entry("assert", assertion, checked_assert),
    "llvm.intr.assume": Entry("assume", assertion, nothing),
    "tt.grid_dependency_wait": Entry("barrier", effect(), nothing),
    "tt.grid_dependency_launch_dependents": Entry("barrier", effect(), nothing),
    "gpu.barrier": Entry("barrier", effect(), barrier),
    "ttg.barrier": Entry("barrier", effect(), barrier),
}  # fmt: skip
