"""In the runner: a checked program executed on given inputs, in the interpreter, for the compiler or on a GPU."""

import contextlib
import sys
from dataclasses import dataclass
from itertools import count

import torch
from allocations import POISON, fenced
from program import Malformed, tensors_in
from torch.utils._pytree import tree_iter


class LaunchRaised(Exception):
    """A launch raised: the wrapper may have an answer to that. number: which of the call's."""

    def __init__(self, number, line):
        super().__init__(f"launch {number}")
        self.number, self.line = number, line


class StepRaised(Exception):
    """An operation outside the kernels raised. line: in the submission's file."""

    def __init__(self, line):
        super().__init__("an operation")
        self.line = line


class ChoiceMade(Exception):
    """A configuration was chosen by trying all: the program begins anew."""


@dataclass
class Place:
    """Where a storage of the program lies: in a storage of ours, from byte `start` on, `bytes` long."""

    storage: object
    start: int
    bytes: int


class Replay:
    """A program with its kernels, to be run any number of times. observer: told of each operation, or None.

    launch(kernel, grid, args, options) runs or compiles one kernel. choose(choices, run) returns the index of one.
    """

    def __init__(self, program, kernels, device, launch, choose=None, observer=None):
        self.program, self.kernels, self.device, self.launch = program, kernels, device, launch
        self.choose, self.chosen, self.observer, self.places = choose, {}, observer, {}
        self.line = None  # of the step that runs
        self.used = used_storages(program)

    def run(self, inputs):
        """What the program returns: tensors, or {"type"} of what is none. inputs: {name: Place}."""
        while True:
            with contextlib.suppress(ChoiceMade):
                self.begin(inputs)
                return self.call()

    def begin(self, inputs):
        """What was done before the call, on these inputs."""
        program, self.places = self.program, {}
        for number, storage in enumerate(program["storages"]):
            if number in self.used and storage["kind"] != "made":
                self.places[number] = self.given(storage, inputs)
        for at, step in zip(count(), program["setup"]):
            self.step(at, step)
        for number in program["stale"]:
            self.forget(number)

    def call(self):
        """The call itself; what it made is let go of."""
        program = self.program
        kept = dict(self.places)
        for at, step in zip(count(len(program["setup"])), program["steps"]):
            self.step(at, step)
        returned = [self.tensor(r["t"]) if "t" in r else r for r in program["returns"]]
        self.places = kept
        return returned

    def given(self, storage, inputs):
        """The place of a storage that no step makes."""
        if storage["kind"] == "input":
            if storage["name"] not in inputs:
                raise Malformed(f"an input named {storage['name']}")
            return inputs[storage["name"]]
        data = torch.full((storage["bytes"],), POISON, dtype=torch.uint8, device=self.device)
        if storage["kind"] == "constant" and storage["bytes"]:
            data.copy_(torch.frombuffer(bytearray.fromhex(storage["data"]), dtype=torch.uint8))
        return Place(data.untyped_storage(), data.storage_offset(), storage["bytes"])

    def forget(self, number):
        """What an earlier call left in a workspace is gone: floating-point numbers are NaN."""
        place, dtype = self.places.get(number), self.dtypes().get(number)
        if place and dtype and dtype.is_floating_point:
            whole = torch.empty(0, dtype=torch.uint8, device=self.device)
            whole.set_(place.storage, place.start, (place.bytes,), (1,)).fill_(POISON)

    def dtypes(self):
        return {r[0]: getattr(torch, r[1]) for step in self.program["setup"] for r in tensors_in(step.get("out"))}

    # Steps -----------------------------------------------------------------------------------------------------------

    def step(self, at, step):
        if "choices" in step:
            for inner in step["choices"][self.choice(at, step["choices"])]["steps"]:
                self.simple(inner)
        else:
            self.simple(step)

    def choice(self, at, choices):
        """The configuration of a launch that was tuned: the first, or the one that `choose` finds."""
        if at not in self.chosen:
            if self.choose is None:
                self.chosen[at] = 0
            else:
                self.chosen[at] = self.choose(choices, lambda i: [self.simple(inner) for inner in choices[i]["steps"]])
                raise ChoiceMade
        return self.chosen[at]

    def simple(self, step):
        if "free" in step:
            for number in step["free"]:
                self.places.pop(number, None)
        elif "op" in step:
            self.line = step["line"]
            self.operation(step)
        else:
            kernel = self.kernels[step["launch"]]
            args = {name: self.value(value) for name, value in step["args"].items()}
            options = {name: self.value(value) for name, value in step["options"].items()}
            try:
                self.launch(kernel, tuple(step["grid"]), args, options)
            except Exception as error:
                raise LaunchRaised(step["number"], step["line"]) from error

    def operation(self, step):
        packet, overload = getattr(torch.ops.aten, step["op"]), step["overload"] or "default"
        if overload not in packet.overloads():
            raise Malformed("an operation that PyTorch has not")
        try:
            function = getattr(packet, overload)
            args = self.value(step["args"])
            named = {name: self.value(value) for name, value in step["kwargs"].items()}
            out = function(*args, **named)
        except Exception as error:
            raise StepRaised(step["line"]) from error
        made = [t for t in (out if isinstance(out, tuple | list) else (out,)) if isinstance(t, torch.Tensor)]
        if len(made) != len(step["out"]) or None in step["out"]:
            raise Malformed("an operation with other outputs than it has")
        for ref, tensor in zip(step["out"], made, strict=True):
            self.made(step, ref["t"], tensor)
        if self.observer:
            self.observer(step["op"], function, args, named, made)

    def made(self, step, ref, tensor):
        """Note where an operation's output lies; raises Malformed where it is not what was recorded."""
        number, dtype, sizes, strides, offset = ref
        same = list(tensor.shape) == sizes and str(tensor.dtype)[6:] == dtype
        if not same or (list(tensor.stride()) != strides and tensor.numel() > 1):
            raise Malformed(f"another output of {step['op']} than was recorded")
        size, storage = tensor.element_size(), tensor.untyped_storage()
        place = self.places.get(number)
        if place is None:
            start = (tensor.storage_offset() - offset) * size
            extent = self.program["storages"][number]["bytes"]
            if start < 0 or start + extent > storage.nbytes():
                raise Malformed("a storage larger than it is")
            if any(other.storage.data_ptr() == storage.data_ptr() for other in self.places.values()) and extent:
                raise Malformed("two storages that are one")
            self.places[number] = Place(storage, start, extent)
        elif place.storage.data_ptr() != storage.data_ptr() and storage.nbytes():
            raise Malformed("a storage that is made twice")

    # Values ----------------------------------------------------------------------------------------------------------

    def value(self, value):
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        if not isinstance(value, dict):
            return value
        ((kind, inner),) = value.items()
        if kind == "t":
            return self.tensor(inner)
        if kind == "tuple":
            return tuple(self.value(each) for each in inner)
        if kind == "device":
            return torch.device(self.device)
        if kind == "kernel":
            return self.kernels[inner]
        if kind == "descriptor":
            from triton.tools.tensor_descriptor import TensorDescriptor

            base, shape, strides, block, padding = inner
            return TensorDescriptor(self.tensor(base["t"]), shape, strides, block, padding)
        if kind == "gluon_descriptor":
            from triton.experimental.gluon import language as gl
            from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

            base, shape, strides, block, (_, fields), padding = inner
            layout = gl.NVMMASharedLayout(**{name: plain(field) for name, field in fields})
            return TensorDescriptor(self.tensor(base["t"]), shape, strides, block, layout, padding)
        return plain(value)

    def tensor(self, ref):
        """A tensor of the program as a view of where its storage lies; never outside of that."""
        number, dtype, sizes, strides, offset = ref
        place = self.places.get(number)
        if place is None:
            raise Malformed("a tensor that no step has made")
        with torch._C._DisableTorchDispatch():  # nothing that is counted: modes need not see it
            tensor = torch.empty(0, dtype=getattr(torch, dtype), device=self.device)
            size = tensor.element_size()
            last = offset + 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) if all(sizes) else 0
            if last * size > place.bytes or place.start % size:
                raise Malformed("a tensor outside its storage")
            return tensor.set_(place.storage, place.start // size + offset, sizes, strides)


def list_tensors(*values):
    """The tensors in lists, tuples and dicts."""
    return [value for value in tree_iter(values) if isinstance(value, torch.Tensor)]


def used_storages(program):
    """The numbers of all storages that steps and returns name."""
    named = tensors_in([program["setup"], program["steps"], program["returns"]])
    return {ref[0] for ref in named} | set(program["stale"])


def place_inputs(described, data, device, poison):
    """({name: Place}, {name: its fenced base}, {name: the tensor}) of described inputs.

    data: their bytes, one after the other; None where numbers do not matter.
    """
    places, bases, tensors, start = {}, {}, {}, 0
    for each in described:
        dtype, elements = getattr(torch, each["dtype"]), each["elements"]
        itemsize = torch.empty(0, dtype=dtype).element_size()
        _, base = fenced((elements,), (1,), dtype, device, poison)
        if elements and data is not None:
            values = torch.frombuffer(data, dtype=dtype, count=elements, offset=start)
            base.copy_(values)
        start += elements * itemsize
        places[each["name"]] = Place(base.untyped_storage(), base.storage_offset() * itemsize, elements * itemsize)
        bases[each["name"]] = base
        offset = base.storage_offset() + each["offset"]
        tensors[each["name"]] = base.as_strided(each["shape"], each["strides"], offset)
    return places, bases, tensors


# Values and launches -------------------------------------------------------------------------------------------------


def triton_dtype(name):
    """A dtype of Triton, which is imported only for what is Triton's."""
    import triton.language as tl

    found = next((t for t in vars(tl).values() if isinstance(t, tl.dtype) and t.name == name), None)
    if found is None:
        raise Malformed(f"a Triton dtype {name}")
    return found


def plain(value):
    """A value of a program that is no tensor."""
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "constexpr":
        import triton.language as tl

        return tl.constexpr(plain(inner))
    made = {
        "f": lambda: float.fromhex(inner), "tuple": lambda: tuple(plain(i) for i in inner),
        "dtype": lambda: getattr(torch, inner), "enum": lambda: getattr(torch, inner),
        "triton_dtype": lambda: triton_dtype(inner),
        "value": lambda: plain(inner),
    }.get(kind)  # fmt: skip
    if made is None:
        raise Malformed(f"a value of the kind {kind} where it cannot be")
    return made()


def launch(kernel, grid, args, options):
    """Run one kernel: in the interpreter its options mean nothing, and its addresses must be those of a trace."""
    interpreted = type(kernel).__name__ == "InterpretedFunction"
    if interpreted and not sys.modules["trace"].is_open():
        raise RuntimeError("a kernel was to be interpreted without a trace")
    kernel.run(grid=grid, warmup=False, **args, **({} if interpreted else options))


def tune(choices, run):
    """On a GPU: the configuration that is fastest, of those that run."""
    times, failure = {}, None
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
    return min(times, key=times.get)
