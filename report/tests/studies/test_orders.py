"""Orders of programs: what Nsight Compute counts goes into the rows, once; without it the times stand."""

from types import SimpleNamespace

import pytest

from grader.gpu import ncu
from report.measuring import counters, rows
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
        return [counters.Launch("flash_attention_kernel", values) for _ in point.kernels]

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
        raise ncu.Failed("no counters")

    monkeypatch.setattr(orders, "counted", counted)
    monkeypatch.setattr(ncu, "find", lambda: "ncu" if failing else None)
    before = (measured(tmp_path) / "orders.csv").read_text("utf-8")
    profile(tmp_path)
    assert (tmp_path / "orders.csv").read_text("utf-8") == before
    assert ("no counters" if failing else "is not here") in capsys.readouterr().err


def table(*cells):
    """What ncu writes of as many launches as there are orders."""
    line = ",".join(f'"{cell}"' for cell in ("1", orders.KERNEL, *cells))
    head = ",".join(f'"{name}"' for name in ("ID", "Kernel Name", *orders.METRICS.values()))
    return "\n".join(["==PROF== Connected", head, '"","","%","","",""', *[line] * len(WHOLE[0].kernels), line[:20]])


def test_what_was_not_counted_is_blank(monkeypatch):
    monkeypatch.setattr(ncu, "look_into", lambda *asked: (table("42.5", "1,024", "n/a", ""), ""))
    (first, *_) = launches = orders.counted("ncu", WHOLE[0])
    assert len(launches) == len(WHOLE[0].kernels)
    assert orders.found(first.values) == {
        "l2_hits": 42.5, "read_hits": None, "l2_reads": 1024 * 32 / 2**20, "dram_reads": None,
    }  # fmt: skip


def test_a_counter_that_is_unknown_is_asked_no_more(monkeypatch):
    asked = []

    def look_into(tool, folder, options, program):
        asked.append(options[1])
        unknown = orders.METRICS["found"] in options[1]
        return f"==ERROR== Failed to find metric {orders.METRICS['found']}" if unknown else table(1, 2, 3, 4), ""

    monkeypatch.setattr(ncu, "look_into", look_into)
    assert orders.counted("ncu", WHOLE[0]) and len(asked) == 2


@pytest.mark.parametrize(("said", "words"), [("==ERROR== busy\n", "busy"), ("", "ncu: no libnvperf")])
def test_without_a_table_ncus_own_words_are_the_reason(said, words, monkeypatch):
    monkeypatch.setattr(ncu, "look_into", lambda *asked: (said, "ncu: no libnvperf\n"))
    with pytest.raises(ncu.Failed, match=words):
        orders.counted("ncu", WHOLE[0])
