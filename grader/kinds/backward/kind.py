"""x3's kind: dq, dk and dv, each judged apart, of a backward pass of attention."""

from pathlib import Path

from grader.course import tensors
from grader.diagnosis import cross_case
from grader.kinds.attention import addresses, kv_heads, naive, tile_visits, work
from grader.kinds.attention.case import example_sizes
from grader.kinds.backward import causes, closer, gradients, inputs
from grader.kinds.backward.cases import OUTPUTS, PROBLEM, TENSORS
from grader.kinds.kind import Derived, Keeping, Naive, Right
from grader.result import Facts, Outcome, Verdict

NAIVE = Path(naive.__file__)


class Backward(Keeping):
    """A call of x3's attention_backward."""

    problems = (PROBLEM,)
    example_sizes = staticmethod(example_sizes)
    wasted = staticmethod(work.wasted)
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

    def reply(self, submission, case, placed):
        return work.reply_with_other_lengths(super().reply, submission, case, lambda of: self.inputs(of, 0), placed)

    def outputs(self, problem, case):
        _, queries, keys, *_ = self.shapes(case)
        return [("dq", queries, case.dtype), ("dk", keys, case.dtype), ("dv", keys, case.dtype)]

    # What is timed ---------------------------------------------------------------------------------------------------

    naive = Naive(NAIVE, "naive_backward", "autograd's backward of naive PyTorch", prepares=True)
    derived = Derived(NAIVE, "forward", takes=("q", "k", "v"), makes=("o", "lse"))
    parts = kv_heads.parts

    # What is right ---------------------------------------------------------------------------------------------------

    def right(self, problem, case, placed, device):
        expected = self.expect(case, placed, device)
        return [Right(name, case.dtype, expected.values[name], expected.allowed[name], expected) for name in OUTPUTS]

    def work_out(self, case, placed, device):
        """The gradients.Expected of these inputs; on a GPU machine it is computed there, in the grader's process."""
        given = [each.tensor.to(device) for each in placed[:4]]
        return gradients.expect(case, given, tf32=device != "cpu").on_cpu()

    # What came back --------------------------------------------------------------------------------------------------

    def judge(self, problem, case, placed, answer, device):
        verdict = super().judge(problem, case, placed, answer, device)
        if verdict.diagnosis:  # of the first output that is wrong; it is told with the others
            got = dict(zip(OUTPUTS, tensors.read_outputs(answer.data, answer.reply.outputs), strict=True))
            verdict.diagnosis = causes.diagnose(case, got, self.expect(case, placed, device))
            verdict.diagnosis.evidence["records"] = tile_visits.read(answer.reply.trace)
        return verdict

    def beyond_values(self, problem, case, answer):
        if by_torch := work.by_torch(problem, case, answer.reply):
            return Verdict(Outcome.WASTEFUL, by_torch)
        if answer.reply.trace and (waste := self.wasted(case, answer)):
            return Verdict(Outcome.WASTEFUL, waste.sentence, Facts(waste=waste))
        return super().beyond_values(problem, case, answer)

    def check_cases(self, problem, cases, seed, results):
        def refutes(case, kinds, evidence, failing):
            if case.tiles != failing.tiles or (case.dtype != failing.dtype and case.dtype == "bfloat16"):
                return set()
            return causes.would_show(case, self.expect(case, self.inputs(case, seed), "cpu"), kinds)

        cross_case.find_all(results, cases, closer.size)
        cross_case.check(results, cases, refutes, lambda kind: False, causes.TOGETHER)

    def look_closer(self, problem, cases, seed, results, submission, show):
        show("measuring which pairs count")
        closer.look(self, problem, cases, seed, results, submission)


KIND = Backward()
