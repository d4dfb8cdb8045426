"""One submitted module: a recorder writes down what it does, and a runner, which never sees the module, does that.

The grader believes nothing that the recorder sends: a program, or why there is none. It believes the runner, which
checks the program and runs it on the graded inputs.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import torch

from grader.core.protocol import messages
from grader.core.protocol.messages import Answered, Call, Code, FailedLaunch, Gpu, Raised, Reply, plain_bytes
from grader.core.sandbox import handed_in, kept, pool
from grader.core.sandbox.child import NO_REPLY, Died
from grader.core.sandbox.sandboxed_child import SandboxedChild

T = TypeVar("T")
PROGRAM_BYTES = 32 << 20  # the longest of ours has one
RETRIES = 6  # launches that a wrapper may see fail before it finds tiles that fit


class EntryPoint(Protocol):
    """What a submission needs to know of its problem.

    keywords: the arguments beside the tensors. uses_triton: False where no kernel may be launched. refused: operations
    of PyTorch that would be the problem's work. gap_word, tiles_variable: names in a module. beside,
    observer: the course's own code in the recorder and the runner.
    """

    @property
    def entry_point(self) -> str: ...
    @property
    def tensors(self) -> tuple[str, ...]: ...
    @property
    def keywords(self) -> tuple[str, ...]: ...
    @property
    def uses_triton(self) -> bool: ...
    @property
    def refused(self) -> tuple[str, ...]: ...
    @property
    def gap_word(self) -> str: ...
    @property
    def tiles_variable(self) -> str: ...
    @property
    def beside(self) -> Path | None: ...
    @property
    def observer(self) -> Path | None: ...


@dataclass
class Answer:
    """What came of a request. program: the bytes of the program that ran, if any. data: the bytes of its outputs. more:
    [(what was asked, its Answer)] of the other calls that one verdict needs."""

    reply: Reply
    program: bytes = b""
    data: bytes | None = None
    more: Sequence[tuple[object, "Answer"]] = ()

    @property
    def returned(self) -> bool:
        return isinstance(self.reply, messages.Returned | Answered)


class Submission:
    """The module at `path`, as a module of `problem`; recorder and runner are started when they are first needed.

    device: where its programs run, "cpu", "cuda" or "compile". gpu: what it is recorded for, None for the machine.
    Its methods raise TimedOut or Died where a process does not answer, CannotStart where none starts.
    """

    def __init__(self, path: Path, problem: EntryPoint, device: str, seconds: float, gpu: Gpu | None = None):
        self.path, self.problem, self.device = Path(path).absolute(), problem, device
        self.gpu, self.seconds = gpu, seconds
        self.recorder: SandboxedChild | None = None
        self.runner: SandboxedChild | None = None

    def begin(self) -> None:
        """Have both processes start side by side, before the first of them is asked anything."""
        pool.begin("record", self.path.parent)
        pool.begin(self.device)

    def deadline(self, runner: bool = False) -> float:
        """When a case that begins now must have ended; the start of its processes is not its own time."""
        self.start_recorder()
        if runner:
            self.start_runner()
        return time.monotonic() + self.seconds

    def start_recorder(self) -> SandboxedChild:
        if self.recorder is None:
            setup = recorder_setup(self.path, self.problem, self.gpu)
            self.recorder = SandboxedChild(setup, self.seconds, self.path.parent)
        return self.recorder

    def start_runner(self) -> SandboxedChild:
        """The runner, which gets the texts of the files that a kernel may stand in."""
        if self.runner is None:
            self.runner = SandboxedChild(self.runner_setup(), self.seconds)
            self.runner.folder.put({"texts.json": msgspec.json.encode(self.read_texts())})
        return self.runner

    def runner_setup(self) -> messages.RunnerSetup:
        """How its runner begins."""
        problem = self.problem
        return messages.RunnerSetup(
            device=self.device, module=self.path.name, gap=problem.gap_word, kernels=problem.uses_triton,
            refused=list(problem.refused), observer=read_code(problem.observer),
        )  # fmt: skip

    def record(
        self, call: Call, files: dict[str, bytes] | None = None, failing: Sequence[FailedLaunch] = (),
        deadline: float | None = None,
    ) -> Answer:  # fmt: skip
        """The program of a call, or the reply that says why there is none.

        files: for the recorder. failing: launches that are to raise as the runner saw them raise.
        """
        inputs = [each for each in call.inputs if each.in_call]
        request = messages.Record(msgspec.structs.replace(call, inputs=inputs, row=None), list(failing))
        reply = self.ask_recorder(request, files or {}, deadline or self.deadline())
        if not isinstance(reply, messages.Recorded):
            return Answer(reply)
        return Answer(reply, self.start_recorder().folder.take("program.json", PROGRAM_BYTES))

    def run(
        self, request: messages.CallRequest, files: dict[str, bytes] | None = None,
        beside: dict[str, bytes] | None = None,
    ) -> Answer:  # fmt: skip
        """The runner's reply to a request about a call that is recorded first. If a launch raises, the call is recorded
        again with that launch raising.

        files: for the runner. beside: for the recorder.
        """
        compiles = isinstance(request, messages.Compile)
        deadline, failing = self.deadline(runner=not compiles), list[FailedLaunch]()
        seen: Answer | None = None
        while seen is None or len(failing) < RETRIES:
            recorded = self.record(request.call, beside, failing, deadline)
            if not recorded.program:
                as_seen = isinstance(recorded.reply, Raised) and recorded.reply.as_seen
                return seen if seen and as_seen else recorded
            given = {"program.json": recorded.program} | (files or {})
            reply = (self.ask_compiler if compiles else self.ask_runner)(request, given, deadline)
            failed = reply.error if isinstance(reply, messages.Compiled) else reply
            if not isinstance(failed, Raised | messages.CompileError) or failed.launch is None:
                return Answer(reply, recorded.program)
            failing.append(failed.launch)
            seen = Answer(reply)
        return seen

    def run_again(self, request: messages.RunnerRequest) -> Answer:
        """The runner's reply to another request about the program that it has."""
        return Answer(self.ask_runner(request, {}, time.monotonic() + self.seconds))

    def rerun(self, call: Call, program: bytes, files: dict[str, bytes]) -> Answer:
        """The runner's reply to a program that is recorded already, on other inputs."""
        deadline = self.deadline(runner=True)
        return Answer(self.ask_runner(messages.Run(call), {"program.json": program} | files, deadline), program)

    def call_function(
        self, function: str, about: object, form: type[T], files: dict[str, bytes] | None = None
    ) -> tuple[Answer, T | None]:
        """(Answer, found): what a function of `problem.beside` found, of the type `form`; it is judged by value.

        found: None where it raised. Raises Died where the recorder sends other data.
        """
        request = messages.Ask(function, plain_bytes(about))
        reply = self.ask_recorder(request, files or {}, self.deadline())
        if not isinstance(reply, Answered):
            return Answer(reply), None
        try:
            found = msgspec.json.decode(reply.found, type=form)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise Died(NO_REPLY) from None
        return Answer(reply), found

    def ask_recorder(self, request: messages.RecorderRequest, files: dict[str, bytes], deadline: float) -> Reply:
        """The recorder's reply; the reason where the module could not be loaded."""
        recorder = self.start_recorder()
        if recorder.failure:
            return recorder.failure
        recorder.folder.put(files)
        return recorder.call(request, max(0.1, deadline - time.monotonic()))

    def ask_runner(self, request: messages.RunnerRequest, files: dict[str, bytes], deadline: float) -> Reply:
        runner = self.start_runner()
        runner.folder.put(files)
        return runner.call(request, max(0.1, deadline - time.monotonic()))

    def ask_compiler(self, request: Any, files: dict[str, bytes], deadline: float) -> Reply:
        """The runner's reply, which may be kept from another call: a program without an error compiles so again."""

        def ask() -> str:
            started = time.monotonic()
            self.start_runner()  # not the submission's time
            reply = self.ask_runner(request, files, deadline + time.monotonic() - started)
            return msgspec.json.encode(reply).decode()

        compiled = msgspec.json.Decoder(messages.RunnerReply)
        worth = lambda made: getattr(compiled.decode(made), "error", made) is None  # noqa: E731
        return compiled.decode(kept.kept(ask, msgspec.json.encode(request), files, worth=worth))

    def read_texts(self) -> dict[str, str]:
        return handed_in.read_texts(self.path.parent)

    def take_outputs(self, reply: messages.WithOutputs) -> bytes:
        """The bytes of what was returned."""
        recorded = isinstance(reply, Answered)
        size = count_bytes(reply.outputs, "cuda" if self.device == "cuda" and not recorded else "cpu")
        return (self.start_recorder() if recorded else self.start_runner()).folder.take("outputs.bin", size, size)

    def take_printed(self) -> str:
        """What the wrapper and the kernels have printed since the last call."""
        wrapper = self.recorder.take_printed() if self.recorder else ""
        kernels = self.runner.take_printed() if self.runner else ""
        if not wrapper:
            return kernels
        where = "" if self.device != "cpu" else "(printed by your Python, of stand-in values:)\n"
        return f"{where}{wrapper}\n{kernels}".strip()

    def running_line(self) -> int | None:
        """The line of the module that runs now, or None."""
        lines = (child.running_line(self.path.name) for child in (self.runner, self.recorder) if child)
        return next((line for line in lines if line), None)

    def close(self) -> None:
        for child in (self.recorder, self.runner):
            if child:
                child.close()
        self.recorder = self.runner = None


def recorder_setup(
    path: Path, problem: EntryPoint, gpu: Gpu | None = None, device: str = "record"
) -> messages.RecorderSetup:
    """How a recorder of the module at `path` begins."""
    return messages.RecorderSetup(
        device=device, module=str(path), entry_point=problem.entry_point, tensors=list(problem.tensors),
        arguments=list(problem.keywords), gap=problem.gap_word, tiles=problem.tiles_variable,
        gpu=gpu, code=read_code(problem.beside),
    )  # fmt: skip


def read_code(path: Path | None) -> Code | None:
    return Code(str(path), path.read_text(encoding="utf-8")) if path else None


def count_bytes(outputs: list[messages.Output], device: str) -> int:
    """How many bytes are written of outputs of these forms; raises Died where a form names no dtype."""
    size = 0
    for output in outputs:
        if output.plain and output.device == device:
            dtype = getattr(torch, output.dtype, None)
            if not isinstance(dtype, torch.dtype):
                raise Died(NO_REPLY)
            size += math.prod(output.shape) * dtype.itemsize
    return size
