"""Case and seed -> do, q, k, v, o and lse: values, and how they lie in memory."""

import torch

from grader.course.tensors import Placed, place
from grader.engine.values import frame
from grader.engine.values import generator as generator_of
from grader.kinds.attention import inputs, oracle

POISON = 1e4  # an lse that makes every probability 0
MIXED = {"do": "tokens first", "q": "contiguous", "k": "interleaved", "v": "tokens first", "o": "slice"}


def make(case, seed):
    """The tensors of a call as Placed, on the CPU; the same case and seed always give the same numbers."""
    generator = generator_of(case, seed)
    dtype = getattr(torch, case.dtype)
    q, k, v = (values.to(dtype) for values in inputs.VALUES[case.values](case, generator))
    do = torch.randn(q.shape, generator=generator).to(dtype)
    if case.gradient == "expanded":
        do = do[:1, :1, :1].expand(q.shape)
    o, lse, _ = oracle.attention(q, k, v, case.visibility.mask)
    tensors = {"do": do, "q": q, "k": k, "v": v, "o": o.to(dtype)}
    placed = [lay_out(case, name, values) for name, values in tensors.items()]
    return (*placed, lay_out_lse(case, lse.float()))


def lay_out(case, name, values):
    if name == "do" and case.gradient == "expanded":
        return Placed(values[0, 0, 0].contiguous(), tuple(values.shape), (0, 0, 0, 1))
    return inputs.place(values, MIXED[name] if case.layout == "mixed" else case.layout, name)


def lay_out_lse(case, lse):
    """lse (B, Hq, N), dense or a slice of a larger buffer; its last stride is 1."""
    if case.layout not in ("slice", "mixed"):
        return place(lse)
    B, H, N = lse.shape
    return frame(lse, POISON, (B + 1, H + 1, N + 5), lambda t: t[1:, 1:, 3 : 3 + N])
