"""A student's kernels as attention and decoding of the model: each call is recorded and run in the grader's sandbox.

The submission's Python sees stand-in values alone; a runner computes, and what comes back must be one tensor of the
form that was asked for. Calls of one form share a program.
"""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from grader.core.protocol.messages import Call, Returned, Run
from grader.core.sandbox.child import ChildFailed
from grader.core.sandbox.submission import Submission
from grader.course import course, tensors
from grader.course.problem import SECONDS_PER_CASE
from grader.gpu import machine
from grader.registry import EVERY
from grader.result import Outcome
from grader.unfinished import explain_reply


class KernelFailed(Exception):
    """A call that gave no tensor; the text is one sentence. unfinished: a gap is open."""

    def __init__(self, text, unfinished=False):
        super().__init__(text)
        self.unfinished = unfinished


@dataclass(frozen=True)
class Entry:
    """A problem as the model calls it. takes: the names of its arguments beside the tensors."""

    id: str
    module: str
    entry_point: str
    tensors: tuple[str, ...]
    takes: tuple[str, ...]
    uses_triton: bool = True
    beside: Path | None = None
    observer: Path | None = None

    @property
    def keywords(self):
        return self.takes

    @property
    def gap_word(self):
        return course.current().said.names.gap

    @property
    def tiles_variable(self):
        return course.current().said.names.tiles

    @property
    def refused(self):
        return EVERY[self.id].refused if self.id in EVERY else ()

    @property
    def signature(self):
        return f"{self.entry_point}({', '.join((*self.tensors, *self.takes))})"


QKV, FORWARD = ("q", "k", "v"), "flash_attention_forward"
PREFILL = (  # the highest first
    Entry("p7", "p7_sinks_and_window.py", FORWARD, QKV, ("is_causal", "window_size", "sink_size")),
    Entry("p6", "p6_sliding_window.py", FORWARD, QKV, ("is_causal", "window_size")),
    Entry("p5", "p5_gqa.py", FORWARD, QKV, ("is_causal",)),
)
DECODE = Entry("x4", "x4_decode.py", "decode_attention", ("q", "k_cache", "v_cache", "lengths"), ("window_size",))


@dataclass
class Kernel:
    """The entry point of one module, called in the sandbox. programs: by the form of a call."""

    entry: Entry
    folder: Path
    device: str
    programs: dict = field(default_factory=dict)

    def __post_init__(self):
        gpu = machine.first_gpu() if self.device == "cuda" else None
        path, seconds = self.folder / self.entry.module, SECONDS_PER_CASE[self.device]
        self.submission = Submission(path, self.entry, self.device, seconds, gpu)

    def call(self, inputs, arguments):
        """The one tensor that comes back, of the form of the first input; raises KernelFailed."""
        placed = [tensors.place(each.detach().cpu()) for each in inputs]
        about = [each.describe(name) for name, each in zip(self.entry.tensors, placed, strict=True)]
        call = Call(about, arguments, watched=self.device == "cpu")
        files, form = {"inputs.bin": b"".join(each.raw() for each in placed)}, msgspec.json.encode(call)
        try:
            if form in self.programs:
                answer = self.submission.rerun(call, self.programs[form], files)
            else:
                answer = self.submission.run(Run(call), files)
            return self.read(answer, inputs[0], form)
        except ChildFailed as failure:
            self.submission.close()
            raise KernelFailed(f"{self.entry.module} did not return: {failure}") from None

    def read(self, answer, like, form):
        reply = answer.reply
        if not isinstance(reply, Returned):
            verdict = explain_reply(reply, self.entry, self.folder / self.entry.module)
            raise KernelFailed(verdict.sentence, verdict.outcome is Outcome.UNFINISHED)
        wanted = list(like.shape), str(like.dtype).removeprefix("torch.")
        came = [(each.shape, each.dtype) for each in reply.outputs if each.plain]
        if reply.several or came != [wanted] or len(reply.outputs) != 1:
            raise KernelFailed(f"{self.entry.module} must return one tensor, {wanted}; it returned {came}")
        self.programs[form] = answer.program
        (read,) = tensors.read_outputs(self.submission.take_outputs(reply), reply.outputs)
        return read.to(like.device)

    def attend(self, q, k, v, window_size=None, sink_size=0, sink_logits=None):
        """As the model's attention; raises KernelFailed where this problem has no such option."""
        every = {"is_causal": True, "window_size": window_size or q.shape[2], "sink_size": sink_size}
        short = window_size is not None and window_size < q.shape[2]
        lacking = {"window_size": short, "sink_size": short and sink_size, "sink_logits": sink_logits is not None}
        if named := [name for name, used in lacking.items() if used and name not in self.entry.takes]:
            raise KernelFailed(f"{self.entry.id} has no {named[0]}, which this model needs")
        return self.call((q, k, v), {name: every[name] for name in self.entry.takes})

    def decode(self, q, k_cache, v_cache, lengths, window_size=None, sink_logits=None):
        """As the model's decoding."""
        if sink_logits is not None:
            raise KernelFailed("learned sink logits are not handed to x4 here: take another model")
        return self.call((q, k_cache, v_cache, lengths), {"window_size": window_size})

    def close(self):
        self.submission.close()
