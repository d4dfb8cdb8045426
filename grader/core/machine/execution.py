"""Executes a kernel's IR for all programs of a launch at once.

Programs that go another way are parted and put together again: a loop sorts them by their rounds, a condition splits
them, an early return leaves. Nothing that a program computes depends on which others run beside it. Method: execution
of divergent threads under a mask (Coon and Lindholm, US patent 7,353,369, describes it for GPUs), with rows in its
place.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from numpy import array2string
from torch import Tensor

from grader.core.machine import arithmetic
from grader.core.machine import type_check as checking
from grader.core.machine.batch import Frame, Value, joined
from grader.core.machine.buffers import Memory
from grader.core.machine.descriptors import Described
from grader.core.machine.observer import Launch, Observer
from grader.core.machine.text import DTYPES, Function, Module, NotIR, Operation, Region, operations_in, parse
from grader.core.machine.type_check import callee, loop_names, operands_of, targets_of, while_names
from grader.core.protocol.program import Refused

# Most of what one launch may take; a case of the course takes at most a tenth of either. So many steps take 10 to 20 s.
STEPS = 3_000_000  # operations, each for any number of programs
ELEMENTS = 8_000_000_000  # numbers that these operations make
PROGRAMS = 1 << 21
MANY = (1 << 62) - 1  # rounds
CHUNK_BYTES = 1 << 22  # of one block, in all programs that run together
PRINTED = 20  # lines of one launch

ENDLESS = "the kernel does not end: after {} operations its loop still runs. Does each round change what it waits for?"


class Stopped(Exception):
    """A launch that does not go on. text: why, for the student; line: where in the submission, or None."""

    def __init__(self, text: str, where: str) -> None:
        super().__init__(text)
        self.where = where


class Endless(Stopped):
    """Its operations were counted, and there were too many."""


class AssertionFailed(Stopped):
    """A tl.device_assert does not hold."""


@functools.lru_cache(maxsize=256)
def load(text: str, entry: str) -> Module:
    """The checked module of a text; the same text is parsed once."""
    try:
        module = parse(text, checking.FORMS)
        checking.check(module, entry)
    except RecursionError:
        raise NotIR("functions that call each other too deep") from None
    return module


class Machine:
    """One kernel. observers hear of its launches; memory: what the launch that runs may touch.

    one_by_one: each program ends before the next begins. backwards: those with larger numbers come first.
    """

    backwards = False

    def __init__(self, text: str, entry: str, observers: Sequence[Observer] = ()) -> None:
        self.module, self.entry = load(text, entry), entry
        self.observers = list(observers)
        self.after = {
            name: [observer for observer in self.observers if name in observer.operations or "*" in observer.operations]
            for name in checking.FORMS
        }
        self.rounds = [x for x in self.observers if type(x).begin_round is not Observer.begin_round]
        self.one_by_one = waits_for_others(self.module)
        self.printed: list[str] = []
        self.memory = Memory({}, {})
        self.asked: dict[int, int] = {}

    @property
    def function(self) -> Function:
        return self.module.functions[self.entry]

    # Launches --------------------------------------------------------------------------------------------------------

    def launch(
        self, grid: tuple[int, int, int], arguments: Sequence[Any], chunk: int | None = None,
        memory: Memory | None = None, names: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """Run all programs; what they store is in the arguments' tensors. chunk: the most that run together.

        arguments: tensors, numbers and descriptors in the function's order. names: of the arguments, as the student
        knows them.
        """
        function = self.function
        if len(arguments) != len(function.arguments):
            raise NotIR(f"{len(arguments)} arguments for a function that takes {len(function.arguments)}")
        names = names or [name.lstrip("%") for name in function.arguments]
        self.memory = memory or Memory({}, {})
        tensors = [(name, getattr(x, "base", x)) for name, x in zip(names, arguments, strict=True)]
        self.memory.place([(name, x) for name, x in tensors if isinstance(x, torch.Tensor)])
        self.steps, self.elements, self.asked = 0, 0, {}
        self.aligned = True
        values = [self.argument(x, kind) for x, kind in zip(arguments, function.types, strict=True)]
        given = dict(zip(function.arguments, values, strict=True))
        self.launch_now = Launch(self.entry, grid, self.memory.buffers, self.module, given)
        programs = self.launch_now.programs
        if programs > PROGRAMS or min(grid) < 0:
            raise Refused(f"a grid of {programs:,} programs: the machine runs {PROGRAMS:,} at most")
        try:
            self.run_programs(chunk)
        except RecursionError:
            raise Stopped("functions, loops and returns are too deep in each other", "") from None

    def run_programs(self, chunk: int | None) -> None:
        launch = self.launch_now
        for observer in self.observers:
            observer.begin_launch(launch)
        together = 1 if self.one_by_one else chunk or self.chunk()
        every, (x, y, _) = torch.arange(launch.programs), launch.grid
        self.places = [(every % x).int(), (every // x % y).int(), (every // (x * y)).int()] if len(every) else []
        for start in range(0, len(every), together)[:: -1 if self.backwards else 1]:
            frame = Frame(every[start : start + together])
            frame.values.update(launch.arguments)
            self.run_from(self.function.body, 0, frame)
        for observer in self.observers:
            observer.end_launch(launch)

    def argument(self, given: Any, kind: Any) -> Value:
        """An argument of the launch as a value; raises NotIR where it does not fit the function's."""
        if kind.kind == "pointer":
            if not isinstance(given, torch.Tensor):
                raise NotIR("a number where the kernel takes a pointer")
            buffer = self.memory.of(given)
            address = buffer.address(given)
            if address % kind.pointee.itemsize:
                self.aligned = False
            return Value(torch.tensor([address]), buffer)
        if kind.kind == "descriptor":
            if not hasattr(given, "base") or not len(given.shape) == len(given.strides) == len(kind.shape):
                raise NotIR("no descriptor of so many dimensions where the kernel takes one")
            base = self.memory.of(given.base)
            self.aligned &= base.address(given.base) % DTYPES[kind.element].itemsize == 0
            shape, strides = ([torch.tensor([size]) for size in each] for each in (given.shape, given.strides))
            padding = float("nan") if given.padding == "nan" else 0.0
            return Described(Value(torch.tensor([base.address(given.base)]), base), shape, strides, padding)
        wanted = bool | int | float if kind.dtype.is_floating_point else bool | int
        if not isinstance(given, wanted) or not -(1 << 63) <= (0 if isinstance(given, float) else given) < 1 << 64:
            raise NotIR(f"a {type(given).__name__} where the kernel takes `{kind.text}`")
        try:
            return Value(torch.tensor([given], dtype=kind.dtype))
        except (RuntimeError, OverflowError):
            wrapped = torch.tensor([given - (1 << 64) if given >= 1 << 63 else given]).to(kind.dtype)
            return Value(wrapped)  # an unsigned number

    def chunk(self) -> int:
        """How many programs run together: so many that one value of all of them fits in a processor's cache."""
        widest = max((kind.elements * kind.dtype.itemsize for kind in self.made()), default=1)
        return max(1, min(CHUNK_BYTES // max(1, widest), checking.HELD // max(1, self.module.bytes)))

    def made(self) -> list[Any]:
        every = (operations_in(function.body) for function in self.module.functions.values())
        return [kind for operations in every for operation in operations for kind in operation.made]

    # Blocks ----------------------------------------------------------------------------------------------------------

    def run_from(self, region: Region, at: int, frame: Frame) -> list[Value]:
        """A function's body from one of its blocks, which may jump; what it returns."""
        while True:
            block = region.blocks[at]
            leave = self.run_operations(block.operations, frame)
            if leave.name == "tt.return":
                return [frame[name] for name in leave.operands]
            targets = targets_of(leave)
            if leave.name == "cf.cond_br":
                condition = frame[leave.operands[0]].data
                ways = [place for place in (condition.nonzero().flatten(), (~condition).nonzero().flatten())]
                if condition.shape[0] == 1 or not all(map(len, ways)):
                    targets = [targets[0 if bool(condition.any()) else 1]]
                else:
                    return self.both_ways(region, list(zip(ways, targets, strict=True)), frame)
            at = self.enter(region, targets[0], frame, frame)

    def both_ways(self, region: Region, ways: list[tuple[Tensor, Any]], frame: Frame) -> list[Value]:
        returned = []
        for places, target in ways:
            some = frame.some(places)
            returned.append((places, self.run_from(region, self.enter(region, target, some, some), some)))
        count = len(returned[0][1])
        return [joined([(places, values[i]) for places, values in returned], frame.count) for i in range(count)]

    @staticmethod
    def enter(region: Region, target: tuple[str, tuple[str, ...]], origin: Frame, frame: Frame) -> int:
        label, names = target
        at = region.places[label]
        values = [origin[name] for name in names]
        frame.values.update(zip(region.blocks[at].arguments, values, strict=True))
        return at

    def run_region(self, region: Region, frame: Frame) -> list[Value]:
        """The one block of a loop or a condition; the values that leave it."""
        operations = region.blocks[0].operations
        if not operations:
            return []
        leave = self.run_operations(operations, frame)
        return [frame[name] for name in leave.operands] if leave.name in checking.ENDS else []

    def run_operations(self, operations: list[Operation], frame: Frame) -> Operation:
        """All but the last, which leaves the block and is returned."""
        after = self.after
        for operation in operations:
            execute = operation.execute
            if execute is not None:
                execute(self, operation, frame)  # type: ignore[operator]
                self.steps += 1
                if operation.results:
                    self.elements += frame.count * operation.made[0].elements
            elif operation.name in checking.ENDS:
                self.steps += 1
                self.count(operation)
                return operation
            else:
                STRUCTURED[operation.name](self, operation, frame)
            for observer in after[operation.name]:
                observer.after(operation, frame)
        self.count(operations[-1])
        return operations[-1]

    def count(self, operation: Operation) -> None:
        if self.steps > STEPS or self.elements > ELEMENTS:
            raise Endless(ENDLESS.format(f"{self.steps:,}"), operation.where)

    # Loops, conditions, calls ----------------------------------------------------------------------------------------

    def run_for(self, operation: Operation, frame: Frame) -> None:
        low, high, step, *carried = (frame[name] for name in operands_of(operation))
        index, names = loop_names(operation)
        body = operation.regions[0]
        if low.data.shape[0] == high.data.shape[0] == step.data.shape[0] == 1:
            start, end, stride = int(low.data), int(high.data), int(step.data)
            self.need_step(stride, operation)
            for number in range(start, end, stride):
                inner = frame.inner()
                inner.values[index] = Value(torch.tensor([number], dtype=low.data.dtype))
                inner.values.update(zip(names, carried, strict=True))
                self.begin_round(operation, inner, number == start)
                carried = self.run_region(body, inner)
                self.steps += 1
                self.count(operation)
            frame.values.update(zip(operation.results, carried, strict=True))
            return
        self.run_uneven(operation, frame, low.data, high.data, step.data, carried)

    def need_step(self, smallest: int, operation: Operation) -> None:
        if smallest <= 0:
            raise Stopped("a loop whose step is not above 0 has no end on a GPU", operation.where)

    def run_uneven(
        self, operation: Operation, frame: Frame, low: Tensor, high: Tensor, step: Tensor, carried: list[Value]
    ) -> None:
        """Programs sorted by their number of rounds, so that those that still run come first."""
        index, names = loop_names(operation)
        low, high, step = (x.expand(frame.count).to(torch.int64) for x in (low, high, step))
        self.need_step(int(step.min()), operation)
        rounds = arithmetic.divided_unsigned(high - low - 1, step, False)  # of a distance of up to 64 bits
        rounds = torch.where(high > low, torch.where(rounds < 0, MANY, rounds) + 1, 0)
        order = torch.argsort(rounds, descending=True, stable=True)
        left = rounds[order]
        sorted_frame, running = frame.some(order), frame.count
        low, step = low[order], step[order]
        values = [value.rows(order) for value in carried]
        done: list[tuple[Tensor, list[Value]]] = []
        inner, number = sorted_frame, 0
        dtype = frame[operands_of(operation)[0]].data.dtype
        while True:
            still = int((left > number).sum())
            if still < running:
                leaving = torch.arange(still, running)
                done.append((order[still:running], [value.rows(leaving) for value in values]))
                values = [value.first(still) for value in values]
                running, inner = still, sorted_frame.prefix(still)
            if not running:
                break
            one_round = inner.inner()
            one_round.values[index] = Value((low[:running] + number * step[:running]).to(dtype))
            one_round.values.update(zip(names, values, strict=True))
            self.begin_round(operation, one_round, number == 0)
            values = self.run_region(operation.regions[0], one_round)
            number += 1
            self.steps += 1
            self.elements += running * (1 + len(values))
            self.count(operation)
        for i, name in enumerate(operation.results):
            frame.values[name] = joined([(places, each[i]) for places, each in done], frame.count)

    def run_if(self, operation: Operation, frame: Frame) -> None:
        condition = frame[operation.operands[0]].data
        ways = list(operation.regions) + [Region([])] * (2 - len(operation.regions))
        if condition.shape[0] == 1 or bool((condition == condition[0]).all()):
            region = ways[0 if bool(condition[0]) else 1]
            made = self.run_region(region, frame.inner()) if region.blocks else []
            frame.values.update(zip(operation.results, made, strict=True))
            return
        parts = []
        for region, places in zip(ways, (condition.nonzero().flatten(), (~condition).nonzero().flatten()), strict=True):
            made = self.run_region(region, frame.some(places)) if region.blocks else []
            parts.append((places, made))
        for i, name in enumerate(operation.results):
            frame.values[name] = joined([(places, made[i]) for places, made in parts], frame.count)

    def run_while(self, operation: Operation, frame: Frame) -> None:
        before, after = operation.regions
        values = [frame[name] for name in operands_of(operation)]
        names = while_names(operation)
        places = torch.arange(frame.count)
        inner, done, first = frame, list[tuple[Tensor, list[Value]]](), True
        while True:
            trying = inner.inner()
            trying.values.update(zip(names, values, strict=True))
            self.begin_round(operation, trying, first)
            first = False
            condition, *values = self.run_region(before, trying)
            again = condition.data.expand(inner.count)
            stay, leave = again.nonzero().flatten(), (~again).nonzero().flatten()
            if len(leave):
                done.append((places[leave], [value.rows(leave) for value in values]))
                if not len(stay):
                    break
                places = places[stay]
                values = [value.rows(stay) for value in values]
                inner = frame.some(places)
            body = inner.inner()
            body.values.update(zip(after.entry.arguments, values, strict=True))
            values = self.run_region(after, body)
            self.steps += 1
            self.elements += inner.count * (1 + len(values))
            self.count(operation)
        for i, name in enumerate(operation.results):
            frame.values[name] = joined([(at, each[i]) for at, each in done], frame.count)

    def run_call(self, operation: Operation, frame: Frame) -> None:
        function = self.module.functions[callee(operation)]
        inner = Frame(frame.numbers)
        inner.values.update(zip(function.arguments, (frame[name] for name in operation.operands), strict=True))
        frame.values.update(zip(operation.results, self.run_from(function.body, 0, inner), strict=True))

    # What operations ask for -----------------------------------------------------------------------------------------

    def hear(self, what: str, *about: Any) -> None:
        for observer in self.observers:
            getattr(observer, what)(*about)

    def begin_round(self, operation: Operation, frame: Frame, first: bool) -> None:
        for observer in self.rounds:
            observer.begin_round(operation, frame, first)

    def rank_of_asking(self, numbers: Tensor, asking: Tensor) -> Tensor:
        """(programs,): how many programs had undefined lanes before it first did; of some together by their numbers."""
        for number in sorted(numbers[asking].tolist()):
            self.asked.setdefault(number, len(self.asked))
        return torch.tensor([self.asked.get(number, 0) for number in numbers.tolist()])

    def broken_rule(self, operation: Operation, frame: Frame, what: str) -> None:
        raise Stopped(f"{what}: on a GPU nobody knows what comes of it", operation.where)

    def assertion_failed(self, operation: Operation, frame: Frame, value: Value) -> None:
        text = operation.attributes.get("text", "").strip('"')
        raise AssertionFailed(
            f"tl.device_assert failed: {text}" if text else "tl.device_assert failed", operation.where
        )

    def print_values(self, operation: Operation, frame: Frame) -> None:
        """Of program 0 alone, and few lines."""
        first = (frame.numbers == 0).nonzero().flatten()
        if not len(first) or len(self.printed) >= PRINTED:
            return
        text = operation.attributes.get("text", "").strip('"')
        shown = [in_short(frame[name].rows(first).data[0]) for name in operation.operands]
        self.printed += (text.removeprefix(": ") + ", ".join(shown)).split("\n")[: PRINTED - len(self.printed)]


def in_short(block: Tensor) -> str:
    """A block as text; of a large one its corners."""
    numbers = block.to(torch.float32 if block.is_floating_point() else block.dtype).numpy()
    return array2string(numbers, threshold=64, precision=4, max_line_width=110)


STRUCTURED = {
    "scf.for": Machine.run_for, "scf.if": Machine.run_if, "scf.while": Machine.run_while, "tt.call": Machine.run_call,
}  # fmt: skip


def waits_for_others(module: Module) -> bool:
    """True where a loop asks memory whether it may go on, as a lock does: programs run one by one then."""
    loops = [
        operation for function in module.functions.values() for operation in operations_in(function.body)
        if operation.name == "scf.while"
    ]  # fmt: skip
    return any(inner.name.startswith("tt.atomic_") for loop in loops for region in loop.regions
               for inner in operations_in(region))  # fmt: skip
