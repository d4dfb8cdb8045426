"""Orders of programs on a GPU: a small run in the interpreter, what Nsight Compute counts, and the page's section."""

import json
import sys
from dataclasses import replace

import pytest

from grader.gpu.profile import ncu
from report import order_bench, order_rows, orders_gpu, orders_measured, table
from report.order_rows import ORDERS, WHOLE, OrderRow

MACHINE = {"gpu": "NVIDIA H200", "torch": "2.11.0", "triton": "3.6.0", "driver": "580", "commit": "abc"}
QUICK = ["--quick", "--budget", "0.02", "--limit", "60"]


def rows(folder):
    return {row.kernel: row for row in table.read(folder / order_rows.FILE, OrderRow)}


def published(folder, point=WHOLE[0], **changes):
    """A folder with a row for each order of one point."""
    found = [
        replace(point.row(name), median_us=1000.0 / (1 + i / 10), p20_us=900.0, p80_us=1100.0, samples=9, tflops=300.0,
                over_plain=1 + i / 10, over_plain_low=1 + i / 11, over_plain_high=1 + i / 9, **changes)
        for i, name in enumerate(point.kernels)
    ]  # fmt: skip
    table.write_whole(folder / order_rows.FILE, found, OrderRow)
    (folder / order_rows.MACHINE).write_text(json.dumps(MACHINE))
    return folder


def test_each_order_is_right_and_timed_in_the_interpreter(tmp_path):
    assert orders_gpu.main([*QUICK, "--out", str(tmp_path)]) == 0
    found = rows(tmp_path)
    assert set(found) == set(ORDERS) - {"published"}
    assert all(row.status == "ok" and row.over_plain > 0 and row.l2_hits is None for row in found.values())


def test_an_order_that_leaves_tiles_out_is_wrong(tmp_path):
    code = (
        "import sys, triton, triton.language as tl\n"
        "from report import bench, order_bench as b\n"
        "def lost(program, num_tiles, num_heads, num_dies, heads_per_kv): return 0, program % num_tiles\n"
        "lost.__globals__['tl'] = tl\n"
        "b.PLACES['reversed'] = lost\n"
        "bench.main(sys.argv[-1], b.make)\n"
    )
    path = tmp_path / "child.py"
    path.write_text(f"import sys; sys.path.insert(0, {str(orders_gpu.runner.ROOT)!r})\n" + code)
    assert orders_gpu.main([*QUICK, "--out", str(tmp_path)], (sys.executable, str(path))) == 0
    found = rows(tmp_path)
    assert found["reversed"].status == "failed" and found["reversed"].reason.startswith("wrong")
    assert found["all heads"].status == "ok"


def test_what_is_counted_goes_into_the_rows_once(tmp_path, monkeypatch):
    values = dict(zip(orders_gpu.METRICS.values(), (90.0, 2.0**20, 2.0**19, 2.0**30), strict=True))
    asked = []

    def counted(tool, point):
        asked.append(point)
        return [ncu.Launch("flash_attention_kernel", "", "", values) for _ in point.kernels]

    monkeypatch.setattr(orders_gpu, "counted", counted)
    monkeypatch.setattr(ncu, "find", lambda: "ncu")
    published(tmp_path)
    for _ in range(2):
        orders_gpu.profile(tmp_path / order_rows.FILE, {WHOLE[0]: WHOLE[0].kernels}, again=False)
    assert asked == [WHOLE[0]]
    assert all(row.l2_hits == 90 and row.read_hits == 50 and row.l2_reads == 32 for row in rows(tmp_path).values())
    assert all(row.dram_reads == 1024 for row in rows(tmp_path).values())


@pytest.mark.parametrize("failing", [True, False])
def test_without_nsight_compute_the_times_stand(tmp_path, monkeypatch, capsys, failing):
    def counted(tool, point):
        raise ncu.NcuFailed("no counters")

    monkeypatch.setattr(orders_gpu, "counted", counted)
    monkeypatch.setattr(ncu, "find", lambda: "ncu" if failing else None)
    before = (published(tmp_path) / order_rows.FILE).read_text()
    orders_gpu.profile(tmp_path / order_rows.FILE, {WHOLE[0]: WHOLE[0].kernels}, again=False)
    assert (tmp_path / order_rows.FILE).read_text() == before
    assert ("no counters" if failing else "is not here") in capsys.readouterr().err


def test_a_counter_that_is_unknown_is_asked_no_more(monkeypatch, tmp_path):
    known = orders_gpu.METRICS["all"]
    logs = []

    def watch(command):
        metrics, log = command[command.index("--metrics") + 1], command[command.index("--log-file") + 1]
        logs.append(metrics)
        said = "==ERROR== Failed to find metric lts__t_sectors_op_read_lookup_hit.sum"
        if "lookup_hit" not in metrics:
            line = f'"1","{orders_gpu.KERNEL}","(1)","(1)","42.5"'
            head = f'"ID","Kernel Name","Block Size","Grid Size","{known}"'
            said = "\n".join([head, '"","","","","%"', *[line] * len(WHOLE[0].kernels)])
        (type(tmp_path)(log)).write_text(said)
        return 0, ""

    monkeypatch.setattr("grader.gpu.profile.measure.watch", watch)
    launches = orders_gpu.counted("ncu", WHOLE[0])
    assert len(logs) == 2 and len(launches) == len(WHOLE[0].kernels)
    assert orders_gpu.found(launches[0].values)["l2_hits"] == 42.5


def test_the_section(tmp_path):
    assert orders_measured.section(tmp_path) == ""
    text = orders_measured.section(published(tmp_path, read_hits=80.0, l2_hits=70.0, l2_reads=2048.0, dram_reads=512.0))
    assert "the model's" in text and "| B=1 H=16 D=128 8k, plain |" in text and "None" not in text
    assert "*published* runs at 1.50 times the plain order's speed" in text and "| 80.0 | 2.00 | 0.500 |" in text


def test_a_section_without_counters_or_with_a_wrong_order(tmp_path):
    published(tmp_path)
    kept = table.read(tmp_path / order_rows.FILE, OrderRow)
    kept[1] = table.not_measured(kept[1], "failed", "wrong: off by 1")
    table.write_whole(tmp_path / order_rows.FILE, kept, OrderRow)
    text = orders_measured.section(tmp_path)
    assert "failed: wrong: off by 1" in text and "found in L2, %" not in text


@pytest.mark.parametrize("order", order_bench.PLACES)
def test_the_kernel_runs_in_the_order_that_the_row_names(order):
    module = order_bench.forward(order).func.__globals__
    assert module["place_in_kernel"].fn is order_bench.PLACES[order]
    assert "place_in_kernel" in module["flash_attention_kernel"].fn.__code__.co_names
