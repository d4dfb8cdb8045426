"""NVIDIA Nsight Compute's command line, `ncu`: where it is, and how it looks into a program of ours."""

import glob
import re
import shutil

from grader.core.sandbox import sandbox_process
from grader.core.sandbox.child import CannotStart, TimedOut, TrustedChild

# Where the CUDA toolkit and NVIDIA's packages put it; often none of these is on PATH.
PLACES = ("/usr/local/cuda/bin/ncu", "/usr/local/cuda-*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
LAUNCHES = 32  # are profiled at most: ncu replays each a few dozen times
SECONDS = 300.0  # to compile, to warm up, and to replay
FORBIDDEN = (
    "this machine keeps the GPU's performance counters for administrators (ERR_NVGPUCTRPERM): run this as root, in a "
    "container with --cap-add=SYS_ADMIN, or have the administrator load NVIDIA's driver with "
    "NVreg_RestrictProfilingToAdminUsers=0; https://developer.nvidia.com/ERR_NVGPUCTRPERM says how"
)


class Failed(Exception):
    """There is no profile. status: 1 where the profiled program is the cause, else 2. printed: by that program."""

    def __init__(self, text, status=2, printed=""):
        super().__init__(text)
        self.status, self.printed = status, printed


def find():
    """The path of ncu, or None where it is not installed."""
    installed = [path for place in PLACES for path in sorted(glob.glob(place), reverse=True)]
    return shutil.which("ncu") or (installed or [None])[0]


def look_into(tool, folder, options, program):
    """(what ncu said, what was printed) of `program` under ncu, however it ended; raises Failed where it did not.

    ncu looks between the program's cudaProfilerStart and cudaProfilerStop, and into none of its children. The clocks
    stay as they are, and caches are cold before each replay, as before each sample of grader/gpu/timing.py.
    """
    log = folder / "ncu.log"
    log.unlink(missing_ok=True)
    command = [
        tool, "--clock-control", "none", "--cache-control", "all", "--target-processes", "application-only",
        "--profile-from-start", "off", "--launch-count", str(LAUNCHES), "--log-file", str(log), *options, *program,
    ]  # fmt: skip
    environment = sandbox_process.environment("cuda") | {"LC_ALL": "C.UTF-8"}  # numbers with points
    try:
        with TrustedChild(command, environment=environment, replies=False) as child:  # with all that it starts
            child.wait(SECONDS)
    except CannotStart as error:
        raise Failed(str(error)) from None
    except TimedOut:
        sentence = f"stopped after {SECONDS:.0f} s; make grade times the same case without a profiler"
        raise Failed(sentence, 1, child.output.take()) from None
    said, printed = log.read_text(errors="replace") if log.exists() else "", child.output.take()
    if "ERR_NVGPUCTRPERM" in said:
        raise Failed(FORBIDDEN)
    return said, printed


def find_fault(said):
    """ncu's first error in its own words, or None; that the program failed is none of ncu's."""
    errors = re.findall(r"^==ERROR== *(.*\S)", said, re.MULTILINE)
    return next((words[:300] for words in errors if "application returned an error code" not in words), None)
