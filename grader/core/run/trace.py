"""In the runner, interpreted: every load and store of every kernel, checked against the memory that it may touch.

Addresses are virtual (memory.py), so that a wild pointer can neither hit a neighbour nor crash the process: lanes
outside are noted and switched off. All memory operations of Triton's interpreter end in four functions of its C++
module, which is replaced by a proxy while a trace is open.
"""

import inspect
import linecache
import os
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import triton.runtime.interpreter as interpreter

from grader.core.interpret.patches import Patches
from grader.core.protocol import reports
from grader.core.protocol.messages import plain_bytes
from grader.core.protocol.reports import Fault, Place, Term, Undefined
from grader.core.run import address_terms, promises
from grader.core.run.addresses import Addresses, describe
from grader.core.run.allocations import GUARD, Allocations
from grader.core.run.costs import CostMeter
from grader.core.run.hooks import Overflows, list_hooks
from grader.core.run.observe import Access, Observer
from grader.core.run.regions import NOBODY, SPAN, Region, tensors_of_argument
from grader.core.worker.frames import frames_of, running_line

MOST_SHAPES = 64  # of blocks, by which lanes are told apart
ATOMIC, SEVERAL = -2, -3  # written by atomics, which any number of programs may; read by several
LARGE = 16384.0  # finite in every dtype
LOGGED = 2000  # characters of a traceback


def is_open() -> bool:
    """True where a trace watches every load and store."""
    return isinstance(interpreter._interpreter, Trace)


class Trace:
    """While open, traces every launch. faults: {(kind, kernel, argument, line, where): lanes}; undefined: masked loads
    whose lanes nobody defined, as {(kernel, argument, line): lanes}. places: (x, y, z) in its grid of each program.
    first: {key of a fault: what is known of its first place}.

    inputs: {name: tensor} as the grader made them; of their storages only these elements may be read. allocations: what
    was fenced. module: the name of the submission's file. own: the class of the course's own observer, or None.
    """

    def __init__(
        self, inputs: dict[str, torch.Tensor], allocations: Allocations, module: str, own: type[Observer] | None = None
    ) -> None:
        self.inputs, self.allocations, self.module = inputs, allocations, module
        self.given: dict[int, str] = {tensor.untyped_storage().data_ptr(): name for name, tensor in inputs.items()}
        self.faults: Counter[tuple[str, str, str, int, str]] = Counter()
        self.undefined: Counter[tuple[str, str, int]] = Counter()
        self.regions: dict[int, Region] = {}
        self.by_storage: dict[int, Region] = {}
        self.arguments: dict[int, list[tuple[str, torch.Tensor]]] = {}
        self.shapes: dict[tuple[int, ...], int] = {}
        self.kernel, self.program = "", NOBODY
        self.in_any_order: Any = None  # which lanes of an atomic operation come in any order, or None
        self.asked: list[int] = []  # programs with lanes that are undefined
        self.places: list[Place] = []
        self.first: dict[tuple, dict[str, Any]] = {}
        self.failed: list[str] = []  # tracebacks of what changes no verdict
        self.costs, self.addresses, self.own = CostMeter(self), Addresses(self), own(self) if own else None
        self.observers: list[Observer] = [self.addresses, self.costs, *([self.own] if self.own else [])]
        self.original = interpreter._interpreter
        self.overflows, self.patches = Overflows(self.line, self.overflow), Patches()

    # Opening and closing ---------------------------------------------------------------------------------------------

    def __enter__(self) -> "Trace":
        for owner, name, make in list_hooks(self):
            self.patches.replace(owner, name, make)
        self.overflows.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.overflows.__exit__()
        self.patches.undo()

    def begin_launch(self, function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> None:
        """Forget who touched what: only programs of one launch can race."""
        self.kernel = function.__name__
        self.regions, self.by_storage, self.arguments = {}, {}, {}
        parameters = inspect.getfullargspec(function).args
        named = inspect.getcallargs(function, *args, **{n: x for n, x in kwargs.items() if n in parameters})
        for name, value in named.items():
            for tensor in tensors_of_argument(value):
                self.arguments.setdefault(tensor.untyped_storage().data_ptr(), []).append((name, tensor))
        for observer in self.observers:
            observer.begin_launch()

    def begin_program(self, place: Place) -> None:
        self.program += 1
        self.places.append(place)
        for observer in self.observers:
            observer.begin_program(place)

    def end_launch(self) -> None:
        for observer in self.observers:
            observer.end_launch(self.regions.values())

    def virtual_address(self, tensor: torch.Tensor) -> int:
        """The address of this tensor that the kernel sees."""
        key = tensor.untyped_storage().data_ptr()
        if key not in self.by_storage:
            self.by_storage[key] = self.new_region(tensor, key)
        region = self.by_storage[key]
        return region.virtual + tensor.storage_offset() * tensor.element_size()  # data_ptr() is 0 where there are none

    def new_region(self, tensor: torch.Tensor, key: int) -> Region:
        arguments = self.arguments.get(key, [("?", tensor)])
        smallest = min(each.element_size() for each in (tensor, *(each for _, each in arguments)))
        number = max(self.regions, default=0) + 1 + random.SystemRandom().randrange(8)  # no kernel knows how far
        name, first = arguments[0]
        region = self.regions[number] = Region(number, tensor.untyped_storage(), name, first, smallest)
        if key in self.given:
            region.hold(self.given[key], self.inputs[self.given[key]])
        for buffer, size, _ in self.allocations.buffers:
            if buffer.untyped_storage().data_ptr() == key:
                region.first, region.last = GUARD, GUARD + size
        return region

    # The proxy of the C++ module -------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:  # RMW_OP, MEM_SEMANTIC and whatever else it has
        return getattr(self.__dict__["original"], name)

    def load(self, pointers: np.ndarray, mask: np.ndarray, other: Any, dtype: Any) -> np.ndarray:
        region, offsets, mask = self.access("load", pointers, mask, np.dtype(dtype).itemsize)
        if region is not None and offsets.size == mask.size:
            return region.read(offsets, np.dtype(dtype)).reshape(mask.shape)
        made = np.array(np.broadcast_to(other, mask.shape), dtype)
        if region is not None and offsets.size:
            made[mask] = region.read(offsets, np.dtype(dtype))
        return made

    def store(self, pointers: np.ndarray, value: np.ndarray, mask: np.ndarray) -> None:
        region, offsets, mask = self.access("store", pointers, mask, value.dtype.itemsize)
        if region is not None and offsets.size:
            region.write(offsets, np.broadcast_to(value, mask.shape)[mask])

    def atomic_rmw(
        self, operation: Any, pointers: np.ndarray, value: np.ndarray, mask: np.ndarray, semantic: Any
    ) -> np.ndarray:
        """What was there before; where another program's atomics were, a block has NaN or the largest integer.

        Which programs came before is not known: a counter alone may ask, as the queue of tiles does.
        """
        self.in_any_order = None
        region, _, mask = self.access("atomic", pointers, mask, value.dtype.itemsize)
        dense = (np.ascontiguousarray(array) for array in (real_addresses(region, pointers), value, mask))  # C++ reads
        before = self.original.atomic_rmw(operation, *dense, semantic)
        if self.in_any_order is not None and before.size > 1:
            unknown = np.zeros(before.shape, bool)
            unknown[mask] = self.in_any_order
            before = np.where(unknown, unknown_number(before.dtype), before)
        return before

    def atomic_cas(self, pointers: np.ndarray, compare: np.ndarray, value: np.ndarray, semantic: Any) -> np.ndarray:
        every = np.ones(np.shape(pointers), bool)
        region, _, legal = self.access("atomic", pointers, every, value.dtype.itemsize)
        if not legal.all():  # it has no mask: where one lane is illegal, none is run
            return np.zeros_like(compare)
        dense = (np.ascontiguousarray(array) for array in (real_addresses(region, pointers), compare, value))
        return self.original.atomic_cas(*dense, semantic)

    # Checking --------------------------------------------------------------------------------------------------------

    def access(
        self, kind: str, pointers: np.ndarray, mask: np.ndarray, itemsize: int
    ) -> tuple[Region | None, np.ndarray, np.ndarray]:
        """Check the live lanes of one operation: (the Region, byte offsets of the legal ones into it, their mask)."""
        pointers, mask = np.asarray(pointers), np.asarray(mask, bool)
        if mask.shape != pointers.shape:
            mask = np.broadcast_to(mask, pointers.shape)
        live = (pointers.reshape(-1) if mask.all() else pointers[mask]).astype(np.int64)
        if live.size == 0:
            return None, live, mask
        region = self.region_at(int(live[0]))
        if region:
            for observer in self.observers:
                observer.addressed(kind, region, pointers)
        offsets = live - region.virtual if region else live
        legal = region.legal(offsets, itemsize) if region else np.zeros(live.shape, bool)
        if not legal.all():
            where = describe_outside(live, legal) if region else "whole"
            self.fault(f"out-of-bounds {kind}", region, int((~legal).sum()), where, pointers=pointers)
            mask = mask.copy()
            mask[mask] = legal
            offsets = offsets[legal]
        if region is not None and offsets.size:
            for observer in self.observers:
                observer.accessed(Access(kind, region, offsets, itemsize, pointers.shape))
            if region.view is None:  # an input is read alone
                elements = offsets // region.itemsize
                self.check_sharing(kind, region, elements)
                self.check_lanes(kind, region, elements, mask)
        return region, offsets, mask

    def region_at(self, address: int) -> Region | None:
        return self.regions.get(address // SPAN)

    def check_sharing(self, kind: str, region: Region, elements: np.ndarray) -> None:
        """Programs of one launch run in any order: what one writes, no other may write or read."""
        writers, readers, me = region.touched_by("writers"), region.touched_by("readers"), self.program
        before, read = writers[elements], readers[elements]
        others = (before >= 0) & (before != me)
        if kind != "atomic" and region.atomics is not None:  # added up by several, and taken as if all had come
            others |= (before == ATOMIC) & (region.atomics[elements] != me)
        if kind == "load":
            readers[elements] = np.where((read == NOBODY) | (read == me), me, SEVERAL)
            if others.any():
                self.fault("read of another program's write", region, int(others.sum()))
            return
        if others.any():
            self.fault("write of another program's element", region, int(others.sum()), by=before[others][0])
        if (read := (read != NOBODY) & (read != me)).any():
            self.fault("write of what another program reads", region, int(read.sum()))
        if kind == "store":
            writers[elements] = me
        else:
            if region.atomics is not None:
                self.in_any_order = (before == ATOMIC) & (region.atomics[elements] != me)
            writers[elements] = ATOMIC
            region.touched_by("atomics")[elements] = me

    def check_lanes(self, kind: str, region: Region, elements: np.ndarray, mask: np.ndarray) -> None:
        """Lanes of one program run in any order, too: what one stores, another may load after a barrier alone."""
        if kind == "atomic" or (kind == "load" and region.lanes is None):
            return
        block = self.shapes.setdefault(mask.shape, len(self.shapes) + 1)
        lanes = np.flatnonzero(mask) * MOST_SHAPES + block % MOST_SHAPES
        if kind == "store":
            stored_by = region.touched_by("lanes")
            stored_by[elements] = lanes
            if twice := int((stored_by[elements] != lanes).sum()):
                self.fault("element written twice by one store", region, twice)
        else:
            writers, stored_by = region.touched_by("writers"), region.touched_by("lanes")
            stored = np.where(writers[elements] == self.program, stored_by[elements], NOBODY)
            if (others := (stored >= 0) & (stored != lanes)).any():
                self.fault("read of another lane's write", region, int(others.sum()))

    def undefined_lanes(self, pointers: Any, mask: Any) -> Any:
        """What a mask without other= leaves undefined: NaN in one program, a large number in the next that asks.

        On a GPU the lanes may hold anything, and a kernel that looks for NaN there must not find it each time.
        """
        dtype = np.dtype(interpreter._get_np_dtype(pointers.get_element_ty()))
        region = self.region_at(int(np.asarray(pointers.data).flat[0]))
        lanes = int((~np.asarray(mask.data, bool)).sum())
        self.undefined[(self.kernel, region.name if region else "?", self.line())] += lanes
        if lanes and (not self.asked or self.asked[-1] != self.program):
            self.asked.append(self.program)
        which = len(self.asked) % 2
        if dtype.kind == "f":
            anything = np.nan if which else LARGE
        else:  # bfloat16 travels as its bits
            anything = (0x7FC0 if which else 0x4680) if dtype.itemsize == 2 else 0x7F
        filled = np.full(pointers.data.shape, anything, dtype)
        return interpreter.TensorHandle(filled, pointers.get_element_ty())

    def fault(
        self, kind: str, region: Region | None, lanes: int, where: str = "", by: int = NOBODY,
        pointers: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """by: the other program, if there is one. pointers: of all lanes."""
        key = kind, self.kernel, region.name if region else "?", self.line(), where
        self.faults[key] += lanes
        if key not in self.first:
            shape = list(region.tensor.shape) if region else []
            programs = [self.places[program] for program in (by, self.program) if program >= 0]
            at = describe(region, pointers) if region and pointers is not None else None
            self.first[key] = {"programs": programs, "shape": shape, "at": at, "terms": self.terms()}

    def terms(self) -> list[Term]:
        """What the text adds to the pointer of the access that runs, as address_terms.py tells it."""
        try:
            return address_terms.find_terms(linecache.getlines(self.module), list(frames_of(self.module)))
        except Exception:  # words, on which no verdict depends: whoever reads the trace logs it
            if os.environ.get("GRADER_DEBUG") == "1":
                raise
            self.failed.append(traceback.format_exc()[-LOGGED:])
            return []

    def promise(self, hint: str, handle: Any, sizes: Any) -> None:
        """Note a hint to the compiler that does not hold."""
        if lanes := promises.broken(hint, handle, sizes):
            self.faults[("hint that does not hold", self.kernel, hint, self.line(), "")] += lanes

    def barrier(self) -> None:
        """What the program stored so far, all its lanes may load."""
        for region in self.regions.values():
            region.lanes = None

    def overflow(self, line: int, lanes: int) -> None:
        self.faults[("int32 overflow", self.kernel, "?", line, "")] += lanes

    def line(self) -> int:
        return running_line(self.module) or 0

    def kernel_line(self) -> int:
        """The line of the kernel itself that is running, even while a function that it called runs; or 0."""
        return next((frame.f_lineno for frame in reversed([*frames_of(self.module)])), 0)

    def report(self) -> reports.TraceReport:
        """The reports.TraceReport: faults and undefined lanes, most lanes first."""

        def entries(kind: Any, counter: Counter[Any], names: tuple[str, ...]) -> Iterator[Any]:
            for key, lanes in counter.most_common(20):
                named = dict(zip(names, key, strict=True))
                source = linecache.getline(self.module, named["line"]).strip()
                yield kind(lanes=lanes, source=source, **named, **self.first.get(key, {}))

        faults = list(entries(Fault, self.faults, ("kind", "kernel", "argument", "line", "where")))
        return reports.TraceReport(
            sorted(faults, key=lambda fault: fault.kind != "int32 overflow"),  # it causes others
            list(entries(Undefined, self.undefined, ("kernel", "argument", "line"))),
            addresses=self.addresses.tables_of_kinds("store", *(["load"] if self.faults else [])),
            inside_rows=self.addresses.inside_rows, kernels=self.costs.kernels, costs=self.costs.report(),
            own=plain_bytes(self.own and self.own.report()), failed=self.failed,
        )  # fmt: skip


def unknown_number(dtype: np.dtype) -> float:
    """NaN; of integers the largest, which read as a float is NaN too."""
    return np.nan if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).max


def real_addresses(region: Region | None, pointers: np.ndarray) -> np.ndarray:
    """Where the lanes lie whose pointers are of this region; anywhere without one, since none is live."""
    return (pointers.astype(np.int64) - region.virtual + region.real).astype(np.uint64) if region else pointers


def describe_outside(addresses: np.ndarray, legal: np.ndarray) -> str:
    """Which part of one access lies outside: "whole", its "end" or its "start", by address; else "scattered" lanes."""
    inside = legal[np.argsort(addresses, kind="stable")]
    if not inside.any():
        return "whole"
    turns = np.count_nonzero(inside[1:] != inside[:-1])
    return "scattered" if turns > 1 else "end" if inside[0] else "start"
