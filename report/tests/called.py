"""The report's command in a process of its own, as a reader calls it."""

import os
import subprocess
import sys

from report.places import ROOT


def report(*arguments):
    """`python -m report ARGUMENTS` when it has ended; its kernels are not interpreted because a test's are."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["OMP_NUM_THREADS"] = "1"  # other tests want the other cores
    command = [sys.executable, "-m", "report", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
