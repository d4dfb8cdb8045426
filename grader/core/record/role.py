"""What the worker process does as a recorder: loads a submission's module and writes down what it does.

All of it runs beside the submission, so that nothing of it is believed: what it sends is a program, which the runner
checks, or why there is none.
"""

import contextlib
import importlib.util
import inspect
import os
import statistics
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import numpy
import torch

from grader.core.inside import replies, sparse, without_gpu
from grader.core.protocol.messages import (
    Answered,
    Ask,
    Call,
    Code,
    Depends,
    HostTime,
    HostTimed,
    Raised,
    Record,
    Recorded,
    RecorderRequest,
    RecorderSetup,
    TensorSpec,
)
from grader.core.record.record import Data, Recorder

if TYPE_CHECKING:
    from grader.core.record.launches import Launches


@dataclass
class Loaded:
    """A module that is loaded, and the recorder that saw it."""

    setup: RecorderSetup
    function: Any
    recorder: Recorder
    beside: types.ModuleType  # the course's own code, empty where it has none
    launches: "Launches | None" = None
    tiles: tuple[int, ...] = ()  # the module's own TILES_INTERPRETER


LAUNCHES = "grader.core.record.launches"  # there where Triton is
TILES = "TILES_INTERPRETER"  # where a module has it: the sizes of its tiles, and more, in the interpreter


def get_ready(device: str) -> float:
    """Import what every submission needs; nothing of it runs a kernel. Returns seconds, of which none are told."""
    numpy.seterr(all="ignore")
    torch.set_num_threads(1)
    sparse.reserve()
    with contextlib.suppress(ImportError):
        import triton.language  # noqa: F401

        from grader.core.record import launches  # noqa: F401
    return 0.0


def begin(setup: RecorderSetup) -> Loaded:
    """Load the module of `setup` while the recorder looks on; raises what the module raises."""
    interpreted = setup.gpu is None and setup.device != "direct"
    os.environ["TRITON_INTERPRET"] = "1" if interpreted else "0"
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    sys.breakpointhook = no_breakpoint
    if "triton" in sys.modules:
        sys.modules["triton"].knobs.runtime.interpret = interpreted
    sys.path[:] = [*setup.sys_path, *([setup.submission] if setup.submission else [])]
    recorder = Recorder(setup.module)
    if setup.device == "direct":
        return Loaded(setup, load_function(setup), recorder, make_module("beside", None))
    launches = sys.modules[LAUNCHES].Launches(recorder) if LAUNCHES in sys.modules else None
    loaded = Loaded(setup, None, recorder, make_module("beside", setup.code), launches)
    with recording(loaded):
        loaded.function = load_function(setup)
        loaded.tiles = own_tiles(setup)
    if launches:
        launches.know(sys.modules[loaded.function.__module__] if hasattr(loaded.function, "__module__") else recorder)
    return loaded


def no_breakpoint(*args: object, **kwargs: object) -> NoReturn:
    raise RuntimeError("breakpoint() has no terminal here: `make try` runs your file where a debugger works")


def make_module(name: str, code: Code | None) -> types.ModuleType:
    """A module of messages.Code; empty without any."""
    module = types.ModuleType(name)
    if code:
        exec(compile(code.text, code.file, "exec"), vars(module))
    return module


@contextlib.contextmanager
def recording(loaded: Loaded) -> Iterator[None]:
    """Around a submission's own code."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if loaded.launches:
            stack.enter_context(loaded.launches.watching())
        stack.enter_context(without_gpu.pass_for(loaded.setup.gpu or without_gpu.INTERPRETED))
        stack.enter_context(loaded.recorder)
        yield


def describe(error: BaseException, setup: RecorderSetup) -> Raised:
    """An exception of the submission's."""
    with open(setup.module, encoding="utf-8", errors="replace") as file:
        return replies.describe_error(error, setup.module, file.read())


class BadModule(Exception):
    """The module has no entry point of the right form; the text is a sentence for the student."""


def module_name(setup: RecorderSetup) -> str:
    return os.path.splitext(os.path.basename(setup.module))[0]


def load_function(setup: RecorderSetup) -> Callable[..., Any]:
    """The entry point of the module; BadModule where it is missing or cannot be called as it will be."""
    path, entry_point = setup.module, setup.entry_point
    name = module_name(setup)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader  # a file whose name ends in .py has one
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    function = getattr(module, entry_point, None)
    if not callable(function):
        raise BadModule(f"{os.path.basename(path)} has no function named {entry_point}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function
    try:
        signature.bind(*setup.tensors, **dict.fromkeys(setup.arguments))
    except TypeError as error:
        call = ", ".join([*setup.tensors, *(f"{argument}=..." for argument in setup.arguments)])
        raise BadModule(f"{entry_point}{signature} cannot be called as {entry_point}({call}): {error}") from None
    return function


# Jobs ----------------------------------------------------------------------------------------------------------------


def record(loaded: Loaded, request: Record) -> Recorded | Depends:
    """Write program.json for one call.

    If the wrapper read numbers, or brought some along, a second call has other stand-in values: it must give the same
    program.
    """
    set_tiles(loaded, request.call.tiles)
    loaded.recorder.failing = {failing.number: failing for failing in request.failing}
    constants = record_once(loaded, request.call, 0, "program.json")
    if (reads := loaded.recorder.reads[:1]) or constants:
        with silence():
            record_once(loaded, request.call, 2, "other.json")
        if contents("other.json") != contents("program.json"):
            return Depends(next(iter(reads), None) or None)
    return Recorded()


def own_tiles(setup: RecorderSetup) -> tuple[int, ...]:
    """The module's TILES_INTERPRETER where it is a tuple of integers, else an empty one."""
    with contextlib.suppress(Exception):  # whatever a module has made of its names
        tiles = vars(sys.modules[module_name(setup)])[TILES]
        return tiles if type(tiles) is tuple and {*map(type, tiles)} == {int} else ()
    return ()


def set_tiles(loaded: Loaded, sizes: list[int]) -> None:
    """Have the module's TILES_INTERPRETER begin with these sizes; with none it is the module's own again."""
    if len(loaded.tiles) > len(sizes):
        with contextlib.suppress(Exception):
            vars(sys.modules[module_name(loaded.setup)])[TILES] = (*sizes, *loaded.tiles[len(sizes) :])


def contents(name: str) -> bytes:
    with open(name, "rb") as file:
        return file.read()


def record_once(loaded: Loaded, call: Call, seed: int, file_name: str) -> bool:
    """Write down a call on stand-in values; a second one if the first left tensors behind, which it may use.

    Returns whether the program brings numbers along.
    """
    recorder = loaded.recorder
    with recording(loaded):
        program = one_call(loaded, call, seed)
        if recorder.left_behind():
            with silence():
                program = one_call(loaded, call, seed + 1)
    with open(file_name, "wb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o644)) as file:
        file.write(msgspec.json.encode(program))
    return any(storage["is"] == "constant" for storage in recorder.storages[recorder.before :])


def one_call(loaded: Loaded, call: Call, seed: int) -> Data:
    """The program of one call."""
    recorder = loaded.recorder
    with torch._C._DisableTorchDispatch():
        recorder.begin_call()
        sparse.begin()
        tensors = [stand_in(spec, 10 * seed + i) for i, spec in enumerate(call.inputs)]
        for tensor, spec in zip(tensors, call.inputs, strict=True):
            recorder.given(tensor, spec.name)
        more = {}
        if bytes(call.about) != b"null":
            module = sys.modules[module_name(loaded.setup)]
            more = loaded.beside.arguments(module, msgspec.json.decode(call.about), recorder.given)
    out = loaded.function(*tensors, **call.arguments, **more)
    with torch._C._DisableTorchDispatch():
        several = isinstance(out, tuple | list)
        returned = [returned_value(recorder, value) for value in (out if several else [out])]
        return recorder.program(returned) | {"several": several}


def returned_value(recorder: Recorder, value: Any) -> Data:
    if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided:
        return recorder.tensor(value)
    return {"is": "other", "type": type(value).__name__[:200]}


def stand_in(spec: TensorSpec, seed: int) -> torch.Tensor:
    """A tensor of the case's form with values of its own, whatever device the module made the default."""
    elements, generator, dtype = spec.elements, torch.Generator("cpu").manual_seed(seed), getattr(torch, spec.dtype)
    if spec.sparse:
        base = sparse.empty(elements, dtype).as_strided(spec.shape, spec.strides, spec.offset)
        return base.copy_(torch.randn(spec.shape, generator=generator, device="cpu"))
    base = torch.randn(min(elements, 1 << 20), generator=generator, device="cpu").to(dtype)
    base = base.repeat(-(-elements // max(1, base.numel())))[:elements] if elements > base.numel() else base
    return base.as_strided(spec.shape, spec.strides, spec.offset)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """What is printed in both of two calls would be seen twice."""
    kept = [os.dup(1), os.dup(2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(nowhere)


def ask(loaded: Loaded, request: Ask) -> Answered:
    """What a function of the course's own code finds out about the module."""
    module, about = sys.modules[module_name(loaded.setup)], msgspec.json.decode(request.about)
    with torch.no_grad():
        found, outputs = getattr(loaded.beside, request.function)(module, about)
    return Answered(msgspec.Raw(msgspec.json.encode(found)), replies.write_outputs(outputs, "cpu"))


def time_on_host(loaded: Loaded, request: HostTime) -> HostTimed:
    """Milliseconds that one call of the wrapper takes on the host, on a GPU; its own word, worth no points."""
    times, inputs = [], []
    for spec in request.call.inputs:
        inputs.append(torch.randn(spec.shape, device="cuda").to(getattr(torch, spec.dtype)))
    with torch.no_grad():
        for _ in range(request.calls):
            started = time.perf_counter()
            loaded.function(*inputs, **request.call.arguments)
            times.append((time.perf_counter() - started) * 1e3)
            torch.cuda.synchronize()
    return HostTimed(statistics.median(times[len(times) // 2 :]))


REQUESTS = msgspec.json.Decoder(RecorderRequest)
JOBS = {Record: record, Ask: ask, HostTime: time_on_host}
