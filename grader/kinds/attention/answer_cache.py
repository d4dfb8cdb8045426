"""The oracle's answer to a case, once for all submissions: what is kept here, the forks of a lane have too."""

import dataclasses

from grader.core.sandbox import kept
from grader.engine import values
from grader.kinds.attention import inputs, oracle
from grader.kinds.attention.case import Case

# By case and digest of its inputs; some 250 MB for the cases of all problems.
KEPT: dict[tuple[Case, bytes], oracle.Expected] = {}


def to(case, placed):
    """The Expected of `case` on the inputs `placed`, computed on the CPU; the one that is kept, where there is one."""
    return KEPT.get(key_of(case, placed)) or work_out(case, placed)


def expect(problem, case, placed, device):
    """The oracle's answer; a GPU computes it where its products have tf32's bits, or the CPU has no answer yet."""
    if device == "cpu" or not (case.gpu or case.dtype == "float32"):
        return to(case, placed)
    q, k, v = (each.tensor.to(device) for each in placed)
    answer = oracle.expect(q, k, v, case.visibility, problem.uses_triton, case.scale)
    tensors = (answer.o, answer.lse, answer.allowed_o, answer.allowed_lse)
    return oracle.Expected(*(t.cpu() for t in tensors), answer.relative)


def keep(cases, seed):
    """Work out the answers to these cases and keep them."""
    for case in cases:
        placed = inputs.make(case, seed)
        KEPT[key_of(case, placed)] = work_out(case, placed)


def work_out(case, placed):
    """The Expected, which may be kept from another call of the student's."""
    q, k, v = (each.tensor for each in placed)

    def parts():
        return dataclasses.astuple(oracle.expect(q, k, v, case.visibility, scale=case.scale))

    return oracle.Expected(*kept.kept(parts, "attention", *key_of(case, placed)))


def key_of(case, placed):
    return case, values.digest(placed)
