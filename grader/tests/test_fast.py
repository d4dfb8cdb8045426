"""The faster interpreter computes the same bits, and is faster."""

import json
import subprocess
import sys
from pathlib import Path

from grader.assignment import PROBLEMS
from grader.tests.support import SOLUTIONS

HERE = Path(__file__).parent
HONEST = ("p3_host_descriptors_4d", "p4_atomic_add", "p4_tutorial_stages", "p5_device_descriptors", "p6_while_loop")
KERNELS = [SOLUTIONS / PROBLEMS[id].module for id in ("p3", "p7")] + [HERE / "honest" / f"{name}.py" for name in HONEST]


def run(how):
    command = [sys.executable, "-W", "ignore", str(HERE / "bits.py"), how, *map(str, KERNELS)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def test_the_same_bits_in_less_time():
    fast, plain = run("fast"), run("plain")
    assert fast["bits"] == plain["bits"]
    assert len(set(fast["bits"].values())) == len(KERNELS)  # the kernels round differently: a hash of nothing would not
    assert fast["seconds"] < 0.75 * plain["seconds"]  # measured: less than half
