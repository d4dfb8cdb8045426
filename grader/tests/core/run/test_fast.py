"""The faster interpreter computes the same bits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grader.kinds.registry import PROBLEMS
from grader.tests.support import SOLUTIONS, SUBMISSIONS, thorough

HERE = Path(__file__).parent
HONEST = ("p3_host_descriptors_4d", "p4_flat_grid", "p4_tutorial_stages", "p5_device_descriptors", "p6_while_loop")
KERNELS = [SOLUTIONS / PROBLEMS[id].module for id in ("p3", "p7")] + [
    SUBMISSIONS / "honest" / f"{name}.py" for name in HONEST
]


def run(script, how, *more):
    command = [sys.executable, "-W", "ignore", str(HERE / script), how, *map(str, more)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


@pytest.mark.thorough
def test_operands_of_all_types_and_shapes_give_the_same_or_the_same_error():
    fast, plain = run("operands.py", "fast"), run("operands.py", "plain")
    assert {key: (said, fast[key]) for key, said in plain.items() if fast[key] != said} == {}
    assert len(plain) > 10_000 and 0.1 < sum("Error: " in said for said in plain.values()) / len(plain) < 0.5


@pytest.mark.parametrize("kernels", [KERNELS[:1], thorough(KERNELS[1:])], ids=["one", "others"])
def test_the_same_bits(kernels):
    fast, plain = run("bits.py", "fast", *kernels), run("bits.py", "plain", *kernels)
    assert fast == plain
    assert len(set(fast.values())) == len(kernels)  # the kernels round differently: a hash of nothing would not
