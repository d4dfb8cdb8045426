"""NVIDIA Nsight Compute's command line, `ncu`: where it is, and how it looks into a program of ours."""

import glob
import re
import shutil
from pathlib import Path

from grader.core.sandbox import server
from grader.core.sandbox.child import CannotStart, ChildFailed, TimedOut, TrustedChild

# Where the CUDA toolkit and NVIDIA's packages put it; often none of these is on PATH.
PLACES = ("/usr/local/cuda/bin/ncu", "/usr/local/cuda-*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
LAUNCHES = 32  # are profiled at most: ncu replays each a few dozen times
SECONDS = 300.0  # to compile, to warm up, and to replay


class Failed(ChildFailed):
    """There is no profile. printed: by the profiled program."""

    def __init__(self, text: str, printed: str = ""):
        super().__init__(text)
        self.printed = printed


def find() -> str | None:
    """The path of ncu, or None where it is not installed."""
    installed = [path for place in PLACES for path in sorted(glob.glob(place), reverse=True)]
    return shutil.which("ncu") or next(iter(installed), None)


def look_into(tool: str, folder: Path, options: list[str], program: list[str]) -> tuple[str, str]:
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
    environment = server.environment("cuda") | {"LC_ALL": "C.UTF-8"}  # numbers with points
    try:
        with TrustedChild(command, environment=environment, replies=False) as child:  # with all that it starts
            child.wait(SECONDS)
    except CannotStart as error:
        raise Failed(str(error)) from None
    except TimedOut:
        raise Failed(f"stopped after {SECONDS:.0f} s", child.output.take()) from None
    return log.read_text("utf-8", "replace") if log.exists() else "", child.output.take()


def find_fault(said: str, printed: str) -> str:
    """ncu's first error or warning in its own words, or else the last line that the program printed."""
    words = re.findall(r"^==(?:ERROR|WARNING)== *(?!Note:)(\S.*\S)", said, re.MULTILINE) + printed.splitlines()[-1:]
    own = [line for line in words if "application returned an error code" not in line]  # that is none of ncu's
    return [*own, *words, "it said nothing"][0][:300]
