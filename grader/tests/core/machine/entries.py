"""What a test of the machine runs: a kernel, what it is given, how near the machine must come to a GPU."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
SIGNED = INTEGERS[:4]
FLOATS = ("fp16", "bf16", "fp32", "fp64")
EIGHTS = ("fp8e5", "fp8e4nv")
NUMBERS = (*INTEGERS, *FLOATS)
TORCH = {
    "i1": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
    "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64, "fp16": torch.float16, "bf16": torch.bfloat16,
    "fp32": torch.float32, "fp64": torch.float64, "fp8e5": torch.float8_e5m2, "fp8e4nv": torch.float8_e4m3fn,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in TORCH.items()}
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of an element
SIZE = 1024  # elements of most arguments
WHOLE = 4  # the largest of the small whole numbers, whose sums are exact in any order
CODES = [
    0, 1, -1, 2, -2, 3, -3, 5, 7, 8, 10, -10, 15, 16, 31, 32, 33, 63, 64, 65, 85, 100, -100, 127, -128, 128, 170, 254,
]  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """An argument that is a tensor. dtype: T, U or V stand for the types of a case.

    fill: any; whole (small whole numbers, also of a float type); powers (of two, both signs); divisor (no 0, no -1);
    finite; normal (no subnormals); out (a pattern that the kernel overwrites); zero. low, high: where its integers lie,
    high not among them; "bits": of the type. within: the type that must hold the value, rounded towards zero.
    """

    dtype: str = "T"
    size: int = SIZE
    fill: str = "any"
    low: int | None = None
    high: int | str | None = None
    within: str | None = None


@dataclass(frozen=True)
class Described:
    """An argument that is a descriptor made on the host."""

    tensor: Tensor
    shape: tuple[int, ...]
    block: tuple[int, ...]


OUT = Tensor(fill="out")
TRUTHS = Tensor("i1", fill="out")


@dataclass(frozen=True)
class Entry:
    """types: the cases, each a type T or a tuple (T, U, V). constants: constexpr arguments, by name.

    ulps, absolute: how far a float may lie from the GPU's; one of them suffices. 0: the same bits, any NaN for any.
    judged: False: the language leaves it open, the difference is shown alone. refused: the machine must not run it.
    may_refuse: it need not. gpu: a Hopper GPU runs it. options: of the launch. since, until: versions of Triton.
    """

    name: str
    kernel: Any
    arguments: tuple[Any, ...]
    types: tuple[Any, ...] = ((),)
    grid: tuple[int, ...] = (1,)
    constants: dict[str, Any] = field(default_factory=dict)
    ulps: int = 0
    absolute: float = 0.0
    judged: bool = True
    refused: bool = False
    may_refuse: bool = False
    gpu: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    since: tuple[int, int] = (3, 6)
    until: tuple[int, int] = (9, 9)

    def cases(self, version: tuple[int, int]) -> Iterator[tuple[str, ...]]:
        if self.since <= version <= self.until:
            for types in self.types:
                yield types if isinstance(types, tuple) else (types,)


def resolved(dtype: str, types: tuple[str, ...]) -> str:
    return types["TUV".index(dtype)] if dtype in ("T", "U", "V") else dtype


def inputs(entry: Entry, types: tuple[str, ...], special: bool, described: Callable[[Any, Any, Any, Any], Any]) -> list:
    """The arguments on the CPU: random, or the special values in all combinations.

    described(tensor, shape, strides, block): a host descriptor.
    """
    seed = hash_of(entry.name, types, special)
    made = []

    def make(argument: Any) -> Any:
        if isinstance(argument, Tensor):
            place = sum(isinstance(each, torch.Tensor) for each in made)
            return filled(argument, types, special, place, torch.Generator().manual_seed(seed + len(made)))
        if isinstance(argument, Described):
            data = make(argument.tensor)
            strides = [math.prod(argument.shape[axis + 1 :]) for axis in range(len(argument.shape))]
            return described(data, list(argument.shape), strides, list(argument.block))
        if isinstance(argument, tuple):
            return tuple(make(each) for each in argument)
        return argument

    for argument in entry.arguments:
        made.append(make(argument))
    return made


def hash_of(*parts: Any) -> int:
    """The same in every process, unlike hash()."""
    value = 0
    for letter in repr(parts):
        value = (value * 1000003 + ord(letter)) % (1 << 31)
    return value


def filled(
    argument: Tensor, types: tuple[str, ...], special: bool, place: int, generator: torch.Generator
) -> torch.Tensor:
    """place: how many tensors stand before it, so that the special values of two meet each other in all pairs."""
    name = resolved(argument.dtype, types)
    dtype, size = TORCH[name], argument.size
    if argument.fill == "zero":
        return torch.zeros(size, dtype=dtype)
    if argument.fill == "out":
        return (torch.arange(size) % 2 + 1).to(dtype)
    if argument.fill == "whole" or argument.fill == "powers":
        low = 0 if name.startswith("u") or name == "i1" else -WHOLE
        whole = torch.randint(low, WHOLE + 1, (size,), generator=generator)
        if argument.fill == "powers":
            choice = torch.tensor([1.0, -1.0, 2.0, 0.5, 1.0, -2.0]) if name in FLOATS else torch.tensor([1, 1, 3, -1])
            whole = choice[torch.randint(0, len(choice), (size,), generator=generator)]
        return whole.to(dtype)
    if dtype is torch.bool:
        return torch.randint(0, 2, (size,), generator=generator).bool()
    made = special_values(name) if special else random_values(name, size, generator)
    if special:
        count, index = len(made), torch.arange(size)
        index = index // count**place if place < 2 else 7 * index + 3 * (index // count)
        made = made[index % count]
    return limited(made, argument, types, name)


def limited(made: torch.Tensor, argument: Tensor, types: tuple[str, ...], name: str) -> torch.Tensor:
    if name in FLOATS or name in EIGHTS:
        wide = made.double()
        if argument.within:
            least, most = limits(resolved(argument.within, types))
            wide = torch.where((wide.trunc() >= least) & (wide.trunc() <= most), wide, 1.0)
        if argument.fill == "finite":
            wide = torch.where(wide.isfinite(), wide, 1.0)
        if argument.fill == "normal":
            wide = torch.where((wide.abs() < torch.finfo(made.dtype).tiny) & (wide != 0), 1.0, wide)
        return made if argument.fill == "any" and not argument.within else wide.to(made.dtype)
    if argument.high is not None:
        high = made.element_size() * 8 if argument.high == "bits" else int(argument.high)
        low = argument.low or 0
        return ((made.to(torch.int64) & ((1 << 40) - 1)) % (high - low) + low).to(made.dtype)
    if argument.fill == "divisor":
        bits = made.view(BITS[made.element_size()])
        return torch.where((bits == 0) | (bits == -1), 3, bits).to(bits.dtype).view(made.dtype)
    return made


def limits(name: str) -> tuple[float, float]:
    """Of an integer type, as floats that it holds."""
    if name == "i1":
        return -math.inf, math.inf
    if TORCH[name].is_floating_point:
        return -math.inf, math.inf
    info = torch.iinfo(TORCH[name])
    return float(info.min), math.nextafter(float(info.max), 0.0) if info.bits == 64 else float(info.max)


def random_values(name: str, size: int, generator: torch.Generator) -> torch.Tensor:
    if TORCH[name].is_floating_point:
        return torch.randn(size, generator=generator, dtype=torch.float64).mul(2).to(TORCH[name])
    bits = torch.iinfo(TORCH[name]).bits
    raw = torch.randint(-(2**63), 2**63 - 1, (size,), generator=generator, dtype=torch.int64) >> (64 - bits)
    return raw.to(BITS[bits // 8]).view(TORCH[name])


def special_values(name: str) -> torch.Tensor:
    """(count,): of an 8-bit float all values."""
    dtype = TORCH[name]
    if name in EIGHTS:
        return torch.arange(256).to(torch.uint8).view(dtype)
    if not dtype.is_floating_point:
        bits = torch.iinfo(dtype).bits
        edges = [1 << (bits - 1), (1 << (bits - 1)) - 1, (1 << (bits - 1)) + 1, (1 << (bits - 2)) + 5]
        codes = [((code + (1 << (bits - 1))) % (1 << bits)) - (1 << (bits - 1)) for code in [*CODES, *edges]]
        return torch.tensor(codes, dtype=torch.int64).to(BITS[bits // 8]).view(dtype)
    info = torch.finfo(dtype)
    least = info.tiny * info.eps  # the smallest subnormal
    odd = min(2.0 / info.eps + 1, info.max)  # above it there are no odd numbers
    both = [0.0, least, info.tiny - least, info.tiny, 1.5 * info.tiny, info.max, math.inf, 1.0, 1.0 + info.eps]
    both += [0.5, 2.5, math.pi]
    rest = [1.5, 3.0, 100.75, -10.0, 88.75, math.nan, odd, -1e-3]
    return torch.tensor([*both, *(-x for x in both), *rest], dtype=torch.float64).to(dtype)
