"""The operator: gradients beside float64 autograd, PyTorch's own checks of an operator, no graph break, its errors."""

import json
import os
import subprocess
import sys

import pytest

from grader.tests.support import ROOT

pytest.importorskip("triton")
CHILD = ROOT / "kernels" / "tests" / "attention_op_child.py"


@pytest.mark.thorough
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_operator(device):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment = environment | ({"TRITON_INTERPRET": "1"} if device == "cpu" else {})
    done = subprocess.run(
        [sys.executable, str(CHILD), device], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    facts = json.loads(done.stdout)
    near = [value for name, value in facts.items() if name.endswith(("expanded", "transposed"))]
    assert len(near) == 12 and max(near) < (1e-5 if device == "cpu" else 2e-2), facts  # a GPU's dots are tf32
    assert set(facts["opcheck"]) == set(facts["opcheck of the backward"]) == {"SUCCESS"} and facts["compiled"] == 0
    assert facts["directional"] < (1e-4 if device == "cpu" else 1e-2), facts
    assert "no second derivative" in facts["second"] and "does not require grad" in facts["lse"]
    assert facts["window"] == "window_size must be at least 1, or None; got window_size=0"
