"""The plain kernels that the report compares are compiled for a Hopper GPU that need not be here."""

import json
import os
import subprocess
import sys

import pytest

from report.places import ROOT

pytest.importorskip("triton")
CHILD = ROOT / "report" / "tests" / "counting" / "compile_child.py"


@pytest.mark.thorough
def test_kernels_and_orders_compile_for_a_hopper_gpu(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(CHILD)]
    done = subprocess.run(
        command,
        env={**environment, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = {name: facts for line in lines for name, facts in line.items()}
    assert len(found) == 2 * 2 * 4 + 6 and all("wgmma" in facts["matrix_instructions"] for facts in found.values())
    spilled = {name for name, facts in found.items() if facts["spill_bytes"]}
    names = ("simple", "prefetch", "longest_first")
    assert spilled <= {f"{name} 128 {heads}" for name in names for heads in ("8/8", "8/4")}
    assert all(facts["shared_bytes"] <= facts["shared_limit"] for facts in found.values())
