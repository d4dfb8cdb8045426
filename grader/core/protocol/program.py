"""The form of a program. The recorder makes these structs and writes them as JSON; the runner, which believes nothing,
has msgspec decode the JSON into these structs again, or say what is wrong with it.

Every value has a type of this file. A dtype, a format or a padding is one of a closed list; a name (of an operation, a
module, a function) is looked up in a table of the runner's, and never as an attribute of an object. So nothing that a
program holds can become an object that the runner does not mean to give to a kernel.
"""

import keyword
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple

LARGEST = 1 << 45
CONSTANT = 1 << 16  # bytes of one constant
CONFIGS = 200  # of one launch that is tuned
DEPTH = 16  # structs in structs
LEAVES = {type(None), bool, int, str, bytes}
RESERVED = ("_grader", "__")  # how no name of a kernel begins

Size = Annotated[int, Meta(ge=0, le=LARGEST)]
Line = Annotated[int, Meta(gt=0, lt=1 << 24)] | None
Whole = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Short = Annotated[str, Meta(max_length=200)]  # a name that is shown, or a text that a kernel is given
Long = Annotated[str, Meta(max_length=1 << 17)]  # a kernel's text
IR = 1 << 22  # characters of a kernel's IR
Name = Annotated[str, Meta(max_length=200, pattern=r"^[^\W\d]\w*\Z")]
Dtype = Literal[
    "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "bool", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip


class Malformed(Exception):
    """It is no program: nothing of it is run."""


class Refused(Exception):
    """Triton's compiler would not take this; the text says what, line: where in the submission's file."""

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


class TritonDtype(Part, frozen=True, tag="triton dtype"):
    name: Literal[
        "void", "int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "fp8e4b15",
        "fp8e4nv", "fp8e4b8", "fp8e5", "fp8e5b16", "fp16", "bf16", "fp32", "fp64",
    ]  # fmt: skip


class KernelNumber(Part, frozen=True, tag="kernel"):
    number: Size


class Constexpr(Part, frozen=True, tag="constexpr"):
    value: "Argument"


class NamedTuple(Part, frozen=True, tag="named tuple"):  # the class itself, which a kernel may call
    fields: list[Name]


class Tuple(Part, frozen=True, tag="tuple"):  # fields: the names of its items where it is a NamedTuple
    items: list["Argument"]
    fields: list[Name] | None = None


Shape = Annotated[list[Annotated[int, Meta(ge=0, le=1 << 40)]], Meta(min_length=1, max_length=5)]


class Descriptor(Part, frozen=True, tag="descriptor"):
    """A TensorDescriptor; one of Gluon's has the fields of its NVMMASharedLayout."""

    base: Tensor
    shape: Shape
    strides: Shape
    block: Shape
    padding: Literal["zero", "nan"]
    layout: dict[Name, bool | Whole | list[Whole | list[Whole]] | None] | None = None


class Module(Part, frozen=True, tag="module"):
    """A module that a kernel names; kernel_check.py and build.py have the tables of those that it may use."""

    name: Short


class Function(Part, frozen=True, tag="function"):  # a function of Triton's language that a kernel imported by its name
    module: Short
    name: Name


class Opaque(Part, frozen=True, tag="opaque"):
    """What no kernel can use, by the name of its type: a kernel that uses it is refused."""

    type: Short


Plain = bool | Whole | Short | Float | TorchDtype | None
Operand = Plain | Tensor | Format | Device  # of an operation of PyTorch's
Argument = Plain | Tensor | TritonDtype | KernelNumber | Constexpr | Tuple | Descriptor
Use = Argument | Module | Function | NamedTuple | Opaque  # what a name of a kernel's text means

# Kernels and steps ---------------------------------------------------------------------------------------------------


class Kernel(Part, frozen=True):
    """A function that Triton compiles. uses: what it names from outside. constexprs, unspecialized: parameters."""

    kind: Literal["kernel", "gluon", "constexpr function"]
    name: Name
    file: Annotated[str, Meta(max_length=200, pattern=r"^[^/\0]+\Z")]
    line: Annotated[int, Meta(ge=1, le=1 << 20)]
    source: Long
    constexprs: list[Short]
    unspecialized: list[Short]
    noinline: bool
    uses: Annotated[dict[Name, Use], Meta(max_length=1000)]


class Lowered(Part, frozen=True):
    """A kernel as Triton's IR for the types and constants of a launch. name: of the entry function in the text."""

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
    """A kernel's launch, the `number`-th of the call."""

    kernel: Size
    number: Size
    grid: tuple[Annotated[int, Meta(ge=0, le=1 << 31)], ...]
    args: Annotated[dict[Name, Argument], Meta(max_length=1000)]
    options: Annotated[dict[Name, Argument], Meta(max_length=100)]
    line: Line


class LoweredLaunch(Part, frozen=True, tag="lowered launch"):
    """A launch of IR, the `number`-th of the call.

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
    steps: list[Operation | Launch | LoweredLaunch | Free]


class Choice(Part, frozen=True, tag="choice"):  # the configurations of a tuned kernel, of which the runner takes one
    branches: Annotated[list[Branch], Meta(min_length=1, max_length=CONFIGS)]
    line: Line


class Other(Part, frozen=True, tag="other"):  # what is returned and no tensor, by the name of its type
    type: Short


Storage = Input | Old | Made | Constant | Unseen
Step = Operation | Launch | LoweredLaunch | Free | Choice


class Program(Part, frozen=True):
    """setup: steps before the call. stale: storages that an earlier call left something in. several: it returns a
    tuple or a list. kernels: what a Launch launches. lowered: what a LoweredLaunch launches."""

    version: Literal[2]
    storages: list[Storage]
    kernels: list[Kernel]
    setup: list[Step]
    stale: list[Size]
    steps: list[Step]
    returns: Annotated[list[Tensor | Other], Meta(max_length=64)]
    several: bool
    lowered: list[Lowered] = []  # msgspec makes a new one for each


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
            case KernelNumber():
                need(part.number < len(program.kernels), "a kernel that is not there")
            case Constexpr():
                need(not tensors_in(part), "a tensor in a constexpr")
            case NamedTuple():
                check_fields(part.fields)
            case Tuple():
                fits = part.fields is None or len(part.fields) == len(part.items)
                need(fits, "a NamedTuple has a name for each item")
                check_fields(part.fields or ())
            case Launch():
                check_launch(part, program.kernels)
            case LoweredLaunch():
                check_lowered_launch(part, program.lowered)
            case Choice():
                need(all(launches_in(branch.steps) for branch in part.branches), "a choice without a launch")
    for place, kernel in enumerate(program.kernels):
        need(not any(name.startswith(RESERVED) for name in (kernel.name, *kernel.uses)), "a name for no kernel")
        need(not tensors_in(kernel.uses), "a kernel that uses a tensor from outside")
        numbers = [part.number for part in parts(kernel.uses) if isinstance(part, KernelNumber)]
        need(all(number < place for number in numbers), "a kernel that uses a later one")  # so that none calls itself
    inputs = {i for i, storage in enumerate(program.storages) if isinstance(storage, Input)}
    need(inputs.isdisjoint(storages_in(program.setup)), "a step before the call with the call's inputs")
    need(all(number < len(program.storages) for number in program.stale), "a storage that is not there")
    need(program.returns or program.several, "nothing is returned")


def check_any_launch(launch: Launch | LoweredLaunch, kernels: Sequence[Kernel | Lowered]) -> None:
    need(len(launch.grid) == 3, "a grid has three sizes")
    strange = NO_OPTIONS & launch.options.keys()
    need(not strange, f"a launch has no option {min(strange, default='')}")
    need(launch.kernel < len(kernels), "a kernel that is not there")


def check_lowered_launch(launch: LoweredLaunch, kernels: list[Lowered]) -> None:
    check_any_launch(launch, kernels)
    need(len(launch.names) == len(launch.args), "an argument has one name")
    need(all(place < len(launch.args) for place in launch.unspecialized), "an argument that is not there")


def check_launch(launch: Launch, kernels: list[Kernel]) -> None:
    check_any_launch(launch, kernels)
    kernel = kernels[launch.kernel]
    need(kernel.kind != "constexpr function", "a launch of what is no kernel")
    need(not tensors_in([launch.args.get(name) for name in kernel.constexprs]), "a tensor for a tl.constexpr")


def check_fields(names: Sequence[str]) -> None:
    strange = any(name.startswith("_") or keyword.iskeyword(name) for name in names)
    need(not strange and len(set(names)) == len(names), "a NamedTuple's field with the name of no field")
    # Triton takes what has this attribute for a descriptor.
    need("base" not in names, "a NamedTuple's field `base`: give it another name")


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


def flat(steps: Iterable[Step]) -> Iterator[Operation | Launch | LoweredLaunch]:
    """The operations and launches among the steps; of a choice, those of all its branches."""
    for step in steps:
        branches = [branch.steps for branch in step.branches] if isinstance(step, Choice) else [[step]]
        for inner in (inner for branch in branches for inner in branch):
            if not isinstance(inner, Free):
                yield inner


def launches_in(steps: Iterable[Step]) -> list[Launch | LoweredLaunch]:
    return [step for step in flat(steps) if isinstance(step, Launch | LoweredLaunch)]


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
