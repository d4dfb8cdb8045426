"""Inside the child, interpreted: every load and store of every kernel, checked against the memory that it may touch.

Each storage gets a window of virtual addresses of its own, a terabyte wide, so that a pointer that runs out of one
tensor can never land in another, nor crash the process: lanes outside are noted and switched off. All memory operations
of Triton's interpreter end in four functions of its C++ module, which is replaced by a proxy while a trace is open.
"""

import inspect
import linecache
import sys
from collections import Counter

import numpy as np
import torch
import triton.runtime.interpreter as interpreter
from allocations import GUARD
from visits import Visits

WINDOW = 1 << 40  # bytes between windows; storages lie in the middle of theirs, so that overruns stay in it both ways
MIDDLE = 1 << 39
NOBODY = -1  # no program has written, or read, this element
ATOMIC = -2  # written by atomics: any number of programs may


class Region:
    """One storage of a launch: its window, the elements of it that may be touched, and who touched them.

    shape, strides: of the one view that is legal, in elements, for the grader's inputs; None where all between the
    fences is legal.
    """

    def __init__(self, index, storage, name, itemsize):
        self.name, self.real, self.bytes = name, storage.data_ptr(), storage.nbytes()
        self.virtual = (index + 1) * WINDOW + MIDDLE
        self.first, self.last = 0, self.bytes  # legal bytes, unless there is a view
        self.view = None
        self.is_input, self.role, self.width = False, None, 0
        self.writers = self.readers = None
        self.itemsize = itemsize

    def legal(self, offsets, itemsize):
        """For byte offsets into the storage: True where a whole legal element begins."""
        inside = (offsets >= self.first) & (offsets + itemsize <= self.last)
        if self.view is None:
            return inside
        left = offsets - self.view[0]
        inside &= left >= 0
        for stride, size, _ in self.view[1]:  # the widest stride first
            inside &= left // stride < size
            left = left % stride
        return inside & (left == 0)

    def place(self, offsets):
        """For legal byte offsets into an input: (first, last) token, and batch and head of the first as one number."""
        left, tokens, head = offsets - self.view[0], (0, 0), 0
        for stride, _, dimension in self.view[1]:
            index = left // stride
            left = left % stride
            if dimension == 2:
                tokens = int(index.min()), int(index.max())
            elif dimension < 2:
                head = head * 65536 + int(index[0]) * (2 - dimension)
        return tokens, head

    def touched_by(self, which):
        """The program that last wrote ("writers") or read ("readers") each element of the storage."""
        found = getattr(self, which)
        if found is None:
            found = np.full(-(-self.bytes // self.itemsize), NOBODY, np.int32)
            setattr(self, which, found)
        return found


class Trace:
    """While open, traces every launch. faults: {(kind, kernel, argument, line): lanes}; undefined: masked loads whose
    lanes nobody defined, as {(kernel, argument, line): lanes}.

    inputs: q, k and v as the grader made them; only their own elements may be read. allocations: what was fenced.
    """

    def __init__(self, inputs, allocations, module):
        self.inputs = {t.untyped_storage().data_ptr(): (role, t) for role, t in zip("qkv", inputs, strict=True)}
        self.visits = Visits()
        self.allocations, self.module = allocations, module
        self.faults, self.undefined, self.launches = Counter(), Counter(), 0
        self.regions, self.by_storage, self.names = [], {}, {}
        self.kernel, self.program = "", NOBODY
        self.original = interpreter._interpreter

    # Opening and closing ---------------------------------------------------------------------------------------------

    def __enter__(self):
        trace, executor, builder = self, interpreter.GridExecutor, interpreter.InterpreterBuilder
        self.saved = [
            (interpreter, "_interpreter"), (interpreter, "_implicit_cvt"), (executor, "__call__"),
            (builder, "set_grid_idx"), (builder, "create_masked_load"),
        ]  # fmt: skip
        self.saved = [(owner, name, getattr(owner, name)) for owner, name in self.saved]
        convert, call, set_grid_idx, masked_load = (old for _, _, old in self.saved[1:])

        def traced_convert(argument):
            made = convert(argument)
            tensor = interpreter._unwrap_tensor(argument)
            if isinstance(tensor, torch.Tensor):
                made.handle.data = np.array([trace.virtual_address(tensor)], np.uint64)
            return made

        def traced_call(executor, *args, **kwargs):
            trace.begin_launch(executor.fn, args, kwargs)
            return call(executor, *args, **kwargs)

        def traced_set_grid_idx(builder, x, y, z):
            trace.program += 1
            trace.visits.begin_program()
            return set_grid_idx(builder, x, y, z)

        def traced_masked_load(builder, pointers, mask, other, *rest, **named):
            if other is None and not np.asarray(mask.data).all():
                other = trace.undefined_lanes(pointers, mask)
            return masked_load(builder, pointers, mask, other, *rest, **named)

        traced = (self, traced_convert, traced_call, traced_set_grid_idx, traced_masked_load)
        for (owner, name, _), replacement in zip(self.saved, traced, strict=True):
            setattr(owner, name, replacement)
        return self

    def __exit__(self, *exc):
        for owner, name, old in self.saved:
            setattr(owner, name, old)

    def begin_launch(self, function, args, kwargs):
        """Forget who touched what: only programs of one launch can race."""
        self.kernel, self.program, self.launches = function.__name__, NOBODY, self.launches + 1
        self.regions, self.by_storage, self.names = [], {}, {}
        parameters = inspect.getfullargspec(function).args
        named = inspect.getcallargs(function, *args, **{k: v for k, v in kwargs.items() if k in parameters})
        for name, value in named.items():
            for tensor in tensors_in(value):
                self.names.setdefault(tensor.untyped_storage().data_ptr(), name)

    def virtual_address(self, tensor):
        """Where the kernel is told that this tensor lies."""
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        if key not in self.by_storage:
            region = Region(len(self.regions), storage, self.names.get(key, "?"), tensor.element_size())
            if key in self.inputs:
                region.is_input = True
                region.role, given = self.inputs[key]
                region.view, region.width = view_of(given), given.shape[-1]
            for buffer, size, _ in self.allocations.buffers:
                if buffer.untyped_storage().data_ptr() == key:
                    region.first, region.last = GUARD, GUARD + size
            self.regions.append(region)
            self.by_storage[key] = region
        region = self.by_storage[key]
        return region.virtual + tensor.data_ptr() - region.real

    # The proxy of the C++ module -------------------------------------------------------------------------------------

    def __getattr__(self, name):  # RMW_OP, MEM_SEMANTIC and whatever else it has
        return getattr(self.__dict__["original"], name)

    def load(self, pointers, mask, other, dtype):
        pointers, mask = self.access("load", pointers, mask, np.dtype(dtype).itemsize)
        return self.original.load(pointers, mask, other, dtype)

    def store(self, pointers, value, mask):
        pointers, mask = self.access("store", pointers, mask, value.dtype.itemsize)
        return self.original.store(pointers, value, mask)

    def atomic_rmw(self, operation, pointers, value, mask, semantic):
        pointers, mask = self.access("atomic", pointers, mask, value.dtype.itemsize)
        return self.original.atomic_rmw(operation, pointers, value, mask, semantic)

    def atomic_cas(self, pointers, compare, value, semantic):
        pointers, _ = self.access("atomic", pointers, np.ones(np.shape(pointers), bool), value.dtype.itemsize)
        return self.original.atomic_cas(pointers, compare, value, semantic)

    # Checking --------------------------------------------------------------------------------------------------------

    def access(self, kind, pointers, mask, itemsize):
        """Check the live lanes of one operation; returns real addresses, and the mask without the illegal lanes."""
        pointers = np.asarray(pointers)
        mask = np.ascontiguousarray(np.broadcast_to(np.asarray(mask, bool), pointers.shape))
        live = pointers[mask].astype(np.int64)
        if live.size == 0:
            return pointers, mask
        region = self.region_at(int(live[0]))
        offsets = live - region.virtual if region else live
        legal = region.legal(offsets, itemsize) if region else np.zeros(live.shape, bool)
        if not legal.all():
            self.fault(f"out-of-bounds {kind}", region, int((~legal).sum()))
            mask = mask.copy()
            mask[mask] = legal
            offsets = offsets[legal]
        if region is None:
            return pointers, mask
        if offsets.size and not region.is_input:
            self.check_sharing(kind, region, offsets // itemsize)
        elif offsets.size and kind == "load":
            tokens, head = region.place(offsets)
            rows = tokens[1] - tokens[0] + 1  # lanes past the end may have been turned back to a row that is there
            elements = min(offsets.size, rows * region.width)
            self.visits.add(region.role, self.kernel, tokens, head, elements)
        return (pointers.astype(np.int64) - region.virtual + region.real).astype(np.uint64), mask

    def region_at(self, address):
        index = address // WINDOW - 1
        return self.regions[index] if 0 <= index < len(self.regions) else None

    def check_sharing(self, kind, region, elements):
        """Programs of one launch run in any order: what one writes, no other may write or read."""
        writers, me = region.touched_by("writers"), self.program
        before = writers[elements]
        others = (before >= 0) & (before != me)
        if kind == "load":
            region.touched_by("readers")[elements] = me
            if others.any():
                self.fault("read of another program's write", region, int(others.sum()))
        elif kind == "store":
            readers = region.touched_by("readers")[elements]
            writers[elements] = me
            if others.any():
                self.fault("write of another program's element", region, int(others.sum()))
            if (twice := elements.size - np.unique(elements).size) > 0:
                self.fault("element written twice by one store", region, twice)
            if (read := (readers >= 0) & (readers != me)).any():
                self.fault("write of what another program reads", region, int(read.sum()))
        else:
            writers[elements] = ATOMIC

    def undefined_lanes(self, pointers, mask):
        """NaN for the lanes that a mask without other= leaves undefined: on a GPU they may hold anything."""
        dtype = np.dtype(interpreter._get_np_dtype(pointers.get_element_ty()))
        region = self.region_at(int(np.asarray(pointers.data).flat[0]))
        lanes = int((~np.asarray(mask.data, bool)).sum())
        self.undefined[(self.kernel, region.name if region else "?", self.line())] += lanes
        nan = np.nan if dtype.kind == "f" else 0x7FC0 if dtype.itemsize == 2 else 0x7F  # bfloat16 travels as its bits
        filled = np.full(pointers.data.shape, nan, dtype)
        return interpreter.TensorHandle(filled, pointers.get_element_ty())

    def fault(self, kind, region, lanes):
        self.faults[(kind, self.kernel, region.name if region else "?", self.line())] += lanes

    def line(self):
        """The line of the submission's own file that is running, or 0."""
        frame = sys._getframe(1)
        while frame and frame.f_code.co_filename != self.module:
            frame = frame.f_back
        return frame.f_lineno if frame else 0

    def report(self):
        """Plain data for the reply: the faults, and the undefined lanes, most lanes first."""

        def entries(counter, names):
            found = []
            for key, lanes in counter.most_common(20):
                entry = dict(zip(names, key, strict=True)) | {"lanes": lanes}
                entry["source"] = linecache.getline(self.module, entry["line"]).strip()
                found.append(entry)
            return found

        return {
            "launches": self.launches,
            "faults": entries(self.faults, ("kind", "kernel", "argument", "line")),
            "visits": self.visits.report(),
            "undefined": entries(self.undefined, ("kernel", "argument", "line")),
        }


def view_of(tensor):
    """(start, [(stride, size, dimension)]) in bytes within its storage, the widest stride first."""
    itemsize = tensor.element_size()
    strides = zip(tensor.stride(), tensor.shape, range(tensor.dim()), strict=True)
    dims = [(stride * itemsize, size, dimension) for stride, size, dimension in strides if size > 1]
    return tensor.storage_offset() * itemsize, sorted(dims, reverse=True)


def tensors_in(value):
    """The tensors of a kernel argument: itself, those of a tuple, the base of a descriptor."""
    value = getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from tensors_in(inner)
