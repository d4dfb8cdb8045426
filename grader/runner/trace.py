"""In the runner, interpreted: every load and store of every kernel, checked against the memory that it may touch.

Addresses are virtual (memory.py), so that a wild pointer can neither hit a neighbour nor crash the process: lanes
outside are noted and switched off. All memory operations of Triton's interpreter end in four functions of its C++
module, which is replaced by a proxy while a trace is open.
"""

import contextlib
import inspect
import linecache
import sys
from collections import Counter

import address_terms
import numpy as np
import triton.runtime.interpreter as interpreter
from addresses import Addresses, described
from allocations import GUARD
from counters import LiveScores, Origin, TileVisits, Traffic, count_lanes
from hooks import Overflows, hooks
from memory import NOBODY, NOTHING, ROLES, SHIFT, WINDOW, Origins, Region, tensors_of_argument
from patches import Patches

COPIED = 1.2  # elements loaded of k or v for each different one: more is a copy for each head
ATOMIC = -2  # written by atomics: any number of programs may


def is_open():
    """True where a trace watches every load and store."""
    return isinstance(interpreter._interpreter, Trace)


class Trace:
    """While open, traces every launch. faults: {(kind, kernel, argument, line, where): lanes}; undefined: masked loads
    whose lanes nobody defined, as {(kernel, argument, line): lanes}. places: (x, y, z) in its grid of each program.
    first: {key of a fault: {"programs": the places of those that did it first, "shape": of the argument, "at": which
    addresses, as addresses.py describes them, "terms": of its address, as address_terms.py tells them}}.

    inside_rows: {argument: {"column", "row", "line"}} of the first block of whole rows that begins inside one.

    inputs: {"q": tensor, ...} as the grader made them; only their own elements may be read. allocations: what was
    fenced. module: the name of the submission's file. watchers: {address of a storage: function(program, byte offsets
    into it)} to be told of loads. others: inputs beside q, k and v, flat and whole: around them nothing may be read.
    origins: which elements are copies of q, k and v.
    """

    def __init__(self, inputs, allocations, module, watchers=(), others=()):
        self.inputs, self.origins = inputs, Origins(inputs)
        self.shapes = {role: tensor.shape for role, tensor in inputs.items()}
        self.given = {tensor.untyped_storage().data_ptr(): role for role, tensor in inputs.items()}
        self.visits, self.traffic, self.live_scores = TileVisits(self.kernel_line), Traffic(), LiveScores()
        self.loaded, self.labels_of = {}, {}
        self.allocations, self.module, self.watchers = allocations, module, dict(watchers)
        self.others = {tensor.untyped_storage().data_ptr(): tensor for tensor in others}
        self.faults, self.undefined, self.launches, self.products = Counter(), Counter(), 0, 0
        self.regions, self.by_storage, self.arguments = [], {}, {}
        self.kernel, self.program, self.origin, self.storing = "", NOBODY, None, None
        self.places, self.first, self.addresses, self.inside_rows = [], {}, Addresses(), {}
        self.original = interpreter._interpreter
        self.overflows, self.patches = Overflows(self.line, self.overflow), Patches()

    # Opening and closing ---------------------------------------------------------------------------------------------

    def __enter__(self):
        for owner, name, make in hooks(self):
            self.patches.replace(owner, name, make)
        self.overflows.__enter__()
        return self

    def __exit__(self, *exc):
        self.overflows.__exit__()
        self.patches.undo()

    def begin_launch(self, function, args, kwargs):
        """Forget who touched what: only programs of one launch can race."""
        self.kernel, self.launches = function.__name__, self.launches + 1
        self.traffic.begin_launch(self.kernel)
        self.regions, self.by_storage, self.arguments = [], {}, {}
        self.addresses.begin_launch(bool(self.faults))
        parameters = inspect.getfullargspec(function).args
        named = inspect.getcallargs(function, *args, **{k: v for k, v in kwargs.items() if k in parameters})
        for name, value in named.items():
            for tensor in tensors_of_argument(value):
                self.arguments.setdefault(tensor.untyped_storage().data_ptr(), []).append((name, tensor))

    def begin_program(self, *place):
        self.program += 1
        self.places.append(place)
        self.live_scores.begin_program()
        self.visits.begin_program()
        self.traffic.begin_program(self.kernel, self.program)

    def end_launch(self):
        """Keep which elements of k and v, and of copies of them, the launch loaded, by their storage."""
        for region in self.regions:
            if region.loaded is not None:
                key = self.kernel, region.name, region.key
                before = self.loaded.get(key)
                self.loaded[key] = region.loaded if before is None else before | region.loaded
                self.labels_of[key] = region.every_label()

    def copies(self):
        """{role: {"argument", "kernel", "elements", "needed"}} of k and v where copies of them are loaded."""
        found, seen = {}, {}
        for key, loaded in self.loaded.items():
            seen[key[2]] = key[:2], loaded | seen[key[2]][1] if key[2] in seen else loaded, self.labels_of[key]
        for role in "kv":
            parts = []
            for names, loaded, labels in seen.values():
                own = labels[: len(loaded)][loaded[: len(labels)]]
                own = own[(own != NOTHING) & (own >> SHIFT == ROLES.index(role))]
                if own.size:
                    parts.append((names, own))
            elements = sum(own.size for _, own in parts)
            needed = np.unique(np.concatenate([own for _, own in parts])).size if parts else 0
            if elements > COPIED * needed:
                (kernel, argument), _ = max(parts, key=lambda part: part[1].size)
                found[role] = {"argument": argument, "kernel": kernel, "elements": elements, "needed": needed}
        return found

    def note_product(self, a, b, products=0):
        self.products += products
        return self.visits.note_product(self.kernel, a, b)

    def virtual_address(self, tensor):
        """Where the kernel is told that this tensor lies."""
        key = tensor.untyped_storage().data_ptr()
        if key not in self.by_storage:
            self.by_storage[key] = self.new_region(tensor, key)
        region = self.by_storage[key]
        return region.virtual + tensor.storage_offset() * tensor.element_size()  # data_ptr() is 0 where there are none

    def new_region(self, tensor, key):
        arguments = self.arguments.get(key, [("?", tensor)])
        region = Region(len(self.regions), tensor.untyped_storage(), arguments[0][0], tensor.element_size())
        region.key, region.tensor = key, arguments[0][1]
        region.watcher, region.shapes = self.watchers.get(key), self.shapes
        self.regions.append(region)
        if key in self.given:
            region.holds(self.given[key], self.inputs[self.given[key]])
            region.legal_view, region.tensor = region.role_view, self.inputs[self.given[key]]
            return region
        labels = self.origins.labels(key)
        region.labels = None if labels is None else labels.numpy()
        if (other := self.others.get(key)) is not None:
            region.first = other.storage_offset() * other.element_size()
            region.last = region.first + other.nbytes
        for buffer, size, _ in self.allocations.buffers:
            if buffer.untyped_storage().data_ptr() == key:
                region.first, region.last = GUARD, GUARD + size
        return region

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
        mask = np.asarray(mask, bool)
        if mask.shape != pointers.shape:
            mask = np.broadcast_to(mask, pointers.shape)
        mask = np.ascontiguousarray(mask)
        live = pointers[mask].astype(np.int64)
        if live.size == 0:
            if kind == "load" and pointers.size:
                self.note_empty(pointers)
            return pointers, mask
        region = self.region_at(int(live[0]))
        if region and kind == "load" and region.role and (begins := region.begins_inside_a_row(pointers)):
            self.inside_rows.setdefault(region.name, begins | {"line": self.line()})
        if region and region.seen_by.get(kind) != self.program:
            region.seen_by[kind] = self.program
            self.addresses.note(kind, region, self.places[self.program], pointers)
        offsets = live - region.virtual if region else live
        legal = region.legal(offsets, itemsize) if region else np.zeros(live.shape, bool)
        if not legal.all():
            where = describe_outside(live, legal) if region else "whole"
            self.fault(f"out-of-bounds {kind}", region, int((~legal).sum()), where, pointers=pointers)
            mask = mask.copy()
            mask[mask] = legal
            offsets = offsets[legal]
        if region is None:
            return pointers, mask
        if offsets.size:
            self.traffic.moved(kind, region.name, offsets.size * itemsize)
            if region.legal_view is None:
                self.check_sharing(kind, region, offsets // itemsize)
            if region.watcher and kind == "load":
                region.watcher(self.program, offsets)
            if kind == "load" and (region.role or region.labels is not None):
                self.origin = self.find_origin(region, offsets, pointers.shape, mask)
                if self.origin:
                    self.visits.load(self.kernel, self.origin)
            if kind == "store" and region.legal_view is None:
                self.label(region, offsets, mask)
        return (pointers.astype(np.int64) - region.virtual + region.real).astype(np.uint64), mask

    def note_empty(self, pointers):
        """A block of K or V of which a mask hides every lane: it is multiplied all the same."""
        region = self.region_at(int(pointers.astype(np.int64).flat[0]))
        if region and region.role in ("k", "v"):
            rows = min(count_lanes(pointers.shape, region.width), pointers.size / region.width)
            self.visits.empty[region.role] += rows

    def find_origin(self, region, offsets, shape, mask):
        if region.labels is None:
            role, (tokens, place) = region.role, region.place(offsets)
            count, width = offsets.size, region.width
            if role != "q":
                region.note_loaded(offsets)
        else:
            found = region.copied(offsets)
            if found is None:
                return None
            role, tokens, place, count = found
            width = self.shapes[role[0]][-1]
            region.note_loaded(offsets)
        rows = tokens[1] - tokens[0] + 1  # lanes past the end may have been turned back to a row that is there
        part = min(1.0, count / (rows * width))

        def labels():
            every = np.full(shape, NOTHING, np.int64)
            every[mask] = region.labels_at(offsets)
            return every

        return Origin(role, tokens, place, part, count_lanes(shape, width), labels)

    def label(self, region, offsets, mask):
        """What a kernel stores of q, k or v is a copy too; scores that it stores are alive."""
        origin, shape = self.storing or (None, ())
        if origin is not None and origin.role == "scores":
            self.live_scores.stored(self.kernel, origin)
        labels = origin.labels() if origin is not None and origin.labels else None
        if labels is not None and labels.shape != shape and labels.shape[::-1] == shape:
            labels = labels.T
        if labels is not None and labels.shape == mask.shape and labels[mask].shape == offsets.shape:
            if region.labels is None:
                region.labels = self.origins.add(region.key, -(-region.bytes // region.itemsize)).numpy()
            region.labels[offsets // region.itemsize] = labels[mask]
        elif region.labels is not None:
            region.labels[offsets // region.itemsize] = NOTHING

    def region_at(self, address):
        index = address // WINDOW - 1
        return self.regions[index] if 0 <= index < len(self.regions) else None

    def check_sharing(self, kind, region, elements):
        """Programs of one launch run in any order: what one writes, no other may write or read."""
        writers, me = region.touched_by("writers"), self.program
        before = writers[elements]
        others = (before >= 0) & (before != me)
        if kind != "atomic" and region.atomics is not None:  # added up by several, and taken as if all had come
            others |= (before == ATOMIC) & (region.atomics[elements] != me)
        if kind == "load":
            region.touched_by("readers")[elements] = me
            if others.any():
                self.fault("read of another program's write", region, int(others.sum()))
        elif kind == "store":
            readers = region.touched_by("readers")[elements]
            writers[elements] = me
            if others.any():
                self.fault("write of another program's element", region, int(others.sum()), by=before[others][0])
            if (twice := elements.size - np.unique(elements).size) > 0:
                self.fault("element written twice by one store", region, twice)
            if (read := (readers >= 0) & (readers != me)).any():
                self.fault("write of what another program reads", region, int(read.sum()))
        else:
            writers[elements] = ATOMIC
            region.touched_by("atomics")[elements] = me

    def undefined_lanes(self, pointers, mask):
        """NaN for the lanes that a mask without other= leaves undefined: on a GPU they may hold anything."""
        dtype = np.dtype(interpreter._get_np_dtype(pointers.get_element_ty()))
        region = self.region_at(int(np.asarray(pointers.data).flat[0]))
        lanes = int((~np.asarray(mask.data, bool)).sum())
        self.undefined[(self.kernel, region.name if region else "?", self.line())] += lanes
        nan = np.nan if dtype.kind == "f" else 0x7FC0 if dtype.itemsize == 2 else 0x7F  # bfloat16 travels as its bits
        filled = np.full(pointers.data.shape, nan, dtype)
        return interpreter.TensorHandle(filled, pointers.get_element_ty())

    def fault(self, kind, region, lanes, where="", by=NOBODY, pointers=None):
        """by: the other program, if there is one. pointers: of all lanes."""
        key = kind, self.kernel, region.name if region else "?", self.line(), where
        self.faults[key] += lanes
        if key not in self.first:
            shape = list(region.tensor.shape) if region else []
            programs = [self.places[program] for program in (by, self.program) if program >= 0]
            at = described(region, pointers) if region and pointers is not None else {}
            self.first[key] = {"programs": programs, "shape": shape, "at": at, "terms": self.terms()}

    def terms(self):
        """What the text adds to the pointer of the access that runs, as address_terms.py tells it."""
        frames, frame = [], sys._getframe(1)
        while frame:
            frames += [frame] if frame.f_code.co_filename == self.module else []
            frame = frame.f_back
        with contextlib.suppress(Exception):  # words, on which no verdict depends
            return address_terms.Terms(address_terms.Text(linecache.getlines(self.module)), frames).report()
        return []

    def overflow(self, line, lanes):
        self.faults[("int32 overflow", self.kernel, "?", line, "")] += lanes

    def line(self):
        """The line of the submission's own file that is running, or 0."""
        frame = sys._getframe(1)
        while frame and frame.f_code.co_filename != self.module:
            frame = frame.f_back
        return frame.f_lineno if frame else 0

    def kernel_line(self):
        """The line of the kernel itself that is running, where it may have called another; or 0."""
        frame, line = sys._getframe(1), 0
        while frame:
            line = frame.f_lineno if frame.f_code.co_filename == self.module else line
            frame = frame.f_back
        return line

    def report(self):
        """Plain data for the reply: the faults, and the undefined lanes, most lanes first."""

        def entries(counter, names):
            found = []
            for key, lanes in counter.most_common(20):
                entry = dict(zip(names, key, strict=True)) | {"lanes": lanes}
                entry |= self.first.get(key, {})
                entry["source"] = linecache.getline(self.module, entry["line"]).strip()
                found.append(entry)
            return found

        return {
            "launches": self.launches,
            "faults": sorted(  # what overflows is the cause of what is then out of bounds
                entries(self.faults, ("kind", "kernel", "argument", "line", "where")),
                key=lambda fault: fault["kind"] != "int32 overflow",
            ),
            **self.visits.report(),
            "totals": self.traffic.report(),
            "copied_out": self.copies(),
            "live_scores": self.live_scores.report(),
            "products": self.products,
            "undefined": entries(self.undefined, ("kernel", "argument", "line")),
            "addresses": self.addresses.report(("load", "store") if self.faults else ("store",)),
            "inside_rows": self.inside_rows,
        }


def describe_outside(addresses, legal):
    """Which part of one access lies outside: "whole", its "end" or its "start", by address; else "scattered" lanes."""
    inside = legal[np.argsort(addresses, kind="stable")]
    if not inside.any():
        return "whole"
    turns = np.count_nonzero(inside[1:] != inside[:-1])
    return "scattered" if turns > 1 else "end" if inside[0] else "start"
