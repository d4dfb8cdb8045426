"""A kind of question: what every kind does alike, and what each says itself.

A kind is one folder with its cases, its inputs, what is right, its known mistakes and its pictures, and its name in
course.toml. What stands here suits a kernel whose outputs are compared with the right ones element by element.
"""

import functools
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch

from grader import failures
from grader.core.protocol.messages import Call, Derived, Run, plain_bytes
from grader.course import tensors
from grader.course.problem import LONG_ROW, Problem
from grader.engine import (
    closer,
    compare_values,
    contrast,
    error_map,
    locate,
    mistakes,
    output_checks,
    reads,
    trying,
    values,
    wrong_rows,
)
from grader.engine.cause import Diagnosis
from grader.engine.contrast import Contrast
from grader.engine.mistakes import Mistake
from grader.engine.reads import Reads
from grader.engine.reference import Reference
from grader.result import Facts, Outcome, Verdict, Waste

KEPT = 64  # answers
AXES = "batch", "head", "row", "column"


@dataclass(frozen=True)
class Right:
    """What one output must be: expected and allowed, float64, in the output's shape; dtype: that of the output.

    answer: what else a kind's own diagnosis needs.
    """

    name: str
    dtype: str
    expected: torch.Tensor
    allowed: torch.Tensor
    answer: object = None

    def __post_init__(self):
        """A kind may work it out on a GPU; what came back is compared on the CPU."""
        for name in ("expected", "allowed"):
            object.__setattr__(self, name, getattr(self, name).cpu())


@dataclass(frozen=True)
class Timing:
    """What a submission's speed is compared with: the function `naive` of a file of ours that imports torch alone.

    words: what it is to a student. prepares: it returns the function to be timed, on inputs that it has seen. derived:
    what a function of the same file makes of other inputs, where not every input of a timed call is drawn.
    """

    path: Path
    naive: str
    words: str
    prepares: bool = False
    derived: Derived | None = None


class Kind:
    """One kind of question; its folder's JUDGE_VERSION is raised whenever a verdict changes.

    problems: those of this kind, which are all called with the same tensors.
    """

    problems: ClassVar[tuple[Problem, ...]] = ()
    references: ClassVar[dict[str, Reference]] = {}  # of each problem, by its id
    mistakes: ClassVar[dict[str, tuple[Mistake, ...]]] = {}  # likewise; each replaces steps of the Reference
    contrasts: ClassVar[tuple[Contrast, ...]] = contrast.GENERAL  # what is changed of a case that stays unexplained
    sides: ClassVar[tuple[tuple[str, ...], ...]] = ()  # of the outputs, each with a kernel of its own
    axes: ClassVar[dict[str, tuple[str, ...]]] = {}  # the names of the dims of an input or output, but of the last
    reads: ClassVar[Reads | None] = None  # which rows of the inputs a kernel needs
    words_on_nan: ClassVar[tuple[str, str]] = "", ""  # the question and the section where a line makes the first NaN
    rows_read: ClassVar[str] = ""  # the section on which row is where
    reference_on_gpu: ClassVar[bool] = False  # whether a GPU works out what the GPU's outputs are compared with
    long_row: ClassVar[str] = LONG_ROW  # the name of `long_case`

    @property
    def names(self):
        """The names of the tensors that the entry points are called with, in order."""
        return self.problems[0].tensors

    # What is asked ---------------------------------------------------------------------------------------------------

    def handler(self, case):
        """Who requests and judges this case: a kind may ask in several ways."""
        return self

    def cases(self, problem, seed):
        """All cases of a problem that are asked with this seed."""
        return (*problem.cases, *problem.memory_cases)

    def case_by_name(self, problem, name):
        """A case that is not among `cases`, but whose name says all of it, or None."""
        return None

    def inputs(self, case, seed):
        """The tensors of a call, Placed, in the order of `names`; here by the case's dtype, values and layout."""
        return values.make(case, seed, *self.shapes(case))

    def size(self, case):
        """The numbers of the largest step, by which cases are ordered: the smallest come first."""
        return 0

    def order(self, case):
        """By which wrong cases are looked at: small ones that tell much come first."""
        return self.size(case)

    def shapes(self, case):
        """[shape] of the same, for compiling; here the case says them."""
        return case.shapes

    def compiled_case(self, problem, name):
        """The case that kernels are compiled for, under this name."""
        return replace(problem.compiled_case, name=name)

    def compiled_alike(self, case):
        """Equal for cases whose kernels are compiled alike, of which a GPU runs the first."""
        return getattr(case, "dtype", None), getattr(case, "D", None)

    def request(self, problem, case, placed, device):
        """(the Call, {file: bytes} for the runner) of a case; a GPU's kernels are not observed."""
        inputs = [tensor.describe(name) for name, tensor in zip(self.names, placed, strict=True)]
        watched = problem.uses_triton and device == "cpu"
        tiles = list(getattr(case, "tiles", None) or ())
        call = Call(inputs, case.arguments, about=self.about(case), watched=watched, tiles=tiles)
        return call, {"inputs.bin": b"".join(tensor.raw() for tensor in placed)}

    def described(self, case):
        """The inputs without values, dense: for compiling and timing."""
        pairs = zip(self.names, self.shapes(case), strict=True)
        return [tensors.describe_dense(name, case.dtype, shape) for name, shape in pairs]

    def unvalued_call(self, case):
        """The Call of a case whose inputs have no values."""
        return Call(self.described(case), case.arguments, about=self.about(case))

    def about(self, case):
        """What the kind's own code in the recorder is told of a case, as part of a message."""
        return plain_bytes(None)

    def beside(self, case):
        """{file: bytes} for the recorder, beside the tensors and arguments."""
        return {}

    def next_call(self, problem, case, placed, answers):
        """(a case, its inputs): one more call that the verdict on this one needs, or None.

        answers: [(case, Answer)] of the calls so far, that of the case itself first.
        """
        return None

    def reply(self, submission, case, placed):
        """The Answer to the case, recorded and run, with those of further calls; or that of the first which failed."""
        answers, asked = [], (case, placed)
        while asked:
            call, files = self.request(submission.problem, *asked, submission.device)
            answer = submission.run(Run(call), files, self.beside(asked[0]))
            if not answer.returned:
                return answer
            answers.append((asked[0], answer))
            asked = self.next_call(submission.problem, case, placed, answers)
            if asked or len(answers) > 1:  # before the next call takes their place
                answer.data = submission.take_outputs(answer.reply) if answer.reply.outputs else b""
        first = answers[0][1]
        first.more = answers[1:]
        return first

    # What is timed ---------------------------------------------------------------------------------------------------

    timing: ClassVar[Timing | None] = None  # where a speed is compared with another

    def parts(self, problem, case):
        """[(a smaller case, ranges)]: what can be compared of a timed call, each by itself; by default all of it.

        ranges: of each input, then each output: [[start, stop], ...] of its first dims.
        """
        return [(case, [[]] * (len(self.described(case)) + len(self.outputs(problem, case))))]

    def fault_of_parts(self, problem, cases, outputs, data, device):
        """A sentence where the outputs of a timed call are not right, else an empty string.

        cases: the parts that came back, of each its inputs and its outputs; `data`: their raw bytes.
        """
        size, given = len(outputs) // len(cases), len(self.described(cases[0]))
        starts = range(0, len(outputs), size)
        for case, start in zip(cases, starts, strict=True):
            came = outputs[start + given : start + size]
            if wrong := output_checks.wrong_form(problem, self.outputs(problem, case), came, len(came) != 1, device):
                return f"of a timed call another form came back: {wrong}"
        every = tensors.read_outputs(data, outputs)
        for case, start in zip(cases, starts, strict=True):
            placed = [tensors.place(each) for each in every[start : start + len(self.names)]]
            right = self.right(problem, case, placed, device)
            for got, each in zip(every[start + given : start + size], right, strict=True):
                if found := compare_values.compare(got, each):
                    of = f"{found.wrong} of the {found.total} elements that were compared"
                    return f"{each.name} of a timed call is wrong: {of}."
        return ""

    # What is right ---------------------------------------------------------------------------------------------------

    def __init__(self):
        self.kept = OrderedDict()

    def reference(self, problem):
        """The Reference of a problem, or None where the kind has another way to say what is right."""
        return self.references.get(problem.id)

    def expect(self, problem, case, placed, device):
        """The Expected of a call on these inputs; KEPT of the CPU's stay."""
        if device != "cpu":
            return self.work_out(problem, case, placed, device)
        key = problem.id, case, values.digest(placed)
        if key not in self.kept:
            self.kept[key] = self.work_out(problem, case, placed, device)
            if len(self.kept) > KEPT:
                self.kept.popitem(last=False)
        return self.kept[key]

    def work_out(self, problem, case, placed, device):
        given = [each.tensor.to(device if self.reference_on_gpu else "cpu") for each in placed]
        dtypes = {name: getattr(torch, dtype) for name, _, dtype in self.outputs(problem, case)}
        return self.reference(problem).expect(case, given, dtypes, tf32=device != "cpu").on_cpu()

    def right(self, problem, case, placed, device):
        """[Right] of each output."""
        expected = self.expect(problem, case, placed, device)
        return [
            Right(name, dtype, expected.values[name], expected.allowed[name], expected)
            for name, _, dtype in self.outputs(problem, case)
        ]

    def outputs(self, problem, case):
        """[(name, shape, dtype)] of what must come back. Required."""
        raise NotImplementedError

    def warm(self, problem, seed):
        """Work out ahead what every submission of a class is compared with."""
        for case in self.cases(problem, seed) if self.reference(problem) else ():
            if not case.gpu:
                self.expect(problem, case, self.inputs(case, seed), "cpu")

    # What came back --------------------------------------------------------------------------------------------------

    def judge(self, problem, case, placed, answer, device):
        """The Verdict on the Answer of a call that returned.

        Judged in this order: form, inputs unchanged, fences whole, loads and stores, values, then what the kind adds.
        What is unsafe explains what is wrong.
        """
        reply = answer.reply
        if told := self.judge_form(problem, case, reply, device):
            return told
        if problem.uses_triton and not reply.kernels:
            sentence = f"No Triton kernel was launched: {problem.id} is to be computed by a kernel of yours."
            return Verdict(Outcome.WRONG, sentence)
        right = self.right(problem, case, placed, device)
        outputs = tensors.read_outputs(answer.data, reply.outputs)
        got = {each.name: output for each, output in zip(right, outputs, strict=True)}
        wrong = {each.name: found for each in right if (found := compare_values.compare(got[each.name], each))}
        if wrong:
            return self.mismatch(problem, case, placed, reply, got, right, wrong)
        verdict = self.beyond_values(problem, case, answer)
        if verdict.outcome is not Outcome.PASSED or not answer.more:
            return verdict
        every = [got]
        for other, more in answer.more:
            if told := self.judge_form(problem, other, more.reply, device):
                return replace(told, sentence=f"In a further call of this case: {told.sentence}")
            every.append(dict(zip(got, tensors.read_outputs(more.data, more.reply.outputs), strict=True)))
        return self.compare(problem, case, every, right) or verdict

    def judge_form(self, problem, case, reply, device):
        """The Verdict where a call's outputs have another form, or it touched what it may not; else None."""
        trace, asked = reply.trace, self.outputs(problem, case)
        if wrong := output_checks.wrong_form(problem, asked, reply.outputs, reply.several, device):
            return Verdict(Outcome.WRONG, wrong)
        if unsafe := output_checks.overwritten(reply):
            return Verdict(Outcome.UNSAFE, unsafe)
        for text in trace.failed if trace else ():
            failures.count("the runner's reading of an address", text)
        if not trace or not trace.faults:
            return None
        drawn, measured = Facts(picture=self.drawn(case, reply)), ""
        with failures.harmless("the words on a fault's addresses"):
            measured = self.explain_fault(case, trace, trace.faults[0])
        return Verdict(Outcome.UNSAFE, output_checks.describe_fault(problem, trace.faults[0], measured), drawn)

    def compare(self, problem, case, outputs, right):
        """The Verdict where the outputs [{name: tensor}] of all calls do not belong together; the first are right."""
        return None

    def explain_fault(self, case, trace, fault):
        """What a fault's addresses are and should be, and a question; empty where they do not tell."""
        return ""

    def mismatch(self, problem, case, placed, reply, got, right, wrong):
        """The Verdict on outputs that are not the right ones; its sentence is its diagnosis's.

        got: {output: tensor}. right: [Right]. wrong: {output: Mismatch}.
        """
        first = next(each for each in right if each.name in wrong)
        found = wrong[first.name]
        facts = Facts(mismatch=found, picture=self.drawn(case, reply, got[first.name], first))
        if found.nan and reply.trace and reply.trace.undefined:
            return Verdict(Outcome.UNSAFE, output_checks.describe_undefined(problem, reply.trace.undefined[0]), facts)
        diagnosis = self.diagnose(problem, case, placed, reply, got, right, wrong)
        return Verdict(Outcome.WRONG, facts=facts, diagnosis=diagnosis)

    def diagnose(self, problem, case, placed, reply, got, right, wrong):
        """The Diagnosis of this case alone; `check_cases` hears the others."""
        told = Diagnosis("output", "")
        with failures.harmless("what was read"):
            told.measured, wrong = self.read_facts(case, reply, wrong)
        first = next(each for each in right if each.name in wrong)
        found, expected = wrong[first.name], first.answer
        told.where = locate.where_of(wrong, [each.name for each in right])
        # What was never written, or is NaN for a reason that is known, equals whatever gives NaN.
        if self.reference(problem) and not (found.unwritten or (told.measured and found.nan == found.wrong)):
            search = functools.partial(mistakes.find, self, problem, case, expected, got)
            told.evidence["search"] = functools.cache(search)
        axes = self.axes.get(first.name, AXES[min(2, max(0, 4 - got[first.name].dim())) :])
        about = got[first.name], first.expected, first.allowed, first.name, axes, self.rows_read
        told.evidence |= {"moved": lambda: wrong_rows.tell(*about), "trace": reply.trace}
        return told

    def read_facts(self, case, reply, wrong):
        """([Measured] that the trace of a wrong case shows, {output: Mismatch} in its light)."""
        log = self.log(case, reply)
        return (reads.facts(log, any(found.nan for found in wrong.values())) if log else []), wrong

    def log(self, case, reply):
        """The reads.Log of what was observed, or None."""
        if not self.reads or not reply.trace:
            return None
        shapes = dict(zip(self.names, self.shapes(case), strict=True))
        return reads.Log(self.reads, case, self.axes, shapes, reads.read_log(reply.trace), reply.trace.costs.inputs)

    def measure(self, problem, submission, case, diagnosis):
        """[Measured] of more calls of a wrong case that has no cause."""
        return []

    def given_rows(self, case, name):
        """How many rows of an output given code makes: these may be right where a mistake makes all others wrong."""
        return 0

    def beyond_values(self, problem, case, answer):
        """The Verdict where every value is right."""
        if (log := self.log(case, answer.reply)) and (lost := reads.skipped(log)):
            said = f"The values are right only because these count for little here. {lost[0].sentence}"
            return Verdict(Outcome.WRONG, said, Facts(question=lost[0].question, measured=(said,)))
        drawn = self.drawn(case, answer.reply)
        if waste := self.wasted(case, answer):
            return Verdict(Outcome.WASTEFUL, waste.sentence, Facts(waste=waste, picture=drawn))
        return Verdict(Outcome.PASSED, facts=Facts(picture=drawn))

    def drawn(self, case, reply, got=None, right=None):
        """The numbers behind the picture of a case, of the output that is wrong, if one is."""
        log = self.log(case, reply)
        drawn = reads.draw(log) if log else {}
        if got is None:
            return drawn
        return drawn | error_map.draw(right.name, *map(compare_values.as_heads, (got, right.expected, right.allowed)))

    def right_picture(self, case, picture):
        """A picture of what a right kernel visits, with the tiles of `picture`, or None."""
        return None

    def own_work(self, problem, case, reply):
        """Sentences: the evidence that the output is not the work of the submission's own kernel; mostly none."""
        found = output_checks.foreign_data(problem, reply)
        if problem.uses_triton and reply.without_launch:
            names = [name for name, *_ in self.outputs(problem, case)]
            which = " and ".join(names[i] for i in reply.without_launch) if len(names) > 1 else "the output"
            found.append(f"No kernel of yours computed {which}: nothing that a launch stored leads there.")
        return found

    # What make try shows ---------------------------------------------------------------------------------------------

    def small_case(self, problem, sizes):
        """The case that `make try` calls, with sizes {name: text} of the student's; raises ValueError."""
        return trying.resize(min(problem.cases, key=self.size), sizes)

    def objects(self, case, module):
        """{name: value} that the entry point is given beside its tensors and plain arguments; may raise ValueError.

        module: the globals of its file.
        """
        return {}

    def example_sizes(self, problem):
        """The sizes {name: text} of the call whose numbers `make hint` shows."""
        return {}

    def tables(self, call, problem, case, placed, returned, device):
        """[Table] of what was returned. call: the function, which may be called again on other tensors."""
        right = self.right(problem, case, placed, device)
        return [trying.compare(r.name, r.expected, r.allowed, got) for r, got in zip(right, returned, strict=True)]

    def first_difference(self, case, shown):
        """A sentence on the first number that is off, or None."""
        found = trying.first_difference(shown)
        return found and trying.in_words(*found)

    # The cases of a problem together ---------------------------------------------------------------------------------

    def check_cases(self, problem, cases, seed, results):
        """Ask the cases of a problem together which causes stand: changes the diagnoses in `results`."""
        if self.reference(problem):
            mistakes.check(self, problem, cases, seed, results)

    def look_closer(self, problem, cases, seed, results, submission, show):
        """Run the submission on inputs that tell more than a case does: adds that to the diagnoses of `results`.

        cases: those that ran, by name. show(words): what is being done, now and then. May raise whatever a submission
        raises: it changes no verdict.
        """
        show("changing one thing at a time")
        closer.look(self, problem, cases, seed, results, submission)

    def long_case(self, cases):
        """The case on which work is judged most plainly, or None."""
        return next((case for case in cases if case.name == self.long_row), None)

    def wasted(self, case, answer) -> Waste | None:
        """The Waste where the kernel did more than the case needs, else None."""
        log, by_torch = self.log(case, answer.reply), self.by_torch(case, answer.reply.wrapper)
        return reads.wasted(log, by_torch) if log else Waste(by_torch, {}) if by_torch else None

    def by_torch(self, case, costs):
        """A sentence where PyTorch does the kernels' work, by the costs outside of them, else ""."""
        return ""

    def judge_work(self, results):
        """The Verdict on the work of a problem, of the results of its cases."""
        return Verdict(Outcome.PASSED)
