"""A kind of question: what every kind does alike, and what each says itself.

A kind is one folder with its cases, its inputs, what is right, its known mistakes and its pictures, and one line of
registry.py. What stands here suits a kernel whose outputs are compared with the right ones element by element.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from msgspec import structs

from grader.core.protocol.messages import Call, Run, plain_bytes
from grader.course import tensors
from grader.course.problem import LONG_ROW, Problem
from grader.diagnosis import compare_values, cross_case, failures, locate
from grader.diagnosis.cause import Diagnosis
from grader.kinds import careful, error_map, moved_rows, output_checks, trying, values
from grader.result import Cause, Facts, Outcome, Verdict, Waste, mistake_pattern

KEPT = 64  # answers


@dataclass(frozen=True)
class Question:
    """What every case has: its name; gpu: True for what only a GPU runs."""

    name: str
    gpu: bool = False

    arguments: ClassVar[dict] = {}  # the keyword arguments of the entry point, beside its tensors
    fits_gpu: ClassVar[bool] = True  # False where a GPU would need the memory between rows that lie far apart
    flops: ClassVar[int] = 0  # what a call needs at the least, where that is known
    least_bytes: ClassVar[int] = 0

    @property
    def smaller(self):
        """The same for a GPU with little memory."""
        return self

    def describe(self, seed):
        """`n=129, float16, seed 3`: what a student reads beside the name."""
        return f"seed {seed}"


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
class KnownMistake:
    """What an output equals, and a question. answer(case, *inputs in float32) gives it; section: of a notebook.

    output: the name of the output that it is about; empty: any.
    """

    equals: str
    question: str
    answer: Callable[..., torch.Tensor]
    section: str = ""
    output: str = ""


@dataclass(frozen=True)
class Naive:
    """What a submission's speed is compared with: a function of a file of ours that imports torch alone.

    words: what it is to a student. prepares: it returns the function to be timed, on inputs that it has seen.
    """

    path: Path
    function: str
    words: str
    prepares: bool = False


@dataclass(frozen=True)
class Derived:
    """The inputs `makes`, which a function of a file of ours that imports torch alone makes of the inputs `takes`."""

    path: Path
    function: str
    takes: tuple[str, ...]
    makes: tuple[str, ...]


class Kind:
    """One kind of question; its folder's JUDGE_VERSION is raised whenever a verdict changes.

    problems: those of this kind, which are all called with the same tensors.
    """

    problems: ClassVar[tuple[Problem, ...]] = ()
    mistakes: ClassVar[dict[str, tuple[KnownMistake, ...]]] = {}  # of each problem, by its id
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
        """By which cases are ordered where the smallest come first."""
        return 0

    def shapes(self, case):
        """[shape] of the same, for compiling. Required."""
        raise NotImplementedError

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

    def reply(self, submission, case, placed):
        """The Answer to the case: recorded, and run."""
        call, files = self.request(submission.problem, case, placed, submission.device)
        return submission.run(Run(call), files, self.beside(case))

    # What is timed ---------------------------------------------------------------------------------------------------

    naive: ClassVar[Naive | None] = None  # where a speed is compared with one
    derived: ClassVar[Derived | None] = None  # where not every input of a timed call is drawn

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
                if found := compare_values.mismatch(*map(as_heads, (got, each.expected, each.allowed))):
                    of = f"{found.wrong} of the {found.total} elements that were compared"
                    return f"{each.name} of a timed call is wrong: {of}."
        return ""

    # What is right ---------------------------------------------------------------------------------------------------

    def right(self, problem, case, placed, device):
        """[Right] of each output. Required."""
        raise NotImplementedError

    def outputs(self, problem, case):
        """[(name, shape, dtype)] of what must come back. Required."""
        raise NotImplementedError

    def warm(self, problem, seed):
        """Work out ahead what every submission of a class is compared with."""

    # What came back --------------------------------------------------------------------------------------------------

    def judge(self, problem, case, placed, answer, device):
        """The Verdict on the Answer of a call that returned.

        Judged in this order: form, inputs unchanged, fences whole, loads and stores, values, then what the kind adds.
        What is unsafe explains what is wrong.
        """
        reply = answer.reply
        if wrong := output_checks.wrong_form(
            problem, self.outputs(problem, case), reply.outputs, reply.several, device
        ):
            return Verdict(Outcome.WRONG, wrong)
        if unsafe := output_checks.overwritten(reply):
            return Verdict(Outcome.UNSAFE, unsafe)
        trace = reply.trace
        for text in trace.failed if trace else ():
            failures.count("the runner's reading of an address", text)
        if trace and trace.faults:
            drawn = Facts(picture=self.drawn(case, reply))
            fault = trace.faults[0]
            measured = ""
            with failures.harmless("the words on a fault's addresses"):
                measured = self.explain_fault(case, trace, fault)
            return Verdict(Outcome.UNSAFE, output_checks.describe_fault(problem, fault, measured), drawn)
        if problem.uses_triton and not reply.kernels:
            sentence = f"No Triton kernel was launched: {problem.id} is to be computed by a kernel of yours."
            return Verdict(Outcome.WRONG, sentence)
        right = self.right(problem, case, placed, device)
        for got, each in zip(tensors.read_outputs(answer.data, reply.outputs), right, strict=True):
            if found := compare_values.mismatch(*map(as_heads, (got, each.expected, each.allowed))):
                first, worst = own_place(found.first, got), own_place(found.worst, got)
                found = structs.replace(found, first=first, worst=worst)
                return self.mismatch(problem, case, placed, reply, got, each, found)
        return self.beyond_values(problem, case, answer)

    def explain_fault(self, case, trace, fault):
        """What a fault's addresses are and should be, and a question; empty where they do not tell."""
        return ""

    def mismatch(self, problem, case, placed, reply, got, right, found):
        """The Verdict on an output that is not the right one; its sentence is its diagnosis's. found: the Mismatch."""
        facts = Facts(mismatch=found, picture=self.drawn(case, reply, got, right))
        if found.nan and reply.trace and reply.trace.undefined:
            return Verdict(Outcome.UNSAFE, output_checks.describe_undefined(problem, reply.trace.undefined[0]), facts)
        diagnosis = self.diagnose(problem, case, placed, reply, got, right, found)
        return Verdict(Outcome.WRONG, facts=facts, diagnosis=diagnosis)

    def diagnose(self, problem, case, placed, reply, got, right, found):
        """The Diagnosis of this case alone; `check_cases` hears the others."""
        names = [name for name, *_ in self.outputs(problem, case)]
        where = locate.where(found)
        if before := names[: names.index(right.name)]:
            where = f"{' and '.join(before)} {'is' if len(before) == 1 else 'are'} right, {right.name} is not. {where}"
        told, refuted = Diagnosis(right.name if len(names) > 1 else "output", where), set()
        if not found.unwritten:  # what was never written equals whatever gives NaN
            for mistake, answer in self.answers_of_mistakes(problem, case, placed, right):
                cause = Cause(mistake.equals, mistake.question, mistake.section)
                if careful.equals(got, answer, right):
                    told.causes.append(cause)
                else:
                    refuted.add(cause.kind)
        told.evidence["refuted"] = refuted - {cause.kind for cause in told.causes}  # it may be there in other sizes
        with failures.harmless("the search for moved rows"):
            if not told.causes:
                told.measured = moved_rows.find(*map(as_heads, (got, right.expected, right.allowed)))
        return told

    def answers_of_mistakes(self, problem, case, placed, right):
        """(KnownMistake, what it gives) of each that makes a difference to this output, on these inputs."""
        for mistake in self.mistakes.get(problem.id, ()):
            with failures.harmless(f"the known mistake {mistake.equals!r}"):
                if mistake.output in ("", right.name):
                    answer = mistake.answer(case, *(each.tensor.float() for each in placed))
                    if careful.differs(answer, right):
                        yield mistake, answer

    def beyond_values(self, problem, case, answer):
        """The Verdict where every value is right."""
        return Verdict(Outcome.PASSED, facts=Facts(picture=self.drawn(case, answer.reply)))

    def drawn(self, case, reply, got=None, right=None):
        """The numbers behind the picture of a case, of the output that is wrong, if one is."""
        if got is None:
            return {}
        return error_map.draw(right.name, *map(as_heads, (got, right.expected, right.allowed)))

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

    def find_causes(self, cases, results):
        """Look for what each wrong output equals. cases: those that ran, by name."""

    def check_cases(self, problem, cases, seed, results):
        """Ask the cases of a problem together which causes stand: changes the diagnoses in `results`.

        Here one stands that every case shows which could: a case that passes shows none.
        """
        passed = [cases[result.case] for result in results if result.outcome is Outcome.PASSED and result.case in cases]
        witnesses = sorted(passed, key=self.size)[: cross_case.WITNESSES]
        if any(result.diagnosis.causes for result in results if result.diagnosis):
            refuted = set().union(*(self.would_show(problem, case, seed) for case in witnesses))
            cross_case.leave_unrefuted(results, refuted)

    def would_show(self, problem, case, seed):
        """{(output, kind of cause)} of all mistakes that would make this case fail."""
        placed = self.inputs(case, seed)
        several = len(self.outputs(problem, case)) > 1
        return {
            (right.name if several else "output", mistake_pattern(mistake.equals))
            for right in self.right(problem, case, placed, "cpu")
            for mistake, _ in self.answers_of_mistakes(problem, case, placed, right)
        }

    def look_closer(self, problem, cases, seed, results, submission, show):
        """Run the submission on inputs that tell more than a case does: adds that to the diagnoses of `results`.

        cases: those that ran, by name. show(words): what is being done, now and then. May raise whatever a submission
        raises: it changes no verdict.
        """

    def long_case(self, cases):
        """The case on which work is judged most plainly, or None."""
        return next((case for case in cases if case.name == self.long_row), None)

    def wasted(self, case, answer) -> Waste | None:
        """The Waste where the kernel did more than the case needs, else None."""
        return None

    def judge_work(self, results):
        """The Verdict on the work of a problem, of the results of its cases."""
        return Verdict(Outcome.PASSED)


class Keeping(Kind):
    """A kind whose right answers take long: `work_out(case, placed, device)` gives one. KEPT of the CPU's stay."""

    def __init__(self):
        self.kept = OrderedDict()

    def expect(self, case, placed, device):
        """What `work_out` gives for these inputs."""
        if device != "cpu":
            return self.work_out(case, placed, device)
        key = case, values.digest(placed)
        if key not in self.kept:
            self.kept[key] = self.work_out(case, placed, device)
            if len(self.kept) > KEPT:
                self.kept.popitem(last=False)
        return self.kept[key]

    def warm(self, problem, seed):
        for case in self.cases(problem, seed):
            if not case.gpu:
                self.expect(case, self.inputs(case, seed), "cpu")


def as_heads(tensor):
    """A tensor as (B, H, rows, columns), in whose words a place is told; (B, H, rows) stays, a vector is a column."""
    if tensor.dim() > 4:
        return tensor.flatten(0, tensor.dim() - 4)
    return tensor if tensor.dim() > 2 else tensor.reshape(1, 1, len(tensor), -1)


def own_place(place, tensor):
    """An index of as_heads(tensor) as an index of the tensor."""
    return place if tensor.dim() > 2 else place[2 : 2 + tensor.dim()]
