"""Beside the submission, believed in nothing: what its wrapper does, written down as a program of plain data.

A dispatch mode sees every operation of PyTorch below autograd, subclasses and torch.compile; launches of kernels are
written down and do not run (launches.py). The runner executes the program later, in a process without any of this
Python. A tensor names its storage, dtype, sizes, strides and offset; a view therefore needs no step.
protocol/program.py has the form of a program. Method: record and replay, as torch.export and CUDA graphs do it.
"""

import base64
import ctypes
import functools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from grader.core.protocol.messages import Failing

CONSTANT_BYTES = 1 << 16  # of a storage that no operation made: it is written into the program as data
SIZE_ONLY = {
    "empty_like", "zeros_like", "ones_like", "full_like", "new_empty", "new_zeros", "new_ones", "new_full",
    "new_empty_strided",
}  # fmt: skip
EXPIRED = torch.UntypedStorage._expired  # what StorageWeakRef.expired asks, which is asked for each living tensor
Data = dict[str, Any]  # a part of a program, as JSON has it
READS = {"nonzero", "masked_select", "unique_consecutive", "_unique2", "unique_dim", "is_nonzero"}


class CannotRecord(Exception):
    """What happened has no form in a program; the text is a sentence for the student. line: where, or None."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


class Recorder(TorchDispatchMode):
    """While active, keeps `steps`, `storages` and `kernels` as the program's plain data.

    module: path of the submission's file, whose lines the steps name. failing: {launch's number in a call: an
    exception} of the launches that are to raise, since the runner saw them fail. reads: the lines at which Python read
    floating-point values.
    """

    def __init__(self, module: str) -> None:
        super().__init__()
        self.module, self.failing = module, dict[int, Failing]()
        self.storages, self.numbers = list[Data](), dict[int, int]()
        self.references, self.living = dict[int, tuple[StorageWeakRef, int]](), set[int]()
        self.steps, self.kernels = list[Data](), list[Data]()
        self.reads, self.launches, self.before, self.begin = list[int | None](), 0, 0, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # PyTorch's own way imports torch._dynamo, a second's worth, at the first operation

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
            if made:
                entry = {"is": "made", "bytes": storage.nbytes()}
            elif storage.nbytes() > CONSTANT_BYTES:
                entry = {"is": "unseen", "bytes": storage.nbytes(), "line": self.line()}
            else:
                data = ctypes.string_at(storage.data_ptr(), storage.nbytes())
                entry = {"is": "constant", "data": base64.b64encode(data).decode()}
            self.storages.append(entry)
        return self.numbers[key]

    def given(self, tensor: torch.Tensor, name: str) -> int:
        """Note an argument of the call by its name."""
        number = self.storage(tensor, made=True)
        self.storages[number] = {"is": "input", "name": name, "bytes": self.storages[number]["bytes"]}
        return number

    def begin_call(self) -> None:
        """Another call begins: of earlier steps those are kept whose tensors are still there."""
        for number, (reference, key) in list(self.references.items()):
            if reference.expired():
                del self.references[number], self.numbers[key]
        self.living &= set(self.references)
        needed, kept = set(self.references), []
        for step in reversed(self.steps):
            if written(step) & needed:
                needed |= set(storages_in(step))
                kept.append(step)
        self.steps = kept[::-1]
        for number in needed:
            if self.storages[number]["is"] == "input":
                self.storages[number] = {"is": "old", "bytes": self.storages[number]["bytes"]}
        self.reads, self.launches, self.before, self.begin = [], 0, len(self.storages), len(self.steps)

    def left_behind(self) -> bool:
        """True where a tensor that the call made is still there: the next call may use it."""
        return any(
            number >= self.before and self.storages[number]["is"] != "input" and not reference.expired()
            for number, (reference, _) in self.references.items()
        )

    def tensor(self, tensor: torch.Tensor, made: bool = False) -> Data:
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise CannotRecord(f"a tensor with the layout {tensor.layout}: use plain tensors", self.line())
        return {
            "is": "tensor", "storage": self.storage(tensor, made), "dtype": str(tensor.dtype)[6:],
            "sizes": list(tensor.size()), "strides": list(tensor.stride()), "offset": tensor.storage_offset(),
        }  # fmt: skip

    def plain(self, value: Any) -> Any:
        """`value` as plain data; raises CannotRecord."""
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
            return {"is": "float", "hex": float(value).hex()}
        if isinstance(value, torch.dtype):
            return {"is": "dtype", "name": str(value)[6:]}
        if isinstance(value, torch.device):
            if value.type != "cpu":
                raise CannotRecord(f"a tensor on the device {value}: make it where your inputs are", self.line())
            return {"is": "device"}
        if isinstance(value, torch.layout | torch.memory_format):
            return {"is": "format", "name": str(value)[6:]}
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
            with self:  # what it does is written down
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
            self.steps.append({
                "is": "operation", "namespace": func.namespace, "op": name, "overload": func._overloadname,
                "args": noted[0], "kwargs": noted[1], "out": refs, "line": self.line(),
            })  # fmt: skip
        return out

    def note_freed(self) -> None:
        """What Python has let go of since the last step is free: what it keeps, it holds."""
        freed = [n for n in self.living if EXPIRED(self.references[n][0].cdata)]
        if freed:
            self.living.difference_update(freed)
            self.steps.append({"is": "free", "storages": freed})

    def note_read(self, args: tuple) -> None:
        """What Python learns of a tensor's numbers is a constant of this program."""
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if any(t.is_floating_point() or t.dtype == torch.bool for t in tensors):
            self.reads.append(self.line())

    def line(self) -> int | None:
        """The innermost line of the submission's own file that is running, or None."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.module:
                return frame.f_lineno
            frame = frame.f_back
        return None

    # The program -----------------------------------------------------------------------------------------------------

    def program(self, returned: list[Data]) -> Data:
        """The last call, and what it needs of the steps before.

        Of an earlier call only what does not depend on its inputs is kept: a workspace made then is there, and the
        numbers that were left in it are not.
        """
        begin, before = self.begin, set(storages_in(self.steps[: self.begin])) | set(range(self.before))
        old = {number for number in before if self.storages[number]["is"] == "old"}
        setup, stale = independent(self.steps[:begin], old)
        live, needed = set(storages_in([self.steps[begin:], returned])), []
        for step in reversed(setup):
            if written(step) & live:
                live |= set(storages_in(step))
                needed.append(step)
        made = set(storages_in([step.get("out") for step in needed]))
        for number in (live & stale) - made:
            if (
                number < self.before and self.storages[number]["is"] != "constant"
            ):  # made of an earlier call's inputs: its size may be used, no more
                self.storages[number] = {"is": "old", "bytes": self.storages[number]["bytes"]}
        program = {"setup": needed[::-1], "steps": self.steps[begin:], "returns": returned}
        numbers = list(dict.fromkeys([*storages_in(program), *sorted(live & stale & made)]))
        new = {number: place for place, number in enumerate(numbers)}
        program["steps"] = [s for s in program["steps"] if s["is"] != "free" or any(n in new for n in s["storages"])]
        kernels = set(kernels_in(program)) if self.kernels else set()
        for number in range(len(self.kernels) - 1, -1, -1):  # what a kernel uses stands before it
            if number in kernels:
                kernels |= set(kernels_in(self.kernels[number]["uses"]))
        order = sorted(kernels)
        program["kernels"] = [self.kernels[number] for number in order]
        return {
            "version": 2, "storages": [self.storages[number] for number in numbers],
            "stale": [new[number] for number in sorted(live & stale & made)],
            **renumbered(program, new, {number: place for place, number in enumerate(order)}),
        }  # fmt: skip


@functools.cache
def is_composite(func: Any) -> bool:
    """True for an operation that is made of others."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def custom_function(func: Any) -> Callable[..., Any] | None:
    """The Python function behind an operation that torch.library.custom_op or triton_op has made, or None."""
    module = sys.modules.get("torch._library.custom_ops")
    definition = module.OPDEFS.get(func._schema.name) if module else None
    return definition and definition._backend_fns.get("cuda", definition._init_fn)


def renumbered(value: Any, new: dict[int, int], kernels: dict[int, int]) -> Any:
    """Plain data with the new numbers of storages and kernels."""
    if isinstance(value, list):
        return [renumbered(inner, new, kernels) for inner in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("is")
    if kind == "tensor":
        return value | {"storage": new[value["storage"]]}
    if kind == "kernel":
        return value | {"number": kernels[value["number"]]}
    if kind == "free":
        return value | {"storages": sorted(new[number] for number in value["storages"] if number in new)}
    found = {name: renumbered(inner, new, kernels) for name, inner in value.items()}
    return found | {"kernel": kernels[value["kernel"]]} if kind == "launch" else found


def kernels_in(value: Any) -> Iterator[int]:
    """The numbers of the kernels in plain data."""
    if isinstance(value, dict):
        if value.get("is") in ("launch", "kernel"):
            yield value["kernel" if value["is"] == "launch" else "number"]
        for inner in value.values():
            yield from kernels_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from kernels_in(inner)


def written(step: Data) -> set[int]:
    """The storages that a step may write: an operation's outputs, all arguments of a launch."""
    return set(storages_in(step["out"] if step["is"] == "operation" else step))


def independent(steps: list[Data], tainted: set[int]) -> tuple[list[Data], set[int]]:
    """(the steps that do not depend on the storages `tainted`, all that the others wrote)."""
    kept, stale = [], set()
    for step in steps:
        if step["is"] == "free":
            continue
        parts = [inner for branch in step["branches"] for inner in branch["steps"]] if "branches" in step else [step]
        touched = set(storages_in(parts))
        if touched & tainted and step.get("op") not in SIZE_ONLY:
            stale |= touched if step["is"] != "operation" else set(storages_in(step["out"]))
            tainted |= set(storages_in(step.get("out")))
        else:
            kept.append(step)
    return kept, stale


def storages_in(value: Any) -> list[int]:
    """The numbers of the storages in plain data, in order."""
    found, left = [], [value] if isinstance(value, dict | list) else []
    while left:
        each = left.pop()
        if isinstance(each, dict):
            if each.get("is") == "tensor":
                found.append(each["storage"])
                continue
            each = list(each.values())
        left += [inner for inner in reversed(each) if isinstance(inner, dict | list)]
    return found
