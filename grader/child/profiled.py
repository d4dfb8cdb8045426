"""The program that Nsight Compute looks into: one submission called a few times, and once more to be profiled.

Started as `python -I -B -u profiled.py REQUEST`: a file of JSON in a scratch folder that also holds the inputs' bytes.
How it went stands in status.json there: what a submission prints may be anything.
"""

import contextlib
import json
import os
import sys

WARM_UP = 5  # calls: the first compiles, or tunes; then the clocks rise


def main(request):
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, here)
    import allocations  # noqa: F401  worker.py needs it later, when this folder is out of sight
    import worker

    os.chdir(request["folder"])
    sys.path[:] = [*request["sys_path"], os.path.dirname(request["module"])]
    try:
        profile(worker, request)
        note(status="returned")
    except BaseException as error:
        note(status="raised", **worker.describe(error, request["module"]))


def note(**message):
    """Add to what status.json says."""
    with contextlib.suppress(FileNotFoundError), open("status.json") as file:
        message = {**json.load(file), **message}
    with open("status.json", "w") as file:
        json.dump(message, file)


def profile(worker, request):
    """Call the entry point on the request's inputs, the last time between the profiler's start and stop."""
    import torch

    function = worker.load(request["module"], request["entry_point"], request["arguments"])
    _, tensors = worker.read_inputs(request["inputs"], "cuda")

    def call():
        function(*tensors, **request["arguments"])
        torch.cuda.synchronize()

    with torch.no_grad():
        for _ in range(WARM_UP):
            call()
        note(status="profiling", warm=True)  # from here on, a failure may be the profiler's own
        torch.cuda.profiler.start()
        call()
        torch.cuda.profiler.stop()


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        main(json.load(file))
