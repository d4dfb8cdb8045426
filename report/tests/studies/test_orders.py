"""Orders of programs: what Nsight Compute counts goes into the rows, once; without it the times stand."""

from types import SimpleNamespace

import pytest

from grader.gpu.profile import ncu
from report.measuring import rows
from report.studies import orders
from report.studies.orders import WHOLE
from report.tests.pages.test_orders import measured


def profile(folder):
    orders.profile(folder / "orders.csv", WHOLE[:1], SimpleNamespace(device="cuda", again=False))


def test_what_is_counted_goes_into_the_rows_once(tmp_path, monkeypatch):
    values = dict(zip(orders.METRICS.values(), (90.0, 2.0**20, 2.0**19, 2.0**30), strict=True))
    asked = []

    def counted(tool, point):
        asked.append(point)
        return [ncu.Launch("flash_attention_kernel", "", "", values) for _ in point.kernels]

    monkeypatch.setattr(orders, "counted", counted)
    monkeypatch.setattr(ncu, "find", lambda: "ncu")
    measured(tmp_path)
    for _ in range(2):
        profile(tmp_path)
    assert asked == [WHOLE[0]]
    assert all(
        row.l2_hits == 90 and row.read_hits == 50 and row.l2_reads == 32
        for row in rows.read(tmp_path / "orders.csv", orders.Row)
    )
    assert all(row.dram_reads == 1024 for row in rows.read(tmp_path / "orders.csv", orders.Row))


@pytest.mark.parametrize("failing", [True, False])
def test_without_nsight_compute_the_times_stand(tmp_path, monkeypatch, capsys, failing):
    def counted(tool, point):
        raise ncu.NcuFailed("no counters")

    monkeypatch.setattr(orders, "counted", counted)
    monkeypatch.setattr(ncu, "find", lambda: "ncu" if failing else None)
    before = (measured(tmp_path) / "orders.csv").read_text()
    profile(tmp_path)
    assert (tmp_path / "orders.csv").read_text() == before
    assert ("no counters" if failing else "is not here") in capsys.readouterr().err


def test_a_counter_that_is_unknown_is_asked_no_more(monkeypatch, tmp_path):
    known = orders.METRICS["all"]
    logs = []

    def watch(command):
        metrics, log = command[command.index("--metrics") + 1], command[command.index("--log-file") + 1]
        logs.append(metrics)
        said = "==ERROR== Failed to find metric lts__t_sectors_op_read_lookup_hit.sum"
        if "lookup_hit" not in metrics:
            line = f'"1","{orders.KERNEL}","(1)","(1)","42.5"'
            head = f'"ID","Kernel Name","Block Size","Grid Size","{known}"'
            said = "\n".join([head, '"","","","","%"', *[line] * len(WHOLE[0].kernels)])
        (type(tmp_path)(log)).write_text(said)
        return 0, ""

    monkeypatch.setattr("grader.gpu.profile.measure.watch", watch)
    launches = orders.counted("ncu", WHOLE[0])
    assert len(logs) == 2 and len(launches) == len(WHOLE[0].kernels)
    assert orders.found(launches[0].values)["l2_hits"] == 42.5
