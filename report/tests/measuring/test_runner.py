"""Arms that crash, hang, lie or run out of memory: each is a row with its reason, and the others go on."""

import signal
import subprocess
import sys

import pytest

from report import __main__ as command_line
from report.measuring import rows, runner, serve
from report.measuring.study import find_study
from report.places import ROOT
from report.tests import faulty

SWEEP = find_study("sweep")
ONE = ["--quick", "--tiers", "1x2x32", "--lengths", "128", "--no-windows", "--budget", "0.02"]


def measured(folder, faults, only, limit="180", study=SWEEP, chosen=ONE):
    argv = [*chosen, "--limit", limit, "--out", str(folder), "--only", only]
    assert command_line.main([study.name, *argv], faulty.command(faults)) == 0
    found = rows.read(folder / study.csv, study.row)
    return {row.kernel: row for row in found if getattr(row, "causal", True)}


@pytest.mark.thorough
def test_a_faulty_kernel_is_a_row_with_its_reason_and_the_others_go_on(tmp_path):
    faults = {"naive per head": "crash", "vectorised": "prints", "vectorised compiled": "oom", "P2": "wrong",
              "SDPA flash": "raises"}  # fmt: skip
    found = measured(tmp_path, faults, ",".join([*faults, "P4"]))
    assert found["naive per head"].status == "failed"
    assert found["naive per head"].reason == "its process ended with exit status 7 (the last words of a kernel)"
    assert found["vectorised compiled"].status == "oom" and found["vectorised compiled"].median_ms is None
    assert found["P2"].status == "failed" and found["P2"].reason.startswith(
        "wrong: off by 2.5e-01 at (b, h, row, d) = (0, "
    )
    assert found["SDPA flash"].reason == "RuntimeError: no kernel image is available"
    assert found["P4"].status == "not run" and found["P4"].reason.startswith("interpreter")
    ok = found["vectorised"]
    assert ok.status == "ok" and 0 < ok.min_ms <= ok.p20_ms <= ok.median_ms <= ok.p80_ms and ok.samples >= 1
    assert ok.tflops == pytest.approx(4 * 2 * 32 * (128 * 129 / 2) / (ok.median_ms * 1e9), rel=1e-3)
    assert ok.speedup == 1 and ok.fraction_of_peak is None and ok.peak_mib is None and ok.host_ms > 0


@pytest.mark.thorough
def test_a_kernel_that_dies_while_it_is_timed(tmp_path):
    found = measured(tmp_path, {"P2": "crash late"}, "vectorised,P2,SDPA flash")
    assert found["P2"].status == "failed" and "was killed by SIGSEGV" in found["P2"].reason
    assert found["vectorised"].status == found["SDPA flash"].status == "ok"
    low, high = found["SDPA flash"].speedup_low, found["SDPA flash"].speedup_high
    assert low <= found["SDPA flash"].speedup <= high


@pytest.mark.thorough
def test_a_kernel_that_hangs(tmp_path):
    found = measured(tmp_path, {"P2": "hang"}, "P2", limit="10")
    assert found["P2"].reason == "no result within 10 s, the limit for one step of a kernel (--limit)"


def test_a_process_that_never_starts(tmp_path, capsys):
    assert command_line.main(["sweep", *ONE, "--out", str(tmp_path)], (sys.executable, "-m", "no_such_module")) == 2
    said = capsys.readouterr().err
    assert "does not start: it ended with exit status 1" in said and "no_such_module" in said


@pytest.mark.thorough
def test_preparing_measures_nothing(tmp_path):
    argv = [*ONE, "--only", "vectorised compiled", "--prepare", "2", "--out", str(tmp_path)]
    assert command_line.main(["sweep", *argv], faulty.command({"vectorised compiled": "crash"})) == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_killed_in_the_middle_it_goes_on_and_nothing_outlives_it(tmp_path):
    argv = [sys.executable, "-m", "report", "sweep", "--quick", "--no-windows", "--tiers", "1x2x32", "--lengths",
            "128,256", "--only", "vectorised,SDPA flash", "--budget", "0.02", "--out", str(tmp_path)]  # fmt: skip
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    for line in process.stderr:
        if line.startswith("[2/"):
            break
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)  # returns when its children have closed standard error
    path = tmp_path / "sweep.csv"
    kept = [line for line in path.read_text("utf-8").splitlines() if ",ok," in line]
    assert len(kept) >= 4
    with path.open("a") as file:
        file.write("P2,B=1")
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "never finished" in done.stderr, done.stderr
    assert set(kept) <= set(path.read_text("utf-8").splitlines()) and len(rows.read(path, SWEEP.row)) == 8


def test_stopped_in_the_middle_it_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner.Runner, "measure", stop)
    assert command_line.main(["sweep", *ONE, "--out", str(tmp_path)]) == 130
    assert "report: stopped; every finished row is kept" in capsys.readouterr().err


def test_rows_of_the_cpu_do_not_bear_the_name_of_a_gpu(monkeypatch):
    from grader.gpu import machine

    here = {"gpu": "NVIDIA H200", "memory_gib": 140, "driver": "580", "cudnn": 91900, "torch": "2.13.0"}
    monkeypatch.setattr(machine, "facts", lambda: here)
    monkeypatch.setattr(machine, "clocks", lambda: {"sm_mhz": 1980.0})
    cpu, cuda = serve.facts("cpu"), serve.facts("cuda")
    assert cpu["gpu"] is cpu["driver"] is cpu["clocks"] is None and cpu["torch"] == "2.13.0"
    assert cuda["gpu"] == "NVIDIA H200" and cuda["clocks"]


# The other studies, small and in the interpreter ---------------------------------------------------------------------


@pytest.mark.thorough
def test_block_sparse_rows_of_every_kind(tmp_path):
    study = find_study("block_sparse")
    faults = {"simple": "wrong", "prefetch": "wrong lse", "tiles_of_predicate": "wrong map"}
    chosen = ["--quick", "--patterns", "random FP,by density,map of documents", "--budget", "0.02"]
    only = "simple,prefetch,longest_first,FlexAttention,longest_first at 1,longest_first at 0.5"
    only += ",tiles_of_predicate,tiles_on_gpu"
    found = measured(tmp_path, faults, only, study=study, chosen=chosen)
    assert found["simple"].reason.startswith("wrong: off by") and found["simple"].median_us is None
    assert found["prefetch"].reason.startswith("wrong: lse is") and found["prefetch"].status == "failed"
    assert "1 pairs of the map" in found["tiles_of_predicate"].reason
    ok = found["longest_first"]
    assert ok.status == "ok" and 0 < ok.p20_us <= ok.median_us <= ok.p80_us and 0 < ok.sparsity < 1 and ok.tflops > 0
    assert found["FlexAttention"].status == found["tiles_on_gpu"].status == "not run"
    assert found["FlexAttention"].sparsity == ok.sparsity, "a row says what its mask is, measured or not"
    # On a busy machine one may be slow and the other not: then they take no turns with each other.
    assert found["longest_first at 0.5"].density == 0.5 and found["longest_first at 1"].over_dense == 1


@pytest.mark.thorough
def test_the_ladders_rungs_are_compared_each_under_its_own_mask(tmp_path):
    faults = {"P7": "as P6"}  # it forgets its sinks
    found = measured(tmp_path, faults, "P1,P3,P5,P6,P7,fast as P4", study=find_study("ladder"), chosen=["--quick"])
    assert found["P7"].status == "failed" and found["P7"].reason.startswith("wrong")
    assert found["fast as P4"].status == "not run" and found["fast as P4"].median_ms is None
    assert found["P6"].over_naive > 0 and found["P3"].over_full == 1
    assert found["P1"].over_naive == 1 and found["P1"].over_before is None


@pytest.mark.thorough
def test_an_order_that_leaves_tiles_out_is_wrong(tmp_path):
    found = measured(
        tmp_path,
        {"reversed": "loses tiles"},
        "plain,reversed,all heads",
        study=find_study("orders"),
        chosen=["--quick"],
    )
    assert found["reversed"].status == "failed" and found["reversed"].reason.startswith("wrong")
    assert found["all heads"].status == "ok" and found["plain"].over_plain == 1 and found["plain"].l2_hits is None
