"""Compile the fast forms for a Hopper GPU that need not be here."""

import json
import os
import subprocess
import sys
from pathlib import Path

from grader.tests.support import ROOT

CHILD = Path(__file__).with_name("hopper_child.py")


def compile_for_hopper(*words):
    """{form: facts of its kernel}; a process of its own, since what passes for a GPU there must not outlive it."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(CHILD), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]  # the compiler prints too
    return {name: facts for line in lines for name, facts in json.loads(line).items()}
