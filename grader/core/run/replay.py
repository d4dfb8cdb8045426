"""In the runner: a checked program executed on given inputs, by the machine, for the compiler or on a GPU."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from typing import Any

import torch
from torch.utils._pytree import tree_iter

from grader.core.protocol.messages import FailedLaunch, Shortage, TensorSpec
from grader.core.protocol.program import (
    Branch,
    Choice,
    Constant,
    Descriptor,
    Device,
    Float,
    Format,
    Free,
    Input,
    Launch,
    Made,
    Malformed,
    Operation,
    Program,
    Refused,
    Step,
    Storage,
    Tensor,
    TorchDtype,
    tensors_in,
)
from grader.core.run.allocations import POISON, fenced
from grader.core.worker import sparse


class LaunchRaised(Exception):
    """A launch raised: the wrapper may have an answer to that. number: which of the call's."""

    def __init__(self, number: int, line: int | None) -> None:
        super().__init__(f"launch {number}")
        self.number, self.line = number, line

    def failed(self, text: str) -> FailedLaunch:
        """What to tell the recorder of this launch. text: what the exception says."""
        cause: Any = self.__cause__
        short = type(cause).__name__ == "OutOfResources"
        return FailedLaunch(
            self.number, text[:2000], Shortage(cause.required, cause.limit, cause.name) if short else None
        )


class StepRaised(Exception):
    """An operation outside the kernels raised. line: in the submission's file."""

    def __init__(self, line: int | None) -> None:
        super().__init__("an operation")
        self.line = line


class ChoiceMade(Exception):
    """A configuration was chosen by trying all: the program begins anew."""


@dataclass
class StoragePlace:
    """Where a storage of the program lies: in a storage of ours, from byte `start` on, `bytes` long."""

    storage: torch.UntypedStorage
    start: int
    bytes: int


Launcher = Callable[[Launch, list[Any]], None]


@dataclass(frozen=True)
class DescriptorArgument:
    """A tensor descriptor that a launch is given."""

    base: torch.Tensor
    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    padding: str


@dataclass
class Replay:
    """A program, to be run any number of times. observer: called after each operation, or None.

    launch(step, arguments) runs or compiles one kernel. choose(choices, run) returns the index of one.
    """

    program: Program
    device: str
    launch: Launcher | None
    choose: Callable[[list[Branch], Callable[[int], Any]], int] | None = None
    observer: Callable[..., None] | None = None

    def __post_init__(self) -> None:
        self.chosen: dict[int, int] = {}
        self.places: dict[int, StoragePlace] = {}
        self.used = used_storages(self.program)

    def run(self, inputs: dict[str, StoragePlace]) -> list[Any]:
        """What the program returns: tensors, or program.Other for what is none. inputs: {name: StoragePlace}."""
        while True:
            with contextlib.suppress(ChoiceMade):
                self.begin(inputs)
                return self.call()

    def begin(self, inputs: dict[str, StoragePlace]) -> None:
        """What was done before the call, on these inputs."""
        program, self.places = self.program, {}
        for number, storage in enumerate(program.storages):
            if number in self.used and not isinstance(storage, Made):
                self.places[number] = self.given(storage, inputs)
        for at, step in zip(count(), program.setup):
            self.step(at, step)
        for number in program.stale:
            self.forget(number)

    def call(self) -> list[Any]:
        """The call itself; what it made is let go of."""
        program = self.program
        kept = dict(self.places)
        for at, step in zip(count(len(program.setup)), program.steps):
            self.step(at, step)
        returned = [self.tensor(each) if isinstance(each, Tensor) else each for each in program.returns]
        self.places = kept
        return returned

    def given(self, storage: Storage, inputs: dict[str, StoragePlace]) -> StoragePlace:
        """The place of a storage that no step makes."""
        if isinstance(storage, Input):
            if storage.name not in inputs:
                raise Malformed(f"an input named {storage.name}")
            return inputs[storage.name]
        if storage.bytes > sparse.FAR_BYTES:  # of a call before: what nobody has written is zero
            return StoragePlace(sparse.empty(storage.bytes, torch.uint8).untyped_storage(), 0, storage.bytes)
        data = torch.full((storage.bytes,), POISON, dtype=torch.uint8, device=self.device)
        if isinstance(storage, Constant) and storage.bytes:
            data.copy_(torch.frombuffer(bytearray(storage.data), dtype=torch.uint8))
        return StoragePlace(data.untyped_storage(), data.storage_offset(), storage.bytes)

    def forget(self, number: int) -> None:
        """What an earlier call left in a workspace is gone: floating-point numbers are NaN."""
        place, dtype = self.places.get(number), self.dtypes().get(number)
        if place and dtype and dtype.is_floating_point:
            whole = torch.empty(0, dtype=torch.uint8, device=self.device)
            whole.set_(place.storage, place.start, (place.bytes,), (1,)).fill_(POISON)

    def dtypes(self) -> dict[int, torch.dtype]:
        made = (step for step in self.program.setup if isinstance(step, Operation))
        return {tensor.storage: getattr(torch, tensor.dtype) for step in made for tensor in step.out}

    # Steps -----------------------------------------------------------------------------------------------------------

    def step(self, at: int, step: Step) -> None:
        if isinstance(step, Choice):
            for inner in step.branches[self.choice(at, step.branches)].steps:
                self.simple(inner)
        else:
            self.simple(step)

    def choice(self, at: int, branches: list[Branch]) -> int:
        """The configuration of a launch that was tuned: the first, or the one that `choose` finds."""
        if at not in self.chosen:
            if self.choose is None:
                self.chosen[at] = 0
            else:

                def run(i: int) -> None:
                    for inner in branches[i].steps:
                        self.simple(inner)

                self.chosen[at] = self.choose(branches, run)
                raise ChoiceMade
        return self.chosen[at]

    def simple(self, step: Operation | Launch | Free) -> None:
        if isinstance(step, Free):
            for number in step.storages:
                self.places.pop(number, None)
        elif isinstance(step, Operation):
            self.operation(step)
        else:
            try:
                self.launch(step, [self.value(value) for value in step.args])  # type: ignore[misc]  # not None here
            except (Malformed, Refused):
                raise
            except Exception as error:
                raise LaunchRaised(step.number, step.line) from error

    def operation(self, step: Operation) -> None:
        function = find_overload(step.op, step.overload)
        if function is None:
            raise Malformed("an operation that PyTorch has not")
        if not step.kwargs.keys() <= {each.name for each in function._schema.arguments if each.kwarg_only}:
            raise Malformed("an argument by its name that has a place")  # costs are read off the places
        args = self.value(step.args)
        named = {name: self.value(value) for name, value in step.kwargs.items()}
        try:
            out = function(*args, **named)
        except Exception as error:
            raise StepRaised(step.line) from error
        made = [t for t in (out if isinstance(out, tuple | list) else (out,)) if isinstance(t, torch.Tensor)]
        if len(made) != len(step.out):
            raise Malformed("an operation with other outputs than it has")
        for described, tensor in zip(step.out, made, strict=True):
            self.made(step, described, tensor)
        if self.observer:
            self.observer(step, args, named, made)

    def made(self, step: Operation, described: Tensor, tensor: torch.Tensor) -> None:
        """Note where an operation's output lies; raises Malformed where it is not what was recorded."""
        number = described.storage
        same = list(tensor.shape) == described.sizes and str(tensor.dtype)[6:] == described.dtype
        if not same or (list(tensor.stride()) != described.strides and tensor.numel() > 1):
            raise Malformed(f"another output of {step.op} than was recorded")
        size, storage = tensor.element_size(), tensor.untyped_storage()
        place = self.places.get(number)
        if place is None:
            start = (tensor.storage_offset() - described.offset) * size
            extent = self.program.storages[number].bytes
            if start < 0 or start + extent > storage.nbytes():
                raise Malformed("a storage larger than it is")
            if any(other.storage.data_ptr() == storage.data_ptr() for other in self.places.values()) and extent:
                raise Malformed("two storages that are one")
            self.places[number] = StoragePlace(storage, start, extent)
        elif place.storage.data_ptr() != storage.data_ptr() and storage.nbytes():
            raise Malformed("a storage that is made twice")

    # Values ----------------------------------------------------------------------------------------------------------

    def value(self, value: Any) -> Any:
        match value:
            case list():
                return [self.value(inner) for inner in value]
            case Tensor():
                return self.tensor(value)
            case Device():
                return torch.device(self.device)
            case Descriptor():
                return DescriptorArgument(
                    self.tensor(value.base), value.shape, value.strides, value.block, value.padding
                )
        return plain(value)

    def tensor(self, described: Tensor) -> torch.Tensor:
        """A tensor of the program as a view of where its storage lies; never outside of that."""
        sizes, strides, offset = described.sizes, described.strides, described.offset
        place = self.places.get(described.storage)
        if place is None:
            raise Malformed("a tensor that no step has made")
        with torch._C._DisableTorchDispatch():  # nothing that is counted: modes need not see it
            tensor = torch.empty(0, dtype=getattr(torch, described.dtype), device=self.device)
            size = tensor.element_size()
            last = offset + 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) if all(sizes) else 0
            if last * size > place.bytes or place.start % size:
                raise Malformed("a tensor outside its storage")
            return tensor.set_(place.storage, place.start // size + offset, sizes, strides)


def list_tensors(*values: Any) -> list[torch.Tensor]:
    """The tensors in lists, tuples and dicts."""
    return [value for value in tree_iter(values) if isinstance(value, torch.Tensor)]


def used_storages(program: Program) -> set[int]:
    """The numbers of all storages that steps and returns name."""
    named = tensors_in([program.setup, program.steps, program.returns])
    return {tensor.storage for tensor in named} | set(program.stale)


def place_inputs(
    specs: Sequence[TensorSpec], data: bytearray | None, device: str, poison: int
) -> tuple[dict[str, StoragePlace], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """({name: StoragePlace}, {name: its fenced base}, {name: the tensor}) of inputs, as TensorSpec has each.

    data: their bytes, one after the other; None where numbers do not matter. Of a sparse one, whose buffer has few
    pages, they are those of its elements, and its base is the tensor itself.
    """
    places: dict[str, StoragePlace] = {}
    bases: dict[str, torch.Tensor] = {}
    tensors: dict[str, torch.Tensor] = {}
    start = 0
    sparse.begin()
    for spec in specs:
        dtype, elements = getattr(torch, spec.dtype), spec.elements
        if spec.sparse:
            flat, held = sparse.empty(elements, dtype), prod(spec.shape)
            tensor = flat.as_strided(spec.shape, spec.strides, spec.offset)
            if data is not None:
                tensor.copy_(torch.frombuffer(data, dtype=dtype, count=held, offset=start).view(spec.shape))
            start += held * dtype.itemsize
            places[spec.name] = StoragePlace(flat.untyped_storage(), 0, elements * dtype.itemsize)
            bases[spec.name] = tensors[spec.name] = tensor
            continue
        _, base = fenced((elements,), (1,), dtype, device, poison)
        if elements and data is not None:
            base.copy_(torch.frombuffer(data, dtype=dtype, count=elements, offset=start))
        start += elements * dtype.itemsize
        begin = base.storage_offset() * dtype.itemsize
        places[spec.name] = StoragePlace(base.untyped_storage(), begin, elements * dtype.itemsize)
        bases[spec.name] = base
        tensors[spec.name] = base.as_strided(spec.shape, spec.strides, base.storage_offset() + spec.offset)
    return places, bases, tensors


# Values and launches -------------------------------------------------------------------------------------------------


def find_overload(op: str, overload: str) -> Any:
    """The overload of PyTorch's own operation that has these names, or None."""
    packet = getattr(torch.ops.aten, op, None)
    known = isinstance(packet, torch._ops.OpOverloadPacket) and (overload or "default") in packet.overloads()
    return getattr(packet, overload or "default") if known else None


def plain(value: Any) -> Any:
    """A value of a program that is a constant."""
    match value:
        case Float():
            return float.fromhex(value.hex)
        case TorchDtype() | Format():
            return getattr(torch, value.name)
        case None | bool() | int() | str():
            return value
    raise Malformed(f"a {type(value).__name__} where it cannot be")


def tune(choices: Sequence[Branch], run: Callable[[int], Any]) -> int:
    """On a GPU: the configuration that is fastest, of those that run."""
    times: dict[int, float] = {}
    failure: Any = None  # there is one where no time is: no choice is empty
    for i in range(len(choices)):
        try:
            run(i)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            samples = []
            for _ in range(5):
                start.record()
                run(i)
                end.record()
                end.synchronize()
                samples.append(start.elapsed_time(end))
            times[i] = min(samples)
        except Exception as error:
            if type(error.__cause__).__name__ not in ("OutOfResources", "CompileTimeAssertionFailure", "PTXASError"):
                raise
            failure = error
    if not times:
        raise failure
    return min(times, key=times.__getitem__)
