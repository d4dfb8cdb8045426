"""Inside the child: load one module, run cases on it, hand raw tensors back. Knows no answers.

Started as `python -I worker.py DEVICE=SOCKET ...` by house.py: imports what every submission needs, forks a nursery for
each device, and that forks a child for each module that it is asked to serve. A child gets its requests as JSON lines
on one descriptor and replies with signed JSON lines on another; tensors travel as raw bytes in files of its scratch
folder, the current folder.
"""

import contextlib
import faulthandler
import fcntl
import gc
import hmac
import importlib.util
import inspect
import json
import linecache
import os
import random
import re
import signal
import socket
import sys
import time
import traceback
import types

HERE = os.path.dirname(os.path.abspath(__file__))
WATCHES = {}  # the stopwatch of each device, once one was needed
STALE = 0.05  # of the largest number: far above what the order of additions changes
KEPT = {}  # what stood where before a submission was loaded; the core-seconds of the imports


def house(controls):
    """Import what every device needs, and fork the nursery of each; ends, and all with it, when one of them does.

    controls: {device: socket}.
    """
    sys.path.insert(0, HERE)
    gc.disable()  # nothing that is imported goes away
    try:
        import allocations  # noqa: F401
        import extras  # noqa: F401
        import kin  # noqa: F401
        import limits
        import numpy
        import provenance  # noqa: F401
        import stopwatch  # noqa: F401
        import torch
        import without_gpu  # noqa: F401

        numpy.seterr(all="ignore")  # a kernel's own NaN is judged; numpy's warnings about it are noise
        torch.set_num_threads(1)
    except Exception as error:
        for control in controls.values():
            answer(control, status="broken", error=f"{type(error).__name__}: {error}")
        return
    KEPT["imports"] = time.process_time()
    for control in controls.values():
        if os.fork() == 0:
            for other in controls.values():
                if other is not control:
                    other.close()
            nursery(control)
            os._exit(0)
    for control in controls.values():
        control.close()
    limits.guard()
    os.wait()


def nursery(control):
    """In a process of its own: what one device needs, once that is asked for; then a fork for each module."""
    import limits

    limits.guard()
    with contextlib.suppress(ConnectionError):
        serve_grader(control)


def start(control, request, descriptors, ended, living):
    """Import what the device needs beside torch."""
    device = request["device"]
    try:
        if importlib.util.find_spec("triton"):
            if device == "cpu":
                os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
            import launches  # noqa: F401
            import triton.language  # noqa: F401

            if device == "cpu":
                watch_interpreter()
            if device == "compile":
                import compiler  # noqa: F401
        import integrity

        KEPT["integrity"] = integrity.Integrity()
    except Exception as error:
        return {"status": "broken", "error": f"{type(error).__name__}: {error}"}
    sys.path.remove(HERE)
    gc.enable()
    gc.freeze()  # a child's collector need not walk, and copy, what is here already
    return {"status": "ready"}


def watch_interpreter():
    """Mend and watch Triton's interpreter; raises RuntimeError where it is not one that can be watched."""
    import canary
    import faithful
    import without_gpu

    without_gpu.take_first_config()
    without_gpu.index_with_scalars()
    faithful.enable()
    if fault := canary.check():
        raise RuntimeError(fault)


def serve_grader(control):
    """Answer what the grader asks, until it closes its end."""
    ended, living = {}, set()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 3)
        while message and not message.endswith(b"\n"):
            message += control.recv(1 << 16)
        if not message:
            return
        request, message = json.loads(message), None  # a child's key stands in it
        reap(ended, living)
        answer(control, **ASKED[request["op"]](control, request, descriptors, ended, living))


def fork(control, request, descriptors, ended, living):
    pid = os.fork()
    if pid == 0:
        control.close()
        become_child(request, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    living.add(pid)
    return {"pid": pid}


def status(control, request, descriptors, ended, living):
    return {"status": ended.get(request["pid"])}


def send_signal(control, request, descriptors, ended, living):
    if request["pid"] in living:
        os.kill(request["pid"], request["number"])
    return {}


def programs(control, request, descriptors, ended, living):
    import kin

    return {"programs": list(kin.of_child(request["pid"], living - {request["pid"]}).values())}


def end(control, request, descriptors, ended, living):
    import kin

    gone = kin.end(request["pid"], living - {request["pid"]})
    reap(ended, living)
    return {"gone": gone}


def usage(control, request, descriptors, ended, living):
    """The core-seconds of this nursery and of its children that have ended, and those of what was imported before."""
    import resource

    reap(ended, living)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {"core_seconds": sum(each.ru_utime + each.ru_stime for each in used), "imports": KEPT["imports"]}


ASKED = {
    "start": start, "fork": fork, "status": status, "signal": send_signal, "programs": programs, "end": end,
    "usage": usage,
}  # fmt: skip


def answer(control, **message):
    control.sendall(json.dumps(message).encode() + b"\n")


def reap(ended, living):
    """Note how those ended that have ended: {process number: exit status, negative for a signal}."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        ended[pid] = os.waitstatus_to_exitcode(status)
        living.discard(pid)


def become_child(setup, descriptors):
    """In the forked process: its own group, its own folder and descriptors; serves one module, and never returns."""
    import limits

    status = 1
    try:
        os.setsid()
        requests, output, channel = map(hidden, descriptors)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        limits.hold(setup["limits"])
        os.chdir(setup["folder"])
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1)  # the grader asks where a case hangs before it ends it
        reply = signing(channel, setup.pop("key"))
        sys.modules["__main__"] = types.ModuleType("__main__")  # the worker's own names are none of the module's
        serve(setup, os.fdopen(requests, "rb"), reply)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def hidden(descriptor):
    """The same under a number that cannot be guessed, and not for programs that the module starts."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, random.SystemRandom().randrange(100, 800))
    os.close(descriptor)
    return moved


def signing(channel, key):
    """The function that sends a reply, signed: what others write to the channel is seen to be no reply.

    The signature counts the replies, so that none can be sent again. A module that finds this function by walking the
    frames of its callers can forge what was measured in its own process, never the values: those are compared outside.
    """
    write, copy, dumps = os.write, hmac.new(bytes.fromhex(key), digestmod="sha256").copy, json.dumps
    count, key = 0, None

    def reply(**message):
        nonlocal count
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        body, signed = dumps(message).encode(), copy()
        signed.update(b"%d " % count + body)
        count += 1
        line = signed.hexdigest().encode() + b" " + body + b"\n"
        while line:
            line = line[write(channel, line) :]

    return reply


def serve(setup, requests, reply):
    """Load the module, then answer requests until there are no more."""
    import extras

    sys.path[:] = [*setup["sys_path"], setup["submission"]]
    try:
        if speaks_of_compile(setup["submission"]):
            sys.modules["allocations"].hide_from_dynamo()
            KEPT["integrity"] = sys.modules["integrity"].Integrity()
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


def speaks_of_compile(folder):
    """True where a module of the submission may use torch.compile, whose import is dear and not all need."""
    words = b"torch.compile", b"import compile", b"_dynamo", b"flex_attention"
    for entry in os.scandir(folder):
        if not (entry.name.endswith(".py") and entry.is_file()):
            continue
        with contextlib.suppress(OSError), open(entry, "rb") as file:
            text = file.read(1 << 20)
            if any(word in text for word in words):
                return True
    return False


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
    given = (word.split("=") for word in sys.argv[1:])
    house({device: socket.socket(fileno=int(number)) for device, number in given})
