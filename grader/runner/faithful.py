"""In the runner, interpreted: Triton's interpreter mended to compute what compiled Triton computes, and proved to.

The patches lie in modules of their own. One small kernel runs at start-up through all of them: in a triton where one
does not take hold, the grader says so instead of judging.
"""

import warnings

import faithful_bfloat16
import faithful_blocks
import fast as fast_interpreter
import torch
import triton
import triton.language as tl
from mending import ADVICE, Incompatible


def enable(fast=True, bfloat16=True, blocks=True):
    """Put the patches in place; raises Incompatible, with a sentence, where they do not fit this triton."""
    for wanted, module in ((fast, fast_interpreter), (bfloat16, faithful_bfloat16), (blocks, faithful_blocks)):
        if wanted:
            module.enable()
    if bfloat16 and blocks:
        prove()


@triton.jit
def proof(X, O):
    """Writes [x + x / 256 + x / 256, the same summed in a tree, max(x, 2), x where 0 < x and not x > 3] for each x."""
    i = tl.arange(0, 4)
    x = tl.load(X + i)
    small = tl.load(X + 4 + i)
    tl.store(O + i, x + small + small)
    tl.store(O + 4 + i, tl.sum(tl.join(x, small), 1))
    tl.store(O + 8 + i, max(x, 2.0))
    tl.store(O + 12 + i, tl.where((x > 0.0) and not (x > 3.0), x, 0.0))


def prove():
    x = torch.tensor([1.0, -1.0, 3.0, 5.0], dtype=torch.bfloat16)
    small, nothing = x / 256, torch.zeros_like(x)
    out = torch.empty(16, dtype=torch.bfloat16)
    wanted = {
        "sums of bfloat16": x + small + small,
        "tl.sum of bfloat16": x + small,
        "max of blocks": x.clamp(min=2.0),
        "`and` and `not` of blocks": torch.where((x > 0) & (x <= 3), x, nothing),
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # triton would have `max` written as tl.maximum
            proof[(1,)](torch.cat([x, small]), out)
    except Exception as error:
        raise Incompatible(f"A kernel fails in triton {triton.__version__}: {error}. {ADVICE}") from error
    pairs = zip(wanted.items(), out.view(4, 4), strict=True)
    wrong = [name for (name, want), got in pairs if not torch.equal(got, want)]
    if wrong:
        raise Incompatible(f"triton {triton.__version__}'s interpreter has its own {' and '.join(wrong)}. {ADVICE}")
