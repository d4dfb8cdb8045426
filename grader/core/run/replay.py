"""In the runner: a checked program executed on given inputs, by the machine, for the compiler or on a GPU."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

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
    resolved,
    storages_in,
)
from grader.core.run.allocations import INPUT_POISON, POISON, fenced
from grader.core.worker import sparse

Launcher = Callable[[Launch, list[Any]], None]


class StepRaised(Exception):
    """An operation outside the kernels raised. line: in the submission's file."""

    def __init__(self, line: int | None) -> None:
        super().__init__(line)
        self.line = line


class LaunchRaised(StepRaised):
    """A launch raised: the wrapper may have an answer to that. number: which of the call's."""

    def __init__(self, number: int, line: int | None) -> None:
        super().__init__(line)
        self.number = number

    def failed(self, text: str) -> FailedLaunch:
        """What to tell the recorder of this launch. text: what the exception says."""
        cause: Any = self.__cause__
        short = type(cause).__name__ == "OutOfResources"
        shortage = Shortage(cause.required, cause.limit, cause.name) if short else None
        return FailedLaunch(self.number, text[:2000], shortage)


class ChoiceMade(Exception):
    """A configuration was chosen by trying all: the program begins anew."""


@dataclass
class StoragePlace:
    """Where a storage of the program lies: in a storage of ours, from byte `start` on, `bytes` long."""

    storage: torch.UntypedStorage
    start: int
    bytes: int

    def __post_init__(self) -> None:
        self.address = self.storage.data_ptr()

    @classmethod
    def of(cls, flat: torch.Tensor) -> "StoragePlace":
        """That of a tensor without gaps."""
        size = flat.element_size()
        return cls(flat.untyped_storage(), flat.storage_offset() * size, flat.numel() * size)


@dataclass(frozen=True)
class DescriptorArgument:
    """A tensor descriptor that a launch is given."""

    base: torch.Tensor
    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    padding: str


class Replay:
    """A program, to be run any number of times.

    launch(step, arguments) runs or compiles one kernel; None where the program has none. choose(branches, run) returns
    the index of a tuned launch's branch, after it called run(index) as it liked; None where nothing is left to choose.
    observer: called after each operation of PyTorch's. chosen: {place among all steps: branch}.
    """

    def __init__(
        self, program: Program, device: str, launch: Launcher | None,
        choose: Callable[[list[Branch], Callable[[int], Any]], int] | None = None,
        observer: Callable[..., None] | None = None,
    ) -> None:  # fmt: skip
        self.program, self.device, self.launch, self.choose, self.observer = program, device, launch, choose, observer
        self.chosen, self.places, self.used = dict[int, int](), dict[int, StoragePlace](), used_storages(program)

    def run(self, inputs: Mapping[str, torch.Tensor]) -> list[Any]:
        """What the program returns: tensors, or program.Other for what is none. inputs: flat, by name."""
        while True:
            with contextlib.suppress(ChoiceMade):
                self.begin(inputs)
                return self.call()

    def begin(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """What was done before the call, on these inputs."""
        program = self.program
        self.places = {
            number: self.given(storage, inputs)
            for number, storage in enumerate(program.storages)
            if number in self.used and not isinstance(storage, Made)
        }
        for at, step in enumerate(program.setup):
            self.step(at, step)
        made = [tensor for step in program.setup if isinstance(step, Operation) for tensor in step.out]
        dtypes = {tensor.storage: getattr(torch, tensor.dtype) for tensor in made}
        for number in program.stale:  # what an earlier call left in a workspace is gone: its numbers are NaN
            place = self.places.get(number)
            if place and number in dtypes and dtypes[number].is_floating_point:
                whole = torch.empty(0, dtype=torch.uint8, device=self.device)
                whole.set_(place.storage, place.start, (place.bytes,), (1,)).fill_(POISON)

    def call(self) -> list[Any]:
        """The call itself; what it made is let go of."""
        program, kept = self.program, dict(self.places)
        for at, step in enumerate(program.steps, len(program.setup)):
            self.step(at, step)
        returned = [self.tensor(each) if isinstance(each, Tensor) else each for each in program.returns]
        self.places = kept
        return returned

    def given(self, storage: Storage, inputs: Mapping[str, torch.Tensor]) -> StoragePlace:
        """The place of a storage that no step makes."""
        if isinstance(storage, Input):
            if storage.name not in inputs:
                raise Malformed(f"an input named {storage.name}")
            return StoragePlace.of(inputs[storage.name])
        try:
            if storage.bytes > sparse.FAR_BYTES:  # of a call before: what nobody has written is zero
                return StoragePlace.of(sparse.empty(storage.bytes, torch.uint8))
            data = torch.full((storage.bytes,), POISON, dtype=torch.uint8, device=self.device)
        except (MemoryError, RuntimeError):
            raise Refused(f"a tensor of an earlier call has {storage.bytes:,} bytes: memory has no room") from None
        if isinstance(storage, Constant) and storage.bytes:
            data.copy_(torch.frombuffer(bytearray(storage.data), dtype=torch.uint8))
        return StoragePlace.of(data)

    # Steps -----------------------------------------------------------------------------------------------------------

    def step(self, at: int, step: Step) -> None:
        if not isinstance(step, Choice):
            return self.simple(step)

        def run(index: int) -> None:
            for inner in step.branches[index].steps:
                self.simple(inner)

        if at not in self.chosen and self.choose:
            self.chosen[at] = self.choose(step.branches, run)
            raise ChoiceMade
        run(self.chosen[at])

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
        if step.kwargs and not step.kwargs.keys() <= {x.name for x in function._schema.arguments if x.kwarg_only}:
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
        storage, before = tensor.untyped_storage(), self.places.get(number)
        start = (tensor.storage_offset() - described.offset) * tensor.element_size()
        extent = self.program.storages[number].bytes
        place = StoragePlace(storage, start, extent)
        if before is None:
            if start < 0 or start + extent > storage.nbytes():
                raise Malformed("a storage larger than it is")
            if extent and any(other.address == place.address for other in self.places.values()):
                raise Malformed("two storages that are one")
            self.places[number] = place
        elif before.address != place.address and storage.nbytes():
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
            case Descriptor(base, shape, strides, block, padding):
                return DescriptorArgument(self.tensor(base), shape, strides, block, padding)
            case Float():
                return float.fromhex(value.hex)
            case TorchDtype() | Format():
                return getattr(torch, value.name)
        return value

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


def used_storages(program: Program) -> set[int]:
    """The numbers of all storages that steps and returns name."""
    return {*storages_in([program.setup, program.steps, program.returns]), *program.stale}


def settled(program: Program, choice: int) -> Program:
    """The program that takes the branch of this number of each choice, counted round."""
    steps = enumerate(program.setup + program.steps)
    return resolved(program, {at: choice % len(step.branches) for at, step in steps if isinstance(step, Choice)})


def place_inputs(
    specs: Sequence[TensorSpec], data: bytearray | None, device: str
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """({name: all elements, flat, amid poison}, {name: the tensor}) of inputs, as TensorSpec has each.

    data: their bytes, one after the other; None where numbers do not matter. Of a sparse one, whose buffer has few
    pages, they are those of the tensor.
    """
    flats, tensors, start = dict[str, torch.Tensor](), dict[str, torch.Tensor](), 0
    sparse.begin()
    for spec in specs:
        dtype, count = getattr(torch, spec.dtype), spec.elements
        flat = sparse.empty(count, dtype) if spec.sparse else fenced((count,), (1,), dtype, device, INPUT_POISON)[2]
        tensor = flat.as_strided(spec.shape, spec.strides, flat.storage_offset() + spec.offset)
        held = tensor if spec.sparse else flat
        if held.numel() and data is not None:
            numbers = torch.frombuffer(data, dtype=dtype, count=held.numel(), offset=start)
            held.copy_(numbers.view(held.shape))
        start += held.numel() * dtype.itemsize
        flats[spec.name], tensors[spec.name] = flat, tensor
    return flats, tensors


@lru_cache(maxsize=4096)
def find_overload(op: str, overload: str) -> Any:
    """The overload of PyTorch's own operation that has these names, or None."""
    packet = getattr(torch.ops.aten, op, None)
    known = isinstance(packet, torch._ops.OpOverloadPacket) and (overload or "default") in packet.overloads()
    return getattr(packet, overload or "default") if known else None


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
