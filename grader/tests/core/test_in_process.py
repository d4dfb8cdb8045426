"""Kernels in this process: what a launch prints, raises and shows observers, in a process of its own."""

import subprocess
import sys

from grader.tests.support import ROOT

KERNELS = """
import torch, triton, triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def who(OUT, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    print("rows", pid)
    tl.store(OUT + pid % 2, pid)

@triton.autotune([triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 8})], key=[])
@triton.jit
def tuned(OUT, pair, BLOCK: tl.constexpr):
    tl.store(pair[0] + tl.arange(0, BLOCK), BLOCK + pair[1] + tl.zeros([BLOCK], tl.int32))

@triton.jit
def described(IN, OUT):
    OUT.store([4], IN.load([2]))

@triton.jit
def stops(OUT):
    tl.device_assert(tl.load(OUT) == 7, "no seven")

@triton.jit
def unequal(OUT):
    tl.store(OUT + tl.arange(0, 3), 1)
"""
MAIN = """
from grader.core import in_process
from grader.core.machine.report import Report
in_process.begin()
import kernels
from kernels import TensorDescriptor, torch

def run(kernel, *args, grid=(1,), **named):
    out = torch.zeros(8, dtype=torch.int32)
    kernel[grid](out, *args, **named)
    return out.tolist()

assert run(kernels.who, 4, grid=(4,)) == [2, 3] + [0] * 6
with in_process.machine(one_by_one=True, backwards=True):
    assert run(kernels.who, 4, grid=lambda meta: (meta["BLOCK"],)) == [0, 1] + [0] * 6
report, pair = Report({}), (torch.zeros(8, dtype=torch.int32), 1)
with in_process.machine(report.observers):
    run(kernels.who, 4, grid=(4,))
assert [fault.line for fault in report.make().faults] == [9], report.make().faults
run(kernels.tuned, pair)
assert pair[0].tolist() == [5] * 4 + [0] * 4 and kernels.tuned.best_config.kwargs == {"BLOCK": 4}
given, taken = torch.arange(8.0), torch.zeros(8)
kernels.described[(1,)](*(TensorDescriptor(x, [8], [1], [4]) for x in (given, taken)))
assert taken.tolist() == [0, 0, 0, 0, 2, 3, 4, 5]
for kernel, named in ((kernels.stops, {"debug": True}), (kernels.unequal, {})):
    try:
        run(kernel, **named)
    except in_process.DoesNotRun as error:
        print(error, type(error.plain).__name__)
"""
SAID = """\
 rows: 0
 rows: 0
 rows: 0
tl.device_assert failed: no seven (line 22: tl.device_assert(tl.load(OUT) == 7, "no seven")) Stopped
each size of a block must be a power of 2: take the next larger one, and mask what is too much. \
(line 26: tl.store(OUT + tl.arange(0, 3), 1)) DoesNotCompile
"""


def test_launches_run_at_once_and_say_what_is_wrong(tmp_path, monkeypatch):
    (tmp_path / "kernels.py").write_text(KERNELS, "utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # of one who debugs: Triton is a compiler all the same
    done = subprocess.run([sys.executable, "-c", MAIN], capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.returncode) == (SAID, 0), done.stderr
