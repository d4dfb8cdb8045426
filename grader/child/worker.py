"""Inside the child: load one module, run cases on it, hand raw tensors back. Knows no answers.

Started as `python -I worker.py SOCKET DEVICE` by nursery.py: imports what every submission needs, then forks a child
for each module that it is asked to serve. A child gets its requests as JSON lines on standard input and replies with
JSON lines on a descriptor of its own; tensors travel as raw bytes in files of its scratch folder, the current folder.
"""

import contextlib
import faulthandler
import importlib.util
import inspect
import json
import linecache
import os
import re
import signal
import socket
import sys
import time
import traceback

WATCHES = {}  # the stopwatch of each device, once one was needed
STALE = 0.05  # of the largest number: far above what the order of additions changes
KEPT = {}  # what stood where before a submission was loaded


def nursery(control, device):
    """Import once, then fork on request; ends when the grader closes its end of the socket."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, here)
    try:
        import numpy
        import torch
        import without_gpu

        numpy.seterr(all="ignore")  # a kernel's own NaN is judged; numpy's warnings about it are noise

        if importlib.util.find_spec("triton"):
            import triton.language  # noqa: F401

            if os.environ.get("TRITON_INTERPRET") == "1":
                import canary
                import faithful

                without_gpu.take_first_config()
                without_gpu.index_with_scalars()
                faithful.enable()
                if fault := canary.check():
                    raise RuntimeError(fault)
            if device == "compile":
                import compiler  # noqa: F401
        import extras  # noqa: F401
        import integrity
        import provenance  # noqa: F401
        import stopwatch  # noqa: F401
        from allocations import Allocations

        with Allocations():  # the first use imports another second's worth of torch
            torch.empty(1)
        KEPT["integrity"] = integrity.Integrity()
    except Exception as error:
        answer(control, status="broken", error=f"{type(error).__name__}: {error}")
        return
    sys.path.remove(here)
    torch.set_num_threads(1)
    answer(control, status="ready")
    ended = {}
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 3)
        while message and not message.endswith(b"\n"):
            message += control.recv(1 << 16)
        if not message:
            return
        request = json.loads(message)
        reap(ended)
        if request["op"] == "status":
            answer(control, status=ended.get(request["pid"]))
            continue
        pid = os.fork()
        if pid == 0:
            control.close()
            become_child(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        answer(control, pid=pid)


def answer(control, **message):
    control.sendall(json.dumps(message).encode() + b"\n")


def reap(ended):
    """Note how the children ended that have ended: {process number: exit status, negative for a signal}."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        ended[pid] = os.waitstatus_to_exitcode(status)


def become_child(setup, descriptors):
    """In the forked process: its own group, its own folder and descriptors; serves one module, and never returns."""
    status = 1
    try:
        os.setsid()
        os.chdir(setup["folder"])
        requests, output, channel = descriptors
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1)  # the grader asks where a case hangs before it ends it
        serve(setup, os.fdopen(requests, "r"), os.fdopen(channel, "w", buffering=1))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def serve(setup, requests, channel):
    """Load the module, then answer requests until there are no more."""
    import extras

    sys.path[:] = [*setup["sys_path"], setup["submission"]]

    def reply(**message):
        sys.stdout.flush()
        sys.stderr.flush()
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    try:
        if setup["device"] == "compile":
            sys.modules["compiler"].get_ready(setup["folder"])
        with pretended_gpu(setup["device"], setup["gpu"]):
            function = load(setup["module"], setup["entry_point"], setup["arguments"])
    except BaseException as error:
        return reply(status="raised", **describe(error, setup["module"]))
    reply(status="loaded")
    for line in requests:
        request = json.loads(line)
        job = ({"run": run, "time": measure, "compile": compile_only} | extras.JOBS)[request["op"]]
        try:
            message = {"status": "returned", **job(function, request, setup["device"])}
            message["replaced"] = KEPT["integrity"].changed()[:20]
        except BaseException as error:
            message = {"status": "raised", **describe(error, setup["module"]), "broken": not device_answers(setup)}
        reply(**message)


def pretended_gpu(device, gpu=None):
    """Around a submission's own code: where there is no GPU, a file written for one meets what it asks for."""
    if device == "cuda":
        return contextlib.nullcontext()
    import without_gpu

    return without_gpu.pass_for(gpu or without_gpu.INTERPRETED)


class BadModule(Exception):
    """The module has no entry point of the right form; the text is a sentence for the student."""


def load(path, entry_point, arguments):
    """The entry point of the module at `path`; BadModule where it is missing or cannot be called as it will be."""
    name = os.path.splitext(os.path.basename(path))[0]
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
        signature.bind(None, None, None, **dict.fromkeys(arguments))
    except TypeError as error:
        call = ", ".join(["q, k, v", *(f"{argument}=..." for argument in arguments)])
        raise BadModule(f"{entry_point}{signature} cannot be called as {entry_point}({call}): {error}") from None
    return function


def run(function, request, device):
    """Call the function once on the tensors of the request; returns what came back, described, its bytes in a file."""
    import extras
    import outputs
    import torch
    from allocations import Allocations
    from provenance import Ledger, Names

    buffers, tensors = read_inputs(request["inputs"], device)
    ledger = None
    if request.get("ledger"):
        ledger = Ledger(tensors, request["ledger"], device == "cpu") if request["launches"] else Names()
    watch = Allocations(request["count"], tensors, ledger)
    extra = extras.of(request, tensors, watch, device)
    traced = contextlib.nullcontext()
    if request["trace"]:
        from trace import Trace

        traced = Trace(tensors, watch, request["trace"], extra.watchers, ledger)
    elif request.get("ledger") and request["launches"]:
        from launches import Launches

        traced = Launches(ledger, request.get("suppressed", False))
    started = time.perf_counter()
    with watch, traced, pretended_gpu(device), torch.no_grad():
        out = function(*tensors, **request["arguments"], **extra.arguments)
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    trace = traced.report() if request["trace"] else None
    came = list(out) if isinstance(out, tuple | list) else [out]
    inputs = [tensor[: placed["elements"]] for tensor, placed in zip(buffers, request["inputs"], strict=True)]
    with pretended_gpu(device), torch.no_grad():
        more = extra.report(out, trace)
    if ledger:
        more["evidence"] = ledger.report(came) | {
            "launches": getattr(traced, "launches", 0), "products": getattr(traced, "products", 0),
        }  # fmt: skip
    return {
        "seconds": seconds,
        "several": isinstance(out, tuple | list),
        "outputs": outputs.write(came, device, inputs),
        "broken_fences": watch.broken_fences(),
        "largest": watch.largest,
        "peak": watch.peak,
        "trace": trace,
        **more,
    }


def compile_only(function, request, device):
    """Compile what the function launches for a GPU that need not be here; nothing runs."""
    import compiler

    return compiler.compile_launches(function, request)


def read_inputs(placed_inputs, device):
    """The fenced base buffers and the q, k, v that lie in them."""
    import torch
    from allocations import INPUT_POISON, fenced

    buffers, tensors = [], []
    with open("inputs.bin", "rb") as file:
        for placed in placed_inputs:
            dtype = getattr(torch, placed["dtype"])
            size = placed["elements"] * torch.empty(0, dtype=dtype).element_size()
            values = torch.frombuffer(bytearray(file.read(size)), dtype=dtype)
            _, base = fenced((placed["elements"],), (1,), dtype, device, INPUT_POISON)
            base.copy_(values)
            buffers.append(base)
            start = base.storage_offset() + placed["offset"]
            tensors.append(base.as_strided(placed["shape"], placed["strides"], start))
    return buffers, tensors


def measure(function, request, device):
    """Milliseconds of `samples` calls, each on fresh random inputs; and at the first request the memory of one call."""
    import torch
    from stopwatch import Stopwatch

    shapes, dtype = request["shapes"], getattr(torch, request["dtype"])
    generator = torch.Generator(device=device).manual_seed(request["seed"])
    inputs = [torch.empty(shape, device=device, dtype=dtype) for shape in shapes]

    returned = []

    def call():
        returned[:] = [function(*inputs, **request["arguments"])]

    def fill():
        for tensor in inputs:
            tensor.normal_(generator=generator)

    watch = WATCHES[device] = WATCHES.get(device) or Stopwatch(device)
    times, peak = [], None
    with torch.no_grad():
        fill()
        if request["warm_up"]:
            watch.warm_up(call)
            peak = watch.peak(call)
        for _ in range(request["samples"]):
            fill()
            times.append(watch.sample(call))
        stale = bool(times) and is_stale(function, inputs, request["arguments"], returned.pop())
    return {"ms": times, "peak_bytes": peak, "host_ms": watch.host_ms, "stale": stale}


def is_stale(function, inputs, arguments, out):
    """True where `out`, returned while the clock ran, is not what the same numbers give at other addresses."""
    first = lambda value: value[0] if isinstance(value, tuple | list) else value  # noqa: E731
    then = first(out).clone()
    now = first(function(*(tensor.clone() for tensor in inputs), **arguments))
    return not bool((then - now).abs().max() <= STALE * now.abs().max())


def device_answers(setup):
    """False once an illegal access has poisoned the CUDA context: the next case then needs a fresh process."""
    if setup["device"] != "cuda":
        return True
    import torch

    try:
        torch.cuda.synchronize()
        return True
    except Exception:
        return False


def describe(error, module):
    """An exception as plain data: the root cause, the student's line where it arose, and a gap's name if it is one."""
    chain = [error]
    while chain[-1].__cause__ or (chain[-1].__context__ and not chain[-1].__suppress_context__):
        chain.append(chain[-1].__cause__ or chain[-1].__context__)
        if len(chain) > 50:
            break
    root = chain[-1]
    text = "\n".join(str(link) for link in reversed(chain))
    todo = re.search(r"TODO \d+: [^\"\n]+", text)
    todo = first_open_gap(module) or todo.group(0).strip() if todo else None
    frames = [frame for link in chain for frame in traceback.extract_tb(link.__traceback__) if frame.filename == module]
    line = frames[-1].lineno if frames else getattr(root, "lineno", None)
    return {
        "exception": type(root).__name__,
        "text": str(root)[:2000],
        "todo": todo,
        "unfinished": bool(todo) or (isinstance(root, NotImplementedError) and raised_in(root, module)),
        "bad_module": isinstance(root, BadModule),
        "line": line,
        "source": linecache.getline(module, line).strip() if line else "",
    }


def first_open_gap(module):
    """The name of the open gap with the lowest number: which one runs first depends on the case."""
    with open(module, encoding="utf-8") as file:
        code = [line for line in file if not line.lstrip().startswith("#")]
    found = re.findall(r"(?:static_assert\(False, |NotImplementedError\()\"(TODO (\d+): [^\"\n]+)\"", "".join(code))
    return min(found, key=lambda gap: int(gap[1]))[0] if found else None


def raised_in(error, module):
    """True where the module itself raised the error, and not a library that it called."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename == module


if __name__ == "__main__":
    nursery(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
