"""Run with TRITON_INTERPRET=1: merge_kernel beside the same by PyTorch; {what: how far it is off} as JSON."""

import json
import math
from itertools import product

import torch

from kernels.fast_decode import merge_kernel
from kernels.tests.test_fast_decode import merge

torch.manual_seed(0)
wrong, (Hq, Nq, D, piece, run) = {}, (1, 2, 64, 16, 4)
lengths = torch.tensor([190, 64, 3, 0], dtype=torch.int32)
for span, window, sinks in product((16, 64), (190, 40), (None, 0.0, -math.inf)):
    slots = 192 // span
    part_o, pivots = torch.randn(4, Hq, Nq, slots, D), torch.randn(4, Hq, Nq, slots) * 4
    part_sums = torch.stack([pivots, torch.rand(pivots.shape) + 1], -1)
    part_sums[:, 0, 0, 0] = torch.tensor([-3.4028234663852886e38, 0.0])  # a row that sees no key of a part
    part_o[:, 0, 0, 0] = 0.0
    logits = None if sinks is None else torch.randn(Hq) + sinks
    got, right = torch.full((4, Hq, Nq, D), math.nan), torch.full((4, Hq, Nq, D), math.nan)
    sizes = Hq, Nq, window, slots, D, piece, span, run
    merge_kernel[(4 * Hq * Nq, D // 32)](part_o, part_sums, logits, lengths, got, *sizes, 2, 32)
    merge(part_o, part_sums, logits, lengths, right, *sizes)
    off = float((got - right).abs().max())
    if not off < 1e-5:
        wrong[f"{span}, {window}, {sinks}"] = off
print(json.dumps(wrong))
