"""In the runner, interpreted: Triton's interpreter patched to compute what compiled Triton computes, and tried.

The patches lie in modules of their own. Two small kernels run at start-up: in a triton where a patch does not take
hold, or which cannot be watched, the grader says so instead of judging; it is never a wrong verdict.
"""

import warnings

import torch
import triton
import triton.language as tl

from grader.core.interpret import bfloat16, blocks, speedups
from grader.core.interpret.patches import ADVICE, Incompatible


def enable(fast: bool = True) -> None:
    """Put the patches in place; raises Incompatible, with a sentence, where they do not fit this triton."""
    for module in (speedups, bfloat16, blocks) if fast else (bfloat16, blocks):
        module.enable()
    check_results()


@triton.jit
def results_kernel(X, O):  # type: ignore[no-untyped-def]  # Triton reads annotations
    """Writes [x + x / 256 + x / 256, the same summed in a tree, max(x, 2), x where 0 < x and not x > 3] for each x."""
    i = tl.arange(0, 4)
    x = tl.load(X + i)
    small = tl.load(X + 4 + i)
    tl.store(O + i, x + small + small)
    tl.store(O + 4 + i, tl.sum(tl.join(x, small), 1))
    tl.store(O + 8 + i, max(x, 2.0))
    tl.store(O + 12 + i, tl.where((x > 0.0) and not (x > 3.0), x, 0.0))


def check_results() -> None:
    """Raise Incompatible where one of the patches does not take hold."""
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
            results_kernel[(1,)](torch.cat([x, small]), out)
    except Exception as error:
        raise Incompatible(f"A kernel fails in triton {triton.__version__}: {error}. {ADVICE}") from error
    pairs = zip(wanted.items(), out.view(4, 4), strict=True)
    wrong = [name for (name, want), got in pairs if not torch.equal(got, want)]
    if wrong:
        raise Incompatible(f"triton {triton.__version__}'s interpreter has its own {' and '.join(wrong)}. {ADVICE}")
