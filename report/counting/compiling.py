"""Kernels of this repository compiled for a GPU that need not be here, by the grader's own compiling runner.

Import it where TRITON_INTERPRET is not set.
"""

import contextlib
from functools import partial
from unittest.mock import patch

from grader.core.run import compiler
from grader.core.worker import without_gpu

get_ready = compiler.get_ready


@contextlib.contextmanager
def launches(gpu):
    """While open, each launch of a wrapper compiles its kernel for `gpu`, plain data, and runs nothing.

    Yields a Compiling of grader/core/run/compiler.py.
    """
    from triton.runtime.jit import JITFunction

    made, run = compiler.Compiling(gpu), JITFunction.run

    def compile_only(function, *args, grid, warmup, **named):
        made.compile(function.__name__, partial(run, function, *args, grid=grid, warmup=True, **named))

    with patch.object(JITFunction, "run", compile_only), without_gpu.pass_for(gpu):
        yield made
