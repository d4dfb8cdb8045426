"""The command of a study: what it refuses, how it goes on, and whose rows lie in one file."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from report import __main__ as command_line
from report.measuring import command, machine, rows, runner
from report.measuring.study import find_study
from report.places import ROOT

SWEEP = find_study("sweep")
ONE = ["--quick", "--tiers", "1x2x32", "--lengths", "128", "--no-windows"]
MACHINE = {"gpu": "NVIDIA H200", "torch": "2.13.0", "triton": "3.7.1", "clocks": {"sm_mhz": 1980.0}}


class FakeRunner:
    """Measures in no time. asked: what was measured with which companions."""

    def __init__(self, study, device, limit, command):
        self.study, self.machine, self.asked = study, dict(MACHINE), []
        FakeRunner.last = self

    def measure(self, point, names, companions, budget):
        self.asked.append((point, tuple(names), tuple(companions)))
        for name in names:
            yield replace(self.study.blank(point, name), **self.result(name))

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


def status(folder, *arguments, study=SWEEP):
    return command_line.main([study.name, *arguments, "--out", str(folder)])


def read(folder):
    return {(row.kernel, row.causal): row for row in rows.read(folder / "sweep.csv", SWEEP.row)}


# Arguments, files and machines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("study", "arguments", "words"),
    [
        ("sweep", ["--only", "P4,P9"], "no kernel 'P9'; the kernels are naive per head, vectorised"),
        ("sweep", ["--tiers", "3x3x3"], "no tier '3x3x3'; the tiers are 1x12x64, 8x12x64"),
        ("sweep", ["--lengths", "511"], "no length '511'"),
        ("sweep", ["--dtypes", "float8"], "no dtype 'float8'; the dtypes are float16, bfloat16"),
        ("sweep", ["--windows", "7"], "no window '7'; the windows are 128, 1k, 4k"),
        ("sweep", ["--budget", "-1"], "--budget must be more than 0"),
        ("sweep", ["--loud"], "--loud"),
        ("sweep", ["--only", "P6", "--no-windows"], "nothing is left to measure"),
        (
            "block_sparse",
            ["--parts", "nothing"],
            "no part 'nothing'; the parts are patterns, published, full, density, maps",
        ),
        ("block_sparse", ["--patterns", "causl"], "no pattern 'causl'"),
        ("block_sparse", ["--seconds", "0"], "--seconds must be more than 0"),
        ("ladder", ["--tiers", "1x2x32"], "--tiers"),
    ],
)
def test_arguments_that_cannot_be_used(tmp_path, capsys, study, arguments, words):
    assert status(tmp_path, *arguments, study=find_study(study)) == 2
    said = capsys.readouterr().err
    assert words in said and said.startswith("report: ") and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("study", "words"),
    [
        ("sweep", "B=4 H=16 D=128 N=16384 causal float16: naive per head, "),
        ("ladder", "24 rows at 2 points"),
        ("steps", "42 rows at 8 points"),
        ("block_sparse", "808 rows at 100 points"),
        ("packed", "900 rows at 30 points"),
        ("orders", "39 rows at 7 points"),
    ],
)
def test_the_list_needs_neither_gpu_nor_torch(study, words):
    code = (
        "import sys; from report import __main__ as m; "
        f"sys.exit(m.main([{study!r}, '--list']) or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert words in done.stdout


def test_what_is_chosen():
    def asked(*arguments, study="sweep"):
        return command.plan(find_study(study), command.parse(find_study(study), arguments))

    only = asked("--tiers", "4x16x128", "--lengths", "4096,16k", "--dtypes", "float16", "--only", "P4,fast")
    windows = {point.window for point, _ in only}
    assert windows == {None, 128, 1024, 4096} and all(names for _, names in only)
    assert {names[0] for point, names in only if point.window is None and point.causal} == {"P4"}
    assert all(point.window for point, _ in asked("--tiers", "none"))
    assert not any(point.window for point, _ in asked("--no-windows"))
    maps = asked("--parts", "maps", "--only", "tiles_on_gpu", study="block_sparse")
    assert len(maps) == 6 and all(names == ["tiles_on_gpu"] for _, names in maps)


def test_without_a_gpu(tmp_path, capsys):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for arguments in ([], ["--prepare", "2"]):
        assert status(tmp_path, *arguments) == 2
        assert "no GPU here; --quick needs none" in capsys.readouterr().err


def test_another_version_is_untouched(fake, tmp_path, capsys):
    (tmp_path / "sweep.csv").write_text("kernel,tier\nP4,x\n", "utf-8")
    assert status(tmp_path, *ONE) == 2
    assert "another version" in capsys.readouterr().err
    assert (tmp_path / "sweep.csv").read_text("utf-8") == "kernel,tier\nP4,x\n"


def test_rows_of_another_machine_are_not_mixed(fake, tmp_path, capsys):
    assert status(tmp_path, *ONE) == 0
    facts = json.loads((tmp_path / "machine.json").read_text("utf-8"))
    assert facts["clocks"]["after"] == {"sm_mhz": 1980.0} and "protocol" in facts
    before = (tmp_path / "sweep.csv").read_bytes()
    (tmp_path / "machine.json").write_text(json.dumps({**facts, "gpu": "NVIDIA A100"}), "utf-8")
    assert status(tmp_path, *ONE, "--again") == 2
    assert "measured with gpu NVIDIA A100, and here it is NVIDIA H200" in capsys.readouterr().err
    assert (tmp_path / "sweep.csv").read_bytes() == before


@pytest.mark.parametrize(("torn", "words"), [("[]", "does not name the machine"), ("{", "is no JSON")])
def test_a_torn_machine_file(fake, tmp_path, capsys, torn, words):
    path = tmp_path / "machine.json"
    path.write_text(torn, "utf-8")
    assert status(tmp_path, *ONE) == 0
    assert json.loads(path.read_text("utf-8"))["gpu"] == "NVIDIA H200"
    path.write_text(torn, "utf-8")
    assert status(tmp_path, *ONE) == 2
    said = capsys.readouterr().err
    assert words in said and "delete it if the rows beside it are of this machine" in said


def test_a_full_disk(fake, tmp_path, capsys, monkeypatch):
    add = rows.Writer.add

    def full(writer, row):
        if row.kernel == "P2":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        add(writer, row)

    with monkeypatch.context() as patch:
        patch.setattr(rows.Writer, "add", full)
        assert status(tmp_path, *ONE) == 2
    said = capsys.readouterr().err
    assert "No space left on device; every finished row is kept" in said and "Traceback" not in said
    assert set(read(tmp_path)) == {(name, True) for name in ("naive per head", "vectorised", "vectorised compiled")}
    assert status(tmp_path, *ONE) == 0
    assert FakeRunner.last.asked[0][1][0] == "P2"


def test_the_folder_is_named_after_the_gpu():
    assert machine.slug("NVIDIA H200") == "h200"
    assert machine.slug("NVIDIA GeForce RTX 4090") == "geforce-rtx-4090"


def test_commits_of_earlier_rows_are_kept(tmp_path):
    path = tmp_path / "machine.json"
    assert machine.earlier_commits(path, {"commit": "c"}) == []
    path.write_text(json.dumps({"gpu": None, "commit": "b", "earlier_commits": ["a"]}), "utf-8")
    assert machine.earlier_commits(path, {"commit": "c"}) == ["a", "b"]
    assert machine.earlier_commits(path, {"commit": "b"}) == ["a"]


# Going on ------------------------------------------------------------------------------------------------------------


def test_finished_rows_are_never_measured_twice(fake, tmp_path, monkeypatch):
    results = {"SDPA flash": "oom", "SDPA cuDNN": "failed"}
    monkeypatch.setattr(
        fake, "result",
        lambda self, name: {"status": results.get(name, "ok"), "reason": ""} if name != "P4" else {"status": "not run"},
    )  # fmt: skip
    assert status(tmp_path, *ONE) == 0
    assert len(read(tmp_path)) == 22
    assert status(tmp_path, *ONE) == 0
    (point, names, companions), *more = fake.last.asked
    assert not more and point.causal and names == ("P4",) and companions == ("vectorised", "fast")
    assert len((tmp_path / "sweep.csv").read_text("utf-8").splitlines()) == 23
    assert status(tmp_path, *ONE, "--again") == 0
    assert sum(len(names) for _, names, _ in fake.last.asked) == 22
    assert len((tmp_path / "sweep.csv").read_text("utf-8").splitlines()) == 23


def test_where_nothing_is_left_the_facts_of_the_rows_stay(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(fake, "result", lambda self, name: {"median_ms": 1.0})
    monkeypatch.setitem(MACHINE, "commit", "a")
    assert status(tmp_path, *ONE) == 0
    before = (tmp_path / "machine.json").read_text("utf-8")
    monkeypatch.setitem(MACHINE, "commit", "b")
    assert status(tmp_path, *ONE) == 0
    assert (tmp_path / "machine.json").read_text("utf-8") == before


def test_the_ratio_of_a_late_row_is_to_what_fitted(fake, tmp_path, monkeypatch):
    outcome = {"vectorised": {"status": "oom", "reason": "out of memory"}, "P4": {"status": "not run"}}
    monkeypatch.setattr(fake, "result", lambda self, name: outcome.get(name, {}))
    status(tmp_path, *ONE)
    status(tmp_path, *ONE)
    assert fake.last.asked[0][1:] == (("P4",), ("naive per head", "fast"))


@pytest.mark.parametrize(
    ("study", "pattern", "name", "companions"),
    [
        ("ladder", None, "P5", ["P1", "P3", "P4"]),
        ("orders", None, "reversed", ["plain"]),
        ("block_sparse", "causal", "fast", ["FlexAttention", "cuDNN dense", "fast_attention dense"]),
        ("block_sparse", "by density", "fast at 0.5", ["fast at 1"]),
        ("block_sparse", "map of causal", "tiles_on_gpu", []),
    ],
)
def test_what_each_ratio_is_taken_to(study, pattern, name, companions):
    study = find_study(study)
    point = next(point for point in study.whole if point.pattern == pattern)
    done = {row.key: row for kernel in point.kernels for row in [study.blank(point, kernel)]}
    assert study.companions(point, [name], done) == companions
    assert study.companions(point, [name], {}) == [] == study.companions(point, list(point.kernels), done)


def test_a_limit_in_seconds_leaves_the_rest_for_the_next_run(fake, tmp_path, capsys):
    few = ["--quick", "--lengths", "128", "--no-windows", "--only", "vectorised"]
    assert status(tmp_path, *few, "--seconds", "1e-9") == 0
    assert "4 points are left after 1e-09 s; every finished row is kept" in capsys.readouterr().err
    assert status(tmp_path, *few) == 0 and len(fake.last.asked) == 4


def test_only_what_is_left_is_compiled_ahead(fake, tmp_path, monkeypatch):
    few = ["--quick", "--no-windows", "--tiers", "1x2x32", "--only", "vectorised"]
    assert status(tmp_path, *few, "--lengths", "128") == 0
    before, asked = (tmp_path / "sweep.csv").read_bytes(), []
    monkeypatch.setattr(runner, "prepare", lambda new, left, *_: asked.extend(left))
    assert status(tmp_path, *few, "--lengths", "128,256", "--prepare", "2") == 0
    assert {point.N for point, _ in asked} == {256} and (tmp_path / "sweep.csv").read_bytes() == before


def test_the_report_ends_where_nothing_was_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(runner, "prepare", lambda *_: None)
    monkeypatch.setattr(command_line, "pages", lambda argv: pytest.fail("there is nothing to show"))
    for option in (["--prepare", "2"], ["--list"]):
        assert command_line.main(["--quick", *option, "--out", str(tmp_path)]) == 0
    assert not list(tmp_path.iterdir())
