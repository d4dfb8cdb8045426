"""The facts that belong to every timing: the GPU, its driver and clocks, the versions, the commit."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import torch

from grader.core.protocol.messages import Gpu

ROOT = Path(__file__).parents[2]


def facts():
    """Plain data; what cannot be known is None."""
    gpu = torch.cuda.get_device_properties(0) if torch.cuda.is_available() else None
    cudnn = torch.backends.cudnn.version() if gpu else None
    return {
        "gpu": gpu and gpu.name,
        "memory_gib": gpu and round(gpu.total_memory / 2**30),
        "driver": smi("driver_version"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton_version(),
        "cuda": torch.version.cuda,
        "cudnn": cudnn,
        **commit(),
    }


def first_gpu():
    """The first GPU, as what is recorded for it needs it."""
    gpu = torch.cuda.get_device_properties(0)
    return Gpu(
        f"sm_{gpu.major}{gpu.minor}",
        gpu.name,
        "hip" if torch.version.hip else "cuda",
        gpu.gcnArchName.split(":")[0] if torch.version.hip else 10 * gpu.major + gpu.minor,
        gpu.warp_size,
        gpu.shared_memory_per_block_optin,
        gpu.multi_processor_count,
    )


def commit():
    """Which source this is; COMMIT in the environment names it where the files came without their history."""
    if named := os.environ.get("COMMIT"):
        return {"commit": named, "dirty": None}
    return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--untracked-files=no"))}


def clocks():
    """The GPU's clocks in MHz, its temperature in C and its power in W now; None where nobody says."""
    names = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
    said = smi(",".join(names))
    if said is None:
        return None
    return dict(zip(("sm_mhz", "memory_mhz", "celsius", "watts"), map(number, said.split(",")), strict=True))


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def smi(query):
    """nvidia-smi's answer for the first GPU; it only asks, and changes nothing."""
    if not shutil.which("nvidia-smi"):
        return None
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", "--id=0"]
    return said_by(command)


def git(*arguments):
    return said_by(["git", "-C", str(ROOT), *arguments])


def said_by(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def triton_version():
    try:
        import triton
    except ImportError:
        return None
    return triton.__version__
