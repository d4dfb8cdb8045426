"""gluon.language on blocks that are torch tensors."""

from types import SimpleNamespace

import torch

from kernels.tests.gluon_on_cpu.machine import Block, Shared, allocate_shared_memory, store_wait
from kernels.tests.gluon_on_cpu.turns import NOW, PROGRAM, Stuck, Turns


class Constant(int):
    """gl.constexpr: a number that is known when the kernel is compiled."""

    value = property(int)

    def __new__(cls, value):
        return value if isinstance(value, float) else super().__new__(cls, value)


class Pointer:
    """The address of an element of a tensor, and blocks of such addresses."""

    def __init__(self, elements, at=0):
        self.elements, self.at = elements, at

    def __add__(self, offset):
        return Pointer(self.elements, self.at + offset)


POISON = -1515870811  # what a load gives where it is masked and nothing is asked in its place: anything


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


def load(pointer, mask=None, other=POISON, volatile=False):
    if volatile:
        wait_for_change(pointer)
    at = block(pointer.at).long()
    mask = torch.ones_like(at, dtype=torch.bool) if mask is None else block(mask).bool().expand(at.shape)
    if ((at < 0) | (at >= pointer.elements.numel()))[mask].any():
        raise IndexError("a load lies outside of its tensor")
    found = torch.zeros_like(at, dtype=pointer.elements.dtype)
    found[mask] = pointer.elements[at[mask]]
    return torch.where(mask, found, block(other).to(found.dtype)).as_subclass(Block)


def wait_for_change(pointer):
    """A volatile load is one of a loop that waits. Programs run one after another here: it may wait for none."""
    seen = (pointer.elements.data_ptr(), int(pointer.at), int(pointer.elements[int(pointer.at)]))
    if seen == getattr(NOW.worker, "seen", None):
        raise Stuck(f"{NOW.worker.name} waits for a program that starts later")
    NOW.worker.seen = seen


def atomic_add(pointer, value, sem):
    pointer.elements[int(pointer.at)] += int(value)


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
    if "cp.async.bulk.wait_group 0" in text:
        return store_wait(0) or block(1)
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


def warp_specialize(calls, num_warps, num_regs):
    if PROGRAM.unfenced:
        raise Stuck("barriers are used that no fence follows")
    Turns(hash(PROGRAM.place)).run([(each.function, given) for each, given in calls])


def nothing(*given, **named):
    return None


def static_assert(true):
    assert true


def exp2(x):
    """2^x by float64: torch's float32 exponentials have other bits in other shapes, as the processor's vectors fall."""
    return torch.exp2(x.double()).to(x.dtype)


def blocks(function):
    return lambda *given, **named: function(*given, **named).as_subclass(Block)


gl = SimpleNamespace(
    constexpr=Constant, tensor=type("tensor", (), {}), tuple=tuple, shared_memory_descriptor=Shared,
    float16=torch.float16, bfloat16=torch.bfloat16, float32=torch.float32, int32=torch.int32, int64=torch.int64,
    NVMMADistributedLayout=nothing, DotOperandLayout=nothing, SliceLayout=nothing, DistributedLinearLayout=nothing,
    BlockedLayout=nothing,
    NVMMASharedLayout=SimpleNamespace(get_default_for=nothing),
    program_id=lambda axis: block(PROGRAM.place[axis]), num_programs=lambda axis: block(PROGRAM.grid[axis]),
    static_range=range, static_assert=static_assert,
    cdiv=lambda a, b: (a + (b - 1)) // b, minimum=pick(torch.minimum, min), maximum=pick(torch.maximum, max),
    arange=lambda start, end, layout=None: torch.arange(start, end, dtype=torch.int32).as_subclass(Block),
    full=blocks(lambda shape, value, dtype, layout=None: torch.full(shape, value, dtype=dtype)),
    zeros=blocks(lambda shape, dtype, layout=None: torch.zeros(shape, dtype=dtype)),
    convert_layout=lambda value, layout, assert_trivial=False: value,
    broadcast=lambda *given: tuple(torch.broadcast_tensors(*given)),
    where=where, max=torch.amax, sum=torch.sum, exp2=exp2, log=torch.log, log2=torch.log2, load=load, store=store,
    atomic_add=atomic_add, allocate_shared_memory=allocate_shared_memory, inline_asm_elementwise=inline_asm_elementwise,
    warp_specialize=warp_specialize,
)  # fmt: skip
