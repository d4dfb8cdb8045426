"""x4's solution on drawn batches: values, what may not be read, the same bits alone, in any batch and in pages."""

import json
import os
import subprocess
import sys

import pytest

from grader.tests.support import ROOT, thorough

pytest.importorskip("triton")
CHILD = ROOT / "grader" / "tests" / "solutions" / "decode_child.py"


@pytest.mark.parametrize(("device", "batches"), [("cpu", 8), thorough("cpu", 200),
                                                 pytest.param("cuda", 200, marks=pytest.mark.gpu)])  # fmt: skip
def test_a_sequence_has_the_same_bits_alone_in_any_batch_and_in_pages(device, batches):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment = environment | ({"TRITON_INTERPRET": "1"} if device == "cpu" else {})
    done = subprocess.run(
        [sys.executable, str(CHILD), device, str(batches)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == {}
