"""Notebook 03: its instrument and the numbers of its pictures; kernels run in a process of their own, interpreted."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from notebooks.pictures import first_triton_kernel as plan
from notebooks.pictures import kernel_runs

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.thorough
def test_what_kernels_touch_is_what_the_pictures_say():
    pytest.importorskip("triton", reason="needs Triton, which is there on Linux only")
    command = [sys.executable, "-m", "notebooks.tests.first_kernel_child"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_walk_meets_every_element_once():
    for rows, columns, block_r, block_c in ((18, 27, 4, 8), (1, 1, 4, 8), (32, 8, 4, 8), (5, 100, 1, 64)):
        met = np.zeros((rows, columns), int)
        for r, r_end, c, c_end in (tile for tiles in plan.walk(rows, columns, block_r, block_c) for tile in tiles):
            met[r:r_end, c:c_end] += 1
        assert (met == 1).all()


def test_runs_of_neighbours():
    assert kernel_runs.runs(np.array([7, 3, 4, 4, 9, 8])) == [(3, 4), (7, 9)]
    assert kernel_runs.runs(np.array([5])) == [(5, 5)]


def test_a_line_that_is_gone_or_not_alone_is_noticed():
    text = "r = tl.arange(0, 4)  # (4,)\nx = tl.load(X + r)\ny = tl.load(Y + r)"
    assert kernel_runs.line_of(text, "tl.arange") == "r = tl.arange(0, 4)"
    for part, count in (("tl.store", 0), ("tl.load", 2)):
        with pytest.raises(ValueError, match=f"{count} lines contain"):
            kernel_runs.line_of(text, part)
