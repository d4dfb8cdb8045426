"""The sweep's command: what it refuses, how it goes on, and what a faulty kernel costs."""

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from report import resume, runner, shapes, sweep, table

ONE = ["--quick", "--tiers", "1x2x32", "--lengths", "128", "--no-windows"]
MACHINE = {"gpu": "NVIDIA H200", "torch": "2.13.0", "triton": "3.7.1", "clocks": {"sm_mhz": 1980.0}}


class FakeRunner:
    """Measures in no time. asked: what was measured with which companions."""

    def __init__(self, device, limit, command):
        self.machine, self.asked = dict(MACHINE), []
        FakeRunner.last = self

    def measure(self, point, names, companions, budget):
        self.asked.append((point, tuple(names), tuple(companions)))
        for name in names:
            yield replace(point.row(name), **self.result(name))

    def result(self, name):
        return {"status": "not run", "reason": "interpreter"} if name == "P4" else {"median_ms": 1.0}

    def machine_now(self):
        return self.machine

    def close(self):
        pass


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(runner, "Runner", FakeRunner)
    return FakeRunner


def status(folder, *arguments):
    return sweep.main([*arguments, "--out", str(folder)])


def rows(folder):
    return {(row.kernel, row.causal): row for row in table.read(folder / "sweep.csv")}


# Arguments, files and machines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "P4,P9"], "no kernel 'P9'; the kernels are naive per head, vectorised"),
        (["--tiers", "3x3x3"], "no tier '3x3x3'; the tiers are 1x12x64, 8x12x64"),
        (["--lengths", "511"], "no length '511'"),
        (["--dtypes", "float8"], "no dtype 'float8'; the dtypes are float16, bfloat16"),
        (["--windows", "7"], "no window '7'; the windows are 128, 1k, 4k"),
        (["--budget", "-1"], "--budget must be more than 0"),
        (["--loud"], "--loud"),
        (["--only", "P6", "--no-windows"], "nothing is left to measure"),
    ],
)
def test_arguments_that_cannot_be_used(tmp_path, capsys, arguments, words):
    assert status(tmp_path, *arguments) == 2
    said = capsys.readouterr().err
    assert words in said and said.startswith("sweep: ") and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_list_needs_neither_gpu_nor_torch(tmp_path):
    code = "import sys; from report import sweep; sys.exit(sweep.main(['--list']) or 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=runner.ROOT)
    assert done.returncode == 0, done.stderr
    assert "B=4 H=16 D=128 N=16384 causal float16: naive per head, " in done.stdout


def test_without_a_gpu(tmp_path, capsys):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for arguments in ([], ["--prepare", "2"]):
        assert status(tmp_path, *arguments) == 2
        assert "no GPU here; `python -m report.sweep --quick` needs no GPU" in capsys.readouterr().err


def test_another_version_is_untouched(fake, tmp_path, capsys):
    (tmp_path / "sweep.csv").write_text("kernel,tier\nP4,x\n")
    assert status(tmp_path, *ONE) == 2
    assert "another version" in capsys.readouterr().err
    assert (tmp_path / "sweep.csv").read_text() == "kernel,tier\nP4,x\n"


def test_rows_of_another_machine_are_not_mixed(fake, tmp_path, capsys):
    assert status(tmp_path, *ONE) == 0
    facts = json.loads((tmp_path / "machine.json").read_text())
    assert facts["clocks"]["after"] == {"sm_mhz": 1980.0} and "protocol" in facts
    before = (tmp_path / "sweep.csv").read_bytes()
    (tmp_path / "machine.json").write_text(json.dumps({**facts, "gpu": "NVIDIA A100"}))
    assert status(tmp_path, *ONE, "--again") == 2
    assert "measured with gpu NVIDIA A100, and here it is NVIDIA H200" in capsys.readouterr().err
    assert (tmp_path / "sweep.csv").read_bytes() == before


@pytest.mark.parametrize("torn", ["[]", "{"])
def test_a_torn_machine_file(fake, tmp_path, capsys, torn):
    path = tmp_path / "machine.json"
    path.write_text(torn)
    assert status(tmp_path, *ONE) == 0
    assert json.loads(path.read_text())["gpu"] == "NVIDIA H200"
    path.write_text(torn)
    assert status(tmp_path, *ONE) == 2
    assert "machine.json cannot be read" in capsys.readouterr().err


def test_a_full_disk(fake, tmp_path, capsys, monkeypatch):
    add = table.Writer.add

    def full(writer, row):
        if row.kernel == "P2":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        add(writer, row)

    with monkeypatch.context() as patch:
        patch.setattr(table.Writer, "add", full)
        assert status(tmp_path, *ONE) == 2
    said = capsys.readouterr().err
    assert "No space left on device; every finished row is kept" in said and "Traceback" not in said
    assert set(rows(tmp_path)) == {(name, True) for name in table.BASELINES}
    assert status(tmp_path, *ONE) == 0
    assert FakeRunner.last.asked[0][1][0] == "P2"


def test_the_folder_is_named_after_the_gpu():
    assert resume.slug("NVIDIA H200") == "h200"
    assert resume.slug("NVIDIA GeForce RTX 4090") == "geforce-rtx-4090"


# Going on ------------------------------------------------------------------------------------------------------------


def test_finished_rows_are_never_measured_twice(fake, tmp_path, monkeypatch):
    results = {"SDPA flash": "oom", "SDPA cuDNN": "failed"}
    monkeypatch.setattr(
        fake, "result",
        lambda self, name: {"status": results.get(name, "ok"), "reason": ""} if name != "P4" else {"status": "not run"},
    )  # fmt: skip
    assert status(tmp_path, *ONE) == 0
    assert len(rows(tmp_path)) == 20
    assert status(tmp_path, *ONE) == 0
    (point, names, companions), *more = fake.last.asked
    assert not more and point.causal and names == ("P4",) and companions == ("vectorised", "fast")
    assert len((tmp_path / "sweep.csv").read_text().splitlines()) == 21
    assert status(tmp_path, *ONE, "--again") == 0
    assert sum(len(names) for _, names, _ in fake.last.asked) == 20
    assert len((tmp_path / "sweep.csv").read_text().splitlines()) == 21


def test_where_nothing_is_left_the_facts_of_the_rows_stay(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(fake, "result", lambda self, name: {"median_ms": 1.0})
    monkeypatch.setitem(MACHINE, "commit", "a")
    assert status(tmp_path, *ONE) == 0
    before = (tmp_path / "machine.json").read_text()
    monkeypatch.setitem(MACHINE, "commit", "b")
    assert status(tmp_path, *ONE) == 0
    assert (tmp_path / "machine.json").read_text() == before


def test_the_ratio_of_a_late_row_is_to_what_fitted(fake, tmp_path, monkeypatch):
    outcome = {"vectorised": {"status": "oom", "reason": "out of memory"}, "P4": {"status": "not run"}}
    monkeypatch.setattr(fake, "result", lambda self, name: outcome.get(name, {}))
    status(tmp_path, *ONE)
    status(tmp_path, *ONE)
    assert fake.last.asked[0][1:] == (("P4",), ("naive per head", "fast"))


def test_stopped_in_the_middle_it_goes_on(tmp_path):
    command = [sys.executable, "-m", "report.sweep", "--quick", "--no-windows", "--tiers", "1x2x32", "--out", tmp_path]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=runner.ROOT)
    for line in process.stderr:
        if line.startswith("[2/"):
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "sweep: stopped; every finished row is kept" in said and "Traceback" not in said
    kept = (tmp_path / "sweep.csv").read_bytes()
    assert len(table.read(tmp_path / "sweep.csv")) >= 20
    with (tmp_path / "sweep.csv").open("a") as file:
        file.write("P2,B=1")
    done = subprocess.run([*command, "--lengths", "128,256"], capture_output=True, text=True, cwd=runner.ROOT)
    assert done.returncode == 0 and "never finished" in done.stderr, done.stderr
    lines = {line for line in kept.decode().splitlines() if ",ok," in line}
    assert lines and lines <= set((tmp_path / "sweep.csv").read_text().splitlines())
    assert len(rows(tmp_path)) == 20 and len(table.read(tmp_path / "sweep.csv")) == 40


# Faulty kernels ------------------------------------------------------------------------------------------------------


def measured(folder, *faults, only=None, limit="60"):
    command = (sys.executable, "-m", "report.tests.child", *faults)
    argv = [*ONE, "--limit", limit, "--out", str(folder), *(["--only", only] if only else [])]
    assert sweep.main(argv, command) == 0
    return {kernel: row for (kernel, causal), row in rows(folder).items() if causal}


def test_a_faulty_kernel_is_a_row_with_its_reason_and_the_others_go_on(tmp_path):
    faults = "naive per head=crash", "vectorised compiled=oom", "P2=wrong", "SDPA flash=raises", "vectorised=prints"
    found = measured(tmp_path, *faults)
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


def test_a_kernel_that_dies_while_it_is_timed(tmp_path):
    found = measured(tmp_path, "P2=crash late", only="vectorised,P2,SDPA flash")
    assert found["P2"].status == "failed" and "SIGSEGV" in found["P2"].reason
    assert found["vectorised"].status == found["SDPA flash"].status == "ok"
    low, high = found["SDPA flash"].speedup_low, found["SDPA flash"].speedup_high
    assert low <= found["SDPA flash"].speedup <= high


def test_a_kernel_that_hangs(tmp_path):
    found = measured(tmp_path, "P2=hang", only="P2,SDPA flash", limit="8")
    assert found["P2"].reason == "no result within 8 s, the limit for one step of a kernel (--limit)"
    assert found["SDPA flash"].status == "ok"


def test_a_child_that_never_starts(tmp_path, capsys):
    assert sweep.main([*ONE, "--out", str(tmp_path)], (sys.executable, "-c", "import no_such_module")) == 2
    assert "does not start" in capsys.readouterr().err


def test_preparing_measures_nothing(tmp_path):
    command = (sys.executable, "-m", "report.tests.child", "vectorised compiled=crash")
    assert sweep.main([*ONE, "--prepare", "2", "--out", str(tmp_path)], command) == 0
    assert not list(tmp_path.iterdir())


def test_rows_of_the_cpu_do_not_bear_the_name_of_a_gpu(monkeypatch):
    from report import bench

    here = {"gpu": "NVIDIA H200", "memory_gib": 140, "driver": "580", "cudnn": 91900, "torch": "2.13.0"}
    monkeypatch.setattr(bench.machine, "facts", lambda: here)
    monkeypatch.setattr(bench.machine, "clocks", lambda: {"sm_mhz": 1980.0})
    cpu, cuda = bench.facts("cpu"), bench.facts("cuda")
    assert cpu["gpu"] is cpu["driver"] is cpu["clocks"] is None and cpu["torch"] == "2.13.0"
    assert cuda["gpu"] == "NVIDIA H200" and cuda["clocks"]


def test_the_report_ends_where_nothing_was_measured(monkeypatch, tmp_path):
    from report import __main__ as command

    monkeypatch.setattr(sweep, "main", lambda argv: 0)
    for option in (["--prepare", "2"], ["--list"]):
        assert command.main(["--quick", *option, "--out", str(tmp_path)]) == 0
    assert not list(tmp_path.iterdir())


def test_every_quick_row_is_known():
    for point in shapes.QUICK.points():
        assert set(shapes.QUICK.kernels(point)) <= set(table.KERNELS)


def test_commits_of_earlier_rows_are_kept(tmp_path):
    path = tmp_path / "machine.json"
    assert resume.earlier_commits(path, {"commit": "c"}) == []
    path.write_text(json.dumps({"commit": "b", "earlier_commits": ["a"]}))
    assert resume.earlier_commits(path, {"commit": "c"}) == ["a", "b"]
    assert resume.earlier_commits(path, {"commit": "b"}) == ["a"]
