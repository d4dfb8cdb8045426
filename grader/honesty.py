"""Evidence from the child -> held for the instructor, or not: was the output computed by the submission's own kernel?

What a wrapper may do: move data (copy, pad, slice, transpose, cast), work on one of q, k, v by itself (scale it), merge
what kernels stored (split results by their lse), fill in constants. Products of q, k and v with each other belong to
the kernel. A sign decides only where no honest wrapper has it; the rest is told beside it.
"""

import secrets

import torch

from grader import answers, oracle
from grader.assignment import PROBLEMS
from grader.result import Outcome

SPLITS = 8  # results that a wrapper may merge for each element of the output, and one more for each
KEYS_OF_A_SPLIT = 16  # keys: attention itself takes N of them
WHOLE = ("scaled_dot_product", "flash_attention", "efficient_attention", "cudnn_attention", "native_multi_head")
MULTIPLYING = {
    "mul", "mul_", "mm", "bmm", "addmm", "baddbmm", "addbmm", "addcmul", "addcmul_", "mv", "dot", "convolution",
    "_int_mm", "_trilinear", "linear", "addmv", "vdot",
}  # fmt: skip
# They only move what is there, or choose among it.
MOVES = {
    "copy_", "cat", "stack", "clone", "_to_copy", "index", "index_put_", "_index_put_impl_", "index_select", "gather",
    "scatter", "scatter_", "index_copy", "index_copy_", "constant_pad_nd", "repeat", "flip", "roll", "where",
    "masked_fill", "masked_fill_", "masked_scatter", "masked_scatter_", "take", "tril", "triu", "_reshape_copy",
    "equal", "eq", "ne", "lt", "le", "gt", "ge", "_local_scalar_dense", "select_scatter", "slice_scatter",
}  # fmt: skip
EXPONENTIALS = {"exp", "exp_", "exp2", "exp2_", "_softmax", "_log_softmax", "logsumexp"}
OTHER_INPUTS = 1 << 40  # seeds of asking again: nobody can have a table of their outputs


def judge(problem, case, reply, placed):
    """The evidence of one call on the inputs `placed`, sentences; the ones that decide come first.

    Empty where there is none that does.
    """
    found = replaced(reply) + own_class(reply)
    evidence = reply.get("evidence")
    if evidence is None:
        return found
    found += whole_attention(problem, evidence)
    if problem.uses_triton:
        found += in_kernel(problem, evidence) + products(problem, evidence) + merges(problem, case, evidence)
        found += of_output(evidence)
        if reply.get("trace") and evidence["launches"]:
            found += met_too_little(case, placed, reply["trace"], evidence)
    if found and evidence.get("raised"):
        kernel, error = evidence["raised"][0]
        found.append(f"A launch of {kernel} raised {error}, and the submission went on without it.")
    return list(dict.fromkeys(found))


def replaced(reply):
    names = reply.get("replaced") or []
    return [f"The submission replaced {', '.join(names[:5])}, which is not its own."] if names else []


def own_class(reply):
    names = [output["type"] for output in reply.get("outputs", ()) if output["own_class"]]
    return [f"It returned a {names[0]}, a tensor whose class the submission wrote."] if names else []


def whole_attention(problem, evidence):
    names = {op["name"]: op for op in evidence["operations"] if any(word in op["name"] for word in WHOLE)}
    return [f"It calls torch's own attention, {name}, {at(problem, op)}." for name, op in names.items()]


def in_kernel(problem, evidence):
    """Only the interpreter lets PyTorch run where a kernel is."""
    called = [f"torch's {op['name']} {at(problem, op)}" for op in evidence["operations"] if op["in_program"]]
    found = [f"Inside the kernel it calls {called[0]}: no GPU can do that."] if called else []
    strange = evidence["strange"]
    return found + ([f"Inside the kernel it uses {', '.join(strange)}: no GPU can do that."] if strange else [])


def products(problem, evidence):
    """q, k and v put together by PyTorch, or one of them multiplied with what a kernel stored."""
    found = []
    for op in evidence["operations"]:
        labels = set("+".join(op["labels"]).split("+"))
        raw = sorted(labels & set("qkv"))
        both = op["operands"] > 1 and (len(raw) > 1 or (raw and "kernel" in labels and op["name"] in MULTIPLYING))
        if both and op["name"] not in MOVES:
            of = " and ".join([*raw, *(["what the kernel stored"] if "kernel" in labels else [])])
            found.append(f"torch's {op['name']} puts {of} together {at(problem, op)}, which is the kernel's work.")
    return found


def merges(problem, case, evidence):
    """More work on what kernels stored than a merge of split results takes: attention by PyTorch, on copies."""
    splits = SPLITS + case.num_keys // KEYS_OF_A_SPLIT
    rows = case.B * case.Hq * case.N
    ops = [op for op in evidence["operations"] if "kernel" in "+".join(op["labels"]) and not op["in_program"]]
    found = []
    for names, limit, what in ((MULTIPLYING, rows * case.D, "products"), (EXPONENTIALS, rows, "exponentials")):
        chosen = [op for op in ops if op["name"] in names and (op["operands"] > 1 or names is EXPONENTIALS)]
        done = sum(op["elements"] for op in chosen)
        if done > limit * splits:
            found.append(
                f"On what the kernel stored, torch computes {done} {what} {at(problem, chosen[0])}; "
                f"a merge of split results needs {limit} for each of them."
            )
    return found


def of_output(evidence):
    """The output's numbers are those that launches stored, or were made of these in sight."""
    if not evidence["launches"] or evidence["faults"]:  # where we lost the thread, nobody is accused
        return []
    found = [f"A tensor was changed behind the grader's back (seen at line {line})." for line in evidence["behind"]]
    for labels in evidence["outputs"][:1]:
        if "?" in labels:
            found.append("The output holds numbers whose origin nobody saw: neither a launch nor PyTorch made them.")
        elif "kernel" not in labels and labels:
            found.append(f"The output is made of {' and '.join(labels)}; no launch stored it.")
        elif not labels:
            found.append("The output holds constants; no launch stored it.")
    return found


def met_too_little(case, placed, trace, evidence):
    """The launches multiplied queries with keys for what the mask shows: by their number, or else by what they met."""
    pairs = visible_pairs(case)
    flops = sum(total["dot_flops"] for total in trace["totals"].values())
    needed = pairs * case.D
    if flops >= 4 * needed or evidence["products"] >= needed or suffices(case, placed, trace["visits"]):
        return []
    return [
        f"The launches do not account for the output: {flops} FLOPs in dots and {evidence['products']} products, where "
        f"{pairs} visible pairs of a query and a key need {4 * needed}; whatever was stored was computed elsewhere."
    ]


def visible_pairs(case):
    mask = case.visibility.mask(torch.arange(case.N), torch.arange(case.num_keys))
    return int(mask.sum()) * case.B * case.Hq


def suffices(case, placed, visits):
    """True where attention over what the launches met is the right output: a tile of queries meets tiles of keys.

    A kernel that forgets the last keys is right where these weigh nothing, or where all values are nearly the same;
    nobody computed its output elsewhere.
    """
    visible = case.visibility.mask(torch.arange(case.N), torch.arange(case.num_keys))
    met = torch.zeros(case.B, case.Hq, *visible.shape, dtype=torch.bool)
    for record in visits:
        first, last = record["q"]
        for start, end in record["tiles"]:
            met[record["batch"], record["head"], first : last + 1, start : end + 1] = True
    if not bool((visible & ~met).any()):
        return True
    expected = answers.to(case, placed)
    q, k, v = (each.tensor for each in placed)
    o, _, _ = oracle.attention(q, k, v, lambda rows, _: (visible & met)[:, :, rows], case.scale)
    # The kernel is allowed its distance from what it met, and was within it of all that is visible.
    return bool(((o - expected.o).abs() <= 2 * expected.allowed_o).all())


def at(problem, op):
    return f"({problem.module}:{op['line']})" if op["line"] else "(in what it imports)"


def held(evidence):
    """(outcome, sentence, facts) of a result that an instructor must look at."""
    more = f" And {len(evidence) - 1} more sign{'s' * (len(evidence) > 2)}." if len(evidence) > 1 else ""
    return Outcome.HELD, f"Held for the instructor: {evidence[0]}{more}", {"evidence": evidence}


def worth_judging(outcome, reply):
    """A wrong result is a mistake and gets its diagnosis; what must be looked at is what would otherwise pass, and what
    no mistake explains.
    """
    no_mistake = reply.get("replaced") or own_class(reply)
    return outcome in (Outcome.PASSED, Outcome.WASTEFUL) or bool(no_mistake) or nothing_launched(reply)


def nothing_launched(reply):
    return bool(reply.get("evidence")) and not reply["evidence"]["launches"]


def of_timing(arm):
    """The evidence of a submission that was timed (speed.ChildArm)."""
    found = replaced({"replaced": arm.replaced})
    if arm.stale:
        found.append("While it was timed it returned what the same inputs, at other addresses, do not give.")
    return found


# Asking again --------------------------------------------------------------------------------------------------------


class Again:
    """Which case of a problem is asked again with other values, and which without launches: drawn anew each time.

    Without launches only on a GPU: in the interpreter the trace knows what each of them stored. A case that does not
    pass is not asked; then one that is still to come is drawn in its place.
    """

    def __init__(self, problem, cases, device):
        cheap = [c.name for c in sorted(cases, key=size)[: max(2, len(cases) // 2)] if c.attends and c.N > 2]
        self.left = [c.name for c in cases if c.name in cheap] if problem.id in PROBLEMS else []
        self.values = self.draw()
        self.without = self.draw() if problem.uses_triton and device == "cuda" else None

    def draw(self):
        return secrets.choice(self.left) if self.left else None

    def graded(self, name, passed):
        """A case was graded: asked, where it was drawn and passed."""
        self.left = [other for other in self.left if other != name]
        if name == self.values:
            self.values = None if passed else self.draw()
        if name == self.without:
            self.without = None if passed else self.draw()

    @staticmethod
    def seed():
        return secrets.randbelow(OTHER_INPUTS)


def size(case):
    return case.B * case.Hq * case.N * case.num_keys * case.D


def of_other_values(outcome, same_bits, first, second):
    """(outcome, sentence, facts) where a case that passed was asked again with other values, else None.

    same_bits: the output is the one of before; where that is right again (values near a large number, rounded to it),
    it says nothing. first, second: the evidence of the two calls.
    """
    right = outcome in (Outcome.PASSED, Outcome.WASTEFUL)
    if same_bits and not right:
        return held(["Asked again with other inputs of the same shape, it returned the output of before, bit by bit."])
    before, after = first.get("foreign", []), second.get("foreign", [])
    if changed := [entry for entry in after if entry[:2] in [e[:2] for e in before] and entry not in before]:
        kernel, argument, _ = changed[0]
        return held([
            f"{kernel} loads {argument}, which follows the inputs though neither a launch nor PyTorch made it of them."
        ])  # fmt: skip
    if not right:
        return (
            Outcome.WRONG,
            "Right at first, it is wrong when it is called again with other inputs of the same shape: does something "
            "live on from one call to the next, or does it know this case's numbers?",
            {},
        )
    return None


def of_no_launches(outcome):
    """The verdict where a case was asked with its launches left out: an output that is right needed none of them."""
    if outcome is Outcome.PASSED:
        return held(["With its launches left out, the output is right all the same: no kernel computed it."])
    return None
