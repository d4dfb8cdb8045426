"""Slower is said of rows that are slower, and not of another clock, of noise, or of a peer's bad day."""

from dataclasses import replace

import pytest

from report import __main__ as command_line
from report.measuring.rows import not_measured
from report.pages import compare as regression
from report.pages import measured
from report.pages.measured import question
from report.studies.sweep import PEERS
from report.tests import synthetic

MS = ("avg_ms", "std_ms", "min_ms", "median_ms", "p20_ms", "p80_ms")
AT = ("B=4 H=16 D=128", 16384, 16384, True, "float16")


def timed(row, factor):
    """The row, its times longer by a factor; ratios are left as they were."""
    return replace(row, **{name: getattr(row, name) and getattr(row, name) * factor for name in MS})


def slowed(rows, factor, chosen):
    """The rows with those that are chosen slower, and the ratios to our fast kernel as a sweep would find them."""
    after = [timed(row, factor) if chosen(row) else row for row in rows]
    fast = {question(row): factor for row in rows if row.kernel == "fast" and chosen(row)}
    scaled = []
    for row in after:
        by = (factor if chosen(row) else 1) / fast.get(question(row), 1)
        names = ("ours", "ours_low", "ours_high")
        scaled.append(replace(row, **{name: getattr(row, name) and getattr(row, name) * by for name in names}))
    return scaled


@pytest.fixture
def run(tmp_path, capsys):
    def running(fresh, *options, before=None, **machine):
        old = synthetic.write(tmp_path / "old", before)
        new = synthetic.write(tmp_path / "new", fresh, **machine)
        status = command_line.main(["compare", str(new), str(old), *options])
        said = capsys.readouterr()
        return status, said.out + said.err

    return running


def test_the_same_sweep_twice(run):
    status, said = run(synthetic.rows())
    assert status == 0 and " 0 slower, 0 faster, " in said and "warning" not in said


def test_a_slower_kernel_is_named_and_no_other(run):
    for kernel in ("fast", "P4"):
        status, said = run(slowed(synthetic.rows(), 1.1, lambda row, k=kernel: row.kernel == k and question(row) == AT))
        named = [line for line in said.splitlines() if line.startswith("slower: ")]
        assert status == 1 and len(named) == 1
        assert named[0].startswith(f"slower: {kernel}, B=4 H=16 D=128 causal N=16384 float16: 1.10 times as long")


def test_a_slower_clock_is_no_slower_kernel(run):
    status, said = run(slowed(synthetic.rows(), 1.3, lambda row: True))
    assert status == 0 and " 0 slower, 0 faster" in said


def test_one_peer_that_became_faster_is_no_slower_kernel(run):
    status, _ = run(slowed(synthetic.rows(), 0.7, lambda row: row.kernel == "SDPA cuDNN"))
    assert status == 0


def test_a_change_within_the_noise_is_none_and_the_margin_is_heard(run):
    slight = slowed(synthetic.rows(), 1.02, lambda row: row.kernel == "fast")
    assert run(slight)[0] == 0
    more = slowed(synthetic.rows(), 1.06, lambda row: row.kernel == "fast" and row.q_len == 16384)
    assert run(more)[0] == 1 and run(more, "--margin", "10")[0] == 0


def test_faster_is_counted(run):
    status, said = run(slowed(synthetic.rows(), 0.8, lambda row: row.kernel == "fast" and question(row) == AT))
    assert status == 0 and " 0 slower, 1 faster" in said


def test_a_kernel_that_fails_now(run):
    rows = synthetic.rows()
    index = next(i for i, row in enumerate(rows) if row.kernel == "fast" and question(row) == AT)
    rows[index] = not_measured(rows[index], "failed", "illegal memory access")
    status, said = run(rows)
    assert status == 1 and "was measured, now failed: illegal memory access" in said


def test_without_a_peer_bare_times_are_compared_with_a_warning(run):
    rows = [row for row in synthetic.rows() if row.kernel not in PEERS]
    status, said = run(slowed(rows, 1.3, lambda row: row.kernel == "fast" and question(row) == AT))
    assert status == 1 and "warning: " in said and "against nothing (bare times)" in said


def test_a_sweep_that_was_stopped_is_compared_as_far_as_it_went(run):
    status, said = run(synthetic.rows()[:300])
    assert status == 0 and "were not measured again" in said


@pytest.mark.parametrize("fact", regression.SAME)
def test_another_machine_is_refused_unless_told(run, fact):
    status, said = run(synthetic.rows(), **{fact: "another"})
    assert status == 2 and f"with {fact} another" in said and said.count("\n") == 1
    assert run(synthetic.rows(), "--anyway", **{fact: "another"})[0] == 0


def test_nothing_in_common(run):
    windows = [row for row in synthetic.rows() if row.window]
    status, said = run(windows, before=[row for row in synthetic.rows() if not row.window])
    assert status == 2 and "in common" in said


def test_the_committed_sweep_is_found_by_its_gpu(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(regression, "RESULTS", tmp_path / "results")
    synthetic.write(tmp_path / "results" / "other", gpu="Another GPU")
    fresh = synthetic.write(tmp_path / "fresh")
    assert command_line.main(["compare", str(fresh)]) == 2
    assert "no committed results were measured on Imaginary GPU" in capsys.readouterr().err
    synthetic.write(tmp_path / "results" / "same")
    assert command_line.main(["compare", str(fresh)]) == 0
    assert measured.load(fresh).machine["gpu"] == "Imaginary GPU"


def test_a_sweep_is_not_compared_with_itself(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(regression, "RESULTS", tmp_path)
    published = synthetic.write(tmp_path / "same")
    assert command_line.main(["compare", str(published)]) == 2
    assert "would be compared with itself; sweep into another folder with --out" in capsys.readouterr().err
