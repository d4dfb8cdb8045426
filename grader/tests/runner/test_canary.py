"""A triton that cannot be watched is the grader's fault, said in a sentence, and costs no point."""

import os
import subprocess
import sys

import pytest

from grader.processes.sandbox_process import GRADER, INSIDE

CHECK = """
import sys
sys.path[:0] = {folders!r}
import triton.runtime.interpreter as interpreter
import without_gpu
without_gpu.index_with_scalars()
{change}
import canary
print(canary.check() or "fine")
"""


def check(change=""):
    command = [sys.executable, "-c", CHECK.format(folders=[str(INSIDE), str(GRADER / "runner")], change=change)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"TRITON_INTERPRET": "1"})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_this_triton_is_watched():
    assert check() == "fine"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("import visits; visits.CARRY = ()", "the tiles visited"),
        ("interpreter.InterpreterBuilder.create_exp2 = lambda self, x: self.create_exp(x)", "the result"),
        ("import traffic; traffic.Traffic.dot = lambda *any: None", "the counts"),
        ("import regions; regions.Region.legal = lambda self, offsets, size: offsets == offsets", "the counts"),
    ],
)
def test_a_change_underneath_is_noticed(change, words):
    said = check(change)
    assert words in said and "is not one that the grader can watch" in said
