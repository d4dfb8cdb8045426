"""A triton that cannot be watched is the grader's fault, said in a sentence, and costs no point."""

import json
import os
import subprocess
import sys

import pytest

from grader.tests.support import ROOT

CHECK_EACH = """
import json, os, sys
import triton.runtime.interpreter as interpreter
from grader.core.interpret import semantics
semantics.index_with_scalars()
for change in json.loads(sys.argv[1]):
    if os.fork() == 0:
        exec(change)
        from grader.core.run import trial
        print(trial.check_tracing() or "fine")
        sys.exit()
    os.wait()
"""
CHANGES = {
    "pass": "",
    "from grader.core.run import addresses; addresses.PROGRAMS = 1": "the first addresses",
    "interpreter.InterpreterBuilder.create_exp2 = lambda self, x: self.create_exp(x)": "the result",
    "from grader.core.run import costs; costs.CostMeter.dot = lambda *any: None": "the counts",
    "from grader.core.run import regions as m; m.Region.legal = lambda s, at, n: at == at": "its trial kernel fails",
}


@pytest.mark.thorough
def test_this_triton_is_watched_and_a_change_underneath_is_noticed():
    command = [sys.executable, "-u", "-c", CHECK_EACH, json.dumps(list(CHANGES))]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT)
    for said, words in zip(done.stdout.splitlines(), CHANGES.values(), strict=True):
        assert words in said and "is not one that the grader can watch" in said if words else said == "fine"
