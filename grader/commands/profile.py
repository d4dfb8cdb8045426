"""The command behind `make profile`: Nsight Compute on one case of one submission, in Nsight Compute's own words."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import torch

from grader.core.protocol.messages import Profile, Profiled, RunnerReply
from grader.core.run.profiled import REPLY, WARM
from grader.core.sandbox.bubblewrap import outside_paths
from grader.core.sandbox.child import ChildFailed
from grader.core.sandbox.submission import Submission
from grader.core.sandbox.texts import clean
from grader.diagnosis import unfinished
from grader.gpu import machine, ncu
from grader.gpu.speed import timed_case
from grader.kinds import registry
from grader.render import terminal

REPORT = "report.ncu-rep"
PROGRAM = Path(__file__).parents[1] / "core" / "run" / "profiled.py"
SECONDS = 90.0  # to record
SECTIONS = (
    "SpeedOfLight", "LaunchStats", "Occupancy", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "SchedulerStats",
    "WarpStateStats", "SourceCounters",
)  # fmt: skip
SHOWN = 4  # launches of the submission's kernels whose details are printed; the report has all
HOW_TO_GET_IT = (
    "Nsight Compute (`ncu`) is not installed: it comes with NVIDIA's CUDA toolkit; alone it is a package "
    "(cuda-nsight-compute-*) of NVIDIA's apt and dnf repositories, or nsight-compute of conda. Without it, "
    '`make grade P={number} CASE="compiles" DEVICE=cpu` shows what the compiler alone knows'
)


def choose_case(problem, name):
    """The Case of that name, or the speed case; None where there is no such case."""
    if name is None or name == problem.speed_case.name:
        return problem.speed_case
    return next((case for case in problem.cases if case.name == name), None)


def run(request, case, folder):
    """Profile `case` of the request's one problem; returns the exit status."""
    console = terminal.make_console()
    (problem,) = request.problems
    if case == problem.speed_case:
        case = timed_case(problem)
    gpu, path = torch.cuda.get_device_properties(0).name, request.submission / problem.module
    file = folder / f"profile-{problem.id}-{re.sub('[^a-z0-9]+', '-', case.name.lower()).strip('-')}.ncu-rep"

    def say(text):
        console.print(clean(text), markup=False, highlight=False, soft_wrap=True)

    say(f'{problem.id} "{case.name}" ({case.describe(request.seed)}), {gpu}')
    try:
        with tempfile.TemporaryDirectory(prefix="profile-") as scratch:
            say(profile(problem, path, case, request.seed, Path(scratch)))
            shutil.copyfile(Path(scratch, REPORT), file)
    except ncu.Failed as failed:
        say(f"no profile: {failed}")
        terminal.show_printed(console, failed.printed, terminal.PRINTED_LINES)
        return failed.status
    except OSError as error:
        say(f"{file} was not written: {error.strerror}")
        return 2
    say(f"report: {file}; `ncu-ui` opens it, also where no GPU is, and `ncu --import {file}` prints it again")
    return 0


def profile(problem, path, case, seed, folder):
    """ncu's details of the kernels, with a line of ours; REPORT in the folder has them all. Raises Failed."""
    if torch.version.hip:
        raise ncu.Failed("Nsight Compute knows NVIDIA's GPUs alone")
    if (tool := ncu.find()) is None:
        raise ncu.Failed(HOW_TO_GET_IT.format(number=problem.number))
    record(problem, path, case, seed, folder)
    reply, launches = attempt(tool, problem, path, folder)
    names, text = reply.kernels, ""
    for more in ([], ["--section", "WarpStateStats", "--print-details", "body"]):  # the latter: why warps wait
        only = ["--kernel-name", f"regex:^({'|'.join(names)})", "--launch-count", str(SHOWN)]
        command = [tool, "--import", str(folder / REPORT), "--page", "details", *only, *more]
        text += subprocess.run(command, capture_output=True, text=True, errors="replace").stdout
    if not names or "Section:" not in text:
        raise ncu.Failed(f"the call launches no kernel of its own ({launches} of PyTorch's)", 1)
    return f"""{text}
profiled: one call after {reply.warm_up} that warm up; launches in it: {launches}; caches cold, clocks as they are
above: of {", ".join(names)} the first {SHOWN} launches at most, in Nsight Compute's words; why warps wait comes last"""


def record(problem, path, case, seed, folder):
    """Record the submission, and write its program, the inputs and the request into the folder; raises Failed."""
    kind = registry.kind_of(problem)
    submission = Submission(path, problem, "cuda", SECONDS, machine.first_gpu())
    call, files = kind.request(problem, case, kind.inputs(case, seed), "cuda")
    try:
        recorded = submission.record(call, kind.beside(case))
        printed = submission.take_printed()
    except ChildFailed as failure:
        raise ncu.Failed(f"crashed: {failure}", 1, failure.printed) from None
    finally:
        submission.close()
    if not recorded.program:
        raise ncu.Failed(explain(recorded.reply, problem, path), 1, printed)
    setup = submission.runner_setup()
    setup.folder, setup.sys_path = str(folder), outside_paths()
    files |= {"request.json": msgspec.json.encode(Profile(setup, call)), "program.json": recorded.program}
    files |= {"texts.json": msgspec.json.encode(submission.read_texts())}
    for name, data in files.items():
        (folder / name).write_bytes(data)


def attempt(tool, problem, path, folder):
    """(the Profiled that the program left, how many launches ncu profiled); raises Failed."""
    options = ["--export", str(folder / REPORT), *(word for name in SECTIONS for word in ("--section", name))]
    program = [sys.executable, "-I", "-B", "-u", str(PROGRAM), str(folder / "request.json")]
    said, printed = ncu.look_into(tool, folder, options, program)
    path_of_reply, fault = folder / REPLY, ncu.find_fault(said)
    reply = msgspec.json.decode(path_of_reply.read_bytes(), type=RunnerReply) if path_of_reply.exists() else None
    if fault and (reply is None or (folder / WARM).exists()):
        raise ncu.Failed(f"Nsight Compute failed: {fault}")
    if reply is not None and not isinstance(reply, Profiled):
        raise ncu.Failed(explain(reply, problem, path), 1, printed)
    words = re.findall(r"^==(?:WARNING|ERROR)== *(.*\S)", said, re.M) or printed.splitlines() or ["it said nothing"]
    if reply is None and "==PROF== Connected" in said:
        raise ncu.Failed(f"crashed: the process ended before its call did ({words[-1][:300]})", 1, printed)
    if not (folder / REPORT).exists():
        raise ncu.Failed(f"Nsight Compute measured nothing: {words[-1][:300]}")
    return reply, len(re.findall(r'^==PROF== Profiling "', said, re.MULTILINE))


def explain(reply, problem, path):
    verdict = unfinished.explain_reply(reply, problem, path)
    return f"{verdict.outcome.value}: {verdict.sentence}"
