"""Beside the submission, believed in nothing: what its wrapper does, written down as a program (protocol/program.py).

A dispatch mode sees every operation of PyTorch below autograd, subclasses and torch.compile; launches of kernels are
written down and do not run (launches.py). The runner executes the program later, in a process without any of this
Python. A tensor names its storage, dtype, sizes, strides and offset; a view therefore needs no step.
Method: record and replay, as torch.export and CUDA graphs do it.
"""

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from msgspec.structs import replace
from torch.multiprocessing.reductions import StorageWeakRef

from grader.core.protocol.messages import FailedLaunch
from grader.core.protocol.program import (
    CONSTANT,
    Constant,
    Device,
    Float,
    Format,
    Free,
    Input,
    Kernel,
    Launch,
    Made,
    Old,
    Operation,
    Other,
    Program,
    Refused,
    Step,
    Storage,
    Tensor,
    TorchDtype,
    Unseen,
    parts,
    rebuilt,
    storages_in,
)
from grader.core.worker.dispatch import DispatchMode, running_line

SIZE_ONLY = {
    "empty_like", "zeros_like", "ones_like", "full_like", "new_empty", "new_zeros", "new_ones", "new_full",
    "new_empty_strided",
}  # fmt: skip
EXPIRED = torch.UntypedStorage._expired  # what StorageWeakRef.expired asks, which is asked for each living tensor
READS = {"nonzero", "masked_select", "unique_consecutive", "_unique2", "unique_dim", "is_nonzero"}


class CannotRecord(Refused):
    """What happened has no form in a program; the text is a sentence for the student."""


class Recorder(DispatchMode):
    """While active, keeps the program's `steps`, `storages` and `kernels`.

    module: path of the submission's file, whose lines the steps name. failing: the launches that must raise, because
    they raised in the runner, by their numbers in a call. reads: the lines at which Python read numbers.
    """

    def __init__(self, module: str) -> None:
        super().__init__()
        self.module, self.failing = module, dict[int, FailedLaunch]()
        self.storages, self.numbers = list[Storage](), dict[int, int]()
        self.references, self.living = dict[int, tuple[StorageWeakRef, int]](), set[int]()
        self.steps, self.kernels = list[Step](), list[Kernel]()
        self.reads, self.launches, self.before, self.begin = list[int | None](), 0, 0, 0

    # Tensors ---------------------------------------------------------------------------------------------------------

    def storage(self, tensor: torch.Tensor, made: bool = False) -> int:
        """The number of the tensor's storage; one that no operation made becomes a constant of the program."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.numbers:
            self.numbers[key] = len(self.storages)
            # While a reference lives, the address is not given out again.
            self.references[len(self.storages)] = StorageWeakRef(storage), key
            self.living.add(len(self.storages))
            self.storages.append(self.described(storage, made))
        return self.numbers[key]

    def described(self, storage: torch.UntypedStorage, made: bool) -> Storage:
        if made:
            return Made(storage.nbytes())
        if storage.nbytes() > CONSTANT:
            return Unseen(storage.nbytes(), self.line())
        return Constant(ctypes.string_at(storage.data_ptr(), storage.nbytes()))

    def given(self, tensor: torch.Tensor, name: str) -> int:
        """Note an argument of the call by its name."""
        number = self.storage(tensor, made=True)
        self.storages[number] = Input(self.storages[number].bytes, name)
        return number

    def begin_call(self) -> None:
        """Another call begins. Of the earlier steps, keep those that made tensors which are still there."""
        for number, (reference, key) in list(self.references.items()):
            if reference.expired():
                del self.references[number], self.numbers[key]
        self.living &= set(self.references)
        needed, kept = set(self.references), []
        for step in reversed(self.steps):
            if written(step) & needed:
                needed |= storages_in(step).keys()
                kept.append(step)
        self.steps = kept[::-1]
        for number in needed:
            if isinstance(self.storages[number], Input):
                self.storages[number] = Old(self.storages[number].bytes)
        self.reads, self.launches, self.before, self.begin = [], 0, len(self.storages), len(self.steps)

    def left_behind(self) -> bool:
        """True where a tensor that the call made is still there: the next call may use it."""
        return any(
            number >= self.before and not isinstance(self.storages[number], Input) and not reference.expired()
            for number, (reference, _) in self.references.items()
        )

    def tensor(self, tensor: torch.Tensor, made: bool = False) -> Tensor:
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise CannotRecord(f"a tensor with the layout {tensor.layout}: use plain tensors", self.line())
        number, sizes, strides = self.storage(tensor, made), list(tensor.size()), list(tensor.stride())
        return Tensor(number, bare_name(tensor.dtype), sizes, strides, tensor.storage_offset())

    def plain(self, value: Any) -> Any:
        """`value` as the program has it; raises CannotRecord."""
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if isinstance(value, int):
            if not -(1 << 63) <= value < 1 << 63:
                raise CannotRecord("an integer that 64 bits do not hold", self.line())
            return int(value)
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, list | tuple):
            return [self.plain(inner) for inner in value]
        if isinstance(value, float):
            return Float(float(value).hex())
        if isinstance(value, torch.dtype):
            return TorchDtype(bare_name(value))
        if isinstance(value, torch.device):
            if value.type != "cpu":
                raise CannotRecord(f"a tensor on the device {value}: make it where your inputs are", self.line())
            return Device()
        if isinstance(value, torch.layout | torch.memory_format):
            return Format(bare_name(value))
        if "numpy" in kind.__module__ and getattr(value, "shape", None) == ():
            return self.plain(value.item())
        raise CannotRecord(f"a value of the type {kind.__name__} in an operation or a launch", self.line())

    # Operations ------------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if is_composite(func):
            with self:  # only in inference mode does such an operation come here whole
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        if own := custom_function(func):
            with self:  # record what it does
                return own(*args, **kwargs)
        self.note_freed()
        noted = self.plain(list(args)), {name: self.plain(value) for name, value in kwargs.items()}
        out = func(*args, **kwargs)
        several = isinstance(out, tuple | list)
        made = [t for t in (out if several else (out,)) if isinstance(t, torch.Tensor)]
        name, mutates = func._schema.name.partition("::")[2], func._schema.is_mutable
        if (not made and not mutates) or name in READS:
            self.note_read(args)
        if mutates or any(t.layout != torch.strided or t.untyped_storage()._cdata not in self.numbers for t in made):
            refs = [self.tensor(t, made=True) for t in made]
            self.steps.append(Operation(func.namespace, name, func._overloadname, *noted, refs, self.line()))
        return out

    def note_freed(self) -> None:
        """Write down which storages Python has let go of since the last step: the program lets go of them too."""
        freed = [n for n in self.living if EXPIRED(self.references[n][0].cdata)]
        if freed:
            self.living.difference_update(freed)
            self.steps.append(Free(freed))

    def note_read(self, args: tuple) -> None:
        """Note that Python reads numbers of a tensor: what it does then may depend on them, and the program cannot."""
        if any(isinstance(a, torch.Tensor) for a in args):
            self.reads.append(self.line())

    def line(self) -> int | None:
        return running_line(self.module)

    # The program -----------------------------------------------------------------------------------------------------

    def program(self, returned: Sequence[Tensor | Other], several: bool) -> Program:
        """The last call, and the steps of earlier calls that it needs.

        Of an earlier call it takes only the steps that do not depend on that call's inputs. So a workspace that an
        earlier call made is there, without the numbers that the earlier call left in it.
        """
        steps, early = self.steps[self.begin :], self.steps[: self.begin]
        before = {*storages_in(early), *range(self.before)}
        early, stale = independent(early, {n for n in before if isinstance(self.storages[n], Old)})
        live, setup = {*storages_in([steps, returned])}, list[Step]()
        for step in reversed(early):
            if written(step) & live:
                live |= storages_in(step).keys()
                setup.insert(0, step)
        made = {*storages_in([step.out for step in setup if isinstance(step, Operation)])}
        for number in (live & stale) - made:
            # An earlier call made it of its inputs: this call may use its size alone.
            if number < self.before and not isinstance(self.storages[number], Constant):
                self.storages[number] = Old(self.storages[number].bytes)
        left = sorted(live & stale & made)
        numbers = [*dict.fromkeys([*storages_in([*setup, *steps, *returned]), *left])]
        kernels = sorted({part.kernel for part in parts([setup, steps]) if isinstance(part, Launch)})
        program = Program(
            3, [self.storages[number] for number in numbers], [self.kernels[number] for number in kernels],
            setup, left, steps, list(returned), several,
        )  # fmt: skip
        return renumbered(program, numbers, kernels)


def bare_name(value: object) -> Any:
    """`float16` of torch.float16; the runner sees whether the program may have it."""
    return str(value)[6:]


@functools.cache
def is_composite(func: Any) -> bool:
    """True for an operation that is made of others."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def custom_function(func: Any) -> Callable[..., Any] | None:
    """The Python function behind an operation that torch.library.custom_op or triton_op has made, or None."""
    module = sys.modules.get("torch._library.custom_ops")
    definition = module.OPDEFS.get(func._schema.name) if module else None
    return definition and definition._backend_fns.get("cuda", definition._init_fn)


def renumbered(program: Program, storages: list[int], kernels: list[int]) -> Program:
    """The program in which a number is a place in these lists; it frees nothing that it does not name."""
    new, new_kernels = ({number: place for place, number in enumerate(numbers)} for numbers in (storages, kernels))

    def change(part: Any) -> Any:
        match part:
            case Tensor():
                return replace(part, storage=new[part.storage])
            case Launch():
                return replace(part, kernel=new_kernels[part.kernel])
            case Free():
                return Free(sorted(new[number] for number in part.storages if number in new))
            case Program():
                stale, steps = [new[number] for number in part.stale], [step for step in part.steps if step != Free([])]
                return replace(part, stale=stale, steps=steps)
        return part

    return rebuilt(program, change)


def written(step: Step) -> set[int]:
    """The storages that a step may write: an operation's outputs, all arguments of a launch."""
    return {*storages_in(step.out if isinstance(step, Operation) else step)}


def independent(steps: list[Step], tainted: set[int]) -> tuple[list[Step], set[int]]:
    """(the steps that do not depend on the storages `tainted`, the storages that the other steps wrote)."""
    kept, stale = list[Step](), set[int]()
    for step in steps:
        if isinstance(step, Free):
            continue
        if tainted.isdisjoint(storages_in(step)) or (isinstance(step, Operation) and step.op in SIZE_ONLY):
            kept.append(step)
            continue
        stale |= written(step)
        if isinstance(step, Operation):
            tainted |= written(step)
    return kept, stale
