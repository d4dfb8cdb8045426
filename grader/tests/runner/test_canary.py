"""A triton that cannot be watched is the grader's fault, said in a sentence, and costs no point."""

import json
import os
import subprocess
import sys

import pytest

from grader.processes.sandbox_process import GRADER, INSIDE

CHECK_EACH = """
import json, os, sys
sys.path[:0] = json.loads(sys.argv[1])
import triton.runtime.interpreter as interpreter
import without_gpu
without_gpu.index_with_scalars()
for change in json.loads(sys.argv[2]):
    if os.fork() == 0:
        exec(change)
        import semantics
        print(semantics.check_tracing() or "fine")
        sys.exit()
    os.wait()
"""
CHANGES = {
    "pass": "",
    "import hooks; hooks.CARRY = ()": "the tiles visited",
    "interpreter.InterpreterBuilder.create_exp2 = lambda self, x: self.create_exp(x)": "the result",
    "import costs; costs.Costs.dot = lambda *any: None": "the counts",
    "import memory; memory.Region.legal = lambda self, offsets, size: offsets == offsets": "its trial kernel fails",
}


@pytest.mark.thorough
def test_this_triton_is_watched_and_a_change_underneath_is_noticed():
    folders = json.dumps([str(INSIDE), str(GRADER / "runner")])
    command = [sys.executable, "-u", "-c", CHECK_EACH, folders, json.dumps(list(CHANGES))]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    for said, words in zip(done.stdout.splitlines(), CHANGES.values(), strict=True):
        assert words in said and "is not one that the grader can watch" in said if words else said == "fine"
