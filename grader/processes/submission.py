"""One submitted module: what it does is recorded in one process, and run in another that never sees it.

The recorder is believed in nothing: it sends a program, or why there is none. The runner checks the program and runs it
on the graded inputs; what it answers is ours.
"""

import math
import time
from pathlib import Path

import torch

from grader.processes import fork_server, handed_in
from grader.processes.sandbox import Child, ChildFailed

PROGRAM_BYTES = 32 << 20  # the longest of ours has one
RETRIES = 6  # launches that a wrapper may see fail before it finds tiles that fit
NO_REPLY = "what its process sent is no reply"
DTYPES = {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"}
TEXTS = {"exception": 200, "text": 4000, "todo": 200, "source": 400}  # characters kept of what a recorder tells


class Submission:
    """The module at `path`, as a module of `problem`; recorder and runner are started when they are first needed.

    device: where its programs run, "cpu", "cuda" or "compile". gpu: plain data of the GPU that it is recorded for, None
    for Triton's interpreter. Raises ChildFailed where a process does not answer, WorkerBroken where none starts.
    """

    def __init__(self, path, problem, device, seconds, gpu=None):
        self.path, self.problem, self.device = Path(path).absolute(), problem, device
        self.gpu, self.seconds = gpu, seconds
        self.recorder = self.runner = None

    def begin(self):
        """Have both processes start side by side, before the first of them is asked anything."""
        fork_server.begin("record", self.path.parent)
        fork_server.begin(self.device)

    def deadline(self, runner=False):
        """When a case that begins now must have ended; the start of its processes is not its own time."""
        if self.recorder is None:
            setup = {"module": str(self.path), "entry_point": self.problem.entry_point, "gpu": self.gpu}
            setup["arguments"] = list(self.problem.keywords)
            self.recorder = Child("record", self.seconds, self.path.parent, **setup)
        if runner and self.runner is None:
            self.runner = Child(self.device, self.seconds)
        return time.monotonic() + self.seconds

    def ask_recorder(self, request, files, deadline):
        """What the recorder says of one request; the reason where the module could not be loaded."""
        if self.recorder.loading:
            return of_recorder(self.recorder.loading)
        put(self.recorder, files)
        return of_recorder(self.recorder.call(request, max(0.1, deadline - time.monotonic())))

    def ask_runner(self, request, files, deadline):
        if self.runner is None:
            self.runner = Child(self.device, self.seconds)
        put(self.runner, files)
        request = request | {"texts": self.texts()}
        return self.runner.call(request | {"problem": self.problem.id, "module": self.path.name},
                                max(0.1, deadline - time.monotonic()))  # fmt: skip

    def texts(self):
        """{name: text} of the files that a kernel may stand in."""
        return handed_in.texts(self.path.parent)

    def record(self, request, lists=None, failing=(), deadline=None):
        """{"program": bytes} of a case, or the reply that says why there is none.

        lists: {name: bytes} for the recorder. failing: launches that are to raise as the runner saw them raise.
        """
        told = {name: request[name] for name in ("arguments", "lists") if name in request}
        told["inputs"] = [each for each in request["inputs"] if each["name"] in ("q", "k", "v")]
        deadline = deadline or self.deadline()
        reply = self.ask_recorder({"op": "record", "failing": list(failing)} | told, lists or {}, deadline)
        if reply["status"] == "raised":
            return reply
        if reply.get("depends") is not None:
            return {"status": "depends", "line": reply["depends"]}
        return {"program": self.recorder.returned("program.json", PROGRAM_BYTES)}

    def run(self, request, files=None, lists=None, op="run"):
        """The runner's reply to a case: recorded, and run. A launch that raises is recorded again as raising.

        request: "inputs", described, "arguments", and what the runner is to observe. files: {name: bytes} for the
        runner.
        """
        deadline, failing, seen = self.deadline(runner=True), [], None
        for _ in range(RETRIES):
            recorded = self.record(request, lists, failing, deadline)
            if "program" not in recorded:
                return seen if seen and recorded.get("as_seen") else recorded
            reply = self.ask_runner(
                {"op": op} | request, {"program.json": recorded["program"]} | (files or {}), deadline
            )
            failed = reply if "launch" in reply else reply.get("error") or {}
            if failed.get("launch") is None:
                return reply
            failing.append({name: failed.get(name) for name in ("kind", "text", "needed", "limit", "what")})
            failing[-1]["number"], seen = failed["launch"], reply
        return seen

    def again(self, request):
        """The runner's reply to another request about the program that it has."""
        return self.ask_runner(request, {}, time.monotonic() + self.seconds)

    def told(self, request, files):
        """What the module itself says of plain data: it is judged by value. Tensors stand in outputs.bin."""
        reply = self.ask_recorder(request, files, self.deadline())
        if reply["status"] == "raised":
            return reply
        if not (orders_are_plain(reply) if request["op"] == "order" else parts_are_plain(reply)):
            raise ChildFailed("died", NO_REPLY)
        return reply | {"from_recorder": True}

    def take_outputs(self, reply):
        """The bytes of what was returned."""
        told = reply.get("from_recorder")
        size = bytes_of(reply["outputs"], "cuda" if self.device == "cuda" and not told else "cpu")
        return (self.recorder if told else self.runner).returned("outputs.bin", size, size)

    def take_printed(self):
        """What the wrapper and the kernels have printed since the last call."""
        wrapper = self.recorder.output.take() if self.recorder else ""
        kernels = self.runner.output.take() if self.runner else ""
        if not wrapper:
            return kernels
        where = "" if self.device != "cpu" else "(printed by your Python, of stand-in values:)\n"
        return f"{where}{wrapper}\n{kernels}".strip()

    def where(self):
        """The line of the module that runs now, or None."""
        lines = (child.where(self.path.name) for child in (self.runner, self.recorder) if child)
        return next((line for line in lines if line), None)

    def close(self):
        for child in (self.recorder, self.runner):
            if child:
                child.close()
        self.recorder = self.runner = None


def put(child, files):
    for name, data in files.items():
        child.put(name, data)


def of_recorder(reply):
    """A reply of a recorder in the form that it must have; raises ChildFailed."""
    status = reply.get("status")
    if status == "raised":
        texts = {name: str(reply.get(name) or "")[:most] for name, most in TEXTS.items()}
        line = reply.get("line")
        flags = {name: bool(reply.get(name)) for name in ("unfinished", "bad_module", "as_seen", "ours")}
        return {"status": "raised", "line": place(line)} | texts | flags
    if status == "returned":
        depends = reply.get("depends")
        line = depends.get("line") if isinstance(depends, dict) else None
        reply["depends"] = (place(line) or 0) if depends else None
        return reply
    raise ChildFailed("died", NO_REPLY)


def place(line):
    return line if type(line) is int and 0 < line < 1 << 24 else None


def orders_are_plain(reply):
    """True for {"orders": [None or [[head, tile], ...], ...], "came": text}."""
    orders = reply.get("orders")
    if type(orders) is not list or type(reply.setdefault("came", "")) is not str:
        return False
    places = [place for order in orders if order is not None for place in (order if type(order) is list else [None])]
    return all(type(p) is list and len(p) == 2 and type(p[0]) is type(p[1]) is int for p in places)


def parts_are_plain(reply):
    """True for the parts of a builder's Tiles, described: {"type", "outputs", "plain"}."""
    outputs, plain = reply.get("outputs"), reply.get("plain")
    if type(reply.get("type")) is not str or type(outputs) is not list or type(plain) is not dict:
        return False
    for words in outputs:
        if type(words) is not dict or type(words.get("plain")) is not bool or type(words.get("type")) is not str:
            return False
        shape, dtype = words.get("shape"), words.get("dtype")
        sizes = type(shape) is list and all(type(n) is int and 0 <= n < 1 << 32 for n in shape)
        if words["plain"] and not (sizes and dtype in DTYPES and type(words.get("device")) is str):
            return False
    return len(outputs) == 4 and all(type(value) in (int, str) for value in plain.values())


def bytes_of(outputs, device):
    """How many bytes are written of outputs that are described so."""
    written = [words for words in outputs if words["plain"] and words["device"] == device]
    return sum(math.prod(words["shape"]) * getattr(torch, words["dtype"]).itemsize for words in written)


def described(name, tensor, dtype):
    """A Placed tensor as plain data: where it lies in its buffer."""
    return {
        "name": name, "dtype": dtype, "elements": tensor.base.numel(), "shape": list(tensor.shape),
        "strides": list(tensor.strides), "offset": tensor.offset,
    }  # fmt: skip
