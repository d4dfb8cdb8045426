"""In the runner: how one kernel is launched, and which of several configurations."""

import sys


def launch(kernel, grid, args, options):
    """Run one kernel: in the interpreter its options mean nothing, and its addresses must be those of a trace."""
    interpreted = type(kernel).__name__ == "InterpretedFunction"
    if interpreted and not sys.modules["trace"].is_open():
        raise RuntimeError("a kernel was to be interpreted without a trace")
    kernel.run(grid=grid, warmup=False, **args, **({} if interpreted else options))


def tune(choices, run):
    """On a GPU: the configuration that is fastest, of those that run."""
    import torch

    times, failure = {}, None
    for i in range(len(choices)):
        try:
            run(i)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            samples = []
            for _ in range(5):
                start.record()
                run(i)
                end.record()
                end.synchronize()
                samples.append(start.elapsed_time(end))
            times[i] = min(samples)
        except Exception as error:
            if type(error.__cause__).__name__ not in ("OutOfResources", "CompileTimeAssertionFailure", "PTXASError"):
                raise
            failure = error
    if not times:
        raise failure
    return min(times, key=times.get)
