"""In the runner, interpreted: Triton's interpreter patched to compute what compiled Triton computes, and tried.

The patches lie in modules of their own. Two small kernels run at start-up: in a triton where a patch does not take
hold, or which cannot be watched, the grader says so instead of judging; it is never a wrong verdict.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime import autotuner, interpreter

from grader.core.interpret import bfloat16, blocks, speedups
from grader.core.interpret.patches import ADVICE, Incompatible, replace


def enable() -> None:
    """Put the patches in place; raises Incompatible, with a sentence, where they do not fit this triton."""
    index_with_scalars()
    for module in (speedups, bfloat16, blocks):
        module.enable()
    check_results()


def index_with_scalars() -> None:
    """Let a scalar of the interpreter be a loop bound under numpy 2.5, which no longer makes an int of a 1-D array.

    triton 3.7 does this by itself; course images hold 3.6.
    """

    def patched(patch_tensor: Callable[..., None]) -> Callable[..., None]:
        def patch(tensor: Any, *scope: Any) -> None:
            patch_tensor(tensor, *scope)
            tensor.__index__ = lambda self: int(self.handle.data.squeeze())

        return patch

    replace(interpreter, "_patch_lang_tensor", patched)


def take_first_config() -> None:
    """Let triton.autotune take the first of its configs: there is nothing to time, and no driver to time it with."""
    every_config_is_alike = property(lambda tuner: lambda kernel_call, quantiles=None: [1.0, 1.0, 1.0])
    replace(autotuner.Autotuner, "do_bench", lambda old: every_config_is_alike)


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
