"""x4's kind: attention of new tokens over a cache, its reads, and the same bits in every batch."""

from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from grader.core.protocol.messages import plain_bytes
from grader.core.sandbox.submission import Answer
from grader.course import tensors
from grader.diagnosis import cross_case, failures
from grader.kinds import trying
from grader.kinds.decode import addresses, causes, closer, inputs, naive, picture, reads, same_bits, steps
from grader.kinds.decode.cases import LONG, PROBLEM, DecodeCase
from grader.kinds.kind import Derived, Keeping, Naive, Right
from grader.result import Cause, Facts, Outcome, Verdict

NAIVE = Path(naive.__file__)


@dataclass
class TwiceAnswer(Answer):
    """other_bits: a sentence where a second call gave the same sequences other bits, else empty."""

    other_bits: str = ""


class Decode(Keeping):
    """A call of x4's decode_attention."""

    problems = (PROBLEM,)
    long_row = LONG
    size = staticmethod(causes.size)
    explain_fault = staticmethod(addresses.explain)

    def inputs(self, case, seed):
        return inputs.make(case, seed)

    def shapes(self, case):
        q, dense = (case.B, case.Hq, case.Nq, case.D), (case.B, case.Hkv, case.tokens, case.D)
        pages = case.page and (case.B * (case.tokens // case.page) + inputs.UNUSED, case.page, case.Hkv, case.D)
        return [q, pages or dense, pages or dense]

    def beside_tensors(self, case):
        """[(TensorSpec, bytes)] of what the kind's own code in the recorder hands over."""
        found = inputs.placed_beside(case).items()
        return [(structs.replace(x.describe(name), in_call=False), x.raw()) for name, x in found]

    def request(self, problem, case, placed, device):
        call, files = super().request(problem, case, placed, device)
        more = self.beside_tensors(case)
        call = structs.replace(call, inputs=[*call.inputs, *(spec for spec, _ in more)])
        return call, {"inputs.bin": files["inputs.bin"] + b"".join(data for _, data in more)}

    def described(self, case):
        return super().described(case) + [spec for spec, _ in self.beside_tensors(case)]

    def about(self, case):
        legal = {"lengths": (1, case.tokens), "block_table": (0, self.shapes(case)[1][0] - 1)}
        placed = {name: x for name, x in inputs.placed_beside(case).items() if name in legal}
        ints = {name: (x.elements, x.shape, x.strides, *legal[name]) for name, x in placed.items()}
        return plain_bytes({"ints": ints, "sink_logits": case.Hq if case.sink else None})

    def reply(self, submission, case, placed):
        answer = super().reply(submission, case, placed)
        if not answer.returned or not case.like:
            return answer
        found = TwiceAnswer(answer.reply, answer.program, submission.take_outputs(answer.reply))
        other, again = same_bits.second(case, placed)
        reply = super().reply(submission, other, again)
        if not reply.returned:
            return reply
        wanted = [(shape, dtype) for _, shape, dtype in self.outputs(submission.problem, other)]
        if [(tuple(each.shape), each.dtype) for each in reply.reply.outputs] == wanted:
            (first,), (second,) = (
                tensors.read_outputs(data, each.outputs) for data, each in
                ((found.data, answer.reply), (submission.take_outputs(reply.reply), reply.reply))
            )  # fmt: skip
            allowed = self.expect(case, placed, submission.device).allowed
            found.other_bits = same_bits.compare(case, first, second, allowed)
        return found

    def outputs(self, problem, case):
        return [("o", (case.B, case.Hq, case.Nq, case.D), case.dtype)]

    # What is timed ---------------------------------------------------------------------------------------------------

    naive = Naive(NAIVE, "naive_decode", "PyTorch's SDPA with K and V copied out to all query heads")
    derived = Derived(NAIVE, "fill_caches", takes=("k_cache",), makes=("lengths",))

    def parts(self, problem, case):
        """Each kv head of each sequence as a case: q, k_cache, v_cache, lengths, then o."""
        found = []
        for b, length in enumerate(case.lengths):
            for head in range(case.Hkv):
                part = replace(case, lengths=(length,), Hq=case.group, Hkv=1, room=case.tokens)
                queries, keys = ([[b, b + 1], [head * n, (head + 1) * n]] for n in (case.group, 1))
                found.append((part, [queries, keys, keys, [[b, b + 1]], queries]))
        return found

    # What make try shows ---------------------------------------------------------------------------------------------

    def small_case(self, problem, sizes):
        """LENGTHS, as text, are those of the sequences."""
        sizes = dict(sizes)
        words = sizes.pop("lengths", "9 5")
        if not words.replace(" ", "").isdecimal() or not any(map(int, words.split())):
            raise ValueError(f'LENGTHS must be like "9 5"; got {words!r}')
        if sizes.get("sink", "normal") not in inputs.SINKS:
            raise ValueError(f"SINK must be one of {', '.join(inputs.SINKS)}; got {sizes['sink']!r}")
        small = DecodeCase("try", lengths=tuple(map(int, words.split())), Hq=2, Hkv=1, rest="NaN")
        return trying.resize(small, sizes)

    def objects(self, case, module):
        return inputs.beside(case)

    def example_sizes(self, problem):
        return {"lengths": "150", "page": "24", "window": "117", "Nq": "2", "sink": "normal"}

    def tables(self, call, problem, case, placed, returned, device):
        expected = self.expect(case, placed, device)
        axes = {"row": "token", "axes": ("sequence", "head")}
        return [trying.compare("o", expected.o, expected.allowed, returned[0], **axes)]

    # What is right ---------------------------------------------------------------------------------------------------

    def right(self, problem, case, placed, device):
        expected = self.expect(case, placed, device)
        return [Right("o", case.dtype, expected.o, expected.allowed, expected)]

    def work_out(self, case, placed, device):
        """The steps.Expected of these inputs."""
        return steps.expect(case, placed, tf32=device != "cpu")

    # What came back --------------------------------------------------------------------------------------------------

    def diagnose(self, problem, case, placed, reply, got, right, found):
        measured = []
        with failures.harmless("what was read"):
            measured = reads.unwritten(case, reply.trace, found)
            if any(fact.question == reads.NOBODY_WROTE for fact in measured):
                found = structs.replace(found, unwritten=0, nan=found.nan + found.unwritten)
            measured = measured or reads.facts(case, reads.find(reply.trace), bool(found.nan))
        return causes.diagnose(case, got, right.answer, found, measured)

    def beyond_values(self, problem, case, answer):
        if sentence := reads.skipped(case, answer.reply.trace):
            return Verdict(Outcome.WRONG, sentence, Facts(question=reads.LOST, measured=(sentence,)))
        if waste := self.wasted(case, answer):
            return Verdict(Outcome.WASTEFUL, waste.sentence, Facts(waste=waste, picture=self.drawn(case, answer.reply)))
        if getattr(answer, "other_bits", ""):
            words, _, _ = same_bits.CALLS[case.like]
            cause = Cause(f"other bits {words}", same_bits.QUESTION, same_bits.SECTION)
            facts = (
                Facts(question=same_bits.QUESTION, causes=(cause,)) if "other bits" in answer.other_bits else Facts()
            )
            return Verdict(Outcome.WRONG, answer.other_bits, facts)
        return super().beyond_values(problem, case, answer)

    def drawn(self, case, reply, got=None, right=None):
        return picture.draw(case, reads.find(reply.trace), super().drawn(case, reply, got, right))

    def wasted(self, case, answer):
        return reads.wasted(case, answer.reply)

    def check_cases(self, problem, cases, seed, results):
        def expect(case):
            return self.expect(case, self.inputs(case, seed), "cpu")

        wrong = cross_case.find_all(results, cases, causes.size)
        passed = [cases[result.case] for result in results if result.outcome is Outcome.PASSED and result.case in cases]
        causes.drop_refuted(wrong, passed, expect)
        cross_case.check(results, cases, lambda *of: set(), lambda kind: False, causes.TOGETHER)

    def look_closer(self, problem, cases, seed, results, submission, show):
        show("changing one thing at a time")
        closer.look(self, problem, cases, seed, results, submission)


KIND = Decode()
