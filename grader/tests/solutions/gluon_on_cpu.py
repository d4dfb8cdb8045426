"""Gluon kernels for Hopper on a CPU: each partition of warps is a thread, and what is asynchronous comes at its worst.

Gluon has no interpreter, and a kernel that is tested on a GPU alone is not tested where students and CI are. Here
blocks are torch tensors, shared memory is a tensor, and

    a tile that was asked for   makes its buffer NaN at once; it lies there when somebody waits for it, or before
    a product                   reads what it multiplies in shared memory when it is waited for, not before
    a store by the copy engine  reads shared memory when it is waited for; what was written there needs a fence before
    which thread goes on        at a barrier is drawn; where none can, Stuck says what each waits for

so that a buffer released too early, or read too early, shows as NaN. Layouts, registers and speed are not modelled.

Source: NVIDIA, "PTX ISA", sections on mbarrier (phases and transaction counts), on asynchronous copies and on wgmma.
"""

import contextlib
import inspect
import math
import random
import sys
import threading
from types import ModuleType, SimpleNamespace

import torch

from grader.tests.support import SOLUTIONS

NOW = threading.local()  # of a thread: its Worker
LAUNCH = SimpleNamespace(program=0, programs=1, barriers={})


class Stuck(Exception):
    """No thread of a program can go on, or a barrier was used against its rules."""


# Threads that take turns ----------------------------------------------------------------------------------------------


class Worker:
    """A partition of warps: its products and stores that are under way, and what it has written without a fence."""

    def __init__(self, name):
        self.name, self.turn, self.ready, self.waits_for = name, threading.Semaphore(0), lambda: True, ""
        self.products, self.stores, self.unfenced = [], [], set()
        self.done = False


class Turns:
    """Runs functions in threads, one at a time; a thread gives its turn away at each barrier."""

    def __init__(self, seed):
        self.draw, self.failure, self.over = random.Random(seed), None, threading.Semaphore(0)

    def run(self, calls):
        self.workers = [Worker(f"{function.__name__}{numbers(given)}") for function, given in calls]
        for worker, (function, given) in zip(self.workers, calls, strict=True):
            threading.Thread(target=self.work, args=(worker, function, given), daemon=True).start()
        self.give()
        self.over.acquire()
        if self.failure:
            raise self.failure

    def work(self, worker, function, given):
        NOW.worker, NOW.turns = worker, self
        worker.turn.acquire()
        try:
            if not self.failure:
                function(*given)
                if worker.products or worker.stores:
                    raise Stuck(f"{worker.name} ends while a product or a store is under way")
        except BaseException as failure:
            self.failure = self.failure or failure
        worker.done = True
        self.give()

    def give(self):
        """The turn to one that can go on; to all where something has failed; back where all are done."""
        waiting = [worker for worker in self.workers if not worker.done]
        if not waiting:
            self.over.release()
            return
        try:
            for each in LAUNCH.barriers.values():
                if each.under_way and self.draw.random() < 1 / 4:
                    each.land()
            ready = [worker for worker in waiting if worker.ready()]
            if not ready:
                raise Stuck("; ".join(f"{worker.name} waits for {worker.waits_for}" for worker in waiting))
        except Stuck as failure:
            self.failure = self.failure or failure
        self.draw.choice(waiting if self.failure else ready).turn.release()

    def wait(self, ready, what):
        worker = NOW.worker
        worker.ready, worker.waits_for = ready, what
        self.give()
        worker.turn.acquire()
        if self.failure:
            raise self.failure


def numbers(given):
    return "".join(f" {each}" for each in given if isinstance(each, int))


# Values ---------------------------------------------------------------------------------------------------------------


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


class Constant(int):
    """gl.constexpr: a number that is known when the kernel is compiled."""

    value = property(int)


class Pointer:
    """The address of an element of a tensor, and blocks of such addresses."""

    def __init__(self, elements, at=0):
        self.elements, self.at = elements, at

    def __add__(self, offset):
        return Pointer(self.elements, self.at + offset)


def block(value, like=None):
    dtype = like.dtype if like is not None and like.dim() + like.is_floating_point() else torch.int32
    return value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=dtype).as_subclass(Block)


def pick(function, plain):
    """minimum and maximum, of numbers and of blocks."""

    def of(a, b):
        if not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor):
            return plain(a, b)
        like = a if isinstance(a, torch.Tensor) else b
        return function(block(a, like), block(b, like))

    return of


def where(condition, a, b):
    return torch.where(block(condition).bool(), a, b).as_subclass(Block)


def load(pointer, mask=None, other=0):
    at = block(pointer.at).long()
    mask = torch.ones_like(at, dtype=torch.bool) if mask is None else block(mask).bool().expand(at.shape)
    if ((at < 0) | (at >= pointer.elements.numel()))[mask].any():
        raise IndexError("a load lies outside of its tensor")
    found = torch.zeros_like(at, dtype=pointer.elements.dtype)
    found[mask] = pointer.elements[at[mask]]
    return torch.where(mask, found, block(other).to(found.dtype)).as_subclass(Block)


def store(pointer, value, mask):
    at = pointer.at.long()[mask]
    if ((at < 0) | (at >= pointer.elements.numel())).any():
        raise IndexError("a store lies outside of its tensor")
    pointer.elements[at] = value[mask].to(pointer.elements.dtype)


# The two instructions of PTX that the kernels write themselves, by the numbers of their operands
def byte_permute(a, b, selector):
    """prmt.b32: byte i of the result is the byte of (a, b) that 4 bits of the selector name, or copies of its sign."""
    out = torch.zeros_like(a)
    for i in range(4):
        chosen = selector >> 4 * i & 15
        from_both = torch.where((chosen & 7) < 4, a >> 8 * (chosen & 3), b >> 8 * (chosen & 3)) & 255
        out |= torch.where(chosen > 7, torch.where(from_both > 127, 255, 0), from_both) << 8 * i
    return out


def logic(a, b, c, table):
    """lop3.b32: for each bit, the bit of the table at 4 a + 2 b + c."""
    terms = [(~a if i < 4 else a) & (b if i & 2 else ~b) & (c if i & 1 else ~c) for i in range(8) if table >> i & 1]
    return torch.stack(terms).sum(0)  # no two have a bit in common


def inline_asm_elementwise(text, constraints, args, dtype, is_pure, pack):
    bits = [each.contiguous().view(torch.int32).long() & 0xFFFFFFFF for each in args]
    names = {f"${i + 1}": each for i, each in enumerate(bits)}
    value = lambda name: names[name] if name in names else torch.tensor(int(name, 0))  # noqa: E731
    for line in text.strip("{}").split(";"):
        operation, _, operands = line.strip().partition(" ")
        if operation in ("prmt.b32", "lop3.b32"):
            to, *given = operands.replace(",", " ").split()
            function = byte_permute if operation == "prmt.b32" else logic
            names[to] = function(*map(value, given)) & 0xFFFFFFFF
        elif operation not in ("", ".reg"):
            raise NotImplementedError(operation)
    result = names["$0"]
    return (result - (result >> 31 << 32)).int().view(dtype).as_subclass(Block)


# Shared memory, barriers, the copy engine -----------------------------------------------------------------------------


class Shared:
    """A part of shared memory. What was never written is NaN."""

    def __init__(self, data):
        self.data, self.shape = data, list(data.shape)

    def index(self, i):
        if not 0 <= int(i) < self.shape[0]:
            raise IndexError(f"buffer {int(i)} of {self.shape[0]}")
        return Shared(self.data[int(i)])

    def slice(self, start, length, dim):
        return Shared(self.data.narrow(dim, int(start), length))

    def reshape(self, shape):
        return Shared(self.data.view(*map(int, shape)))

    def permute(self, order):
        return Shared(self.data.permute(order))

    def load(self, layout=None):
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
        self.memory, self.awaited = memory, False

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
    """At a program's end. The compiler may use the memory of barriers that nobody waits for: none may be made."""
    made = LAUNCH.barriers.values()
    if any(each.under_way for each in made):
        raise Stuck("the program ends while a tile is under way")
    if arrays(made) - arrays(each for each in made if each.awaited):
        raise Stuck("barriers were made that nobody has waited for")


def arrays(barriers):
    return {each.memory.untyped_storage().data_ptr() for each in barriers}


def barrier(shared):
    return LAUNCH.barriers[shared.data.data_ptr()]


def init(shared, count):
    LAUNCH.barriers[shared.data.data_ptr()] = Barrier(int(count), shared.data)
    LAUNCH.unfenced = True


def wait(shared, parity):
    found, parity = barrier(shared), int(parity)
    found.awaited = True
    NOW.turns.wait(lambda: found.passed(parity), f"phase {found.phase} of a barrier of {found.count}")


def expect(shared, nbytes):
    barrier(shared).arrive(1, nbytes)


def arrive(shared, count):
    barrier(shared).arrive(count)
    pause()


def pause():
    """Others may go on first."""
    NOW.turns.wait(lambda: True, "")


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
    if list(buffer.shape) != list(desc.block_shape):
        raise TypeError(f"a tile {desc.block_shape} for a buffer {buffer.shape}")
    tile = torch.zeros([*desc.block_shape], dtype=desc.dtype)
    inside, in_tile = desc.parts(at)
    tile[in_tile] = inside
    buffer.data.fill_(math.nan)
    barrier(barrier_of).under_way.append((buffer.data, tile))


def async_copy_shared_to_global(desc, at, buffer):
    if buffer.data.data_ptr() in NOW.worker.unfenced:
        raise Stuck(f"{NOW.worker.name} stores what it has written without a fence")
    NOW.worker.stores.append((desc, at, buffer.data))


def store_wait(left):
    pause()
    while len(NOW.worker.stores) > left:
        desc, at, data = NOW.worker.stores.pop(0)
        inside, in_tile = desc.parts(at)
        inside.copy_(data[in_tile])


def fence_async_shared():
    LAUNCH.unfenced = False
    if worker := getattr(NOW, "worker", None):
        worker.unfenced.clear()


# Products -------------------------------------------------------------------------------------------------------------


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
        self.value = (acc + a.float() @ b.float()).as_subclass(Block)


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


# Kernels --------------------------------------------------------------------------------------------------------------


class Jit:
    """gluon.jit: called in a kernel it is a function, and `kernel[grid](...)` runs one program after another."""

    def __init__(self, function):
        self.function, self.__name__ = function, function.__name__

    def __call__(self, *given, **named):
        return self.function(*given, **named)

    def __get__(self, instance, owner):
        return self if instance is None else self.function.__get__(instance, owner)

    def __getitem__(self, grid):
        def launch(*given, **options):
            constants = [p.annotation is Constant for p in inspect.signature(self.function).parameters.values()]
            for LAUNCH.program in range(grid[0]):
                LAUNCH.programs, LAUNCH.barriers, LAUNCH.unfenced = grid[0], {}, False
                self.function(*map(as_argument, given, constants))
                check_barriers()
            return self

        return launch


def as_argument(value, constant):
    if isinstance(value, torch.Tensor):
        return Pointer(value.view(-1))
    return block(value) if isinstance(value, int) and not constant else value


def warp_specialize(calls, num_warps, num_regs):
    if LAUNCH.unfenced:
        raise Stuck("barriers are used that no fence follows")
    Turns(LAUNCH.program).run([(each.function, given) for each, given in calls])


def nothing(*given, **named):
    return None


def blocks(function):
    return lambda *given, **named: function(*given, **named).as_subclass(Block)


gl = SimpleNamespace(
    constexpr=Constant, tensor=type("tensor", (), {}), tuple=tuple, shared_memory_descriptor=Shared,
    float16=torch.float16, bfloat16=torch.bfloat16, float32=torch.float32, int32=torch.int32, int64=torch.int64,
    NVMMADistributedLayout=nothing, DotOperandLayout=nothing, SliceLayout=nothing, DistributedLinearLayout=nothing,
    NVMMASharedLayout=SimpleNamespace(get_default_for=nothing),
    program_id=lambda axis: block(LAUNCH.program), num_programs=lambda axis: block(LAUNCH.programs),
    static_range=range, static_assert=lambda true: None if true else sys.exit("static_assert"),
    cdiv=lambda a, b: (a + (b - 1)) // b, minimum=pick(torch.minimum, min), maximum=pick(torch.maximum, max),
    arange=lambda start, end, layout=None: torch.arange(start, end, dtype=torch.int32).as_subclass(Block),
    full=blocks(lambda shape, value, dtype, layout=None: torch.full(shape, value, dtype=dtype)),
    zeros=blocks(lambda shape, dtype, layout=None: torch.zeros(shape, dtype=dtype)),
    convert_layout=lambda value, layout, assert_trivial=False: value,
    broadcast=lambda *given: tuple(torch.broadcast_tensors(*given)),
    where=where, max=torch.amax, sum=torch.sum, exp2=torch.exp2, log=torch.log, load=load, store=store,
    allocate_shared_memory=allocate_shared_memory, inline_asm_elementwise=inline_asm_elementwise,
    warp_specialize=warp_specialize,
)  # fmt: skip
FAKES = {
    "triton.experimental.gluon": {"jit": lambda function=None, **_: Jit(function) if function else Jit,
                                  "constexpr_function": lambda function: function, "language": gl},
    "triton.experimental.gluon.language": vars(gl),
    "triton.experimental.gluon.language.nvidia.hopper": {
        "mbarrier": SimpleNamespace(MBarrierLayout=nothing, init=init, wait=wait, expect=expect, arrive=arrive),
        "tma": SimpleNamespace(
            tensor_descriptor=TensorDescriptor, async_copy_global_to_shared=async_copy_global_to_shared,
            async_copy_shared_to_global=async_copy_shared_to_global, store_wait=store_wait,
        ),
        "warpgroup_mma": warpgroup_mma, "warpgroup_mma_wait": warpgroup_mma_wait,
        "fence_async_shared": fence_async_shared,
    },
    "triton.experimental.gluon.nvidia.hopper": {"TensorDescriptor": TensorDescriptor},
    "triton.language.core": {"_aggregate": lambda cls: cls},
}  # fmt: skip
OURS = ("hopper", "hopper_launch", "fast_attention", "fast_block_sparse")


@contextlib.contextmanager
def on_cpu(*changes):
    """The modules of the fast forms, imported anew so that their kernels run here: {name: module}.

    changes: (old, new) of their texts, in which `old` is found once, to see what a mistake does.
    """
    from triton import experimental

    texts = {name: (SOLUTIONS / f"{name}.py").read_text() for name in OURS}
    for old, new in changes:
        assert sum(text.count(old) for text in texts.values()) == 1, old
        texts = {name: text.replace(old, new) for name, text in texts.items()}
    ours = {f"solutions.{name}": text for name, text in texts.items()}
    kept = {name: sys.modules.pop(name) for name in (*ours, *FAKES) if name in sys.modules}
    attribute = vars(experimental).pop("gluon", None)  # `from triton.experimental import gluon` takes it first
    for name, values in FAKES.items():
        sys.modules[name] = fake = ModuleType(name)
        vars(fake).update(values)
    try:
        for name, text in ours.items():
            sys.modules[name] = module = ModuleType(name)
            exec(compile(text, SOLUTIONS / f"{module.__name__.removeprefix('solutions.')}.py", "exec"), vars(module))
        yield {name: sys.modules[f"solutions.{name}"] for name in OURS}
    finally:
        for name in (*ours, *FAKES):
            sys.modules.pop(name, None)
        sys.modules.update(kept)
        if attribute:
            experimental.gluon = attribute


def pass_for_a_hopper_gpu(monkeypatch, multiprocessors=3):
    """The host's side of the fast forms takes tensors on a CPU; a program takes many tiles."""
    facts = SimpleNamespace(multi_processor_count=multiprocessors)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: facts)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # the index of "cpu"
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
