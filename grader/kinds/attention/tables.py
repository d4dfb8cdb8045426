"""What `make try` shows of attention: scores, weights and output beside the right ones.

The weights are measured from outside: where V is columns of the identity, the output is they. Their logarithms are the
scores, but for one number a row.
"""

import math

import torch

from grader.engine.compare_values import off_by
from grader.engine.trying import Table, compare, number
from grader.kinds.attention import answer_cache, inputs
from grader.kinds.attention.weights import identities, masks

FOR_SCORES = 4  # times the error that a weight may have, relative to it: its logarithm is measured against others
OF_KEYS = {"row": "query", "column": "key", "axes": ("batch", "head")}
OF_OUTPUT = OF_KEYS | {"column": "column"}


def measure(call, problem, case, placed, returned, device):
    """[Table] of the scores, the weights and what was returned.

    call(q, k, v): the function. returned: its outputs for the case's own `placed`, on `device`.
    """
    answer = answer_cache.expect(problem, case, placed, device)
    shown = [compare("output", answer.o, answer.allowed_o, returned[0], **OF_OUTPUT)]
    if problem.returns_lse:
        lse, allowed = answer.lse[..., None], answer.allowed_lse[..., None]
        shown.append(compare("lse", lse, allowed, returned[1], **OF_OUTPUT | {"column": ""}))
    return [*weights_and_scores(call, problem, case, placed, device), *shown]


def weights_and_scores(call, problem, case, placed, device):
    q, k, v = placed
    parts = []
    for columns in identities(v.tensor):
        given = (q, k, inputs.place(columns, case.layout, "v"))
        out = call(*(each.tensor.to(device) for each in given))
        got = out[0] if isinstance(out, tuple | list) else out
        answer = answer_cache.expect(problem, case, given, device)
        parts.append((answer.o, got.detach().cpu().double(), answer.allowed_o))
    right, got, allowed = (torch.cat(part, -1)[..., : case.num_keys] for part in zip(*parts, strict=True))
    group = case.Hq // case.kv_heads
    scores = q.tensor.double() @ k.tensor.double().repeat_interleave(group, 1).mT * case.scale
    scores = scores.masked_fill(~masks(case), -math.inf)
    own = got.log()
    apart = (own - scores).masked_fill(~(own.isfinite() & scores.isfinite()), math.nan).nanmedian(-1, keepdim=True)
    own = own - apart.values.nan_to_num(0.0)
    near = off_by(own, scores) <= FOR_SCORES * answer.relative
    said = "scores (yours: the logarithms of your weights, shifted so that one key of each row agrees)"
    return [Table(said, scores, own, ~near, **OF_KEYS), compare("weights", right, allowed, got, **OF_KEYS)]


def advise(table, place, shown, visible):
    """What the first number that is off says beside itself; visible: (B, Hq, N, Nk), what the mask shows."""
    column = int(table.off[place].nonzero()[0])
    more = ""
    if table.column == "key":
        more = " (visible)" if visible[(*place, column)] else " (the mask hides this key)"
    if table.name.startswith("scores"):
        yours, right = float(table.got[place][column]), float(table.right[place][column])
        if math.isnan(yours):  # of every mask, a right one too
            more = "; your weight is NaN: where all keys so far are hidden, is it -inf - -inf, or 0 divided by 0?"
        elif math.isinf(yours) or math.isinf(right):
            more += "; your mask says otherwise"
        else:
            more += "; yours is the logarithm of your weight: your score is off, or something multiplies the weight"
    elif table.name == "weights":
        more += f"; the scores are right, and the weights of this row add up to {number(table.got[place].sum())}"
    elif table.name == "output" and not any(other.off[place].any() for other in shown if other.column == "key"):
        more = "; the weights of this row are right"
    return more
