"""x3's kind: dq, dk and dv, each judged apart, of a backward pass of attention."""

from pathlib import Path
from typing import ClassVar

from grader.core.protocol.messages import Derived
from grader.course import tensors
from grader.engine.kind import Kind, Timing
from grader.kinds.attention import addresses, kv_heads, naive, tile_visits, work
from grader.kinds.attention.case import example_sizes
from grader.kinds.attention.closer import with_line
from grader.kinds.backward import closer, inputs, mistakes
from grader.kinds.backward.cases import PROBLEM, TENSORS
from grader.kinds.backward.reference import REFERENCE
from grader.result import Outcome, Verdict


class Backward(Kind):
    """A call of x3's attention_backward."""

    problems, references, contrasts = (PROBLEM,), {"x3": REFERENCE}, closer.CONTRASTS
    reference_on_gpu, rows_read, sides = True, mistakes.HEADS, (("dq",), ("dk", "dv"))
    mistakes: ClassVar = {"x3": mistakes.EVERY}
    example_sizes = staticmethod(example_sizes)
    explain_fault = staticmethod(addresses.loop_past_the_end)

    def inputs(self, case, seed):
        return inputs.make(case, seed)

    def shapes(self, case):
        queries, keys = (case.B, case.Hq, case.N, case.D), (case.B, case.kv_heads, case.N, case.D)
        return [queries, queries, keys, keys, queries, queries[:3]]

    def described(self, case):
        shapes = zip(TENSORS, self.shapes(case), strict=True)
        return [
            tensors.describe_dense(name, "float32" if name == "lse" else case.dtype, shape) for name, shape in shapes
        ]

    def next_call(self, problem, case, placed, answers):
        return work.other_length(case, answers, lambda of: self.inputs(of, 0))

    def outputs(self, problem, case):
        _, queries, keys, *_ = self.shapes(case)
        return [("dq", queries, case.dtype), ("dk", keys, case.dtype), ("dv", keys, case.dtype)]

    # What is timed ---------------------------------------------------------------------------------------------------

    timing = Timing(
        Path(naive.__file__), "naive_backward", "autograd's backward of naive PyTorch", prepares=True,
        derived=Derived("forward", ["q", "k", "v"], ["o", "lse"]),
    )  # fmt: skip
    parts = kv_heads.parts

    # What came back --------------------------------------------------------------------------------------------------

    def beyond_values(self, problem, case, answer):
        if by_torch := work.by_torch(problem, case, answer.reply):
            return Verdict(Outcome.WASTEFUL, by_torch)
        return super().beyond_values(problem, case, answer)

    def wasted(self, case, answer):
        return work.wasted(case, answer) if answer.reply.trace else None

    def size(self, case):
        return case.N * case.N * case.B * case.Hq * case.D

    def order(self, case):
        return case.N == 1, self.size(case)

    def given_rows(self, case, name):
        """The rows of the sinks, which have a kernel of their own."""
        return case.sinks if name != "dq" and case.sinks and case.window else 0

    def measure(self, problem, submission, case, diagnosis):
        records = tile_visits.read(diagnosis.evidence["trace"])
        return [with_line(fact, records) for fact in closer.facts(self, submission, case)]


KIND = Backward()
