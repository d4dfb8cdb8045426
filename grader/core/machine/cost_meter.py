"""What the kernels of a run cost, counted.

A kernel cannot hide a cost: it must multiply what it computes, load what it reads, and hold what it keeps. What one
execution of an operation costs stands in the text; the meter counts how many programs execute it. The course compares
the counts with what a case needs.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grader.core.machine.combining import only_operation
from grader.core.machine.held import FREE, elements_of, most_held
from grader.core.machine.observer import Access, Launch, Observer
from grader.core.machine.operation_table import TABLE
from grader.core.machine.text import Block, Module, Operation, Region
from grader.core.protocol.reports import Costs, Dots, KernelCosts, Multiplied

# Operations by which a product of two blocks can be made, sums of logarithms among them.
MULTIPLYING = {
    "arith.mulf", "arith.muli", "math.fma", "arith.divf", "tt.precise_divf", "tt.approx_divf", "arith.remf",
    "arith.divsi", "arith.divui", "tt.mulhiui", "math.exp", "math.exp2", "math.log", "math.log2", "math.sqrt",
    "tt.precise_sqrt", "math.rsqrt", "math.sin", "math.cos", "math.tanh", "math.erf", "tt.extern_elementwise",
}  # fmt: skip
DOTS = {"tt.dot", "tt.dot_scaled"}
BY_ELEMENT = {"tt.reduce", "tt.scan", "tt.map_elementwise"}  # their regions run once for each element
PART = 0.05  # of all products: kernels that make less of them, all together, merge parts
WORD = 4  # bytes of the widest number of a block that is moved: a lane of more holds several


@dataclass(frozen=True)
class Cost:
    """Of one operation in one program. made: elements of blocks. multiplied: elements of a block of this shape that
    are multiplied one by one; products: those of floats, and those of a dot, whose rows, columns and depth are
    `dot`."""

    made: int
    multiplied: int
    shape: tuple[int, ...]
    exponentials: int
    products: int
    dot: tuple[int, int, int] | None


@lru_cache(maxsize=256)
def find_costs(module: Module) -> dict[Block, list[Cost]]:
    """Of the operations in each block."""
    return dict(pair for function in module.functions.values() for pair in costs_in(function.body, None))


def costs_in(region: Region, shape: tuple[int, ...] | None) -> Iterator[tuple[Block, list[Cost]]]:
    """shape: of the blocks whose elements the region combines; None: it works on blocks itself."""
    for block in region.blocks:
        known = [operation for operation in block.operations if operation.name in TABLE]
        costs = (cost_of(operation, shape) for operation in known)
        yield block, [cost for cost in costs if cost.made or cost.multiplied or cost.dot]
        for operation in block.operations:
            inner = operation.types[0].shape if operation.name in BY_ELEMENT else shape
            for each in operation.regions:
                yield from costs_in(each, inner)


def cost_of(operation: Operation, around: tuple[int, ...] | None) -> Cost:
    name, kinds = operation.name, operation.made
    made = 0 if name in FREE else sum(map(elements_of, kinds))
    if name in DOTS:
        a, c = operation.types[0].shape, operation.types[-1].shape
        return Cost(made, 0, (), 0, math.prod(a) * c[-1], (c[-2], c[-1], a[-1]))
    inner = only_operation(operation.regions[0]) if name == "tt.reduce" else ""
    if inner in MULTIPLYING and operation.prepared[1]:  # its region is not run
        name, kinds = inner, operation.types[:1]
    if name not in MULTIPLYING:
        return Cost(made, 0, (), 0, 0, None)
    (kind,) = kinds
    exponential = name in ("math.exp", "math.exp2") or "exp" in operation.attributes.get("symbol", "")
    products = kind.elements if kind.dtype.is_floating_point else 0
    shape = kind.shape if around is None else around
    return Cost(made, kind.elements, shape, kind.elements if exponential else 0, products, None)


class CostMeter(Observer):
    """What kernels cost.

    kernels: {name: KernelCosts}. executed: {block: programs that executed it in this launch}. dots: {(rows,
    columns, depth): multiply-adds}. multiplied: {shape of a block: elements that were multiplied one by one}. inputs:
    {name: elements loaded of an input of the call}. moved: elements "loaded" and "stored" by live lanes. products:
    multiplications by kernel. loaded_by: {kernel: {(a storage, bytes of an element): the storage, and at which bytes an
    element began that was loaded}}.
    """

    def __init__(self) -> None:
        self.kernels: dict[str, KernelCosts] = {}
        self.current = KernelCosts()
        self.executed: Counter[Block] = Counter()
        self.dots: Counter[tuple[int, int, int]] = Counter()
        self.multiplied: Counter[tuple[int, ...]] = Counter()
        self.inputs: Counter[str] = Counter()
        self.moved: Counter[str] = Counter()
        self.computed = self.held = 0
        self.products: Counter[str] = Counter()
        self.loaded_by: dict[str, dict[Any, tuple[torch.UntypedStorage, np.ndarray]]] = {}
        self.known: dict[Any, tuple[torch.UntypedStorage, np.ndarray]] = {}

    def begin_launch(self, launch: Launch) -> None:
        self.current = self.kernels.setdefault(launch.kernel, KernelCosts())
        self.current.launches += 1
        self.current.programs += launch.programs
        self.known = self.loaded_by.setdefault(launch.kernel, {})
        self.held = max(self.held, most_held(launch.module, launch.kernel))

    def ran(self, block: Block, programs: int) -> None:
        self.executed[block] += programs

    def end_launch(self, launch: Launch) -> None:
        costs = find_costs(launch.module)
        for block, times in self.executed.items():
            for cost in costs.get(block, ()):
                self.computed += times * cost.made
                self.products[launch.kernel] += times * cost.products
                self.current.exponentials += times * cost.exponentials
                if cost.dot:
                    self.dots[cost.dot] += times * cost.products
                    self.current.dot_flops += 2 * times * cost.products
                elif cost.multiplied:
                    self.multiplied[cost.shape] += times * cost.multiplied
        self.executed.clear()

    def accessed(self, access: Access) -> None:
        """Count what is moved; several programs may load one number of a list."""
        buffer, is_load, current = access.buffer, access.kind == "load", self.current
        lanes = access.counts
        elements, programs = int(lanes.sum()), int(lanes.count_nonzero())
        if not elements:
            return
        moved, count = (current.loaded, current.loads) if is_load else (current.stored, current.stores)
        moved[buffer.name] = moved.get(buffer.name, 0) + elements * access.itemsize
        count[buffer.name] = count.get(buffer.name, 0) + programs
        if buffer.input and not buffer.tensor.dtype.is_floating_point:
            elements = count_different(access)
        else:  # a pointer may have been cast to a wider type
            elements *= max(1, access.itemsize // (buffer.tensor.element_size() if buffer.input else WORD))
        self.moved["loaded" if is_load else "stored"] += elements
        if is_load:
            self.note_loaded(access)
            if buffer.input:
                self.inputs[buffer.input] += elements

    def note_loaded(self, access: Access) -> None:
        """Remember which elements were loaded, but of what lies far apart."""
        buffer = access.buffer
        if not buffer.far:
            key = buffer.storage.data_ptr(), access.itemsize
            if key not in self.known:
                self.known[key] = buffer.storage, np.zeros(buffer.bytes, bool)  # kept: no other has its address
            self.known[key][1][live_offsets(access).numpy()] = True

    def overwritten(self, tensors: Iterable[Tensor]) -> None:
        """Between launches PyTorch has written into these: what is loaded of them now are other elements."""
        storages = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        for known in self.loaded_by.values():
            for key in [key for key in known if key[0] in storages]:
                known[(None, len(known), key[1])] = known.pop(key)

    def different(self) -> int:
        """Bytes that kernels load which make a good part of all products, each of a storage counted once."""
        left = PART * sum(self.products.values())
        found: dict[Any, list[np.ndarray]] = {}
        for kernel, known in sorted(self.loaded_by.items(), key=lambda item: self.products[item[0]]):
            left -= self.products[kernel]
            if left < 0:
                for key, (_, loaded) in known.items():
                    found.setdefault(key, []).append(loaded)
        return sum(key[-1] * int(np.count_nonzero(np.logical_or.reduce(parts))) for key, parts in found.items())

    def report(self) -> Costs:
        dots = [Dots(*dims, count) for dims, count in self.dots.items()]
        multiplied = [Multiplied(list(shape), count) for shape, count in self.multiplied.items()]
        loaded, stored = self.moved["loaded"], self.moved["stored"]
        return Costs(dots, multiplied, self.computed, loaded, stored, dict(self.inputs), self.held, self.different())


def count_different(access: Access) -> int:
    """How many elements an access moves, each once in each program."""
    offsets = access.offsets.expand(access.whole)
    if access.live is not None:
        offsets = torch.where(access.live.expand(access.whole), offsets, -1)
    ordered, _ = offsets.reshape(access.frame.count, -1).sort(1)
    new = ordered[:, 1:] != ordered[:, :-1]
    return int((ordered[:, 0] >= 0).sum() + (new & (ordered[:, 1:] >= 0)).sum())


def live_offsets(access: Access) -> Tensor:
    """The byte offsets of the live lanes, some of them more than once."""
    offsets, live = access.offsets, access.live
    if live is None:
        return offsets
    axes = [axis for axis, size in enumerate(live.shape) if size > 1]
    rest = [axis for axis, size in enumerate(live.shape) if size == 1]
    sizes = [live.shape[axis] if axis in axes else offsets.shape[axis] for axis in range(live.dim())]
    rows = offsets.expand(sizes).permute(axes + rest).reshape(live.numel(), -1)
    return rows[live.reshape(-1)]
