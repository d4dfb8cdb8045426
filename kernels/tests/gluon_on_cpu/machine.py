"""What is shared or under way: shared memory and its barriers, the copy engine, products of matrices."""

import math
from types import SimpleNamespace

import torch

from kernels.tests.gluon_on_cpu.turns import NOW, PROGRAM, Stuck, pause


class Block(torch.Tensor):
    """A block, or a number that is known when the kernel runs. Integers divide towards zero, as they do on a GPU."""

    type = SimpleNamespace(layout=None)

    def __floordiv__(self, other):
        return torch.div(self, other, rounding_mode="trunc")

    def __rfloordiv__(self, other):
        return torch.div(torch.tensor(other, dtype=self.dtype), self, rounding_mode="trunc")

    def __mod__(self, other):
        return torch.fmod(self, other)

    def __rmod__(self, other):
        return torch.fmod(torch.tensor(other, dtype=self.dtype), self)

    def to(self, dtype, bitcast=False):
        return self.contiguous().view(dtype) if bitcast else super().to(dtype)


class Shared:
    """A part of shared memory. What was never written is NaN."""

    def __init__(self, data):
        self.data, self.shape = data, list(data.shape)

    def index(self, i):
        if not 0 <= int(i) < self.shape[0]:
            raise IndexError(f"buffer {int(i)} of {self.shape[0]}")
        return Shared(self.data[int(i)])

    def slice(self, start, length, dim=0):
        return Shared(self.data.narrow(dim, int(start), length))

    def reshape(self, shape):
        return Shared(self.data.view(*map(int, shape)))

    def permute(self, order):
        return Shared(self.data.permute(order))

    def load(self, layout):
        return self.data.clone().as_subclass(Block)

    def store(self, value):
        if value.dtype != self.data.dtype or list(value.shape) != self.shape:
            raise TypeError(f"{value.dtype} {list(value.shape)} stored in {self.data.dtype} {self.shape}")
        self.data.copy_(value)
        NOW.worker.unfenced.add(self.data.data_ptr())


def allocate_shared_memory(dtype, shape, layout):
    data = torch.empty([int(size) for size in shape], dtype=dtype)
    return Shared(data.fill_(math.nan) if dtype.is_floating_point else data.zero_())


class Barrier:
    """An mbarrier: a phase ends when all have arrived and no byte is missing. memory: the array that it is in."""

    def __init__(self, count, memory):
        self.count, self.left, self.missing, self.phase, self.under_way = count, count, 0, 0, []
        self.memory, self.used = memory, False

    def arrive(self, count, nbytes=0):
        self.left, self.missing = self.left - count, self.missing + nbytes
        if self.left < 0:
            raise Stuck(f"{NOW.worker.name} arrives at a barrier at which all {self.count} have arrived")
        self.settle()

    def land(self):
        """The tiles that were asked for are there."""
        while self.under_way:
            buffer, tile = self.under_way.pop()
            buffer.copy_(tile)
            self.missing -= tile.nbytes
        self.settle()

    def settle(self):
        if self.missing < 0:
            raise Stuck("more bytes came than a barrier expects")
        if self.left == self.missing == 0:
            self.phase, self.left = self.phase + 1, self.count

    def passed(self, parity):
        self.land()
        return self.phase % 2 != parity


def check_barriers():
    """At a program's end. The compiler gives the memory of barriers that no partition uses to what it hands the
    producer, and launches then hang, now and then: none may be made."""
    made = PROGRAM.barriers.values()
    if any(each.under_way for each in made):
        raise Stuck("the program ends while a tile is under way")
    if arrays(made) - arrays(each for each in made if each.used):
        raise Stuck("barriers were made that no partition uses")


def arrays(barriers):
    return {each.memory.untyped_storage().data_ptr() for each in barriers}


def barrier(shared):
    found = PROGRAM.barriers[shared.data.data_ptr()]
    found.used |= specialized()
    return found


def specialized():
    """Whether a partition of warps runs, and no longer all of a program's warps together."""
    return hasattr(NOW, "turns")


def init(shared, count):
    PROGRAM.barriers[shared.data.data_ptr()] = Barrier(int(count), shared.data)
    PROGRAM.unfenced = True


def wait(shared, parity):
    found, parity = barrier(shared), int(parity)
    if specialized():
        NOW.turns.wait(lambda: found.passed(parity), f"phase {found.phase} of a barrier of {found.count}")
    elif not found.passed(parity):
        raise Stuck("a program waits for what nobody can do before its warps are specialized")


def expect(shared, nbytes):
    barrier(shared).arrive(1, nbytes)


def arrive(shared, count):
    barrier(shared).arrive(count)
    pause()


class TensorDescriptor:
    """What the copy engine knows of a tensor, and the rules that it has for it."""

    def __init__(self, base, shape, strides, block_shape, layout):
        size = base.element_size()
        if strides[-1] != 1 or any(stride * size % 16 for stride in strides[:-1]) or base.data_ptr() % 16:
            raise ValueError(f"the copy engine cannot read strides {strides}")
        self.base, self.shape, self.strides, self.block_shape = base, shape, strides, block_shape
        self.layout, self.dtype = layout, base.dtype
        self.block_type = SimpleNamespace(nbytes=math.prod(block_shape) * size)

    def parts(self, at):
        """(elements of the tensor, the same in a tile): what of the tile at these coordinates is in the tensor."""
        starts = [int(start) for start in at]
        inside = [(max(s, 0), min(s + n, N)) for s, n, N in zip(starts, self.block_shape, self.shape, strict=True)]
        if any(low >= high for low, high in inside):
            inside = [(s, s) for s in starts]
        in_tile = tuple(slice(low - s, high - s) for (low, high), s in zip(inside, starts, strict=True))
        tensor = self.base.as_strided(self.shape, self.strides)
        return tensor[tuple(slice(max(0, low), max(0, high)) for low, high in inside)], in_tile


def async_copy_global_to_shared(desc, at, barrier_of, buffer):
    if PROGRAM.unfenced:
        raise Stuck("a tile is asked for at a barrier that no fence follows")
    if list(buffer.shape) != list(desc.block_shape):
        raise TypeError(f"a tile {desc.block_shape} for a buffer {buffer.shape}")
    tile = torch.zeros([*desc.block_shape], dtype=desc.dtype)
    inside, in_tile = desc.parts(at)
    tile[in_tile] = inside
    buffer.data.fill_(math.nan)
    barrier(barrier_of).under_way.append((buffer.data, tile))


def async_copy_shared_to_global(desc, at, buffer, adds=False):
    if buffer.data.data_ptr() in NOW.worker.unfenced:
        raise Stuck(f"{NOW.worker.name} stores what it has written without a fence")
    NOW.worker.stores.append((desc, at, buffer.data, adds))


def add_to_global(desc, at, buffer):
    """hopper.py's: the copy engine adds."""
    async_copy_shared_to_global(desc, at, buffer, adds=True)


def store_wait(left):
    pause()
    while len(NOW.worker.stores) > left:
        desc, at, data, adds = NOW.worker.stores.pop(0)
        inside, in_tile = desc.parts(at)
        inside.copy_(inside + data[in_tile] if adds else data[in_tile])


def fence_async_shared():
    PROGRAM.unfenced = False
    if worker := getattr(NOW, "worker", None):
        worker.unfenced.clear()


class Product:
    """a @ b + acc, under way: `value` once it was waited for."""

    type = SimpleNamespace(layout=None)

    def __init__(self, a, b, acc):
        self.a, self.b, self.acc, self.shape, self.value = a, b, acc, acc.shape, None

    def finish(self):
        a, b = (each.data if isinstance(each, Shared) else each for each in (self.a, self.b))
        if a.dtype != b.dtype:
            raise TypeError(f"a product of {a.dtype} and {b.dtype}")
        acc = self.acc.value if isinstance(self.acc, Product) else self.acc
        # In float64 a tile's sum of products of halves is exact, or nearly: its bits depend on no shape and processor.
        self.value = (acc + (a.double() @ b.double()).to(acc.dtype)).as_subclass(Block)


def warpgroup_mma(a, b, acc, use_acc=True, is_async=False):
    product = Product(a, b, acc if use_acc else torch.zeros(acc.shape))
    NOW.worker.products.append(product)
    return product if is_async else warpgroup_mma_wait(0, [product])


def warpgroup_mma_wait(left, deps):
    pause()
    while len(NOW.worker.products) > left:
        NOW.worker.products.pop(0).finish()
    values = tuple(each.value for each in deps)
    return values[0] if len(values) == 1 else values
