"""The form of a program. The recorder makes these structs and writes them as JSON; the runner, which believes nothing,
has msgspec decode the JSON into these structs again, or say what is wrong with it.

Every value has a type of this file. A dtype, a format or a padding is one of a closed list; a name (of an operation, a
kernel) is looked up in a table of the runner's, and never as an attribute of an object. A kernel is a text, which the
machine parses, or refuses: so nothing that a program holds can become Python that runs.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple

LARGEST = 1 << 45
CONSTANT = 1 << 16  # bytes of one constant
CONFIGS = 200  # of one launch that is tuned
DEPTH = 16  # structs in structs
LEAVES = {type(None), bool, int, str, bytes}

Size = Annotated[int, Meta(ge=0, le=LARGEST)]
Line = Annotated[int, Meta(gt=0, lt=1 << 24)] | None
Whole = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Short = Annotated[str, Meta(max_length=200)]  # a name that is shown
Long = Annotated[str, Meta(max_length=1 << 17)]  # a configuration
IR = 1 << 22  # characters of a kernel's IR
Name = Annotated[str, Meta(max_length=200, pattern=r"^[^\W\d]\w*\Z")]
Dtype = Literal[
    "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "bool", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip


class Malformed(Exception):
    """It is no program: nothing of it is run."""


class Refused(Exception):
    """The machine does not run this; the text says what, line: where in the submission's file."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


class Part(Struct, frozen=True, forbid_unknown_fields=True, tag_field="is"):
    """Part of a program: an object of JSON with exactly these fields, whose "is" says which part."""


# Storages: what tensors lie in ----------------------------------------------------------------------------------------


class Input(Part, frozen=True, tag="input"):  # an argument of the call, by its name
    bytes: Size
    name: Short


class Old(Part, frozen=True, tag="old"):  # an input of an earlier call, or made of one: its numbers are gone
    bytes: Size


class Made(Part, frozen=True, tag="made"):  # what a step makes
    bytes: Size


class Constant(Part, frozen=True, tag="constant"):  # bytes that the program brings along; base64 in JSON
    data: Annotated[bytes, Meta(max_length=CONSTANT)]

    @property
    def bytes(self) -> int:
        return len(self.data)


class Unseen(Part, frozen=True, tag="unseen"):  # what no operation made, and what is too large for a constant
    bytes: Size
    line: Line


# Values --------------------------------------------------------------------------------------------------------------


class Tensor(Part, frozen=True, tag="tensor"):  # part of a storage; sizes, strides and offset count elements
    storage: Size
    dtype: Dtype
    sizes: Annotated[list[Size], Meta(max_length=16)]
    strides: list[Size]
    offset: Size

    def __post_init__(self) -> None:
        if len(self.sizes) != len(self.strides):
            raise ValueError("a tensor needs a stride for each size")

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)


class Float(Part, frozen=True, tag="float"):  # a number as float.hex writes it: JSON has neither infinity nor NaN
    hex: Annotated[str, Meta(max_length=40)]

    def __post_init__(self) -> None:
        try:
            float.fromhex(self.hex)
        except OverflowError:
            raise ValueError("a float that is none") from None


class TorchDtype(Part, frozen=True, tag="dtype"):
    name: Dtype


class Format(Part, frozen=True, tag="format"):  # a layout or a memory format of PyTorch's
    name: Literal["strided", "contiguous_format", "preserve_format", "channels_last", "channels_last_3d"]


class Device(Part, frozen=True, tag="device"):
    """The device of the run: there is one."""


Shape = Annotated[list[Annotated[int, Meta(ge=0, le=1 << 40)]], Meta(min_length=1, max_length=5)]


class Descriptor(Part, frozen=True, tag="descriptor"):  # a TensorDescriptor
    base: Tensor
    shape: Shape
    strides: Shape
    block: Shape
    padding: Literal["zero", "nan"]


Plain = bool | Whole | Short | Float | TorchDtype | None
Operand = Plain | Tensor | Format | Device  # of an operation of PyTorch's

# Kernels and steps ---------------------------------------------------------------------------------------------------


class Kernel(Part, frozen=True):
    """A kernel as Triton's IR (TTIR) for the types and constants of a launch. name: of the text's entry function."""

    name: Name
    file: Annotated[str, Meta(max_length=200, pattern=r"^[^/\0]+\Z")]
    line: Annotated[int, Meta(ge=1, le=1 << 20)]
    text: Annotated[str, Meta(max_length=IR)]


class Operation(Part, frozen=True, tag="operation"):  # an operation of PyTorch's, and the tensors that it returns
    namespace: Short
    op: Short
    overload: Short
    args: list[Operand | list[Operand]]
    kwargs: dict[Name, Operand | list[Operand]]
    out: list[Tensor]
    line: Line


class Launch(Part, frozen=True, tag="launch"):
    """A launch of a kernel, the `number`-th of the call.

    args: one for each parameter of the entry function. names: of the student's parameters; `pair.0` is a member of a
    tuple, `desc.shape.0` a size of a descriptor. unspecialized: the places in `args` of which Triton must not know
    whether 16 divides them. options: those that are not Triton's defaults.
    """

    kernel: Size
    number: Size
    grid: tuple[Annotated[int, Meta(ge=0, le=1 << 31)], ...]
    args: Annotated[list[Tensor | Descriptor | bool | Whole | Float], Meta(max_length=1000)]
    names: list[Short]
    unspecialized: list[Size]
    options: Annotated[dict[Name, bool | Whole | Short], Meta(max_length=100)]
    line: Line


NO_OPTIONS = {"ir_override", "extern_libs", "grid", "warmup"}  # the first two name files that Triton reads


class Free(Part, frozen=True, tag="free"):  # storages that Python let go of
    storages: list[Size]


class Branch(Part, frozen=True):  # what one configuration of a tuned kernel does
    config: Long
    steps: list[Operation | Launch | Free]


class Choice(Part, frozen=True, tag="choice"):  # the configurations of a tuned kernel, of which the runner takes one
    branches: Annotated[list[Branch], Meta(min_length=1, max_length=CONFIGS)]
    line: Line


class Other(Part, frozen=True, tag="other"):  # what is returned and no tensor, by the name of its type
    type: Short


Storage = Input | Old | Made | Constant | Unseen
Step = Operation | Launch | Free | Choice


class Program(Part, frozen=True):
    """setup: steps before the call. stale: storages that an earlier call left something in. several: it returns a
    tuple or a list."""

    version: Literal[3]
    storages: list[Storage]
    kernels: list[Kernel]
    setup: list[Step]
    stale: list[Size]
    steps: list[Step]
    returns: Annotated[list[Tensor | Other], Meta(max_length=64)]
    several: bool


DECODER = msgspec.json.Decoder(Program)


def read(data: bytes) -> Program:
    """The program in these bytes of JSON; raises Malformed."""
    try:
        program = DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Malformed(str(error)[:300]) from None
    except RecursionError:
        raise Malformed("values too deep") from None
    check(program)
    return program


def check(program: Program) -> None:
    """Raise Malformed where parts of a program do not fit together; that a tensor lies in its storage, Replay sees."""
    for part in parts(program):
        match part:
            case Tensor():
                need(part.storage < len(program.storages), "a storage that is not there")
            case Free():
                need(all(number < len(program.storages) for number in part.storages), "a storage that is not there")
            case Launch():
                check_launch(part, program.kernels)
            case Choice():
                need(all(launches_in(branch.steps) for branch in part.branches), "a choice without a launch")
    inputs = {i for i, storage in enumerate(program.storages) if isinstance(storage, Input)}
    need(inputs.isdisjoint(storages_in(program.setup)), "a step before the call with the call's inputs")
    need(all(number < len(program.storages) for number in program.stale), "a storage that is not there")
    need(program.returns or program.several, "nothing is returned")


def check_launch(launch: Launch, kernels: list[Kernel]) -> None:
    need(len(launch.grid) == 3, "a grid has three sizes")
    strange = NO_OPTIONS & launch.options.keys()
    need(not strange, f"a launch has no option {min(strange, default='')}")
    need(launch.kernel < len(kernels), "a kernel that is not there")
    need(len(launch.names) == len(launch.args), "an argument has one name")
    need(all(place < len(launch.args) for place in launch.unspecialized), "an argument that is not there")


def need(condition: object, what: str) -> None:
    if not condition:
        raise Malformed(what)


def parts(value: Any) -> Iterator[Struct]:
    """Every struct in a struct, a list or a dict: the outer ones first."""
    level = [value]
    for _ in range(DEPTH):
        below: list[Any] = []
        for each in level:
            if isinstance(each, Struct):
                yield each
                below += () if type(each) is Tensor else astuple(each)
            elif isinstance(each, dict):
                below += each.values()
            else:
                below += each
        level = [each for each in below if type(each) not in LEAVES]
        if not level:
            return
    raise Malformed("values too deep")


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """A copy in which change(struct) takes the place of each struct, of the inner ones first."""
    if isinstance(value, dict):
        return {name: rebuilt(inner, change) for name, inner in value.items()}
    if isinstance(value, list):
        return [rebuilt(inner, change) for inner in value]
    if not isinstance(value, Struct):
        return value
    return change(value if type(value) is Tensor else type(value)(*(rebuilt(each, change) for each in astuple(value))))


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a struct, a list or a dict."""
    return [part for part in parts(value) if isinstance(part, Tensor)]


def storages_in(value: Any) -> dict[int, None]:
    """The numbers of the storages of these tensors: a set that keeps their order."""
    return dict.fromkeys(tensor.storage for tensor in tensors_in(value))


def flat(steps: Iterable[Step]) -> Iterator[Operation | Launch]:
    """The operations and launches among the steps; of a choice, those of all its branches."""
    for step in steps:
        branches = [branch.steps for branch in step.branches] if isinstance(step, Choice) else [[step]]
        for inner in (inner for branch in branches for inner in branch):
            if not isinstance(inner, Free):
                yield inner


def launches_in(steps: Iterable[Step]) -> list[Launch]:
    return [step for step in flat(steps) if isinstance(step, Launch)]


def resolved(program: Program, chosen: dict[int, int]) -> Program:
    """The program as it ran: of each choice the branch that was taken. chosen: {place among all steps: branch}."""

    def taken(steps: list[Step], first: int) -> list[Step]:
        branches = (
            step.branches[chosen[at]].steps if isinstance(step, Choice) else [step]
            for at, step in enumerate(steps, first)
        )
        return [step for branch in branches for step in branch]

    setup, steps = taken(program.setup, 0), taken(program.steps, len(program.setup))
    return msgspec.structs.replace(program, setup=setup, steps=steps)
