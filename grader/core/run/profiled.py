"""What Nsight Compute looks into: a recorded program run a few times, and once more to be profiled.

Started as `python -I -B -u profiled.py REQUEST`: a file of JSON in a scratch folder that also holds program.json and
the inputs' bytes. How it went stands in status.json there. No Python of a submission runs.
"""

import contextlib
import json
import os
import sys

WARM_UP = 5  # calls: the first compiles, or tunes; then the clocks rise


def main(request):
    root = os.path.abspath(os.path.join(__file__, *[os.pardir] * 4))
    sys.path[:0] = [root, *request["sys_path"]]
    from grader.core.run import role

    os.chdir(request["folder"])
    role.get_ready("cuda")
    runner = role.begin({"device": "cuda"})
    note(**role.answering(profile)(runner, request))


def note(**message):
    """Add to what status.json says."""
    with contextlib.suppress(FileNotFoundError), open("status.json") as file:
        message = {**json.load(file), **message}
    with open("status.json", "w") as file:
        json.dump(message, file)


def profile(runner, request, program):
    """Run the program on the request's inputs, the last time between the profiler's start and stop."""
    import torch

    from grader.core.run.allocations import INPUT_POISON
    from grader.core.run.replay import Replay, launch, place_inputs, tune

    with open("inputs.bin", "rb") as file:
        places, _, _ = place_inputs(request["inputs"], bytearray(file.read()), "cuda", INPUT_POISON)
    replay = Replay(program, runner.make_kernels(program), "cuda", launch, tune)
    with torch.no_grad():
        for _ in range(WARM_UP):
            replay.run(places)
            torch.cuda.synchronize()
        note(status="profiling", warm=True)  # from here on, a failure may be the profiler's own
        replay.begin(places)
        torch.cuda.profiler.start()
        replay.call()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    return {"status": "returned", "kernels": sorted({kernel.name for kernel in program.kernels}), "warm_up": WARM_UP}


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        main(json.load(file))
