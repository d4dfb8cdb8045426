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
from grader.core.machine.batch import Frame, Stopped, Value, joined
from grader.core.machine.buffers import Memory
from grader.core.machine.observer import Launch, Observer
from grader.core.machine.parser import parse
from grader.core.machine.text import Block, Function, Module, NotIR, Operation, Region, Type
from grader.core.protocol.program import Refused

# Most of what one launch may take; a case of the course takes at most a tenth of either. So many steps take 10 to 20 s.
STEPS = 3_000_000  # operations, each for any number of programs
ELEMENTS = 8_000_000_000  # numbers that these operations make
PROGRAMS = 1 << 21
MANY = (1 << 62) - 1  # rounds
CHUNK_BYTES = 1 << 22  # of one block, in all programs that run together
PRINTED = 20  # lines of one launch

ENDLESS = "the kernel does not end: after {} operations its loop still runs. Does each round change what it waits for?"


class Endless(Stopped):
    """Its operations were counted, and there were too many."""


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
        self.counting = [x for x in self.observers if type(x).ran is not Observer.ran]
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
            self.run_from(self.function.body, (0, ()), frame)
        for observer in self.observers:
            observer.end_launch(launch)

    def argument(self, given: Any, kind: Type) -> Value:
        """An argument of the launch as a value; raises NotIR where it does not fit the function's."""
        if kind.kind == "pointer":
            if not isinstance(given, torch.Tensor):
                raise NotIR("a number where the kernel takes a pointer")
            return self.address(given, kind.pointee)
        if kind.kind == "descriptor":
            if not hasattr(given, "base") or not len(given.shape) == len(given.strides) == len(kind.shape):
                raise NotIR("no descriptor of so many dimensions where the kernel takes one")
            base, numbers = self.address(given.base, kind.pointee), [*given.shape, *given.strides]
            return Value(torch.tensor([[int(base.data), int(given.padding == "nan"), *numbers]]), base.buffer)
        wanted = bool | int | float if kind.dtype.is_floating_point else bool | int
        if not isinstance(given, wanted) or not -(1 << 63) <= (0 if isinstance(given, float) else given) < 1 << 64:
            raise NotIR(f"a {type(given).__name__} where the kernel takes `{kind.text}`")
        try:
            return Value(torch.tensor([given], dtype=kind.dtype))
        except (RuntimeError, OverflowError):
            wrapped = torch.tensor([given - (1 << 64) if given >= 1 << 63 else given]).to(kind.dtype)
            return Value(wrapped)  # an unsigned number

    def address(self, tensor: Tensor, dtype: torch.dtype) -> Value:
        buffer = self.memory.of(tensor)
        address = buffer.address(tensor)
        self.aligned &= address % dtype.itemsize == 0
        return Value(torch.tensor([address]), buffer)

    def chunk(self) -> int:
        """How many programs run together: so many that one value of all of them fits in a processor's cache."""
        return max(1, min(CHUNK_BYTES // self.module.widest, checking.HELD // max(1, self.module.bytes)))

    # Blocks ----------------------------------------------------------------------------------------------------------

    def run_from(self, region: Region, target: tuple[int, tuple[str, ...]], frame: Frame) -> list[Value]:
        """A function's body from one of its blocks, which may jump; what it returns. target: as a jump has it."""
        while True:
            at, names = target
            given = [frame[name] for name in names]
            frame.values.update(zip(region.blocks[at].arguments, given, strict=True))
            leave = self.run_block(region.blocks[at], frame)
            if leave.name == "tt.return":
                return [frame[name] for name in leave.operands]
            ways = part(frame[leave.operands[0]].data) if leave.name == "cf.cond_br" else [(0, None)]
            if len(ways) > 1:
                return merge([(places, self.run_from(region, leave.prepared[way], frame.some(places)))
                              for way, places in ways], frame.count)  # fmt: skip
            target = leave.prepared[ways[0][0]]

    def run_region(self, region: Region, frame: Frame) -> list[Value]:
        """The one block of a loop, a condition or a reduction; the values that leave it."""
        return [frame[name] for name in self.run_block(region.entry, frame).operands]

    def run_block(self, block: Block, frame: Frame) -> Operation:
        """All operations but the last, which leaves the block and is returned."""
        *operations, leave = block.operations
        values, after = frame.values, self.after
        for operation in operations:
            run: Any = operation.run or STRUCTURED[operation.name]
            made = run(self, operation, frame, *[frame[name] for name in operation.operands])
            if type(made) is Value:
                values[operation.results[0]] = made
            elif made:
                values.update(zip(operation.results, made, strict=True))
            for observer in after[operation.name]:
                observer.after(operation, frame)
        for observer in self.counting:
            observer.ran(block, frame.count)
        self.steps += len(block.operations)
        self.elements += frame.count * block.elements
        self.count(leave)
        return leave

    def count(self, operation: Operation) -> None:
        if self.steps > STEPS or self.elements > ELEMENTS:
            raise Endless(ENDLESS.format(f"{self.steps:,}"), operation.where)

    # Loops, conditions, calls ----------------------------------------------------------------------------------------

    def run_for(self, operation: Operation, frame: Frame, *given: Value) -> list[Value]:
        (low, high, step), carried = (value.data for value in given[:3]), list(given[3:])
        smallest = int(step.min())
        if smallest <= 0:
            raise Stopped("a loop whose step is not above 0 has no end on a GPU", operation.where)
        (body,), dtype = operation.regions, low.dtype
        if len(low) == len(high) == len(step) == 1:
            start = int(low)
            for number in range(start, int(high), smallest):
                index = Value(torch.tensor([number], dtype=dtype))
                carried = self.round(operation, body, frame, [index, *carried], number == start)
            return carried
        low, high, step = (x.expand(frame.count).to(torch.int64) for x in (low, high, step))
        rounds = arithmetic.divided_unsigned(high - low - 1, step, False)  # of a distance of up to 64 bits
        rounds = torch.where(high > low, torch.where(rounds < 0, MANY, rounds) + 1, 0)
        running, number = Running(frame, carried), 0
        while running.keep(rounds[running.places] > number):
            index = Value((low[running.places] + number * step[running.places]).to(dtype))
            running.values = self.round(operation, body, running.frame, [index, *running.values], number == 0)
            number += 1
        return running.end()

    def run_while(self, operation: Operation, frame: Frame, *given: Value) -> list[Value]:
        before, after = operation.regions
        running, first = Running(frame, list(given)), True
        while True:
            condition, *running.values = self.round(operation, before, running.frame, running.values, first)
            if not running.keep(condition.data.expand(running.frame.count)):
                return running.end()
            inner, first = running.frame.inner(), False
            inner.values.update(zip(after.entry.arguments, running.values, strict=True))
            running.values = self.run_region(after, inner)

    def round(
        self, operation: Operation, region: Region, frame: Frame, values: list[Value], first: bool
    ) -> list[Value]:
        """One round of a loop. values: what its region is given."""
        inner = frame.inner()
        inner.values.update(zip(region.entry.arguments, values, strict=True))
        for observer in self.rounds:
            observer.begin_round(operation, inner, first)
        self.elements += frame.count * (1 + len(values))
        return self.run_region(region, inner)

    def run_if(self, operation: Operation, frame: Frame, condition: Value) -> list[Value]:
        made = []
        for way, places in part(condition.data):
            inner = frame.inner() if places is None else frame.some(places)
            made.append((places, self.run_region(operation.regions[way], inner) if operation.regions[way:] else []))
        return made[0][1] if len(made) == 1 else merge(made, frame.count)

    def run_call(self, operation: Operation, frame: Frame, *given: Value) -> list[Value]:
        body, inner = self.module.functions[operation.prepared], Frame(frame.numbers)
        inner.values.update(zip(body.arguments, given, strict=True))
        return self.run_from(body.body, (0, ()), inner)

    # What operations ask for -----------------------------------------------------------------------------------------

    def hear(self, what: str, *about: Any) -> None:
        for observer in self.observers:
            getattr(observer, what)(*about)

    def rank_of_asking(self, numbers: Tensor, asking: Tensor) -> Tensor:
        """(programs,): how many programs had undefined lanes before it first did; of some together by their numbers."""
        for number in sorted(numbers[asking].tolist()):
            self.asked.setdefault(number, len(self.asked))
        return torch.tensor([self.asked.get(number, 0) for number in numbers.tolist()])

    def print_values(self, operation: Operation, frame: Frame, values: Sequence[Value]) -> None:
        """Of program 0 alone, and few lines."""
        first = (frame.numbers == 0).nonzero().flatten()
        if not len(first) or len(self.printed) >= PRINTED:
            return
        text = operation.attributes["text"].strip('"').removeprefix(": ")
        shown = [in_short(value.rows(first).data[0]) for value in values]
        self.printed += (text + ", ".join(shown)).split("\n")[: PRINTED - len(self.printed)]


STRUCTURED = {
    "scf.for": Machine.run_for, "scf.if": Machine.run_if, "scf.while": Machine.run_while, "tt.call": Machine.run_call,
}  # fmt: skip


class Running:
    """The programs of a frame that a loop still runs for. values: what it carries; places: theirs in the frame."""

    def __init__(self, outer: Frame, values: list[Value]) -> None:
        self.outer, self.frame, self.values = outer, outer, values
        self.places = torch.arange(outer.count)
        self.left: list[tuple[Tensor, list[Value]]] = []

    def keep(self, stay: Tensor) -> bool:
        """Leave the other programs behind, with their values; False where none stays. stay: (programs,)."""
        if not bool(stay.all()):
            for here in (~stay, stay):
                rows = here.nonzero().flatten()
                self.left.append((self.places[rows], [value.rows(rows) for value in self.values]))
            self.places, self.values = self.left.pop()
            self.frame = self.outer.some(self.places)
        return len(self.places) > 0

    def end(self) -> list[Value]:
        return merge(self.left, self.outer.count)


def part(condition: Tensor) -> list[tuple[int, Any]]:
    """[(0, places of the programs for which it holds), (1, places of the others)]; where all go one way, that way
    alone, and None."""
    if len(condition) == 1 or bool((condition == condition[0]).all()):
        return [(0 if bool(condition[0]) else 1, None)]
    return [(0, condition.nonzero().flatten()), (1, (~condition).nonzero().flatten())]


def merge(parts: list[tuple[Tensor, list[Value]]], count: int) -> list[Value]:
    """The values of programs that went several ways. parts: (places of the programs, their values)."""
    return [joined([(places, values[i]) for places, values in parts], count) for i in range(len(parts[0][1]))]


def in_short(block: Tensor) -> str:
    """A block as text; of a large one its corners."""
    numbers = block.to(torch.float32 if block.is_floating_point() else block.dtype).numpy()
    return array2string(numbers, threshold=64, precision=4, max_line_width=110)


def waits_for_others(module: Module) -> bool:
    """True where a loop asks memory whether it may go on, as a lock does: programs run one by one then."""
    loops = [
        operation for function in module.functions.values() for operation in function.body.operations()
        if operation.name == "scf.while"
    ]  # fmt: skip
    return any(inner.name.startswith("tt.atomic_") for loop in loops for region in loop.regions
               for inner in region.operations())  # fmt: skip
