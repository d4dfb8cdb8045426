"""In the runner, interpreted: what a program costs, counted.

A kernel cannot hide a cost: it must multiply what it computes, load what it reads, and hold what it keeps. So the meter
counts operations and elements, and never asks which numbers a block holds. The course compares the counts with what a
case needs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from triton.runtime.interpreter import TensorHandle

from grader.core.interpret.patches import add
from grader.core.protocol.reports import Costs, Dots, KernelCosts, Multiplied, Place
from grader.core.run.observe import Access, Observer, Patch
from grader.core.run.regions import Region

# Operations of the interpreter's builder by which a product of two blocks can be made, sums of logarithms among them.
MULTIPLYING = (
    "create_fmul", "create_mul", "create_fma", "create_fdiv", "create_precise_divf", "create_frem", "create_idiv",
    "create_umulhi", "create_exp", "create_exp2", "create_log", "create_log2", "create_sqrt", "create_precise_sqrt",
    "create_rsqrt", "create_sin", "create_cos", "create_erf",
)  # fmt: skip
PART = 0.05  # of all products: a kernel that makes less of them merges parts
EXPONENTIALS = ("create_exp", "create_exp2")


class CostMeter(Observer):
    """What kernels cost, by kernel and for each program.

    kernels: {name: KernelCosts}. alive: elements of the blocks that there are now, most: of a program so far. dots:
    {(rows, columns, depth): multiply-adds}. multiplied: {shape of a block: elements that were multiplied one by one}.
    inputs: {name: elements loaded of an input of the call}. moved: elements "loaded" and "stored" by live lanes. held:
    the most elements that a program has in blocks at once. products: multiplications by kernel. loaded_by: {kernel: {a
    storage: which of its elements were loaded}}.
    """

    operations = ("create_dot", *MULTIPLYING)

    def __init__(self, watch: Any) -> None:
        super().__init__(watch)
        self.kernels: dict[str, KernelCosts] = {}
        self.current = KernelCosts()
        self.dots: Counter[tuple[int, int, int]] = Counter()
        self.multiplied: Counter[tuple[int, ...]] = Counter()
        self.inputs: Counter[str] = Counter()
        self.moved: Counter[str] = Counter()
        self.alive = self.alive_before = self.most = self.held = self.computed = self.products_here = 0
        self.products: Counter[str] = Counter()
        self.loaded_by: dict[str, dict[Any, tuple[torch.UntypedStorage, int, np.ndarray]]] = {}

    def begin_launch(self) -> None:
        self.current = self.kernels.setdefault(self.watch.kernel, KernelCosts())
        self.current.launches += 1
        self.products_here = 0

    def begin_program(self, place: Place) -> None:
        self.end_program()
        self.current.programs += 1
        self.alive_before = self.most = self.alive

    def end_program(self) -> None:
        self.held = max(self.held, self.most - self.alive_before)

    def end_launch(self, regions: Iterable[Region]) -> None:
        """Keep which elements of these regions the kernel has loaded."""
        self.end_program()
        self.products[self.watch.kernel] += self.products_here
        known = self.loaded_by.setdefault(self.watch.kernel, {})
        for region in regions:
            if region.loaded is not None:
                key = region.storage.data_ptr()
                _, size, before = known.get(key, (None, 0, None))
                loaded = region.loaded if before is None or size != region.itemsize else before | region.loaded
                known[key] = region.storage, region.itemsize, loaded  # kept: no other has its address

    def overwritten(self, tensors: Iterable[torch.Tensor]) -> None:
        """Between launches PyTorch has written into these: what is loaded of them now are other elements."""
        keys = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        for known in self.loaded_by.values():
            for key in keys & known.keys():
                known[key, len(known)] = known.pop(key)

    def different(self) -> int:
        """Bytes that kernels load which make a good part of all products, each of a storage counted once."""
        whole = sum(self.products.values())
        found: dict[Any, list[np.ndarray]] = {}
        for kernel, known in self.loaded_by.items():
            if self.products[kernel] > PART * whole:
                for key, (_, size, loaded) in known.items():
                    found.setdefault((key, size), []).append(loaded)
        return sum(size * int(np.logical_or.reduce(parts).sum()) for (_, size), parts in found.items())

    def accessed(self, access: Access) -> None:
        """Count what is moved; several programs may load one number of a list."""
        region, is_load = access.region, access.kind == "load"
        current = self.current
        moved, count = (current.loaded, current.loads) if is_load else (current.stored, current.stores)
        moved[region.name] = moved.get(region.name, 0) + access.offsets.size * access.itemsize
        count[region.name] = count.get(region.name, 0) + 1
        is_list = region.input and not region.tensor.dtype.is_floating_point
        elements = np.unique(access.offsets).size if is_list else access.offsets.size
        self.moved["loaded" if is_load else "stored"] += elements
        if is_load:
            region.note_loaded(access.offsets, access.itemsize)
            if region.input:
                self.inputs[region.input] += elements

    def after(self, operation: str, operands: tuple, made: Any) -> None:
        if operation == "create_dot":
            self.dot(operands[0].data, operands[1].data)
        else:
            self.multiply(operation, made.data)

    def dot(self, a: np.ndarray, b: np.ndarray) -> None:
        """Two blocks (..., rows, depth) and (..., depth, columns)."""
        *_, rows, depth = a.shape
        products = a.size * b.shape[-1]
        self.dots[rows, b.shape[-1], depth] += products
        self.current.dot_flops += 2 * products
        self.products_here += products

    def multiply(self, operation: str, block: np.ndarray) -> None:
        self.multiplied[block.shape] += block.size
        if operation in EXPONENTIALS:
            self.current.exponentials += block.size
        if block.dtype.kind == "f":
            self.products_here += block.size

    def patches(self) -> Iterator[Patch]:
        """Every block is counted from its making to the end of its last name."""

        def begun(old: Any) -> Any:
            def made(handle: TensorHandle) -> None:
                handle.counted = self, (size := handle.data.size)
                self.computed += size
                self.alive += size
                if self.alive > self.most:
                    self.most = self.alive

            return made

        add(TensorHandle, "__del__", end_block)  # it stays: a block may outlive the trace
        yield TensorHandle, "__post_init__", begun

    def report(self) -> Costs:
        dots = [Dots(*dims, count) for dims, count in self.dots.items()]
        multiplied = [Multiplied(list(shape), count) for shape, count in self.multiplied.items()]
        loaded, stored = self.moved["loaded"], self.moved["stored"]
        return Costs(dots, multiplied, self.computed, loaded, stored, dict(self.inputs), self.held, self.different())


def end_block(handle: TensorHandle) -> None:
    """Tell the meter that counted this block that the block's last name is gone."""
    if counted := handle.__dict__.get("counted"):
        meter, size = counted
        meter.alive -= size
