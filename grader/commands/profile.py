"""The command behind `make profile`: Nsight Compute on one case of one submission, in Nsight Compute's own words."""

import argparse
import contextlib
import functools
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import torch

from grader import unfinished
from grader.commands.arguments import BadArguments
from grader.commands.make_request import add_arguments, name_file, run_one, unknown_case
from grader.core.protocol.messages import Profile, Profiled, RunnerReply
from grader.core.run.profiled import REPLY
from grader.core.sandbox import bubblewrap
from grader.core.sandbox.child import ChildFailed
from grader.core.sandbox.submission import Submission
from grader.core.sandbox.texts import clean
from grader.engine.request import Request
from grader.gpu import machine, ncu
from grader.gpu.speed import timed_case
from grader.render import terminal

SECTIONS = (
    "SpeedOfLight", "LaunchStats", "Occupancy", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "SchedulerStats",
    "WarpStateStats", "SourceCounters",
)  # fmt: skip
PROGRAM = Path(__file__).parents[1] / "core" / "run" / "profiled.py"
__all__ = ["add_arguments", "main"]


def main(arguments: argparse.Namespace) -> int:
    """Profile one problem's timed case, or the one that is named; raises BadArguments. Returns 1 without a profile."""
    return run_one(arguments, None, "make profile P=4", functools.partial(run, arguments.case))


def run(name: str | None, request: Request, folder: Path) -> int:
    (problem,), tool = request.problems, ncu.find()
    if not (problem.uses_triton and problem.speed_case):
        raise BadArguments("a profile is of P=3 or later, and of no lab: name it, like make profile P=4")
    cases = {case.name: case for case in (*problem.cases, problem.speed_case)}
    name = name or problem.speed_case.name
    if name not in cases:
        raise unknown_case(name, cases)
    if request.device != "cuda" or torch.version.hip or tool is None:
        raise BadArguments(
            f"a profile needs NVIDIA's GPU (here: {request.device}) and its `ncu`, of CUDA's toolkit or conda's "
            f'nsight-compute (here: {tool}); make grade P={problem.number} CASE="compiles" DEVICE=cpu needs neither'
        )
    case = timed_case(problem) if cases[name] is problem.speed_case else cases[name]
    report = folder / f"{name_file('profile', problem.id, name)}.ncu-rep"
    print(f'{problem.id} "{name}" ({case.describe(request.seed)}), {torch.cuda.get_device_properties(0).name}')
    try:
        print(clean(profile(problem, request.submission / problem.module, case, request.seed, tool, report)))
    except ChildFailed as failed:
        print(clean(f"no profile: {failed}"))
        terminal.show_printed(terminal.make_console(), failed.printed, terminal.PRINTED_LINES)
        return 1
    print(clean(f"report: {report}; `ncu-ui` opens it, also where no GPU is; `ncu --import {report}` prints it again"))
    return 0


def profile(problem, path: Path, case, seed: int, tool: str, report: Path) -> str:
    """ncu's words on the kernels, why warps wait last; the report has every launch. Raises ChildFailed."""
    options = ["--export", str(report), "--force-overwrite"]
    options += [word for name in SECTIONS for word in ("--section", name)]
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        record(problem, path, case, seed, Path(folder))
        program, place = [sys.executable, "-I", "-B", "-u", str(PROGRAM), folder], Path(folder, REPLY)
        said, printed = ncu.look_into(tool, Path(folder), options, program)
        reply = msgspec.json.decode(place.read_bytes(), type=RunnerReply) if place.exists() else None
    fault = f"Nsight Compute measured nothing: {ncu.find_fault(said, printed)}"
    if reply is not None and not isinstance(reply, Profiled):
        raise ncu.Failed(f"{explain(reply, problem, path)} ({fault})", printed)
    if reply is None or "==PROF== Report: " not in said:
        raise ncu.Failed(fault, printed)
    only, text = ["--kernel-name", f"regex:^({'|'.join(reply.kernels)})$", "--launch-count", "4"], ""
    for more in ([], ["--section", "WarpStateStats", "--print-details", "body"]):
        command = [tool, "--import", str(report), "--page", "details", *only, *more]
        text += subprocess.run(command, capture_output=True, text=True, errors="replace").stdout
    if "Section:" not in text:
        raise ncu.Failed("the call launches no kernel of its own")
    return text


def record(problem, path: Path, case, seed: int, folder: Path) -> None:
    """Write the program, and what its run needs, to the folder; raises ChildFailed where there is no program."""
    kind = problem.kind
    call, files = kind.request(problem, case, kind.inputs(case, seed), "cuda")
    with contextlib.closing(Submission(path, problem, "cuda", 90.0, machine.first_gpu())) as submission:
        recorded, printed = submission.record(call, kind.beside(case)), submission.take_printed()
        if not recorded.program:
            raise ncu.Failed(explain(recorded.reply, problem, path), printed)
        setup = submission.runner_setup()
        files |= {"texts.json": msgspec.json.encode(submission.read_texts()), "program.json": recorded.program}
    setup.sys_path = bubblewrap.outside_paths()
    for name, data in files.items() | {("request.json", msgspec.json.encode(Profile(setup, call)))}:
        (folder / name).write_bytes(data)


def explain(reply, problem, path: Path) -> str:
    verdict = unfinished.explain_reply(reply, problem, path)
    return f"{verdict.outcome.value}: {verdict.sentence}"
