"""What this machine offers a grader: `make doctor`. Exit status 0 where grading works, 1 where it does not."""

import argparse
import os
import platform
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from grader.commands import versions
from grader.core.sandbox import bubblewrap, cgroup
from grader.core.worker import system_calls
from grader.gpu import ncu

NEEDED = ("torch", "triton", "numpy", "msgspec", "rich")  # without all else, grading works with less
OPTIONAL = ("jinja2", "matplotlib", "copydetect")
TOOLS = {"gcc": "a GPU needs it, or CC: apt install gcc", "chromium": "tests of pages skip: apt install chromium",
         "sinfo": "a class runs on this machine alone: apt install slurm-wlm munge"}  # fmt: skip


def lines():
    """(name, what is there, what to do about it, "" where all is well) of each thing."""
    yield "Python", f"{platform.python_version()} on {platform.system()}, {os.cpu_count()} cores", ""
    for name in (*NEEDED, *OPTIONAL):
        locked = "-r locks/torch.txt" if name in versions.TRIED else name
        found = versions.find(name)
        adds = "class" if name == "copydetect" else "setup"
        yield name, found or "not installed", "" if found else f"make {adds}, or pip install {locked}"
    if untried := versions.warning():
        yield "versions", untried, "make setup installs those of the course"
    if versions.find("torch"):
        from grader.gpu.machine import facts

        gpu, driver = facts()["gpu"], facts()["driver"]
        todo = "" if gpu else "the grader runs kernels on the CPU, and times none"
        yield "GPU", f"{gpu}, driver {driver or 'not known'}" if gpu else "none that PyTorch sees", todo
    ptxas = find_spec("triton") and Path(find_spec("triton").origin).parent / "backends" / "nvidia" / "bin" / "ptxas"
    version = words(str(ptxas), "--version").rpartition("\n")[2]
    yield "ptxas", version or "none", "" if version else "no kernel can be compiled: install triton again (make setup)"
    yield "Nsight Compute", ncu.find() or "none", "" if ncu.find() else "make profile needs NVIDIA's nsight-compute"
    device = "cuda" if Path("/dev/nvidiactl").exists() else "cpu"
    obstacle = bubblewrap.find_obstacle(device) or ""
    yield "sandbox", f"off; {bubblewrap.UNPROTECTED}" if obstacle else words("bwrap", "--version"), obstacle
    if not obstacle:
        yield "inside it", *try_attempts(device)
    group = cgroup.Group(1 << 30, 64)
    held, todo = " and ".join(sorted(group.held)), "each process is limited by its address space; on a GPU no memory is"
    group.close()
    yield "control groups", held or "cannot be made", "" if "memory" in held else todo
    free = shutil.disk_usage(tempfile.gettempdir()).free >> 30
    yield "disk", f"{free} GiB free in {tempfile.gettempdir()}", "" if free >= 5 else "5 GiB are wanted; set TMPDIR"
    for name, todo in TOOLS.items():
        yield name, shutil.which(name) or "none", "" if shutil.which(name) else todo


def try_attempts(device):
    """What must be refused inside, tried: namespaces, keys, mounts, other processes' memory, writing to / and /dev."""
    try:
        possible = bubblewrap.find_leaks(device)
    except (OSError, subprocess.TimeoutExpired) as error:
        possible = [f"it could not be tried: {error}"]
    todo = "pip install pyseccomp, apt install libseccomp2" if system_calls.missing() else "tell the maintainers"
    return (f"possible inside, and should not be: {', '.join(possible)}", todo) if possible else ("all is refused", "")


def words(*command):
    """What a program says of itself, or an empty string."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def main(arguments: argparse.Namespace) -> int:
    missing = []
    for name, found, todo in lines():
        state = "ok" if not todo else "missing" if name in NEEDED else "without"
        print(f"{state:8} {name:16} {found}{todo and f'; {todo}'}", flush=True)
        missing += [name] if state == "missing" else []
    print(f"grading does not work here: {', '.join(missing)}" if missing else "grading works here")
    return 1 if missing else 0
