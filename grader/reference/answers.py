"""The oracle's answer to a case, once for all who are asked it: what is kept here, the forks of a lane have too."""

import hashlib

import torch

from grader.course import drawn, inputs
from grader.reference import oracle

KEPT = {}  # {(case, digest of its inputs): Expected}; small cases only, some 30 MB in all


def to(case, placed):
    """The Expected of `case` on the inputs `placed`, computed on the CPU; the one that is kept, where there is one."""
    return KEPT.get(key_of(case, placed)) or work_out(case, placed)


def keep(problem, seed):
    """Work out the answers to the cases of a problem and keep them."""
    for case in drawn.every(problem, seed):
        if case.attends and not case.gpu:
            placed = inputs.make(case, seed)
            KEPT[key_of(case, placed)] = work_out(case, placed)


def work_out(case, placed):
    q, k, v = (each.tensor for each in placed)
    return oracle.expect(q, k, v, case.visibility, scale=case.scale)


def key_of(case, placed):
    digest = hashlib.sha256()
    for each in placed:
        digest.update(each.base.view(torch.uint8).numpy())
    return case, digest.digest()
