"""The seven problems beside each other: a small run in the interpreter, what is compared with what, a wrong rung."""

import sys

import pytest

from report import ladder, ladder_bench, ladder_rows, table
from report.ladder_rows import BEFORE, QUICK, RUNGS, WHOLE, LadderRow

ARGUMENTS = ["--quick", "--budget", "0.02", "--limit", "60"]


def rows(folder):
    return {row.kernel: row for row in table.read(folder / ladder_rows.FILE, LadderRow)}


def test_each_rung_is_right_and_compared_in_the_interpreter(tmp_path):
    assert ladder.main([*ARGUMENTS, "--out", str(tmp_path)]) == 0
    found = rows(tmp_path)
    assert set(found) == set(RUNGS)
    for name, row in found.items():
        if name.startswith("fast"):
            assert row.status == "not run" and row.median_ms is None
        else:
            assert row.status == "ok" and row.over_naive > 0 and row.over_full > 0
            assert (row.over_before is None) == (name == "P1")


def test_a_rung_that_forgets_its_sinks_is_wrong(tmp_path):
    path = tmp_path / "child.py"
    path.write_text(
        f"import sys; sys.path.insert(0, {str(ladder.runner.ROOT)!r})\n"
        "from dataclasses import replace\n"
        "from report import bench, ladder_bench as b\n"
        "b.RUNGS['P7'] = replace(b.RUNGS['P7'], module='p6_sliding_window.py')\n"
        "load = b.kernels.load\n"
        "class Deaf:\n"
        "    def __init__(self, module): self.forward = module.flash_attention_forward\n"
        "    def flash_attention_forward(self, *a, sink_size=0, **k): return self.forward(*a, **k)\n"
        "b.kernels.load = lambda name: Deaf(load(name)) if 'p6' in name else load(name)\n"
        "bench.main(sys.argv[-1], b.make)\n"
    )
    assert ladder.main([*ARGUMENTS, "--out", str(tmp_path)], (sys.executable, str(path))) == 0
    found = rows(tmp_path)
    assert found["P6"].status == "ok"
    assert found["P7"].status == "failed" and found["P7"].reason.startswith("wrong")


@pytest.mark.parametrize("name", RUNGS)
def test_each_rung_has_the_mask_of_its_problem(name):
    case = ladder_bench.case_of(WHOLE[0], RUNGS[name])
    problem = name.rpartition(" ")[2]
    expected = {
        "P1": "no mask", "P2": "no mask", "P3": "no mask", "P4": "causal", "P5": "causal", "P6": "window 1024",
        "P7": "window 1024, 4 sinks",
    }  # fmt: skip
    assert str(case.visibility) == expected[problem]
    assert case.kv_heads == (4 if problem in ("P5", "P6", "P7") else 16)


def test_every_rung_but_the_first_stands_on_another():
    assert set(BEFORE) == set(RUNGS) - {"P1"} and set(BEFORE.values()) <= set(RUNGS)
    assert QUICK[0].row("P3").key == (QUICK[0].shape, QUICK[0].N, "P3")
