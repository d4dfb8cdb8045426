"""The command behind `make profile`: one case of one submission under Nsight Compute, as one screen of figures."""

import re
from dataclasses import replace

import torch
from rich.table import Table

from grader.engine import question_for_compiler
from grader.gpu import compiling, peaks
from grader.gpu.gpus import GPUS
from grader.gpu.profile import counters, figures, limits, measure, ncu
from grader.gpu.speed import timed_case
from grader.kinds import registry
from grader.processes.child import CannotStart
from grader.render import terminal
from grader.result import clean

SHARED_RESERVED = 1024  # bytes that the driver takes of each program's shared memory
REGISTERS = 65536  # of a multiprocessor


def choose_case(problem, name):
    """The Case of that name, or the speed case; None where there is no such case."""
    if name is None or name == problem.speed_case.name:
        return problem.speed_case
    return next((case for case in problem.cases if case.name == name), None)


def run(request, case, folder):
    """Profile `case` of the request's one problem; returns the exit status."""
    console = terminal.make_console()
    (problem,) = request.problems
    if torch.version.hip:
        console.print("no profile: Nsight Compute knows NVIDIA's GPUs alone")
        return 2
    here = torch.cuda.get_device_properties(0)
    if case == problem.speed_case:
        case = timed_case(problem)
    path = request.submission / problem.module
    console.print(f'{problem.id} "{case.name}" ({case.describe(request.seed)}), {here.name}', markup=False)
    tool = ncu.find()
    if tool is None:
        console.print(f"{how_to_get_it()}\n{without_it(problem, path, case, here)}", markup=False, soft_wrap=True)
        return 2
    try:
        launches, table = measure.profile(tool, problem, path, case, request.seed, registry.kind_of(problem))
    except measure.Failed as failed:
        console.print(f"no profile: {failed}", markup=False, soft_wrap=True)
        terminal.show_printed(console, failed.printed, terminal.PRINTED_LINES)
        return failed.status
    gpu = {"name": here.name, "shared_bytes": getattr(here, "shared_memory_per_block_optin", None)}
    show(console, launches, case, gpu)
    keep(console, table, folder / f"profile-{problem.id}-{re.sub('[^a-z0-9]+', '-', case.name.lower()).strip('-')}.csv")
    return 0


def keep(console, said, file):
    """Write ncu's table, every launch of the call in it, and say where it is."""
    table = "".join(f"{line}\n" for line in said.splitlines() if line and not line.startswith("=="))
    try:
        file.write_text(table)
    except OSError as error:
        console.print(clean(f"{file} was not written: {error.strerror}"), markup=False, soft_wrap=True)
    else:
        console.print(clean(f"all that was measured: {file}"), markup=False, soft_wrap=True)


# Showing -------------------------------------------------------------------------------------------------------------


def show(console, launches, case, gpu):
    """The screen: the longest launch of the call, its figures, the likeliest limit."""
    readings = [counters.Reading(values, case, gpu) for values in counters.with_flops_of_all(launches, ncu.LAUNCHES)]
    longest = max(range(len(launches)), key=lambda i: readings[i].ns or 0)
    launch, reading = launches[longest], readings[longest]
    console.print(f"{launch.kernel}: {in_a_line(reading, len(launches))}", markup=False)
    if len(launches) > 1:
        console.print(describe_several(readings, longest), markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("ceiling", justify="right", no_wrap=True)
    table.add_column("what it means here", ratio=1)
    for line in figures.figures(reading):
        table.add_row(line.name, line.value, line.ceiling, line.meaning)
    console.print(table)
    console.print(f"likeliest limit: {limits.likeliest_limit(reading)}", markup=False)


def in_a_line(r, launches):
    """`1024 programs of 8 warps; 0.357 ms, 385 TFLOP/s of visible work, 39 % of the peak`"""
    parts = []
    if r.programs and r.threads:
        parts.append(f"{r.programs:.0f} programs of {r.threads / 32:.0f} warps")
    if r.ns:
        parts.append(f"{r.ns / 1e6:.3f} ms with cold caches")
    if r.ns and launches == 1:
        known = peaks.peak(r.gpu["name"])
        fraction = f", {r.tflops / known.of(r.case.dtype):.0%} of the peak" if known else ""
        parts.append(f"{r.tflops:.0f} TFLOP/s of visible work{fraction}")
    return ", ".join(parts)


def describe_several(readings, longest):
    """Where a call launches several kernels: how much of it this one is."""
    count = len(readings) if len(readings) < ncu.LAUNCHES else f"the first {ncu.LAUNCHES}"
    text = f"the longest of {count} launches in the call"
    times = [reading.ns for reading in readings]
    return text if None in times else f"{text}, {times[longest] / sum(times):.0%} of their time"


# Without ncu ---------------------------------------------------------------------------------------------------------


def how_to_get_it():
    version = (torch.version.cuda or "13.0").replace(".", "-")
    return (
        "Nsight Compute (`ncu`) is not installed: it comes with NVIDIA's CUDA toolkit; alone it is the package "
        f"cuda-nsight-compute-{version} of NVIDIA's apt and dnf repositories, or nsight-compute of conda."
    )


def without_it(problem, path, case, here):
    """What the compiler alone knows of the kernels, as text."""
    target = f"sm_{here.major}{here.minor}"
    if target not in GPUS:
        return f"What the compiler tells is known for {', '.join(GPUS)}, and this GPU is {target}."
    problem = replace(problem, speed_case=case)
    try:
        tried = compiling.attempt(question_for_compiler(problem), path, GPUS[target], compiling.SECONDS)
    except CannotStart as broken:
        return f"Not compiled either: {broken}"
    if tried.error or tried.unknown:
        return f"Not compiled either: {tried.error or tried.unknown}"
    lines = [f"  {terminal.compiled(facts)}\n  {fits(facts)}" for facts in tried.kernels]
    return "\n".join(["Without it, the compiler knows this much:", *lines])


def fits(facts):
    """How many programs of a compiled kernel a multiprocessor has room for; warps are not counted."""
    room = {}
    if facts["registers"] and facts["num_warps"]:
        of_a_warp = -(-facts["registers"] * 32 // 256) * 256  # handed out in units of 256
        room["registers"] = REGISTERS // (of_a_warp * facts["num_warps"])
    if facts["shared_bytes"] is not None:
        room["shared memory"] = (facts["shared_limit"] + SHARED_RESERVED) // (facts["shared_bytes"] + SHARED_RESERVED)
    known = " and ".join(f"{count} by {what}" for what, count in room.items())
    return f"programs that fit a multiprocessor: {known or 'not known'}"
