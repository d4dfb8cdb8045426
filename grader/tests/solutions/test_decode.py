"""x4's solution, and on a GPU its fast form, on drawn batches: values, what may not be read, the same bits.

Alone, in any batch and in pages.
"""

import json
import os
import subprocess
import sys

import pytest

from grader.tests.support import ROOT, thorough

pytest.importorskip("triton")
CHILD = ROOT / "grader" / "tests" / "solutions" / "decode_child.py"


@pytest.mark.parametrize(
    ("module", "device", "batches"),
    [("x4_decode", "cpu", 8), thorough("x4_decode", "cpu", 200),
     *(pytest.param(name, "cuda", 200, marks=pytest.mark.gpu) for name in ("x4_decode", "fast_decode"))],
)  # fmt: skip
def test_a_sequence_has_the_same_bits_alone_in_any_batch_and_in_pages(module, device, batches):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment = environment | ({"TRITON_INTERPRET": "1"} if device == "cpu" else {})
    done = subprocess.run(
        [sys.executable, str(CHILD), module, device, str(batches)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == {}
