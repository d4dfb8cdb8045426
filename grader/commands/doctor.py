"""What this machine offers a grader: `make doctor`. Exit status 0 where grading works, 1 where it does not."""

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from grader.commands import environment, versions
from grader.processes import bubblewrap, sandbox_process, system_calls

DISK = 5 << 30  # bytes free, for scratch folders and a class's results
NEEDED, WANTED = "needed", "wanted"  # without what is only wanted, grading works with less


@dataclass(frozen=True)
class Line:
    """One thing: its state in words, whether that is well, and what to do where it is not."""

    name: str
    found: str
    well: bool
    todo: str = ""
    kind: str = WANTED

    def __str__(self):
        state = "ok" if self.well else "missing" if self.kind == NEEDED else "without"
        todo = f"; {self.todo}" if self.todo and not self.well else ""
        return f"{state:8} {self.name:16} {self.found}{todo}"


def lines():
    """All that is looked at, one after the other."""
    yield of_python()
    yield from packages()
    yield of_gpu()
    yield from compilers()
    yield from sandbox()
    yield of_room()
    yield Line("cores", f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()}", True)
    yield from optional()


def of_python():
    found, well = platform.python_version(), sys.version_info >= (3, 10)
    return Line("Python", f"{found} on {platform.system()}", well, "Python 3.10 or newer is needed", NEEDED)


def packages():
    """torch, triton and what grading needs beside them."""
    pinned = dict(re.findall(r"^(\w+)==(\S+)", (environment.LOCKS / "torch.txt").read_text(), re.MULTILINE))
    for name in ("torch", "triton", "numpy", "rich", "jinja2", "matplotlib"):
        kind = NEEDED if name in ("torch", "triton", "numpy", "rich") else WANTED
        found = versions.find(name)
        if found is None:
            pin = f"{name}=={pinned[name]}" if name in pinned else name
            yield Line(name, "not installed", False, f"make setup, or pip install {pin}", kind)
        elif name in pinned and found.split("+")[0] != pinned[name]:
            untried = "; untried" if versions.untried(name) else ""
            yield Line(name, f"{found}; the course was made with {pinned[name]}{untried}", True, kind=kind)
        else:
            yield Line(name, found, True, kind=kind)


def of_gpu():
    if importlib.util.find_spec("torch") is None:
        return Line("GPU", "not known without torch", False)
    import torch

    if not torch.cuda.is_available():
        return Line("GPU", "none that PyTorch sees", False, "kernels run in Triton's interpreter, and none is timed")
    here = torch.cuda.get_device_properties(0)
    driver = words("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return Line("GPU", f"{here.name}, {here.total_memory >> 30} GiB, driver {driver or 'not known'}", True)


def compilers():
    """What Triton starts: a C compiler for its launchers on a GPU, and NVIDIA's assembler, which it brings along."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    yield Line("C compiler", compiler or "none", bool(compiler), "a GPU needs it: apt install gcc")
    spec = importlib.util.find_spec("triton")
    tool = spec and Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "ptxas"
    version = tool and tool.exists() and words(str(tool), "--version")
    found = version.splitlines()[-1] if version else "none in triton"
    yield Line("ptxas", found, bool(version), "kernels cannot be compiled: install triton again (make setup)")


def sandbox():
    """Whether submissions run in bubblewrap, which limits hold, and who the children are."""
    from grader.processes.cgroup import Group

    device = "cuda" if Path("/dev/nvidiactl").exists() else "cpu"
    why = bubblewrap.find_obstacle(device)
    version = words("bwrap", "--version")
    yield Line(
        "sandbox", f"{version}, works" if why is None else f"off; {bubblewrap.UNPROTECTED}", why is None, why or ""
    )
    if why is None:
        yield of_attempts(device)
    group = Group(1 << 30, 64)
    held = sorted(group.held)
    group.close()
    todo = "each process is limited by its address space instead; on a GPU, nothing limits memory"
    yield Line("control groups", " and ".join(held) or "cannot be made", "memory" in held, todo)
    if os.geteuid() == 0:
        readable = [sys.prefix, sys.base_prefix, sandbox_process.INSIDE]
        other = bubblewrap.may_be_another_user(readable, why is None)
        todo = "Python lies where only root can read it: submissions run as root"
        yield Line("user", "children are not root" if other else "root", other, todo)


def of_attempts(device):
    """What must be refused inside, tried: namespaces, keys, mounts, other processes' memory, writing to / and /dev."""
    try:
        possible = bubblewrap.find_leaks(device)
    except (OSError, subprocess.TimeoutExpired) as error:
        possible = [f"it could not be tried: {error}"]
    todo = "pip install pyseccomp, apt install libseccomp2" if system_calls.missing() else ""
    said = f"possible inside, and should not be: {', '.join(possible)}" if possible else "all that must be is refused"
    return Line("inside it", said, not possible, todo)


def of_room():
    import tempfile

    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    todo = f"{DISK >> 30} GiB are wanted; TMPDIR names another folder"
    return Line("disk", f"{free >> 30} GiB free in {folder}", free >= DISK, todo)


def optional():
    """What some commands use and grading does not need."""
    from grader.gpu.profile import ncu

    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    yield Line("chromium", browser or "none", bool(browser), "tests of pages skip: apt install chromium")
    yield Line(
        "Nsight Compute", ncu.find() or "none", bool(ncu.find()), "make profile needs it: NVIDIA's nsight-compute"
    )
    slurm = words("sinfo", "--version")
    yield Line("Slurm", slurm or "none", bool(slurm), "a class runs on this machine alone: apt install slurm-wlm munge")
    copies = importlib.util.find_spec("copydetect") is not None
    yield Line("copydetect", "installed" if copies else "none", copies, "no search for copies: pip install copydetect")


def words(*command):
    """What a program says of itself, or an empty string."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def main():
    found = []
    for line in lines():
        found.append(line)
        print(line, flush=True)
    missing = [line.name for line in found if line.kind == NEEDED and not line.well]
    print(f"grading does not work here: {', '.join(missing)}" if missing else "grading works here")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
