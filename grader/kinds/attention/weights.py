"""The weights that a kernel gives, measured from outside: where V is columns of the identity, the output is they.

With V[j] = e_j, o[i, j] is the weight of key j for query i, with every rescale and division in it. Where there are more
keys than D, it takes ceil(Nk / D) calls. It asks nothing of the source, needs no trace, and works on a GPU, too.
"""

from dataclasses import dataclass, replace

import torch

from grader.core.protocol.messages import Outputs, RunSets
from grader.course import tensors
from grader.kinds.attention import inputs
from grader.kinds.attention.case import Case

MOST_CALLS = 6  # of one batch of weights: for longer rows the head dim is 128
MOST_TOKENS = 400


@dataclass
class Weights:
    """What was measured on tensors of a case's shape, in float64; NaN and inf as they came.

    case: in the dtype that was asked. q, k: the case's own. equal, own: (B, Hq, N, Nk), the weights where q = 0, and
    those of q and k. whose: (B, Hq, N, D), the output where q = 0 and V is 1 + the number of its (batch, kv head).
    without_v: the output where q = 0 and V = 0.
    """

    case: Case
    q: torch.Tensor
    k: torch.Tensor
    equal: torch.Tensor
    own: torch.Tensor
    whose: torch.Tensor
    without_v: torch.Tensor


def measure(kind, submission, case, seed, dtype="float32"):
    """The Weights of a submission on a case's shape, or None where it returns something else."""
    case = replace(case, dtype=dtype)
    if max(case.N, case.num_keys) > MOST_TOKENS:
        return None
    if case.num_keys > MOST_CALLS * case.D:
        case = replace(case, D=128)
    q, k, v = (placed.tensor for placed in inputs.make(case, seed))
    nothing, columns = torch.zeros_like(q), identities(v)
    numbers = 1.0 + torch.arange(v.shape[0] * v.shape[1]).view(*v.shape[:2], 1, 1)
    sets = [(nothing, k, each) for each in (torch.zeros_like(v), numbers.expand_as(v).to(v.dtype), *columns)]
    outputs = run_sets(kind, submission, case, sets + [(q, k, each) for each in columns])
    if outputs is None:
        return None
    without_v, whose, *rest = outputs
    equal, own = (torch.cat(part, -1)[..., : case.num_keys] for part in (rest[: len(columns)], rest[len(columns) :]))
    return Weights(case, q, k, equal, own, whose, without_v)


def identities(v):
    """V as columns of the identity, D keys at a time: together each key has a column."""
    keys, width = v.shape[2:]
    found = []
    for start in range(0, keys, width):
        columns = torch.zeros_like(v)
        count = min(width, keys - start)
        columns[:, :, start : start + count, :count] = torch.eye(count, dtype=v.dtype)
        found.append(columns)
    return found


def run_sets(kind, submission, case, sets, output=0):
    """[o], or another output, in float64 for each (q, k, v); None where there are no outputs of its shape."""
    placed = [
        [inputs.place(values, case.layout, name) for name, values in zip("qkv", each, strict=True)] for each in sets
    ]
    return run_placed(kind, submission, case, placed, output)


def run_placed(kind, submission, case, placed, output):
    """The same of tensors of any kind, Placed."""
    asked = [kind.request(submission.problem, case, each, submission.device) for each in placed]
    data = b"".join(files["inputs.bin"] for _, files in asked)
    request = RunSets(asked[0][0], len(placed))
    reply = submission.run(request, {"inputs.bin": data}, kind.beside(case)).reply
    outputs = kind.outputs(submission.problem, case)
    if not isinstance(reply, Outputs) or len(reply.outputs) != len(outputs) * len(placed):
        return None
    if not all(form.plain for form in reply.outputs):
        return None
    found = tensors.read_outputs(submission.take_outputs(reply), reply.outputs)[output :: len(outputs)]
    _, shape, _ = outputs[output]
    return None if any(tuple(each.shape) != shape for each in found) else [each.double() for each in found]


def scores(weights, batch, head, k_batch, k_head, q_head=None):
    """q k^T times the scale in float64, (N, Nk), of these heads."""
    q = weights.q[batch, head if q_head is None else q_head].double()
    return q @ weights.k[k_batch, k_head].double().T * weights.case.scale


def masks(case):
    """Booleans (B, Hq, N, Nk): which keys each query of each head sees."""
    every = [[case.seen_at(b, h).mask(*case.positions) for h in range(case.Hq)] for b in range(case.B)]
    return torch.stack([torch.stack(heads) for heads in every])
