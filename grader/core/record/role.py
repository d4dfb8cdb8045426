"""What the worker process does as a recorder: loads a submission's module and writes down what it does.

All of it runs beside the submission, so that nothing of it is believed: what it sends is a program, which the runner
checks, or why there is none.
"""

import contextlib
import importlib.util
import inspect
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass

import numpy
import torch

from grader.core.inside import sparse, without_gpu
from grader.core.inside.replies import describe_error
from grader.core.record import labs
from grader.core.record.record import Recorder


@dataclass
class Loaded:
    """A module that is loaded, and the recorder that saw it."""

    setup: dict
    function: object
    recorder: object
    launches: object
    tiles: tuple = ()  # the module's own TILES_INTERPRETER


LAUNCHES = "grader.core.record.launches"  # there where Triton is
TILES = "TILES_INTERPRETER"  # where a module has it: BLOCK_Q, BLOCK_K and more, of its launches in the interpreter


def get_ready(device):
    """Import what every submission needs; nothing of it runs a kernel."""
    numpy.seterr(all="ignore")
    torch.set_num_threads(1)
    sparse.reserve()
    with contextlib.suppress(ImportError):
        import triton.language  # noqa: F401

        from grader.core.record import launches  # noqa: F401


def begin(setup):
    """Load the module of `setup` while the recorder looks on; raises what the module raises."""
    interpreted = setup["gpu"] is None and setup["device"] != "direct"
    os.environ["TRITON_INTERPRET"] = "1" if interpreted else "0"
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    sys.breakpointhook = no_breakpoint
    if "triton" in sys.modules:
        sys.modules["triton"].knobs.runtime.interpret = interpreted
    sys.path[:] = [*setup["sys_path"], setup["submission"]]
    if setup["device"] == "direct":
        return Loaded(setup, load_function(setup), None, None)
    recorder = Recorder(setup["module"])
    launches = sys.modules[LAUNCHES].Launches(recorder) if LAUNCHES in sys.modules else None
    loaded = Loaded(setup, None, recorder, launches)
    with recording(loaded):
        loaded.function = load_function(setup)
        loaded.tiles = own_tiles(setup)
    if launches:
        launches.know(sys.modules[loaded.function.__module__] if hasattr(loaded.function, "__module__") else recorder)
    return loaded


def no_breakpoint(*args, **kwargs):
    raise RuntimeError("breakpoint() has no terminal here: `make try` runs your file where a debugger works")


@contextlib.contextmanager
def recording(loaded):
    """Around a submission's own code."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if loaded.launches:
            stack.enter_context(loaded.launches.watching())
        stack.enter_context(without_gpu.pass_for(loaded.setup["gpu"] or without_gpu.INTERPRETED))
        stack.enter_context(loaded.recorder)
        yield


def describe(error, setup):
    """An exception of the submission's, as plain data."""
    with open(setup["module"], encoding="utf-8", errors="replace") as file:
        return describe_error(error, setup["module"], file.read())


class BadModule(Exception):
    """The module has no entry point of the right form; the text is a sentence for the student."""


def module_name(setup):
    return os.path.splitext(os.path.basename(setup["module"]))[0]


def load_function(setup):
    """The entry point of the module; BadModule where it is missing or cannot be called as it will be."""
    path, entry_point = setup["module"], setup["entry_point"]
    tensors, arguments = setup["tensors"], setup["arguments"]
    name = module_name(setup)
    spec = importlib.util.spec_from_file_location(name, path)
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
        signature.bind(*tensors, **dict.fromkeys(arguments))
    except TypeError as error:
        call = ", ".join([*tensors, *(f"{argument}=..." for argument in arguments)])
        raise BadModule(f"{entry_point}{signature} cannot be called as {entry_point}({call}): {error}") from None
    return function


# Jobs ----------------------------------------------------------------------------------------------------------------


def record(loaded, request):
    """Write program.json for one case. Returns {"depends": the line at which Python reads values, or None}.

    Where numbers were read or brought along, other stand-ins must give the same program.
    """
    set_tiles(loaded, request.get("tiles") or ())
    reply = record_once(loaded, request | {"seed": 0, "file": "program.json"})
    if reply["reads"] or reply["constants"]:
        with silence():
            record_once(loaded, request | {"seed": 2, "file": "other.json"})
        if contents("other.json") != contents("program.json"):
            return {"depends": {"line": (reply["reads"] or [0])[0]}}
    return reply


def own_tiles(setup):
    """The module's TILES_INTERPRETER where it is a tuple of integers, else an empty one."""
    with contextlib.suppress(Exception):  # whatever a module has made of its names
        tiles = vars(sys.modules[module_name(setup)])[TILES]
        return tiles if type(tiles) is tuple and {*map(type, tiles)} == {int} else ()
    return ()


def set_tiles(loaded, sizes):
    """Have the module's TILES_INTERPRETER begin with these sizes; with none it is the module's own again."""
    if len(loaded.tiles) > len(sizes):
        with contextlib.suppress(Exception):
            vars(sys.modules[module_name(loaded.setup)])[TILES] = (*sizes, *loaded.tiles[len(sizes) :])


def contents(name):
    with open(name, "rb") as file:
        return file.read()


def record_once(loaded, request):
    """Write down a call on stand-in values; a second one where the first left tensors behind, which it may use."""
    seed = request["seed"]
    loaded.recorder.failing = {failed["number"]: failed for failed in request.get("failing", ())}
    with recording(loaded):
        program = one_call(loaded, request, seed)
        if loaded.recorder.left_behind():
            with silence():
                program = one_call(loaded, request, seed + 1)
    with open(request["file"], "w", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o644)) as file:
        file.write(json.dumps(program, separators=(",", ":")))
    recorder = loaded.recorder
    constants = any(storage["is"] == "constant" for storage in recorder.storages[recorder.before :])
    return {"reads": recorder.reads[:5], "constants": constants}


def one_call(loaded, request, seed):
    """The program of one call."""
    recorder, inputs = loaded.recorder, request["inputs"]
    with torch._C._DisableTorchDispatch():
        recorder.begin_call()
        sparse.begin()
        tensors = [stand_in(described, 10 * seed + i) for i, described in enumerate(inputs)]
        for tensor, described in zip(tensors, inputs, strict=True):
            recorder.given(tensor, described["name"])
        more = labs.make_arguments(loaded, request, recorder)
    out = loaded.function(*tensors, **request["arguments"], **more)
    with torch._C._DisableTorchDispatch():
        several = isinstance(out, tuple | list)
        returned = [returned_value(recorder, value) for value in (out if several else [out])]
        return recorder.program(returned) | {"several": several}


def returned_value(recorder, value):
    if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided:
        return recorder.tensor(value)
    return {"is": "other", "type": type(value).__name__[:200]}


def stand_in(described, seed):
    """A tensor of the case's form with values of its own, whatever device the module made the default."""
    elements, generator = described["elements"], torch.Generator("cpu").manual_seed(seed)
    if described.get("sparse"):
        dtype, shape = getattr(torch, described["dtype"]), described["shape"]
        base = sparse.empty(elements, dtype).as_strided(shape, described["strides"], described["offset"])
        return base.copy_(torch.randn(shape, generator=generator, device="cpu"))
    base = torch.randn(min(elements, 1 << 20), generator=generator, device="cpu").to(getattr(torch, described["dtype"]))
    base = base.repeat(-(-elements // max(1, base.numel())))[:elements] if elements > base.numel() else base
    return base.as_strided(described["shape"], described["strides"], described["offset"])


@contextlib.contextmanager
def silence():
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


def direct(loaded, request):
    """Milliseconds that one call of the wrapper takes on the host, on a GPU; its own word, worth no points."""
    times, inputs = [], []
    for each in request["inputs"]:
        inputs.append(torch.randn(each["shape"], device="cuda").to(getattr(torch, each["dtype"])))
    with torch.no_grad():
        for _ in range(request["calls"]):
            started = time.perf_counter()
            loaded.function(*inputs, **request["arguments"])
            times.append((time.perf_counter() - started) * 1e3)
            torch.cuda.synchronize()
    return {"host_ms": statistics.median(times[len(times) // 2 :])}


JOBS = {"direct": direct, "record": record, "build": labs.build, "order": labs.order}
