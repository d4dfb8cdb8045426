"""What the grader sends to a recorder or a runner, and what these reply: requests and replies, as types.

msgspec reads and checks every message. A recorder runs beside the submission: what it may reply is a type of its own,
with short texts and small numbers alone.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct, field

from grader.core.protocol.program import Line
from grader.core.protocol.reports import TraceReport, WrapperCosts

Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
PlainArgument = bool | int | float | str | None
Range = tuple[int, int]  # start, stop


class Gpu(Struct, frozen=True):
    """What recording and compiling for a GPU need to know of it. shared_bytes: the most that one program may have."""

    target: str
    name: str
    backend: str
    arch: int | str
    warp: int
    shared_bytes: int
    processors: int


class Code(Struct, frozen=True):
    """A module of the course's that runs inside a sandbox: its file's name, for tracebacks, and its text."""

    file: str
    text: str


class TensorSpec(Struct, frozen=True):
    """An input of a call without its values: sizes, strides and offset count elements of a buffer of `elements`.

    sparse: the buffer is too large to exist; recorder and runner lay it out in memory that they need not have.
    in_call: False for what the course's own code hands to the entry point, as part of another object.
    """

    name: str
    dtype: str
    elements: int
    shape: list[int]
    strides: list[int]
    offset: int = 0
    sparse: bool = False
    in_call: bool = True


class Row(Struct, frozen=True):
    """One row of an input: its name, and an index of all dims but the last."""

    name: str
    index: list[int]


class Call(Struct, frozen=True):
    """A call of an entry point, and how it is watched.

    tiles: sizes that replace the first of the module's own tile sizes in the machine. about: for the course's own code
    in the recorder. watched: observers follow the kernels; only the machine can. choice: which configuration of a tuned
    kernel the machine runs. row: of which row the dependents are counted, in PyTorch alone.
    """

    inputs: list[TensorSpec]
    arguments: dict[str, PlainArgument] = field(default_factory=dict)
    tiles: list[int] = field(default_factory=list)
    about: Raw = Raw(b"null")
    watched: bool = False
    choice: int = 0
    row: Row | None = None


# How a child begins --------------------------------------------------------------------------------------------------


class Setup(Struct, kw_only=True):
    """What every child begins with. The last three are filled in where it is started."""

    device: str
    submission: str | None = None
    folder: str = ""
    sys_path: list[str] = field(default_factory=list)


class RecorderSetup(Setup, tag="recorder", kw_only=True):
    """module: the path of the submission's file. gpu: what it is recorded for, None for the machine.

    gap: the word of an open gap. tiles: the module's variable that has the sizes of its tiles. Both "" where the course
    has none.
    """

    module: str
    gap: str = ""
    tiles: str = ""
    entry_point: str
    tensors: list[str]
    arguments: list[str]
    gpu: Gpu | None = None
    code: Code | None = None


class RunnerSetup(Setup, tag="runner", kw_only=True):
    """module: the name of the submission's file. kernels: whether it may launch some. refused: operations of PyTorch
    that it may not use. observer: the course's own observer of kernels. gap: the word of an open gap."""

    module: str = ""
    gap: str = ""
    kernels: bool = True
    refused: list[str] = field(default_factory=list)
    observer: Code | None = None


# Requests to a recorder ----------------------------------------------------------------------------------------------


class Shortage(Struct, frozen=True):
    """A launch needs more of something, `what`, than the GPU has."""

    needed: Count
    limit: Count
    what: Annotated[str, Meta(max_length=200)]


class FailedLaunch(Struct, frozen=True):
    """The launch with this number in the call raised in the runner. The recorder raises the same, since the wrapper may
    have an answer to it. shortage: what it needs too much of, if that is why it raised."""

    number: Count
    text: Annotated[str, Meta(max_length=4000)]
    shortage: Shortage | None = None


class Record(Struct, tag="record"):
    """Write the program of a call to program.json."""

    call: Call
    failing: list[FailedLaunch] = field(default_factory=list)


class Ask(Struct, tag="ask"):
    """Call a function of the course's own code in the recorder, with `about`."""

    function: str
    about: Raw


class HostTime(Struct, tag="host time"):
    """Time calls of the wrapper on the host."""

    call: Call
    calls: int


# Requests to a runner ------------------------------------------------------------------------------------------------


class Run(Struct, tag="run"):
    """Run the program on the inputs of inputs.bin."""

    call: Call


class RunSets(Struct, tag="run sets"):
    """Run it on several sets of inputs, which inputs.bin has one after the other."""

    call: Call
    sets: int


class FindFirstBad(Struct, tag="find first bad"):
    """Find the line of a kernel that makes the first NaN or infinite number."""

    call: Call


class Compile(Struct, tag="compile"):
    """Compile the program's kernels for a GPU."""

    call: Call
    gpu: Gpu
    memory_bytes: int


class Derived(Struct, frozen=True):
    """Inputs that a function of derived.py makes of others."""

    function: str
    takes: list[str]
    makes: list[str]


class Time(Struct, tag="time"):
    """Time `samples` calls, each on its own inputs. check: ranges of the inputs' and outputs' first dims, of each part
    that is written to outputs.bin of the sample `checked`."""

    call: Call
    seed: int
    samples: int
    warm_up: bool
    derived: Derived | None = None
    checked: int | None = None
    check: list[list[list[Range]]] = field(default_factory=list)


class TimeOurs(Struct, tag="time ours"):
    """The same of a function of ours.py. prepares: it returns the function to be timed."""

    time: Time
    function: str
    prepares: bool = False


class Profile(Struct, tag="profile"):
    """What a profiler looks into."""

    setup: RunnerSetup
    call: Call


RecorderRequest = Record | Ask | HostTime
CallRequest = Run | RunSets | FindFirstBad | Compile | Time
RunnerRequest = CallRequest | TimeOurs

# Replies of both -----------------------------------------------------------------------------------------------------


class Output(Struct, frozen=True):
    """What was returned in one place. plain: a plain tensor, whose form is known; else only its type is."""

    plain: bool
    type: Annotated[str, Meta(max_length=200)]
    shape: Annotated[list[Annotated[int, Meta(ge=0, lt=1 << 32)]], Meta(max_length=16)] = field(default_factory=list)
    dtype: Annotated[str, Meta(max_length=40)] = ""
    device: Annotated[str, Meta(max_length=40)] = ""


class Loaded(Struct, tag="loaded"):
    """The child is ready."""


class Raised(Struct, tag="raised", frozen=True):
    """An exception: its root cause, and the line of the submission's file where it arose.

    todo: the name of an open gap. ours: it arose in a file of the grader's. as_seen: it came of a FailedLaunch of the
    request. launch: the launch that raised, if one did.
    """

    exception: Annotated[str, Meta(max_length=200)]
    text: Annotated[str, Meta(max_length=4000)] = ""
    line: Line = None
    source: Annotated[str, Meta(max_length=400)] = ""
    todo: Annotated[str, Meta(max_length=200)] | None = None
    unfinished: bool = False
    bad_module: bool = False
    ours: bool = False
    as_seen: bool = False
    launch: FailedLaunch | None = None


# Replies of a recorder -----------------------------------------------------------------------------------------------


class Recorded(Struct, tag="recorded"):
    """program.json is written."""


class Depends(Struct, tag="depends"):
    """The wrapper does other things for other numbers; line: where it reads one."""

    line: Line


class Answered(Struct, tag="answered"):
    """What a function of the course's own code found: plain data, and tensors in outputs.bin."""

    found: Raw
    outputs: Annotated[list[Output], Meta(max_length=64)] = field(default_factory=list)


class HostTimed(Struct, tag="host timed"):
    milliseconds: Annotated[float, Meta(ge=0, lt=1e6)]


RecorderReply = Loaded | Raised | Recorded | Depends | Answered | HostTimed

# Replies of a runner -------------------------------------------------------------------------------------------------


class UnseenBytes(Struct, frozen=True):
    """What the program uses and no operation made. bytes: of the largest such storage that is no constant, which `line`
    used first; constants: the bytes of all constants together."""

    bytes: int
    line: int | None
    constants: int


class Returned(Struct, tag="returned"):
    """The program ran; outputs.bin has the bytes of its outputs.

    several: it returned a tuple or a list. changed: inputs that are not what they were. broken_fences: shapes of
    tensors around which something was overwritten. without_launch: numbers of the outputs that depend on no
    launch. kernels: those launched. row_elements: the most elements that depended on the request's row at once;
    row_largest: the most of them in one storage.
    """

    outputs: list[Output]
    several: bool
    changed: list[str]
    broken_fences: list[list[int]]
    without_launch: list[int]
    kernels: list[str]
    unseen: UnseenBytes
    wrapper: WrapperCosts
    trace: TraceReport | None = None
    row_elements: int | None = None
    row_largest: int | None = None


class Outputs(Struct, tag="outputs"):
    """The outputs of several sets of inputs, one after the other."""

    outputs: list[Output]


class Held(Struct, frozen=True):
    """A name that holds an infinite number, and the line that gave it one."""

    name: str
    line: int | None


class Exponents(Struct, frozen=True):
    """The largest exponent that a line took exp of, and the lowest of those that are the largest of their row."""

    line: int
    highest: float
    lowest: float


class FirstBad(Struct, tag="first bad"):
    """line: None where every number is finite. what: "NaN" or "infinite". exponent: the largest one of that line.

    exponents: of each line that took exp of a block of two dims before.
    """

    line: int | None = None
    what: str = ""
    source: str = ""
    held: list[Held] = field(default_factory=list)
    exponent: float | None = None
    exponents: Annotated[list[Exponents], Meta(max_length=64)] = field(default_factory=list)


class CompiledKernel(Struct):
    """What is known of a compiled kernel; None where it cannot be known. configs_tried: of a kernel that is tuned."""

    kernel: str
    shared_bytes: int
    shared_limit: int
    num_warps: int
    num_stages: int
    registers: int | None = None
    spill_bytes: int | None = None
    matrix_instructions: str | None = None
    seconds: float = 0.0
    configs_tried: int | None = None


class CompileError(Struct):
    """What stopped a compilation. kind: "language" for the kernel's text, "resources" where it does not fit,
    "compiler" for what Triton or ptxas said later, "wrapper" for what runs outside of kernels. launch: the launch that
    raised, if one did."""

    kind: str
    exception: str
    text: str
    line: int | None
    kernel: str | None = None
    launch: FailedLaunch | None = None


class Compiled(Struct, tag="compiled"):
    kernels: list[CompiledKernel]
    error: CompileError | None = None


class Timed(Struct, tag="timed"):
    """Milliseconds of each call; synchronised_ms: of one that began when nothing else ran. host_ms: of a launch."""

    ms: list[float]
    peak_bytes: int | None = None
    host_ms: float = 0.0
    synchronised_ms: float | None = None
    outputs: list[Output] = field(default_factory=list)
    broken_fences: list[list[int]] = field(default_factory=list)


class Profiled(Struct, tag="profiled"):
    """The kernels that the program launches."""

    kernels: list[str]


class NoProgram(Struct, tag="malformed", frozen=True):
    """What was recorded is no program."""

    text: str


class KernelRefused(Struct, tag="refused", frozen=True):
    """The machine does not run a kernel."""

    text: str
    line: int | None


class KernelLaunched(Struct, tag="kernel launched", frozen=True):
    """A kernel, where none may be."""

    kernel: str
    line: int | None


class NotAllowed(Struct, tag="not allowed", frozen=True):
    """An operation of PyTorch that may not be used."""

    operation: str
    line: int | None


NotRun = NoProgram | KernelRefused | KernelLaunched | NotAllowed
RunnerReply = Loaded | Raised | Returned | Outputs | FirstBad | Compiled | Timed | Profiled | NotRun
Reply = RecorderReply | RunnerReply
WithOutputs = Answered | Returned | Outputs | Timed


def plain_bytes(value: object) -> Raw:
    """The value as JSON, to stand in a message whose reader alone knows the value's type."""
    return Raw(msgspec.json.encode(value))
