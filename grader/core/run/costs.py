"""In the runner, interpreted: what a program costs, counted. It knows no attention and follows no number.

A cost cannot be hidden: a tile that no query sees is multiplied, a row that is kept is held, and what PyTorch computes
it touches. The counts are compared with what a case needs elsewhere.
"""

from collections import Counter

import numpy as np

from grader.core.run.operations import PRODUCTS
from grader.core.run.replay import list_tensors

# Operations of the interpreter's builder by which a product of two blocks can be made, sums of logarithms among them.
MULTIPLYING = (
    "create_fmul", "create_mul", "create_fma", "create_fdiv", "create_precise_divf", "create_frem", "create_idiv",
    "create_umulhi", "create_exp", "create_exp2", "create_log", "create_log2", "create_sqrt", "create_precise_sqrt",
    "create_rsqrt", "create_sin", "create_cos", "create_erf",
)  # fmt: skip
PART = 0.05  # of all products: a kernel that makes less of them merges parts
EXPONENTIALS = ("create_exp", "create_exp2")
POINTWISE_PRODUCTS = ("mul", "div", "addcmul", "addcdiv")  # of PyTorch's
UNWRITTEN = ("empty", "new_empty")  # what they make costs nothing until it is written


class Costs:
    """What kernels cost, by kernel and for each program.

    kernels: {name: Counter} with "launches", "programs", ("loaded" or "stored", argument) in bytes of live lanes,
    ("loads" or "stores", argument) in operations, "dot_flops" (two for each multiply and add) and "exponentials".
    computed: elements of all blocks; alive: of those that there are now, most: of a program so far (hooks.py counts
    them). dots: {(rows, columns, depth): multiply-adds}. multiplied: {shape of
    a block: elements that were multiplied one by one}. inputs: {name: elements loaded of an input of the call}.
    moved: elements "loaded" and "stored" by live lanes. held: the most elements that a program has in blocks at once.
    products: multiplications by kernel. loaded_by: {kernel: {a storage: which of its elements were loaded}}.
    """

    def __init__(self):
        self.kernels, self.current = {}, Counter()
        self.dots, self.multiplied, self.inputs, self.moved = Counter(), Counter(), Counter(), Counter()
        self.alive = self.alive_before = self.most = self.held = self.computed = self.products_here = 0
        self.products, self.loaded_by, self.kernel = Counter(), {}, ""

    def begin_launch(self, kernel):
        self.current = self.kernels.setdefault(kernel, Counter())
        self.current["launches"] += 1
        self.kernel, self.products_here = kernel, 0

    def begin_program(self):
        self.end_program()
        self.current["programs"] += 1
        self.alive_before = self.most = self.alive

    def end_program(self):
        self.held = max(self.held, self.most - self.alive_before)

    def end_launch(self, regions):
        """Keep which elements of these regions the kernel has loaded."""
        self.end_program()
        self.products[self.kernel] += self.products_here
        known = self.loaded_by.setdefault(self.kernel, {})
        for region in regions:
            if region.loaded is not None:
                _, size, before = known.get(region.key, (None, 0, None))
                loaded = region.loaded if before is None or size != region.itemsize else before | region.loaded
                known[region.key] = region.storage, region.itemsize, loaded  # kept: no other has its address

    def overwritten(self, tensors):
        """Between launches PyTorch has written into these: what is loaded of them now are other elements."""
        keys = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        for known in self.loaded_by.values():
            for key in keys & known.keys():
                known[key, len(known)] = known.pop(key)

    def different(self):
        """Bytes that kernels load which make a good part of all products, each of a storage counted once."""
        whole, found = sum(self.products.values()), {}
        for kernel, known in self.loaded_by.items():
            if self.products[kernel] > PART * whole:
                for key, (_, size, loaded) in known.items():
                    found.setdefault((key, size), []).append(loaded)
        return sum(size * int(np.logical_or.reduce(parts).sum()) for (_, size), parts in found.items())

    def access(self, kind, region, offsets, itemsize):
        """Live lanes of one load or store, at byte offsets into a region; several may load one number of a list."""
        moved, count = ("loaded", "loads") if kind == "load" else ("stored", "stores")
        self.current[(moved, region.name)] += offsets.size * itemsize
        self.current[(count, region.name)] += 1
        is_list = region.input and not region.tensor.dtype.is_floating_point
        elements = np.unique(offsets).size if is_list else offsets.size
        self.moved[moved] += elements
        if kind == "load":
            region.note_loaded(offsets, itemsize)
            if region.input:
                self.inputs[region.input] += elements

    def dot(self, a, b):
        """Two blocks (..., rows, depth) and (..., depth, columns)."""
        *_, rows, depth = a.shape
        products = a.size * b.shape[-1]
        self.dots[rows, b.shape[-1], depth] += products
        self.current["dot_flops"] += 2 * products
        self.products_here += products

    def multiply(self, name, block):
        self.multiplied[block.shape] += block.size
        if name in EXPONENTIALS:
            self.current["exponentials"] += block.size
        if block.dtype.kind == "f":
            self.products_here += block.size

    def totals(self):
        """{kernel: its counts}; those with an argument are {argument: number}."""
        found = {}
        for kernel, counter in self.kernels.items():
            total = found[kernel] = {name: {} for name in ("loaded", "stored", "loads", "stores")}
            total |= dict.fromkeys(("launches", "programs", "dot_flops", "exponentials"), 0)
            for key, number in counter.items():
                if isinstance(key, tuple):
                    total[key[0]][key[1]] = number
                else:
                    total[key] = number
        return found

    def report(self):
        """Plain data for the reply."""
        return {
            "dots": [[*shape, count] for shape, count in self.dots.items()],
            "multiplied": [[list(shape), count] for shape, count in self.multiplied.items()],
            "computed": self.computed,
            "loaded": self.moved["loaded"], "stored": self.moved["stored"], "inputs": dict(self.inputs),
            "held": self.held, "different": self.different(),
        }  # fmt: skip


class WrapperCosts:
    """What PyTorch does outside of kernels: elements `touched`, `multiply_adds`, numbers of four bytes in tensors that
    are `made`, and elements of the `largest` one.

    Observes a replay. lines: {each: [the most of it that one line does, that line]}.
    """

    def __init__(self):
        self.costs, self.lines = Counter(), {}

    def __call__(self, step, args, named, made):
        given, line = list_tensors(args, named), step.line
        known = {tensor.untyped_storage()._cdata for tensor in given}
        new = [tensor for tensor in made if tensor.untyped_storage()._cdata not in known]
        self.note("made", sum(tensor.nbytes for tensor in new) // 4, line)
        self.costs["largest"] = max([self.costs["largest"], *(tensor.numel() for tensor in new)])
        if step.op in PRODUCTS:
            a, b = list_tensors(args)[-2:]  # and not what `out=` names
            self.note("multiply_adds", a.numel() * (b.shape[-1] if b.dim() > 1 else 1), line)
        elif step.op.rstrip("_") in POINTWISE_PRODUCTS:
            self.note("multiply_adds", max(tensor.numel() for tensor in made), line)
        if not step.op.startswith(UNWRITTEN):
            self.note("touched", max((tensor.numel() for tensor in (*given, *made)), default=0), line)

    def note(self, what, amount, line):
        self.costs[what] += amount
        self.lines[what] = max(self.lines.get(what, [0, None]), [amount, line], key=lambda entry: entry[0])

    def report(self):
        return {what: self.costs[what] for what in ("touched", "multiply_adds", "made", "largest")} | {
            "lines": self.lines
        }
