"""The command behind `make profile`: Nsight Compute on one case of one submission, in Nsight Compute's own words."""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from grader.commands.arguments import RUNNER_PATHS, BadArguments
from grader.commands.request import add_arguments, begin, build_request, name_file, unknown_case
from grader.gpu import machine, ncu
from grader.gpu.speed import timed_case
from grader.kinds import registry
from grader.processes import bubblewrap, unfinished
from grader.processes.child import ChildFailed
from grader.processes.submission import Submission
from grader.render import terminal
from grader.result import clean

SECTIONS = (
    "SpeedOfLight", "LaunchStats", "Occupancy", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "SchedulerStats",
    "WarpStateStats", "SourceCounters",
)  # fmt: skip
PROGRAM = Path(__file__).parents[1] / "runner" / "profiled.py"
__all__ = ["add_arguments", "main"]


def main(arguments: argparse.Namespace) -> int:
    """Profile one problem's timed case, or the one that is named; raises BadArguments. Returns 1 without a profile."""
    request, tool = build_request(arguments, None), ncu.find()
    problem, *more = request.problems
    if more or not (problem.uses_triton and problem.speed_case):
        raise BadArguments("a profile is of one problem, P=3 or later and no lab: name it, like make profile P=4")
    cases = {case.name: case for case in (*problem.cases, problem.speed_case)}
    name = arguments.case or problem.speed_case.name
    if name not in cases:
        raise unknown_case(name, cases)
    if request.device != "cuda" or torch.version.hip or tool is None:
        raise BadArguments(
            f"a profile needs NVIDIA's GPU (here: {request.device}) and its `ncu`, of CUDA's toolkit or conda's "
            f'nsight-compute (here: {tool}); make grade P={problem.number} CASE="compiles" DEVICE=cpu needs neither'
        )
    begin(request, arguments.out)
    case = timed_case(problem) if cases[name] is problem.speed_case else cases[name]
    report = arguments.out / f"{name_file('profile', problem.id, name)}.ncu-rep"
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
        said, printed, status = "", record(problem, path, case, seed, Path(folder)), Path(folder, "status.json")
        if not status.exists():
            program = [sys.executable, "-I", "-B", "-u", str(PROGRAM), folder]
            said, printed = ncu.look_into(tool, Path(folder), options, program)
        reply = json.loads(status.read_text()) if status.exists() else {"status": "none"}
    fault = f"Nsight Compute measured nothing: {ncu.find_fault(said, printed)}"
    if reply["status"] not in ("returned", "none"):
        verdict = unfinished.explain_reply(reply, problem, path)
        raise ncu.Failed(f"{verdict.outcome.value}: {verdict.sentence}" + (said and f" ({fault})"), printed)
    if reply["status"] == "none" or "==PROF== Report: " not in said:
        raise ncu.Failed(fault, printed)
    only, text = ["--kernel-name", f"regex:^({'|'.join(reply['kernels'])})$", "--launch-count", "4"], ""
    for more in ([], ["--section", "WarpStateStats", "--print-details", "body"]):
        command = [tool, "--import", str(report), "--page", "details", *only, *more]
        text += subprocess.run(command, capture_output=True, text=True, errors="replace").stdout
    if "Section:" not in text:
        raise ncu.Failed("the call launches no kernel of its own")
    return text


def record(problem, path: Path, case, seed: int, folder: Path) -> str:
    """Write the program and what its run needs, or why there is none as status.json; returns what was printed."""
    kind = registry.kind_of(problem)
    given, files = kind.request(problem, case, kind.inputs(case, seed), "cuda")
    with contextlib.closing(Submission(path, problem, "cuda", 90.0, machine.gpu_as_data())) as submission:
        reply, texts, printed = submission.record(given), submission.read_texts(), submission.take_printed()
    given |= {"module": path.name, "kernels": True, "refused": problem.refused}
    given["sys_path"] = [*RUNNER_PATHS, *bubblewrap.outside_paths()]
    files |= {"request.json": json.dumps(given).encode(), "texts.json": json.dumps(texts).encode()}
    files |= {"program.json": reply["program"]} if "program" in reply else {"status.json": json.dumps(reply).encode()}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return printed
