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
from typing import Any, NoReturn

import msgspec
import numpy
import torch

from grader.core.protocol import messages
from grader.core.protocol.messages import Call, Code, Raised, RecorderSetup, TensorSpec
from grader.core.protocol.program import Constant, Other, Program, Tensor
from grader.core.record.record import Recorder
from grader.core.worker import replies, sparse, without_gpu

try:
    from grader.core.record import launches
except ImportError:  # where there is no Triton
    launches = None  # type: ignore[assignment]


@dataclass
class LoadedModule:
    """A module that is loaded, and the recorder that saw it load."""

    setup: RecorderSetup
    recorder: Recorder
    module: types.ModuleType
    function: Callable[..., Any]
    beside: types.ModuleType  # the course's own code, empty where it has none
    launches: "launches.Launches | None"
    tiles: tuple[int, ...] = ()  # the sizes in the module's own variable of tiles


def get_ready(device: str) -> None:
    """Import what every submission needs, the same for each device."""
    numpy.seterr(all="ignore")
    torch.set_num_threads(1)
    sparse.reserve()


def begin(setup: RecorderSetup) -> LoadedModule:
    """Load the module of `setup` while the recorder looks on; raises what the module raises."""
    if launches:  # the knob, which writes the variable, comes first: modules ask the variable alone
        launches.knobs.runtime.interpret = False
    os.environ["TRITON_INTERPRET"] = "1" if setup.gpu is None and setup.device != "direct" else "0"
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    sys.breakpointhook = no_breakpoint
    sys.path[:] = [*setup.sys_path, *([setup.submission] if setup.submission else [])]
    recorder, module = Recorder(setup.module), new_module(setup)
    if setup.device == "direct":
        return LoadedModule(setup, recorder, module, load_function(module, setup), types.ModuleType("beside"), None)
    watch = launches.Launches(recorder, setup.gpu is None) if launches else None
    beside = run_code(setup.code)
    with recording(setup, recorder, watch):
        function = load_function(module, setup)
    if watch:
        watch.know(module)
    return LoadedModule(setup, recorder, module, function, beside, watch, own_tiles(module, setup.tiles))


def no_breakpoint(*args: object, **kwargs: object) -> NoReturn:
    raise RuntimeError("breakpoint() has no terminal here: run your file yourself, with TRITON_INTERPRET=1")


def run_code(code: Code | None) -> types.ModuleType:
    """A module of the course's own code; empty without any."""
    module = types.ModuleType("beside")
    if code:
        exec(compile(code.text, code.file, "exec"), vars(module))
    return module


@contextlib.contextmanager
def recording(setup: RecorderSetup, recorder: Recorder, watch: "launches.Launches | None") -> Iterator[None]:
    """While open, the submission's own code runs and is recorded."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if watch:
            stack.enter_context(watch.watching())
        stack.enter_context(without_gpu.pass_for(setup.gpu or without_gpu.LIKELY))
        stack.enter_context(recorder)
        yield


def describe(error: BaseException, setup: RecorderSetup) -> Raised:
    """An exception of the submission's."""
    refused = launches.front_end.find_refusal(error, setup.module) if launches else None
    with open(setup.module, encoding="utf-8", errors="replace") as file:
        found = replies.describe_error(refused or error, setup.module, file.read(), setup.gap)
    if refused is None:
        return found
    kind, words = refused.in_words(found.source)
    return msgspec.structs.replace(found, exception=kind, text=words, ours=False)


class BadModule(Exception):
    """The module has no entry point of the right form; the text is a sentence for the student."""


def new_module(setup: RecorderSetup) -> types.ModuleType:
    """The submission's module, before it runs. What it does to sys.modules later changes nothing here."""
    name = os.path.splitext(os.path.basename(setup.module))[0]
    spec = importlib.util.spec_from_file_location(name, setup.module)
    assert spec  # a file whose name ends in .py has one
    sys.modules[name] = importlib.util.module_from_spec(spec)
    return sys.modules[name]


def load_function(module: types.ModuleType, setup: RecorderSetup) -> Callable[..., Any]:
    """Run the module; its entry point. Raises BadModule where that is missing or cannot be called as it will be."""
    entry_point = setup.entry_point
    assert module.__spec__ and module.__spec__.loader
    module.__spec__.loader.exec_module(module)
    function = getattr(module, entry_point, None)
    if not callable(function):
        raise BadModule(f"{os.path.basename(setup.module)} has no function named {entry_point}")
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


def record(loaded: LoadedModule, request: messages.Record) -> messages.Recorded | messages.Depends:
    """Write program.json for one call.

    If the wrapper read numbers, brought some along, or was given tensors by the course's own code, whose integers
    Python can read unseen, a second call has other stand-in values: it must give the same program.
    """
    set_tiles(loaded, request.call.tiles)
    loaded.recorder.failing = {failed.number: failed for failed in request.failing}
    constants = record_once(loaded, request.call, 0, "program.json")
    if (reads := loaded.recorder.reads[:1]) or constants or has_more(request.call):
        with silence():
            record_once(loaded, request.call, 2, "other.json")
        if contents("other.json") != contents("program.json"):
            return messages.Depends(next(iter(reads), None) or None)
    return messages.Recorded()


def own_tiles(module: types.ModuleType, variable: str) -> tuple[int, ...]:
    """The module's variable of tiles where it is a tuple of integers, else an empty one."""
    with contextlib.suppress(Exception):  # whatever a module has made of its names
        tiles = vars(module)[variable]
        return tiles if type(tiles) is tuple and {*map(type, tiles)} == {int} else ()
    return ()


def set_tiles(loaded: LoadedModule, sizes: list[int]) -> None:
    """Have the module's variable of tiles begin with these sizes; with none it is the module's own again."""
    if len(loaded.tiles) > len(sizes):
        with contextlib.suppress(Exception):
            vars(loaded.module)[loaded.setup.tiles] = (*sizes, *loaded.tiles[len(sizes) :])


def has_more(call: Call) -> bool:
    """True where the course's own code makes arguments of the call."""
    return bytes(call.about) != b"null"


def contents(name: str) -> bytes:
    with open(name, "rb") as file:
        return file.read()


def record_once(loaded: LoadedModule, call: Call, seed: int, file_name: str) -> bool:
    """Write down a call on stand-in values; a second one if the first left tensors behind, which it may use.

    Returns whether the program brings numbers along.
    """
    recorder = loaded.recorder
    with recording(loaded.setup, recorder, loaded.launches):
        program = one_call(loaded, call, seed)
        if recorder.left_behind():
            with silence():
                program = one_call(loaded, call, seed + 1)
    with replies.open_to_write(file_name) as file:
        file.write(msgspec.json.encode(program))
    return any(isinstance(storage, Constant) for storage in recorder.storages[recorder.before :])


def one_call(loaded: LoadedModule, call: Call, seed: int) -> Program:
    """The program of one call."""
    recorder = loaded.recorder
    with torch._C._DisableTorchDispatch():
        recorder.begin_call()
        sparse.begin()
        tensors = [stand_in(spec, 10 * seed + i) for i, spec in enumerate(call.inputs)]
        for tensor, spec in zip(tensors, call.inputs, strict=True):
            recorder.given(tensor, spec.name)
        more = {}
        if has_more(call):
            about, again = msgspec.json.decode(call.about), seed > 1
            more = loaded.beside.arguments(loaded.module, about, recorder.given, again)
    out = loaded.function(*tensors, **call.arguments, **more)
    with torch._C._DisableTorchDispatch():
        several = isinstance(out, tuple | list)
        returned = [returned_value(recorder, value) for value in (out if several else [out])]
        return recorder.program(returned, several)


def returned_value(recorder: Recorder, value: Any) -> Tensor | Other:
    if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided:
        return recorder.tensor(value)
    return Other(type(value).__name__[:200])


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

    def flush() -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()

    flush()
    kept = os.dup(1), os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        for number in (1, 2):
            os.dup2(nowhere.fileno(), number)
    try:
        yield
    finally:
        flush()
        for number, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)


def ask(loaded: LoadedModule, request: messages.Ask) -> messages.Answered:
    """What a function of the course's own code finds out about the module."""
    with torch.no_grad():
        function = getattr(loaded.beside, request.function)
        found, outputs = function(loaded.module, msgspec.json.decode(request.about))
    return messages.Answered(messages.plain_bytes(found), replies.write_outputs(outputs, "cpu"))


def time_on_host(loaded: LoadedModule, request: messages.HostTime) -> messages.HostTimed:
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
    return messages.HostTimed(statistics.median(times[len(times) // 2 :]))


REQUESTS = msgspec.json.Decoder(messages.RecorderRequest)
JOBS = {messages.Record: record, messages.Ask: ask, messages.HostTime: time_on_host}
