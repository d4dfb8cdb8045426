"""What came back of a case -> outcome, sentence and facts."""

import math
import re
from pathlib import Path

import torch

from grader.diagnosis import diagnose, tile_visits
from grader.kinds.attention import locate, own_work, picture, work
from grader.processes import handed_in
from grader.processes.inside.replies import first_open_gap
from grader.processes.text import quote_line
from grader.reference import answers, compare, oracle
from grader.result import Outcome

NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks"  # a section is named where it can be read


def of_reply(problem, case, placed, reply, data, device, wasted=work.wasted):
    """(outcome, sentence, facts) on a call that returned; `data`: the raw bytes of what it returned.

    Judged in this order: form, inputs unchanged, fences whole, values, memory. What is unsafe explains what is wrong.
    wasted: what says whether the kernel did more than the case needs.
    """
    form = wrong_form(problem, case, reply, device)
    if form:
        return Outcome.WRONG, form, {}
    outputs = read_outputs(data, reply)
    unsafe = overwritten(reply)
    if unsafe:
        return Outcome.UNSAFE, unsafe, {}

    def drawn(*compared):
        return {"picture": picture.of(case, reply["trace"], compared)}

    if reply["trace"] and reply["trace"]["faults"]:
        return Outcome.UNSAFE, of_fault(problem, reply["trace"]["faults"][0]), {"trace": reply["trace"]} | drawn()
    if problem.uses_triton and not reply["kernels"]:
        return Outcome.WRONG, f"No Triton kernel was launched: {problem.id} is to be computed by a kernel of yours.", {}
    answer = expect(problem, case, placed, device)
    facts = compare.mismatch(outputs[0], answer.o, answer.allowed_o)
    facts = facts and facts | drawn("o", outputs[0], answer.o, answer.allowed_o)
    if facts and facts["nan"] and reply["trace"] and reply["trace"]["undefined"]:
        return Outcome.UNSAFE, of_undefined(problem, reply["trace"]["undefined"][0]), facts | {"trace": reply["trace"]}
    if facts:
        records = reply["trace"]["visits"] if reply["trace"] else ()
        causes = []
        if facts["unwritten"] < facts["wrong"]:  # what was never written equals nothing
            causes = diagnose.causes(problem, case, placed, outputs[0], answer, records)
        facts |= {"where": locate.where(facts), "what": "output", "tiles": tile_visits.tile_sizes(records)}
        facts["order"] = tile_visits.order_of(records, facts["tiles"])
        return Outcome.WRONG, *with_causes(facts, causes)
    if problem.returns_lse:
        facts = compare.mismatch(outputs[1], answer.lse, answer.allowed_lse)
        facts = facts and facts | drawn("lse", outputs[1], answer.lse, answer.allowed_lse)
        if facts:
            causes = diagnose.lse_causes(case, placed, outputs[1], answer.lse)
            facts |= {"where": f"o is right, lse is not. {locate.where(facts)}", "what": "lse"}
            return Outcome.WRONG, *with_causes(facts, causes)
    if too_many := of_keys_at_once(reply):
        return too_many
    if case in problem.memory_cases:
        outcome, sentence, facts = of_memory(case, reply)
        return outcome, sentence, facts | drawn()
    waste = wasted(case, reply) if reply["trace"] else None
    if waste and problem.counts_work:  # judged for the problem as a whole
        return Outcome.PASSED, "", drawn() | {"waste": waste}
    if waste:
        sentence, facts = waste
        return Outcome.WASTEFUL, sentence, facts | drawn()
    return Outcome.PASSED, "", drawn()


def with_causes(facts, causes):
    """(sentence, facts) of a mismatch: what it equals instead if that can be told, and where it is wrong."""
    facts = {key: value for key, value in facts.items() if key not in ("question", "section")} | {"heard": causes}
    facts["causes"] = causes = diagnose.specific(causes)
    if causes:
        facts |= {"question": causes[0].question}
        facts |= {"section": causes[0].section} if NOTEBOOKS.is_dir() else {}
    return f"{diagnose.say(causes, facts['what'])} {facts['where']}".strip(), facts


def of_exception(reply, problem, path):
    """(outcome, sentence) for an exception that the submission raised, while it loaded or while it ran."""
    at = f"{problem.module}:{reply['line']}" if reply["line"] else problem.module
    if reply["bad_module"]:
        return Outcome.CRASHED, f"{reply['text']}. It must be {problem.signature}."
    if reply["exception"] == "CannotRecord":
        return Outcome.CRASHED, f"What your Python does cannot be written down as a program: {reply['text']} ({at})."
    if reply["exception"] == "Refused":
        where = f"{at}{source_at(path, reply['line'])}"
        return Outcome.CRASHED, f"Triton's compiler would not take this kernel: {reply['text']} ({where})."
    if reply["unfinished"]:
        gap = reply["todo"] and first_open_gap(handed_in.read_texts(path.parent).get(path.name, ""))
        return Outcome.UNFINISHED, gap or reply["todo"] or f"NotImplementedError at {at}"
    text = re.sub(r" \([^()]+\.py, line \d+\)$", "", reply["text"].strip())  # a SyntaxError names its place twice
    first, *rest = text.splitlines() or [""]
    text = first if not rest else f"{first} [...] {rest[-1].strip()}"
    source = source_at(path, reply["line"]).replace(": `", " in `", 1) if reply["line"] else ""
    return Outcome.CRASHED, f"{reply['exception']} at {at}{source}: {text[:400]}".rstrip(": ")


def of_unfinished(reply, problem, path):
    """(outcome, sentence[, facts]) of a reply without a result."""
    return of_program(reply, problem, path) or of_exception(reply, problem, path)


def of_program(reply, problem, path):
    """(outcome, sentence, facts) where what was recorded could not be run, else None."""
    status, line = reply["status"], reply.get("line")
    at = f" ({problem.module}:{line}{source_at(path, line)})" if line else ""
    if status == "refused":
        return Outcome.CRASHED, f"Triton's compiler would not take this kernel: {reply['text']}{at}.", {}
    if status == "malformed":
        return Outcome.CRASHED, f"What was recorded of your wrapper is no program that can be run: {reply['text']}.", {}
    if status == "depends":
        return (
            Outcome.WRONG,
            f"The wrapper's Python reads numbers of q, k or v{at} and does other things for other numbers: what it "
            "does may depend on shapes, strides, dtypes and plain arguments alone.",
            {},
        )
    if status == "a kernel":
        return Outcome.WRONG, f"The kernel {reply['kernel']}{at} is launched: {problem.id} is PyTorch alone.", {}
    if status == "another text":
        evidence = f"The kernel {reply['kernel']} is not what stands in the file{at}: do not generate kernels."
        return own_work.needs_review([evidence])
    if status == "not allowed":
        which = ALLOWED[problem.id in ("p1", "p2")]
        return own_work.needs_review(
            [f"torch's {reply['operation']}{at} is not among the operations of {problem.id}: {which}"]
        )
    return None


ALLOWED = (
    "outside kernels tensors may be made, moved, cast, scaled and merged; attention is the kernel's work.",
    "attention functions of PyTorch do the problem's work; simple operations do not.",
)


def source_at(path, line):
    """`: `the line's text``, of the submission's file."""
    source = quote_line(path, line)
    return f": `{source}`" if source else ""


# What is asked of the student, by the kind of fault that trace.py found.
FAULTS = {
    "out-of-bounds load": "reads {lanes} elements outside {argument}: is the load masked where rows may not exist, "
    "and are its offsets those of this batch and head?",
    "out-of-bounds store": "writes {lanes} elements outside {argument}: is the store masked where rows may not exist, "
    "and does it use the output's own strides?",
    "out-of-bounds atomic": "updates {lanes} elements outside {argument}: is it masked where rows may not exist?",
    "write of another program's element": "writes {lanes} elements of {argument} that another program has written; on "
    "a GPU nobody knows which comes last. Is the store masked, and does the grid give each tile to one program?",
    "element written twice by one store": "writes {lanes} elements of {argument} twice in one store: do two lanes have "
    "the same address?",
    "read of another program's write": "reads {lanes} elements of {argument} that another program writes in the same "
    "launch: on a GPU programs run in any order.",
    "write of what another program reads": "writes {lanes} elements of {argument} that another program reads in the "
    "same launch: on a GPU programs run in any order.",
    "int32 overflow": "computes {lanes} positions or offsets that pass 2^31, where int32 wraps around, and uses them: "
    "cast to int64 first, with .to(tl.int64), or write the sum so that it stays small.",
}


def of_fault(problem, fault):
    """The sentence for one fault of a trace, with the student's own line."""
    return f"{fault['kernel']} {FAULTS[fault['kind']].format(**fault)} {at_line(problem, fault)}"


def of_undefined(problem, entry):
    return (
        f"{entry['kernel']} uses values of {entry['argument']} that its mask left undefined: tl.load needs other=... "
        f"where a masked lane is used later. {at_line(problem, entry)}"
    )


def at_line(problem, entry):
    return f"({problem.module}:{entry['line']}: `{entry['source']}`)" if entry["line"] else ""


TWO_PASSES = 2.5  # multiply-adds for each of a score; q k^T is one, p v is another
KEYS_AT_ONCE = 256  # of a row, or of all queries, where the online softmax is the lesson


def of_memory(case, reply):
    """(outcome, sentence, facts) on what was held at once, where the whole score matrix may not be."""
    limit, whole = case.N * KEYS_AT_ONCE, case.N * case.num_keys
    facts = {"largest_tensor": reply["largest"], "peak_elements": reply["peak"], "limit": limit}
    if reply["largest"] > limit:
        sentence = (
            f"A tensor of {reply['largest']} elements was made: more than {KEYS_AT_ONCE} keys of every query. The "
            f"whole score matrix has {whole} ({case.N} x {case.num_keys}). Keep one tile of it at a time."
        )
        return Outcome.WASTEFUL, sentence, facts
    if reply["peak"] >= whole:
        sentence = (
            f"{reply['peak']} elements were alive at once; the whole score matrix has {whole}. Let go of each tile "
            "when its part is added up."
        )
        return Outcome.WASTEFUL, sentence, facts
    products, once = reply["volume"]["products"], case.B * case.Hq * whole * case.D
    if not case.causal and products > TWO_PASSES * once:
        sentence = (
            f"Scores were computed more than once: {products} multiply-adds where q k^T and p v have {2 * once}. The "
            "online softmax needs one pass over the keys."
        )
        return Outcome.WASTEFUL, sentence, facts
    return Outcome.PASSED, "", facts


def of_keys_at_once(reply):
    """(outcome, sentence, facts) where one query's scores of too many keys were there at once, else None."""
    if (keys := reply.get("keys_of_a_row", 0)) <= KEYS_AT_ONCE:
        return None
    sentence = (
        f"The scores of {keys} keys of one query were held at once: no online softmax is needed for that. Hold at "
        f"most {KEYS_AT_ONCE}, and bring them together tile by tile."
    )
    return Outcome.WASTEFUL, sentence, {"keys_at_once": keys}


def overwritten(reply):
    """A sentence where an input changed or something was written around a tensor, else an empty string."""
    if reply["changed"]:
        return f"Your code wrote into its input {', '.join(reply['changed'])}: inputs must stay as they were."
    if reply["broken_fences"]:
        shapes = " and ".join(str(tuple(shape)) for shape in reply["broken_fences"])
        return (
            f"Your code wrote past the end (or before the beginning) of a tensor of shape {shapes} that it allocated: "
            "is every store masked where rows may not exist, and does it use the output's own strides?"
        )
    return ""


def expect(problem, case, placed, device):
    """The oracle's answer; on a GPU machine it is computed there, in the grader's own process."""
    if device == "cpu":
        return answers.to(case, placed)
    q, k, v = (each.tensor.to(device) for each in placed)
    answer = oracle.expect(q, k, v, case.visibility, problem.uses_triton, case.scale)
    tensors = (answer.o, answer.lse, answer.allowed_o, answer.allowed_lse)
    return oracle.Expected(*(t.cpu() for t in tensors), answer.relative)


def wrong_form(problem, case, reply, device):
    """A sentence where what came back is not tensors of the right number, shape, dtype and device, else None."""
    shape = [case.B, case.Hq, case.N, case.D]
    wanted = {"o": (shape, case.dtype)}
    if problem.returns_lse:
        wanted["lse"] = (shape[:3], "float32")
    got = reply["outputs"]
    if not reply["several"] and got[0]["type"] == "NoneType":
        return f"{problem.entry_point} returned nothing: is its `return {', '.join(wanted)}` missing?"
    if reply["several"] != problem.returns_lse or len(got) != len(wanted):
        came = f"{len(got)} values" if reply["several"] else f"one {got[0]['type']}"
        return f"{problem.entry_point} must return {' and '.join(wanted)}; it returned {came}."
    for (name, (want_shape, want_dtype)), output in zip(wanted.items(), got, strict=True):
        if not output["plain"]:
            return f"{name} must be a plain torch.Tensor; it is a {output['type']}."
        if output["shape"] != want_shape:
            return f"{name} has the shape {tuple(output['shape'])}; it must be {tuple(want_shape)}."
        if output["dtype"] != want_dtype:
            return f"{name} is {output['dtype']}; it must be {want_dtype}."
        if output["device"] != device:
            return f"{name} is on {output['device']}; the inputs are on {device}."
    return None


def read_outputs(data, reply):
    """The returned tensors from their raw bytes."""
    data, tensors, start = bytearray(data), [], 0
    for output in reply["outputs"]:
        shape, dtype = tuple(output["shape"]), getattr(torch, output["dtype"])
        count = math.prod(shape)
        read = torch.frombuffer(data, dtype=dtype, count=count, offset=start) if count else torch.empty(0, dtype=dtype)
        tensors.append(read.reshape(shape))
        start += count * tensors[-1].element_size()
    return tensors
