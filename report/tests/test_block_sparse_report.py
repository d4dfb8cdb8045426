"""Block-sparse attention measured, small and in the interpreter: rows, faults, stopping and going on."""

import json
import signal
import subprocess
import sys

import pytest
import torch

from grader.kinds.block_sparse import tile_map
from report import block_sparse, runner, sparse_bench, sparse_kernels, table
from report import sparse_points as names
from report.sparse_points import QUICK, WHOLE, SparsePoint, SparseRow

ONE = ["--quick", "--lengths", "64", "--patterns", "random FP", "--budget", "0.02"]


def measured(folder, *arguments, faults=(), limit="60"):
    command = (sys.executable, "-m", "report.tests.sparse_child", *faults) if faults else block_sparse.COMMAND
    assert block_sparse.main([*(arguments or ONE), "--limit", limit, "--out", str(folder)], command) == 0
    return rows(folder)


def rows(folder):
    return {(row.pattern, row.n, row.kernel): row for row in table.read(folder / names.FILE, SparseRow)}


def test_what_is_asked():
    asked = {point: point.kernels for point in WHOLE}
    patterns = [point for point in asked if point.pattern in names.PATTERNS]
    assert len(patterns) == 5 * 6 * 2 and len(asked) == 60 + 4 * 2 + 2 + 3 * 2
    assert all((names.MASKED in asked[point]) == (point.n <= 4096) for point in patterns)
    keys = [point.row(name).key for point, found in asked.items() for name in found]
    assert len(set(keys)) == len(keys)


def test_the_list_needs_no_torch():
    code = "import sys; from report import block_sparse as b; sys.exit(b.main(['--list']) or 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=runner.ROOT)
    assert done.returncode == 0 and "600 rows at 76 points" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--parts", "nothing"], "no part 'nothing'; the parts are patterns, full, density, maps"),
        (["--patterns", "causl"], "no pattern 'causl'"),
        (["--only", "P4"], "no kernel 'P4'"),
        (["--seconds", "0"], "--seconds must be more than 0"),
        (["--parts", "maps", "--only", "fast"], "nothing is left to measure"),
    ],
)
def test_arguments_that_cannot_be_used(tmp_path, capsys, arguments, words):
    assert block_sparse.main([*arguments, "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1 and not list(tmp_path.iterdir())


def test_a_small_run_has_every_kind_of_row(tmp_path):
    found = measured(tmp_path, "--quick", "--patterns", "interleaved,by density,map of causal", "--budget", "0.02")
    ok = found["interleaved", 128, "swizzled"]
    assert ok.status == "ok" and 0 < ok.p20_us <= ok.median_us <= ok.p80_us and 0 < ok.sparsity < 1 and ok.tflops > 0
    assert found["interleaved", 128, names.FLEX].status == "not run" and found["interleaved", 64, names.FLEX].sparsity
    half = found["by density", 128, "swizzled at 0.5"]
    assert half.density == 0.5 and half.over_dense_low <= half.over_dense <= half.over_dense_high
    assert found["map of causal", 128, names.LAB_BUILDER].median_us > 0
    assert found["map of causal", 128, names.GPU_BUILDER].status == "not run"
    facts = json.loads((tmp_path / names.MACHINE).read_text())
    assert facts["gpu"] is None and facts["protocol"]["device"] == "cpu"


def test_faulty_kernels_are_rows_with_reasons_and_the_others_go_on(tmp_path):
    faults = "simple=wrong", "prefetch=crash", "shared_kv=wrong lse", f"{names.MASKED}=raises"
    found = {kernel: row for (_, _, kernel), row in measured(tmp_path, faults=faults).items()}
    assert found["simple"].reason.startswith("wrong: off by") and found["simple"].median_us is None
    assert found["prefetch"].reason == "its process ended with exit status 7 (the last words of a kernel)"
    assert found["shared_kv"].reason.startswith("wrong: lse is") and found["shared_kv"].status == "failed"
    assert found[names.MASKED].status == "failed" and found["swizzled"].status == "ok"


def test_a_map_that_is_wrong_has_no_time(tmp_path):
    quick = ["--quick", "--patterns", "map of documents", "--budget", "0.02"]
    found = measured(tmp_path, *quick, faults=(f"{names.LAB_BUILDER}=wrong map",))
    assert "1 pairs of the map" in found["map of documents", 128, names.LAB_BUILDER].reason
    assert found["map of documents", 128, names.FLEX_BUILDER].status == "ok"


def test_killed_in_the_middle_it_goes_on(tmp_path):
    quick = ["--quick", "--patterns", "documents,causal", "--budget", "0.02", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "report.block_sparse", *quick]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=runner.ROOT)
    for line in process.stderr:
        if line.startswith("[1/"):
            break
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    kept = [line for line in (tmp_path / names.FILE).read_text().splitlines() if ",ok," in line]
    assert kept and len(rows(tmp_path)) < 36
    with (tmp_path / names.FILE).open("a") as file:
        file.write("causal,64")
    done = subprocess.run(command, capture_output=True, text=True, cwd=runner.ROOT)
    assert done.returncode == 0 and "never finished" in done.stderr, done.stderr
    assert set(kept) <= set((tmp_path / names.FILE).read_text().splitlines()) and len(rows(tmp_path)) == 36


def test_a_limit_in_seconds_leaves_the_rest_for_the_next_run(tmp_path, capsys):
    quick = ["--quick", "--patterns", "documents,causal", "--only", "swizzled", "--budget", "0.02"]
    assert len(measured(tmp_path, *quick, "--seconds", "0.001")) == 1
    assert "3 points are left after 0.001 s" in capsys.readouterr().err
    assert len(measured(tmp_path, *quick)) == 4


def test_only_what_is_left_is_compiled_ahead(tmp_path, monkeypatch):
    quick = ["--quick", "--patterns", "documents", "--only", "swizzled", "--budget", "0.02"]
    measured(tmp_path, *quick, "--lengths", "64")
    before, asked = (tmp_path / names.FILE).read_bytes(), []
    monkeypatch.setattr(runner, "prepare", lambda new, kernels, *_: asked.extend(kernels))
    assert block_sparse.main([*quick, "--prepare", "2", "--out", str(tmp_path)]) == 0
    assert [point.n for point in asked] == [128] and (tmp_path / names.FILE).read_bytes() == before


def test_compiling_ahead_measures_nothing(tmp_path):
    quick = ["--quick", "--patterns", "map of documents,causal", "--lengths", "128"]
    assert block_sparse.main([*quick, "--prepare", "2", "--out", str(tmp_path)]) == 0
    assert not list(tmp_path.iterdir())


# Masks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pattern", "hidden"), [("documents", 0.5975), ("interleaved", 0.3175), ("causal", 0.4990)])
def test_at_512_tokens_the_patterns_are_the_issue_s(pattern, hidden):
    found = tile_map.cut(sparse_kernels.visibility(pattern, 512, 64), 512, 512, 64, 64)
    assert found.sparsity == pytest.approx(hidden, abs=5e-5)


@pytest.mark.parametrize("n", [1024, 16384])
def test_longer_segments_end_within_a_tile_too(n):
    for lengths in (sparse_kernels.document_lengths(n), sparse_kernels.interleaved_lengths(n)):
        ends = torch.tensor(lengths).cumsum(0)
        assert ends[-1] == n and min(lengths) > 0 and ends[1] % 64 not in (0, 32)


@pytest.mark.parametrize("pattern", [*names.PATTERNS, "window"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_what_flex_attention_is_told_is_the_mask(pattern, dtype):
    from torch.nn.attention.flex_attention import create_mask

    point = SparsePoint(pattern, 256, 32)
    scene = sparse_kernels.Scene(sparse_kernels.visibility(pattern, 256, 32), point, "cpu")
    mask = torch.cat(list(scene.strips()))
    found = sparse_kernels.mask_mod(scene)
    cast = lambda b, h, q, k: found(b, h, q.to(dtype), k.to(dtype))  # noqa: E731
    assert torch.equal(create_mask(cast, None, None, 256, 256, "cpu")[0, 0], mask)


@pytest.mark.parametrize("pattern", ["interleaved", "random FCP"])
def test_the_mask_of_a_map_is_the_mask(pattern):
    scene = sparse_kernels.Scene(sparse_kernels.visibility(pattern, 256, 32), SparsePoint(pattern, 256, 32), "cpu")
    assert torch.equal(sparse_bench.mask_of(scene.tiles), torch.cat(list(scene.strips())))


def test_the_rows_that_are_looked_at_stand_in_tiles_of_each_kind():
    point = SparsePoint("random FCP", 4096, 64)
    scene = sparse_kernels.Scene(sparse_kernels.visibility(point.pattern, 4096, 64), point, "cpu")
    found = sparse_bench.telling_rows(scene)
    assert {0, 4095} <= set(found.tolist()) and len(found) < 500
    for kind in (1, 2, 3):
        assert any(bool((scene.map.kinds[row // 64] == kind).any()) for row in found.tolist())


def test_every_quick_point_is_small():
    assert all(point.n <= 128 for point in QUICK)
