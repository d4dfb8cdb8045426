"""`profiled.py FOLDER`: Nsight Compute looks into one run of the recorded program there, after some that warm up."""

import json
import os
import sys
from pathlib import Path

WARM_UP = 5  # calls: the first compiles, or tunes; then the clocks rise


def main(folder: str) -> None:
    os.chdir(folder)
    request = json.loads(Path("request.json").read_text())
    sys.path[:0] = request["sys_path"]
    import role

    role.get_ready("cuda")
    reply = role.answering(profile)(role.begin({"device": "cuda"}), request)
    Path("status.json").write_text(json.dumps(reply))


def profile(runner, request, program):
    """Run the program on the request's inputs, the last time between the profiler's start and stop."""
    import torch
    from allocations import INPUT_POISON
    from replay import Replay, launch, place_inputs, tune

    data = bytearray(Path("inputs.bin").read_bytes())
    places, _, _ = place_inputs(request["inputs"], data, "cuda", INPUT_POISON)
    replay = Replay(program, runner.make_kernels(program), "cuda", launch, tune)
    with torch.no_grad():
        for _ in range(WARM_UP):
            replay.run(places)
            torch.cuda.synchronize()
        replay.begin(places)
        torch.cuda.profiler.start()
        replay.call()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    return {"status": "returned", "kernels": sorted({kernel.name for kernel in program.kernels})}


if __name__ == "__main__":
    main(sys.argv[1])
