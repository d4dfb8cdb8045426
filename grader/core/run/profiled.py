"""`profiled.py FOLDER`: Nsight Compute looks into one run of the recorded program there, after some that warm up.

FOLDER has request.json, a messages.Profile, program.json, texts.json and inputs.bin; reply.json gets the reply.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grader.core.protocol.messages import Profile, Profiled
    from grader.core.protocol.program import Program
    from grader.core.run.runner import Runner

WARM_UP = 5  # calls: the first compiles, or tunes; then the clocks rise
REPLY = "reply.json"


def main(folder: str) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    import msgspec

    from grader.core.protocol.messages import Profile
    from grader.core.run import runner

    os.chdir(folder)
    request = msgspec.json.decode(Path("request.json").read_bytes(), type=Profile)
    sys.path[1:1] = request.setup.sys_path
    runner.get_ready("cuda")
    reply = runner.answering(profile)(runner.begin(request.setup), request)
    Path(REPLY).write_bytes(msgspec.json.encode(reply))


def profile(runner: "Runner", request: "Profile", program: "Program") -> "Profiled":
    """Run the program on the request's inputs, the last time between the profiler's start and stop."""
    import torch

    from grader.core.protocol.messages import Profiled
    from grader.core.run.replay import Replay, place_inputs, tune
    from grader.core.run.runner import read_inputs

    flats, _ = place_inputs(request.call.inputs, read_inputs(), "cuda")
    replay = Replay(program, "cuda", runner.compiled(program).launch, tune)
    with torch.no_grad():
        for _ in range(WARM_UP):
            replay.run(flats)
            torch.cuda.synchronize()
        replay.begin(flats)
        torch.cuda.profiler.start()
        replay.call()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    return Profiled(sorted({kernel.name for kernel in program.kernels}))


if __name__ == "__main__":
    main(sys.argv[1])
