"""The text of Triton's IR as data: functions, blocks, operations, their types.

What `print_module` gives is what was parsed, without locations and comments: one text, one meaning. Only that print is
ever handed to a compiler. Method: MLIR's textual form (MLIR Language Reference), as far as Triton's front end has it.
"""

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from grader.core.protocol.program import Refused

LONGEST = 200  # characters of a type
WIDEST = 1 << 20  # elements of a block: Triton's own limit

DTYPES = {
    "i1": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "f8E4M3FN": torch.float8_e4m3fn, "f8E5M2": torch.float8_e5m2, "index": torch.int64,
}  # fmt: skip


class NotIR(Refused):
    """The text is none that Triton's front end writes. at_place says where."""


def at_place(refused: Refused, where: str, locations: dict[str, str]) -> Refused:
    """The same exception, which now has this place unless it has one."""
    if not getattr(refused, "where", ""):
        refused.where, refused.locations = where, locations  # type: ignore[attr-defined]
    return refused


@dataclass(frozen=True)
class Type:
    """A scalar, or a block with a `shape`. element: a key of DTYPES, or that of what a pointer points to.

    kind: "number", "pointer" or "descriptor"; a descriptor's shape is that of its block. pointee: the dtype in memory.
    """

    text: str
    kind: str
    shape: tuple[int, ...]
    element: str

    @functools.cached_property
    def dtype(self) -> torch.dtype:
        """Of the tensor that holds the value: an address is an int64."""
        return DTYPES[self.element] if self.kind == "number" else torch.int64

    @functools.cached_property
    def pointee(self) -> torch.dtype:
        return torch.int64 if self.element.startswith("!tt.ptr<") else DTYPES[self.element]

    @functools.cached_property
    def elements(self) -> int:
        return math.prod(self.shape)

    def with_element(self, element: str) -> "Type":
        """The same shape, of other numbers."""
        return parse_type(f"tensor<{'x'.join(map(str, self.shape))}x{element}>" if self.shape else element)


Types = tuple[Type, ...]


@functools.lru_cache(maxsize=4096)
def parse_type(text: str) -> Type:
    """The Type of this text; raises NotIR."""
    if len(text) > LONGEST:
        raise NotIR(f"a type of {len(text)} characters")
    shape: tuple[int, ...] = ()
    element, kind = text, "number"
    if matched := re.fullmatch(r"!tt\.tensordesc<(.*)>", text, re.ASCII):
        inner = matched[1] if matched[1].startswith("tensor<") else f"tensor<{matched[1]}>"
        block = parse_type(re.sub(r"x[su]i(\d+)>", r"xi\1>", inner))
        return Type(text, "descriptor", block.shape, block.element)
    if matched := re.fullmatch(r"tensor<((?:\d+x)+)(.*)>", text, re.ASCII):
        shape, element = tuple(int(size) for size in matched[1].split("x") if size), matched[2]
        if any(size & (size - 1) or not size for size in shape):
            raise NotIR(f"a block of {' x '.join(map(str, shape))}: each size must be a power of 2")
        if math.prod(shape) > WIDEST:
            raise NotIR(f"a block of {' x '.join(map(str, shape))} elements: Triton takes at most {WIDEST}")
    if matched := re.fullmatch(r"!tt\.ptr<(.*)>", element):
        element, kind = matched[1], "pointer"
        if element.startswith("!tt.ptr<"):
            parse_type(element)
            return Type(text, kind, shape, element)
    if element not in DTYPES:
        raise NotIR(f"the machine has no type `{element[:60]}`")
    return Type(text, kind, shape, element)


@dataclass(eq=False)
class Operation:
    """One operation. operands, results: names of values. types: all in its text, in order. text: its line; body: what
    stands behind its name there.

    attributes: {name: text of its value}. where: its location's name, or "". What type_check.py finds: a name of its
    own for each value; made: the types of the results; prepared: what its rule read in the text; run: what runs it;
    function: the one that it is in. Of jumps, prepared is [(which block, values that it is given)]; of a call, the
    name of a function.
    """

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    types: Types
    attributes: dict[str, str]
    body: str
    text: str
    where: str
    prepared: Any = None
    regions: list["Region"] = field(default_factory=list)
    closing: list[str] = field(default_factory=list)  # the lines that end its regions
    made: Types = ()
    run: Any = None
    function: "Function | None" = None


def need(condition: object, operation: Operation) -> None:
    """Raise NotIR where the condition does not hold."""
    if not condition:
        raise NotIR(f"`{operation.name}` with operands or types that do not fit: `{operation.body.strip()[:100]}`")


@dataclass(eq=False)
class Block:
    """A label, the values that it is given, and operations, of which the last leaves it.

    What a loop carries, its index first, is given to its block, which has no label.
    """

    label: str
    arguments: tuple[str, ...]
    types: Types
    operations: list[Operation]

    @functools.cached_property
    def elements(self) -> int:
        """Numbers that the operations make in one program."""
        return sum(operation.made[0].elements for operation in self.operations if operation.made)


@dataclass(eq=False)
class Region:
    """The blocks of an operation's body; the first is where it begins."""

    blocks: list[Block]

    @property
    def entry(self) -> Block:
        return self.blocks[0]

    def operations(self) -> Iterator[Operation]:
        """All of them, those of inner regions included."""
        for block in self.blocks:
            for operation in block.operations:
                yield operation
                for inner in operation.regions:
                    yield from inner.operations()

    @property
    def leave(self) -> Operation:
        """The operation that leaves the last block."""
        return self.blocks[-1].operations[-1]

    @functools.cached_property
    def places(self) -> dict[str, int]:
        """{label: which block it is}."""
        return {block.label: place for place, block in enumerate(self.blocks)}


@dataclass(eq=False)
class Function:
    """A function of the module. opening: its first line. definitions: where its values come from (definitions.py)."""

    name: str
    arguments: tuple[str, ...]
    types: Types
    returns: Types
    body: Region
    opening: str
    definitions: Any = None


@dataclass(eq=False)
class Module:
    """functions by name; locations: {name: text}, for whoever asks where something stands. bytes: of all values that
    one program makes, each once; widest: of the largest of them (type_check.py)."""

    functions: dict[str, Function]
    locations: dict[str, str]
    bytes: int = 0
    widest: int = 1


def print_module(
    module: Module, entry: str = "", attributes: Mapping[str, str] | None = None,
    place: Callable[[Operation], str] = lambda operation: "",
) -> str:  # fmt: skip
    """The text that was parsed, and nothing else. attributes: {argument of `entry`: what stands behind its type}.

    place(operation): its location as text.
    """

    def lines_of(region: Region, indent: str) -> Iterator[str]:
        for block in region.blocks:
            if block.label:
                names = (name.partition(" ")[0] for name in block.arguments)  # type_check.py makes each one of a kind
                given = ", ".join(f"{name}: {kind.text}" for name, kind in zip(names, block.types, strict=True))
                yield f"{indent[:-2]}{block.label}{f'({given})' if given else ''}:"
            for operation in block.operations:
                if operation.text:
                    yield from lines(operation, indent)

    def lines(operation: Operation, indent: str) -> Iterator[str]:
        at = place(operation)
        yield indent + operation.text + ("" if operation.regions else at)
        for number, (region, closing) in enumerate(zip(operation.regions, operation.closing, strict=True), 1):
            yield from lines_of(region, indent + "  ")
            yield indent + closing + (at if number == len(operation.regions) else "")

    text = ["module {"]
    for function in module.functions.values():
        opening = function.opening
        for name, kind in zip(function.arguments, function.types, strict=True) if function.name == entry else ():
            if attributes and name in attributes:
                opening = opening.replace(f"{name}: {kind.text}", f"{name}: {kind.text} {attributes[name]}", 1)
        text += [f"  {opening}", *lines_of(function.body, "    "), "  }"]
    return "\n".join([*text, "}"]) + "\n"
