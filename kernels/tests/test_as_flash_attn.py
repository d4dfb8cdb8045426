"""Our kernels behind flash-attn's functions: a trainer and a server that know nothing of the course."""

import json
import os
import subprocess
import sys

import pytest

from grader.tests.support import ROOT

pytest.importorskip("triton")
CHILD = ROOT / "kernels" / "tests" / "as_flash_attn_child.py"


@pytest.mark.thorough
def test_a_trainer_and_a_server_take_our_kernels():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(CHILD)], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    facts = json.loads(done.stdout)
    assert max(facts["far"].values()) < 2e-5, facts["far"]
    dropout, window, alibi, same_bits = facts["refused"]
    assert "no dropout_p; got 0.1" in dropout and "looks back only" in window and "no alibi_slopes" in alibi
    assert "use_deterministic_algorithms" in same_bits
