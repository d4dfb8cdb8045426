"""Every operation of Triton's IR that the machine runs: its form in the text, the types that it makes, its function.

What is not in TABLE is refused by its name. Tests: grader/tests/core/machine has, for each, a kernel that contains it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grader.core.machine import accesses, arithmetic, block_operations, block_rules, descriptors, overflow, rules
from grader.core.machine.batch import Frame, Stopped, Value
from grader.core.machine.combining import MAXIMUM, MINIMUM
from grader.core.machine.rules import EIGHT_BITS, FLOATS, INTEGERS, Rule
from grader.core.machine.text import Operation

Run = Callable[..., Any]


@dataclass(frozen=True)
class Entry:
    """form: a key of parser.FORMS. rule(operation, types of its operands): the types of its results; raises NotIR.

    run(machine, operation, frame, *values of its operands): the Value of its result; a list where there may be several;
    None where there is none.
    """

    form: str
    rule: Rule
    run: Run


def elementwise(function: Callable[..., Tensor]) -> Run:
    """Each element of the result from those in the same place of the operands."""

    def run(machine: Any, operation: Operation, frame: Frame, *values: Value) -> Value:
        return Value(function(*[value.data for value in values]))

    return run


def prepared(machine: Any, operation: Operation, frame: Frame, *values: Value) -> Value:
    """By the function that the operation's text names."""
    return Value(operation.prepared(*[value.data for value in values]))


def compare_floats(machine: Any, operation: Operation, frame: Frame, a: Value, b: Value) -> Value:
    _, function = operation.prepared
    return Value(function(a.data, b.data))


def converting(function: Callable[[Tensor, torch.dtype], Tensor]) -> Run:
    def run(machine: Any, operation: Operation, frame: Frame, value: Value) -> Value:
        made = Value(function(value.data, operation.made[0].dtype))
        made.wrapped = value.wrapped
        return made

    return run


def round_to(machine: Any, operation: Operation, frame: Frame, value: Value) -> Value:
    return Value(arithmetic.to_float(value.data, operation.made[0].dtype, operation.prepared))


def clamp(machine: Any, operation: Operation, frame: Frame, *values: Value) -> Value:
    x, low, high = (value.data for value in values)
    return Value(arithmetic.clamped(x, low, high, "propagateNan = all" in operation.body))


def constant(machine: Any, operation: Operation, frame: Frame) -> Value:
    return operation.prepared


def count_up(machine: Any, operation: Operation, frame: Frame) -> Value:
    start, end = operation.prepared
    made = Value(torch.arange(start, end, dtype=torch.int32)[None])
    made.limits = start, end - 1
    return made


def program_id(machine: Any, operation: Operation, frame: Frame) -> Value:
    return Value(machine.places[operation.prepared][frame.numbers])


def program_count(machine: Any, operation: Operation, frame: Frame) -> Value:
    return Value(torch.tensor([machine.launch_now.grid[operation.prepared]], dtype=torch.int32))


# The same numbers, otherwise arranged --------------------------------------------------------------------------------


def moving(change: Callable[[Tensor, Operation], Tensor]) -> Run:
    def run(machine: Any, operation: Operation, frame: Frame, value: Value) -> Value:
        return value.like(change(value.data, operation))

    return run


def spread(x: Tensor, operation: Operation) -> Tensor:
    """A number as a block whose axes all have size 1."""
    return x.reshape(x.shape[0], *(1,) * len(operation.made[0].shape))


def reshape(x: Tensor, operation: Operation) -> Tensor:
    origin, target = operation.types
    return x.expand(x.shape[0], *origin.shape).reshape(x.shape[0], *target.shape)


def choose(machine: Any, operation: Operation, frame: Frame, condition: Value, a: Value, b: Value) -> Value:
    data = condition.data
    if data.dim() == 1 and operation.made[0].shape:
        data = spread(data, operation)
    made = Value(torch.where(data, a.data, b.data), a.buffer if a.buffer is b.buffer else None)
    made.wrapped = a.wrapped or b.wrapped
    return made


def join(machine: Any, operation: Operation, frame: Frame, a: Value, b: Value) -> Value:
    return Value(torch.stack(torch.broadcast_tensors(a.data, b.data), -1))


def concatenate(machine: Any, operation: Operation, frame: Frame, a: Value, b: Value) -> Value:
    sizes = max(len(a.data), len(b.data)), *operation.types[0].shape
    return Value(torch.cat([a.data.expand(sizes), b.data.expand(sizes)], 1))


def split(machine: Any, operation: Operation, frame: Frame, value: Value) -> list[Value]:
    return list(map(Value, value.data.expand(*value.data.shape[:-1], 2).unbind(-1)))


# Pointers ------------------------------------------------------------------------------------------------------------


def move_pointer(machine: Any, operation: Operation, frame: Frame, pointer: Value, steps: Value) -> Value:
    overflow.use(machine, steps)
    itemsize, moved = operation.types[0].pointee.itemsize, steps.data.to(torch.int64)
    return Value(pointer.data + (moved * itemsize if itemsize > 1 else moved), pointer.buffer)


def cast_bits(machine: Any, operation: Operation, frame: Frame, value: Value) -> Value:
    origin, kind = operation.types
    if kind.kind == "number":
        return Value(arithmetic.same_bits(value.data, kind.dtype))
    keeps = origin.pointee.itemsize == kind.pointee.itemsize
    machine.aligned = machine.aligned and keeps
    return Value(value.data, value.buffer if keeps else None)


def pointer_of_number(machine: Any, operation: Operation, frame: Frame, value: Value) -> Value:
    machine.aligned = False
    return Value(value.data)


# What makes no value -------------------------------------------------------------------------------------------------


def need_all(machine: Any, operation: Operation, frame: Frame, value: Value) -> None:
    if not bool(value.data.all()):
        text = operation.attributes["text"].strip('"')
        raise Stopped(f"tl.device_assert failed: {text}" if text else "tl.device_assert failed", operation.where)


def show(machine: Any, operation: Operation, frame: Frame, *values: Value) -> None:
    machine.print_values(operation, frame, values)


def nothing(machine: Any, operation: Operation, frame: Frame, *values: Value) -> None:
    return None


def barrier(machine: Any, operation: Operation, frame: Frame) -> None:
    machine.hear("barrier", frame)


# The table -----------------------------------------------------------------------------------------------------------


def math_function(function: Callable[[Tensor], Tensor]) -> Entry:
    return floating(1, arithmetic.steady(function))


def integer(count: int, function: Callable[..., Tensor]) -> Entry:
    return Entry("same", rules.same(count, INTEGERS), elementwise(function))


def floating(count: int, function: Callable[..., Tensor]) -> Entry:
    return Entry("same", rules.same(count, FLOATS), elementwise(function))


def converted(origins: set[str], targets: set[str], function: Callable[[Tensor, torch.dtype], Tensor]) -> Entry:
    return Entry("cast", rules.cast(origins, targets), converting(function))


def wrapping(function: Callable[..., Tensor], bounds: Callable[..., overflow.Bounds]) -> Entry:
    return Entry("same", rules.same(2, INTEGERS), overflow.noticing(function, bounds))


TABLE: dict[str, Entry] = {
    # integers
    "arith.addi": wrapping(arithmetic.add, overflow.sum_bounds),
    "arith.subi": wrapping(arithmetic.subtract, overflow.difference_bounds),
    "arith.muli": wrapping(torch.mul, overflow.product_bounds),
    "arith.shli": wrapping(lambda a, b: arithmetic.shifted(a, b, "left"), overflow.shift_bounds),
    "arith.shrsi": integer(2, lambda a, b: arithmetic.shifted(a, b, "right")),
    "arith.shrui": integer(2, lambda a, b: arithmetic.shifted(a, b, "unsigned")),
    "arith.divsi": Entry("same", rules.same(2, INTEGERS), overflow.handing_on(
        lambda a, b: arithmetic.divided(a, b, False))),
    "arith.remsi": integer(2, lambda a, b: arithmetic.divided(a, b, True)),
    "arith.divui": integer(2, lambda a, b: arithmetic.divided_unsigned(a, b, False)),
    "arith.remui": integer(2, lambda a, b: arithmetic.divided_unsigned(a, b, True)),
    "arith.andi": integer(2, torch.bitwise_and),
    "arith.ori": integer(2, torch.bitwise_or),
    "arith.xori": integer(2, torch.bitwise_xor),
    "arith.maxsi": Entry("same", rules.same(2, INTEGERS), overflow.using(MAXIMUM)),
    "arith.minsi": Entry("same", rules.same(2, INTEGERS), overflow.using(MINIMUM)),
    "arith.maxui": integer(2, arithmetic.chosen_by(arithmetic.ordered, True)),
    "arith.minui": integer(2, arithmetic.chosen_by(arithmetic.ordered, False)),
    "math.absi": integer(1, torch.abs),
    "tt.mulhiui": integer(2, arithmetic.high_product),
    "arith.cmpi": Entry("compare", rules.compare(INTEGERS, arithmetic.compared), overflow.compare),
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
    "arith.cmpf": Entry("compare", rules.compare(FLOATS, arithmetic.compared_floats), compare_floats),
    "math.absf": floating(1, torch.abs),
    "math.floor": floating(1, arithmetic.without_subnormals(torch.floor)),
    "math.ceil": floating(1, arithmetic.without_subnormals(torch.ceil)),
    "math.fma": floating(3, arithmetic.fused),
    "math.sqrt": floating(1, arithmetic.without_subnormals(arithmetic.root)),
    "tt.precise_sqrt": floating(1, arithmetic.root),
    "math.rsqrt": math_function(arithmetic.without_subnormals(torch.rsqrt)),
    **{f"math.{name}": math_function(getattr(torch, name))
       for name in ("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf")},
    "tt.clampf": Entry("clamp", rules.same(3, FLOATS), clamp),
    "tt.extern_elementwise": Entry("extern", rules.extern, prepared),
    # conversions
    "arith.extsi": converted(INTEGERS, INTEGERS, arithmetic.extended),
    "arith.extui": converted(INTEGERS, INTEGERS, arithmetic.extended_unsigned),
    "arith.trunci": converted(INTEGERS, INTEGERS, arithmetic.cut),
    "arith.sitofp": converted(INTEGERS, FLOATS, arithmetic.extended),
    "arith.uitofp": converted(INTEGERS, FLOATS, arithmetic.float_of_unsigned),
    "arith.fptosi": converted(FLOATS, INTEGERS, arithmetic.whole_number),
    "arith.fptoui": converted(FLOATS, INTEGERS, arithmetic.whole_number_unsigned),
    "arith.extf": converted(FLOATS | EIGHT_BITS, FLOATS, arithmetic.to_float),
    "arith.truncf": Entry("cast", rules.cast(FLOATS, FLOATS | EIGHT_BITS), round_to),
    "tt.fp_to_fp": Entry("cast", rules.cast(FLOATS | EIGHT_BITS, FLOATS | EIGHT_BITS), round_to),
    "arith.bitcast": Entry("cast", rules.bitcast, cast_bits),
    "tt.bitcast": Entry("cast", rules.bitcast, cast_bits),
    "tt.int_to_ptr": Entry("cast", rules.int_to_ptr, pointer_of_number),
    "tt.ptr_to_int": Entry("cast", rules.int_to_ptr, pointer_of_number),
    # what comes from nothing
    "arith.constant": Entry("constant", rules.constant, constant),
    "ub.poison": Entry("none", rules.poison, constant),
    "tt.make_range": Entry("range", rules.make_range, count_up),
    "tt.get_program_id": Entry("axis", rules.of_grid, program_id),
    "tt.get_num_programs": Entry("axis", rules.of_grid, program_count),
    # other arrangements of the same numbers
    "arith.select": Entry("select", rules.select, choose),
    "tt.splat": Entry("change", rules.splat, moving(spread)),
    "tt.expand_dims": Entry("change", rules.expand, moving(lambda x, operation: x.unsqueeze(operation.prepared + 1))),
    "tt.broadcast": Entry("change", rules.broadcast, moving(lambda x, operation: x)),
    "tt.reshape": Entry("change", rules.reshape, moving(reshape)),
    "tt.trans": Entry("change", rules.transpose, moving(
        lambda x, operation: x.permute(0, *(axis + 1 for axis in operation.prepared)))),
    "tt.unsplat": Entry("same", rules.unsplat, moving(lambda x, operation: x.reshape(x.shape[0]))),
    "tt.join": Entry("change", rules.join, join),
    "tt.cat": Entry("change", rules.cat, concatenate),
    "tt.split": Entry("change", rules.split, split),
    "tt.gather": Entry("gather", block_rules.gather, block_operations.gather),
    "tt.histogram": Entry("change", block_rules.histogram, block_operations.histogram),
    # products, reductions and scans
    "tt.dot": Entry("dot", block_rules.dot, block_operations.dot),
    "tt.dot_scaled": Entry("scaled", block_rules.scaled, block_operations.scaled),
    "tt.reduce": Entry("reduce", block_rules.reduce, block_operations.reduce),
    "tt.scan": Entry("reduce", block_rules.scan, block_operations.scan),
    "tt.map_elementwise": Entry("elementwise", block_rules.map_elements, block_operations.map_elements),
    # memory
    "tt.addptr": Entry("pointer", rules.addptr, move_pointer),
    "tt.load": Entry("memory", block_rules.load, accesses.load),
    "tt.store": Entry("memory", block_rules.store, accesses.store),
    "tt.atomic_rmw": Entry("atomic", block_rules.atomic, accesses.atomic),
    "tt.atomic_cas": Entry("atomic", block_rules.compare_and_swap, accesses.compare_and_swap),
    "tt.atomic_load": Entry("atomic load", block_rules.atomic_load, accesses.load),
    "tt.atomic_store": Entry("atomic store", block_rules.store, accesses.store),
    "tt.make_tensor_descriptor": Entry("descriptor", block_rules.make_descriptor, descriptors.make),
    "tt.descriptor_load": Entry("described load", block_rules.load_described, descriptors.load),
    "tt.descriptor_store": Entry("described store", block_rules.store_described, descriptors.store),
    "tt.descriptor_reduce": Entry("described reduce", block_rules.reduce_described, descriptors.reduce),
    "tt.descriptor_gather": Entry("described gather", block_rules.gather_described, descriptors.load),
    "tt.descriptor_scatter": Entry("described scatter", block_rules.scatter_described, descriptors.store),
    # what makes no value
    "tt.print": Entry("print", rules.effect, show),
    "tt.assert": Entry("assert", rules.assertion, need_all),
    "llvm.intr.assume": Entry("assume", rules.assertion, nothing),
    "tt.grid_dependency_wait": Entry("barrier", rules.effect, nothing),
    "tt.grid_dependency_launch_dependents": Entry("barrier", rules.effect, nothing),
    "gpu.barrier": Entry("barrier", rules.effect, barrier),
    "ttg.barrier": Entry("barrier", rules.effect, barrier),
}  # fmt: skip
