"""One submitted module: what it does is recorded in one process, and run in another that never sees it.

The recorder is believed in nothing: it sends a program, or why there is none. The runner checks the program and runs it
on the graded inputs; what it answers is ours.
"""

import json
import math
import time
from pathlib import Path

import torch

from grader.core.sandbox import handed_in, sandboxes
from grader.core.sandbox.child import NO_REPLY, Died
from grader.core.sandbox.confined import ConfinedChild

PROGRAM_BYTES = 32 << 20  # the longest of ours has one
RETRIES = 6  # launches that a wrapper may see fail before it finds tiles that fit
TEXTS = {"exception": 200, "text": 4000, "todo": 200, "source": 400}  # characters kept of what a recorder tells
FLAGS = ("unfinished", "bad_module", "as_seen", "ours")


class Submission:
    """The module at `path`, as a module of `problem`; recorder and runner are started when they are first needed.

    device: where its programs run, "cpu", "cuda" or "compile". gpu: plain data of the GPU that it is recorded for, None
    for Triton's interpreter. Its methods raise TimedOut or Died where a process does not answer, CannotStart where none
    starts.
    """

    def __init__(self, path, problem, device, seconds, gpu=None):
        self.path, self.problem, self.device = Path(path).absolute(), problem, device
        self.gpu, self.seconds = gpu, seconds
        self.recorder = self.runner = None

    def begin(self):
        """Have both processes start side by side, before the first of them is asked anything."""
        sandboxes.begin("record", self.path.parent)
        sandboxes.begin(self.device)

    def deadline(self, runner=False):
        """When a case that begins now must have ended; the start of its processes is not its own time."""
        seconds = self.seconds * (sandboxes.find_slowness(self.device) if runner else 1.0)
        if self.recorder is None:
            setup = {"module": str(self.path), "entry_point": self.problem.entry_point, "gpu": self.gpu}
            setup["arguments"] = list(self.problem.keywords)
            setup["tensors"] = list(self.problem.tensors)
            self.recorder = ConfinedChild("record", seconds, self.path.parent, **setup)
        if runner:
            self.start_runner()
        return time.monotonic() + seconds

    def start_runner(self):
        """Have the runner there. A kernel's text must stand in one of the files that it is given."""
        if self.runner is None:
            self.runner = ConfinedChild(self.device, self.seconds)
            self.runner.put({"texts.json": json.dumps(self.read_texts()).encode()})

    def record(self, request, lists=None, failing=(), deadline=None):
        """{"program": bytes} of a case, or the reply that says why there is none.

        lists: {name: bytes} for the recorder. failing: launches that are to raise as the runner saw them raise.
        """
        given = {name: request[name] for name in ("arguments", "lists", "tiles") if name in request}
        given["inputs"] = [each for each in request["inputs"] if not each.get("lists")]
        deadline = deadline or self.deadline()
        reply = self.ask_recorder({"op": "record", "failing": list(failing)} | given, lists or {}, deadline)
        if reply["status"] == "raised":
            return reply
        if reply["depends"] is not None:
            return {"status": "depends", "line": reply["depends"]}
        return {"program": self.recorder.take("program.json", PROGRAM_BYTES)}

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
            given = {"program.json": recorded["program"]} | (files or {})
            reply = self.ask_runner({"op": op} | request, given, deadline)
            failed = reply if "launch" in reply else reply.get("error") or {}
            if failed.get("launch") is None:
                return reply | {"program": recorded["program"]}
            failing.append({name: failed.get(name) for name in ("kind", "text", "needed", "limit", "what")})
            failing[-1]["number"], seen = failed["launch"], reply
        return seen

    def run_again(self, request):
        """The runner's reply to another request about the program that it has."""
        return self.ask_runner(request, {}, time.monotonic() + self.seconds)

    def call_function(self, request, files, has_form):
        """What a function of the module returns, as plain data: it is judged by value. Tensors stand in outputs.bin.

        has_form(reply): True where the data is of the form that is asked for.
        """
        reply = self.ask_recorder(request, files, self.deadline())
        if reply["status"] == "raised":
            return reply
        if not has_form(reply):
            raise Died(NO_REPLY)
        return reply | {"from_recorder": True}

    def ask_recorder(self, request, files, deadline):
        """The checked reply of the recorder; the reason where the module could not be loaded."""
        if self.recorder.loading:
            return check_recorder_reply(self.recorder.loading)
        self.recorder.put(files)
        return check_recorder_reply(self.recorder.call(request, max(0.1, deadline - time.monotonic())))

    def ask_runner(self, request, files, deadline):
        self.start_runner()
        self.runner.put(files)
        about = {"module": self.path.name, "kernels": self.problem.uses_triton, "refused": self.problem.refused}
        return self.runner.call(request | about, max(0.1, deadline - time.monotonic()))

    def read_texts(self):
        """{name: text} of the files that a kernel may stand in."""
        return handed_in.read_texts(self.path.parent)

    def take_outputs(self, reply):
        """The bytes of what was returned."""
        recorded = reply.get("from_recorder")
        size = count_bytes(reply["outputs"], "cuda" if self.device == "cuda" and not recorded else "cpu")
        return (self.recorder if recorded else self.runner).take("outputs.bin", size, size)

    def take_printed(self):
        """What the wrapper and the kernels have printed since the last call."""
        wrapper = self.recorder.take_printed() if self.recorder else ""
        kernels = self.runner.take_printed() if self.runner else ""
        if not wrapper:
            return kernels
        where = "" if self.device != "cpu" else "(printed by your Python, of stand-in values:)\n"
        return f"{where}{wrapper}\n{kernels}".strip()

    def running_line(self):
        """The line of the module that runs now, or None."""
        lines = (child.running_line(self.path.name) for child in (self.runner, self.recorder) if child)
        return next((line for line in lines if line), None)

    def close(self):
        for child in (self.recorder, self.runner):
            if child:
                child.close()
        self.recorder = self.runner = None


# What a recorder tells: every field is checked ------------------------------------------------------------------------


def check_recorder_reply(reply):
    """A reply of a recorder in the form that it must have; raises Died."""
    if reply["status"] == "raised":
        texts = {name: str(reply.get(name) or "")[:most] for name, most in TEXTS.items()}
        flags = {name: bool(reply.get(name)) for name in FLAGS}
        return {"status": "raised", "line": check_line(reply.get("line"))} | texts | flags
    if reply["status"] == "returned":
        depends = reply.get("depends")
        line = depends.get("line") if isinstance(depends, dict) else None
        reply["depends"] = (check_line(line) or 0) if depends else None
        return reply
    raise Died(NO_REPLY)


def check_line(line):
    return line if type(line) is int and 0 < line < 1 << 24 else None


def count_bytes(outputs, device):
    """How many bytes are written of outputs that are described so."""
    written = [words for words in outputs if words["plain"] and words["device"] == device]
    return sum(math.prod(words["shape"]) * getattr(torch, words["dtype"]).itemsize for words in written)
