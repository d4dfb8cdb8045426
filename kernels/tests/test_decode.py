"""x4's solution, and on a GPU its fast form, on drawn batches: values, what may not be read, the same bits.

Alone, in any batch and in pages.
"""

import json
import os
import subprocess
import sys
from subprocess import PIPE

import pytest
import torch

from grader.tests.support import ROOT, in_interpreter

pytest.importorskip("triton")
CHILD = ROOT / "kernels" / "tests" / "decode_child.py"


@pytest.mark.parametrize(
    ("module", "device", "batches"),
    [pytest.param("x4_decode", "cpu", 8, marks=in_interpreter),
     pytest.param("x4_decode", "cpu", 200, marks=[in_interpreter, pytest.mark.thorough]),
     *(pytest.param(name, "cuda", 200, marks=pytest.mark.gpu) for name in ("x4_decode", "fast_decode"))],
)  # fmt: skip
def test_a_sequence_has_the_same_bits_alone_in_any_batch_and_in_pages(module, device, batches):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment = environment | ({"TRITON_INTERPRET": "1"} if device == "cpu" else {})
    shares = 1 if device == "cpu" else 8  # on a GPU nearly all of the time goes into compiling
    given = [sys.executable, str(CHILD), module, device, str(batches)]
    children = [
        subprocess.Popen([*given, f"{share}/{shares}"], env=environment, stdout=PIPE, stderr=PIPE, text=True)
        for share in range(shares)
    ]
    for child in children:
        out, errors = child.communicate(timeout=600)
        assert child.returncode == 0, errors[-2000:]
        assert json.loads(out) == {}


def test_the_one_length_of_one_sequence_may_have_any_stride():
    """A number that is expanded has stride 0: so do servers make lengths."""
    from solutions import x4_decode

    one = torch.tensor(5, dtype=torch.int32)
    x4_decode.check_beside(one, "lengths", one.expand(1), (1,), torch.int32)
    with pytest.raises(ValueError, match="its last stride 1"):
        x4_decode.check_beside(one, "lengths", one.expand(2), (2,), torch.int32)
