"""A submission's program under Nsight Compute: started, watched, ended; what goes wrong becomes one sentence."""

import contextlib
import json
import re
import signal
import sys
import tempfile
from pathlib import Path

from grader.gpu import machine
from grader.gpu.profile import counters, ncu
from grader.gpu.profile.ncu import NcuFailed
from grader.processes import unfinished
from grader.processes.bubblewrap import outside_paths
from grader.processes.child import CannotStart, ChildFailed, TimedOut, TrustedChild
from grader.processes.submission import Submission

PROGRAM = Path(__file__).parents[2] / "runner" / "profiled.py"
SECONDS = 90.0  # to record
RUN_SECONDS = 300.0  # to compile, to warm up, and to replay each launch about ten times

FORBIDDEN = (
    "this machine keeps the GPU's performance counters for administrators (ERR_NVGPUCTRPERM): run this as root, in a "
    "container with --cap-add=SYS_ADMIN, or have the administrator load NVIDIA's driver with "
    "NVreg_RestrictProfilingToAdminUsers=0; https://developer.nvidia.com/ERR_NVGPUCTRPERM says how"
)


class Failed(Exception):
    """There is no profile; status: 1 where that is the submission's doing, 2 where it is not. printed: by it."""

    def __init__(self, text, status=2, printed=""):
        super().__init__(text)
        self.status, self.printed = status, printed


def profile(tool, problem, path, case, seed, handler):
    """(Launches of one call, ncu's table as text); raises Failed."""
    metrics = counters.metrics_for(case)
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        folder = Path(folder)
        recorded(problem, path, case, seed, handler, folder)
        said = attempt(tool, problem, path, folder, metrics)
        unknown = ncu.refused(said, metrics)
        if unknown and '"ID",' not in said:  # another GPU or another ncu: without these it is worth a second try
            said = attempt(tool, problem, path, folder, [name for name in metrics if name not in unknown])
        try:
            return ncu.read(said), said
        except NcuFailed as failure:
            raise Failed(f"Nsight Compute measured nothing: {failure}") from None


def recorded(problem, path, case, seed, handler, folder):
    """Record the submission, and write its program, the inputs and the request into the folder; raises Failed."""
    submission = Submission(path, problem, "cuda", SECONDS, machine.gpu_as_data())
    request, files = handler.request(problem, case, handler.inputs(case, seed), "cuda")
    lists, more = handler.beside(case)
    try:
        reply = submission.record(request | more, lists)
        printed = submission.take_printed()
    except ChildFailed as failure:
        raise Failed(f"crashed: {failure}", 1, failure.printed) from None
    finally:
        submission.close()
    if "program" not in reply:
        outcome, sentence, *_ = unfinished.explain_reply(reply, problem, path)
        raise Failed(f"{outcome.value}: {sentence}", 1, printed)
    setup = {"module": path.name, "problem": problem.id, "folder": str(folder), "sys_path": outside_paths()}
    setup["texts"] = submission.read_texts()
    for name, data in {**files, "program.json": reply["program"]}.items():
        (folder / name).write_bytes(data)
    (folder / "request.json").write_text(json.dumps(setup | {"inputs": request["inputs"]}))


def attempt(tool, problem, path, folder, metrics):
    """What ncu wrote, where the submission ran to its end or ncu is at fault; raises Failed for the rest."""
    log, status = folder / "ncu.log", folder / "status.json"
    for old in (log, status):
        old.unlink(missing_ok=True)
    program = [sys.executable, "-I", "-B", "-u", str(PROGRAM), str(folder / "request.json")]
    ending, printed = watch(ncu.command(tool, log, metrics, program))
    said = log.read_text(errors="replace") if log.exists() else ""
    if "ERR_NVGPUCTRPERM" in said:
        raise Failed(FORBIDDEN)
    if ending is None:
        sentence = f"stopped after {RUN_SECONDS:.0f} s; make grade times the same case without a profiler"
        raise Failed(sentence, 1, printed)
    reply = json.loads(status.read_text()) if status.exists() else {"status": "none"}
    if reply.get("warm") and reply["status"] != "returned" and ncu.fault(said):
        raise Failed(f"Nsight Compute failed: {ncu.fault(said)}")
    if reply["status"] not in ("returned", "profiling", "none"):
        outcome, sentence, *_ = unfinished.explain_reply(reply, problem, path)
        raise Failed(f"{outcome.value}: {sentence}", 1, printed)
    if reply["status"] != "returned" and "==PROF== Connected" in said:
        raise Failed(f"crashed: the process ended before its call did ({how(ending, said)})", 1, printed)
    if not said:
        words = printed.splitlines()[-1:] or [f"it ended with exit status {ending}"]
        raise Failed(f"Nsight Compute itself failed: {words[0][:300]}")
    return said


def watch(command):
    """(exit status, what was printed); None for the status where the time was over and it was ended."""
    try:
        child = TrustedChild(command, environment=ncu.environment(), replies=False)
    except CannotStart as error:
        raise Failed(f"{error}") from None
    with child:  # also where someone presses Ctrl-C: ncu and all that it started are one group
        try:
            ending = child.wait(RUN_SECONDS)
        except TimedOut:
            ending = None
        return ending, child.output.take()


def how(ending, said):
    """How the profiled process ended, as far as ncu's log or its exit status tells."""
    code = re.search(r"error code \((\d+)\)", said)
    number = int(code[1]) if code else abs(ending)
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"exit status {number}"
