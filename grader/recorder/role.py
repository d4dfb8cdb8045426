"""What the worker process does as a recorder: loads a submission's module and writes down what it does.

All of it runs beside the submission, so that nothing of it is believed: what it sends is a program, which the runner
checks, or why there is none.
"""

import contextlib
import json
import os
import sys
from dataclasses import dataclass


@dataclass
class Loaded:
    """A module that is loaded, and the recorder that saw it."""

    setup: dict
    function: object
    recorder: object
    launches: object


def get_ready(device):
    """Import what every submission needs; nothing of it runs a kernel."""
    import numpy
    import torch

    numpy.seterr(all="ignore")
    torch.set_num_threads(1)
    import lists  # noqa: F401
    import load  # noqa: F401
    import orders  # noqa: F401
    import record  # noqa: F401
    import replies  # noqa: F401
    import without_gpu  # noqa: F401

    with contextlib.suppress(ImportError):
        import launches  # noqa: F401
        import triton.language  # noqa: F401


def begin(setup):
    """Load the module of `setup` while the recorder looks on; raises what the module raises."""
    from load import load
    from record import Recorder

    interpreted = setup["gpu"] is None and setup["device"] != "direct"
    os.environ["TRITON_INTERPRET"] = "1" if interpreted else "0"
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    sys.breakpointhook = no_breakpoint
    if "triton" in sys.modules:
        sys.modules["triton"].knobs.runtime.interpret = interpreted
    sys.path[:] = [*setup["sys_path"], setup["submission"]]
    if setup["device"] == "direct":
        return Loaded(
            setup, load(setup["module"], setup["entry_point"], setup["tensors"], setup["arguments"]), None, None
        )
    recorder = Recorder(setup["module"])
    launches = sys.modules["launches"].Launches(recorder) if "launches" in sys.modules else None
    loaded = Loaded(setup, None, recorder, launches)
    with recording(loaded):
        loaded.function = load(setup["module"], setup["entry_point"], setup["tensors"], setup["arguments"])
    if launches:
        launches.know(sys.modules[loaded.function.__module__] if hasattr(loaded.function, "__module__") else recorder)
    return loaded


def no_breakpoint(*args, **kwargs):
    raise RuntimeError("breakpoint() has no terminal here: `make try` runs your file where a debugger works")


@contextlib.contextmanager
def recording(loaded):
    """Around a submission's own code."""
    import torch
    import without_gpu

    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if loaded.launches:
            stack.enter_context(loaded.launches.watching())
        stack.enter_context(without_gpu.pass_for(loaded.setup["gpu"] or without_gpu.INTERPRETED))
        stack.enter_context(loaded.recorder)
        yield


def describe(error, setup):
    from replies import describe_error

    with open(setup["module"], encoding="utf-8", errors="replace") as file:
        return describe_error(error, setup["module"], file.read())


# Jobs ----------------------------------------------------------------------------------------------------------------


def record(loaded, request):
    """Write program.json for one case. Returns {"depends": the line at which Python reads values, or None}.

    Where numbers were read or brought along, other stand-ins must give the same program.
    """
    reply = record_once(loaded, request | {"seed": 0, "file": "program.json"})
    if reply["reads"] or reply["constants"]:
        with silence():
            record_once(loaded, request | {"seed": 2, "file": "other.json"})
        if contents("other.json") != contents("program.json"):
            return {"depends": {"line": (reply["reads"] or [0])[0]}}
    return reply


def contents(name):
    with open(name, "rb") as file:
        return file.read()


def record_once(loaded, request):
    """Write down a call on stand-in values; a second one where the first left tensors behind, which it may use."""
    seed = request["seed"]
    loaded.recorder.failing = {told["number"]: told for told in request.get("failing", ())}
    with recording(loaded):
        program = one_call(loaded, request, seed)
        if loaded.recorder.left_behind():
            with silence():
                program = one_call(loaded, request, seed + 1)
    with open(request["file"], "w", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o644)) as file:
        file.write(json.dumps(program, separators=(",", ":")))
    recorder = loaded.recorder
    constants = any(storage["kind"] == "constant" for storage in recorder.storages[recorder.before :])
    return {"reads": recorder.reads[:5], "constants": constants}


def one_call(loaded, request, seed):
    """The program of one call."""
    import lists
    import torch

    recorder, inputs = loaded.recorder, request["inputs"]
    with torch._C._DisableTorchDispatch():
        recorder.begin_call()
        tensors = [stand_in(described, 10 * seed + i) for i, described in enumerate(inputs)]
        for tensor, described in zip(tensors, inputs, strict=True):
            recorder.given(tensor, described["name"])
        more = lists.arguments(loaded, request, recorder)
    out = loaded.function(*tensors, **request["arguments"], **more)
    with torch._C._DisableTorchDispatch():
        several = isinstance(out, tuple | list)
        returned = [returned_value(recorder, value) for value in (out if several else [out])]
        return recorder.program(returned) | {"several": several}


def returned_value(recorder, value):
    import torch

    if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided:
        return recorder.tensor(value)
    return {"type": type(value).__name__}


def stand_in(described, seed):
    """A tensor of the case's form with values of its own, whatever device the module made the default."""
    import torch

    elements, generator = described["elements"], torch.Generator("cpu").manual_seed(seed)
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


def build(loaded, request):
    import lists

    return lists.build(loaded, request)


def order(loaded, request):
    import orders

    return orders.order(loaded, request)


def direct(loaded, request):
    """Milliseconds that one call of the wrapper takes on the host, on a GPU; its own word, worth no points."""
    import statistics
    import time

    import torch

    dtype, times = getattr(torch, request["dtype"]), []
    inputs = [torch.randn(shape, device="cuda").to(dtype) for shape in request["shapes"].values()]
    with torch.no_grad():
        for _ in range(request["calls"]):
            started = time.perf_counter()
            loaded.function(*inputs, **request["arguments"])
            times.append((time.perf_counter() - started) * 1e3)
            torch.cuda.synchronize()
    return {"host_ms": statistics.median(times[len(times) // 2 :])}


JOBS = {"direct": direct, "record": record, "build": build, "order": order}
