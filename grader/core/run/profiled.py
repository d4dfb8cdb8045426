"""What Nsight Compute looks into: a recorded program run a few times, and once more to be profiled.

Started as `python -I -B -u profiled.py REQUEST`: a Profile as JSON in a scratch folder, which also holds program.json,
texts.json and inputs.bin. reply.json there gets the reply; the file WARM is there once the program has run without the
profiler. No Python of a submission runs.
"""

import os
import sys

WARM_UP = 5  # calls: the first compiles, or tunes; then the clocks rise
WARM, REPLY = "warm", "reply.json"


def main(path):
    sys.path.insert(0, os.path.abspath(os.path.join(__file__, *[os.pardir] * 4)))
    import msgspec

    from grader.core.protocol.messages import Profile
    from grader.core.run import role

    with open(path, "rb") as file:
        request = msgspec.json.decode(file.read(), type=Profile)
    sys.path[1:1] = request.setup.sys_path
    os.chdir(request.setup.folder)
    role.get_ready("cuda")
    reply = role.answering(profile)(role.begin(request.setup), request)
    with open(REPLY, "wb") as file:
        file.write(msgspec.json.encode(reply))


def profile(runner, request, program):
    """Run the program on the request's inputs, the last time between the profiler's start and stop."""
    import torch

    from grader.core.protocol.messages import Profiled
    from grader.core.run.allocations import INPUT_POISON
    from grader.core.run.replay import Replay, launch, place_inputs, tune
    from grader.core.run.role import read_inputs

    places, _, _ = place_inputs(request.call.inputs, read_inputs(), "cuda", INPUT_POISON)
    replay = Replay(program, runner.make_kernels(program), "cuda", launch, tune)
    with torch.no_grad():
        for _ in range(WARM_UP):
            replay.run(places)
            torch.cuda.synchronize()
        open(WARM, "w").close()  # from here on, a failure may be the profiler's own
        replay.begin(places)
        torch.cuda.profiler.start()
        replay.call()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    return Profiled(sorted({kernel.name for kernel in program.kernels}), WARM_UP)


if __name__ == "__main__":
    main(sys.argv[1])
