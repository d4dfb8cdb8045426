"""The page on block-sparse attention: the committed one, an empty one, one of half a table, and what it says."""

from dataclasses import replace

import pytest

from report import plots, sparse_page, table
from report import sparse_points as names
from report.sparse_targets import TARGETS
from report.tests.sparse_synthetic import MACHINE, rows


@pytest.fixture
def at(monkeypatch, tmp_path):
    """The page's folders, moved."""
    (tmp_path / "figures").mkdir()
    monkeypatch.setattr(sparse_page, "REPORT", tmp_path)
    monkeypatch.setattr(sparse_page, "PUBLISHED", tmp_path)
    return tmp_path


def verdicts(rows):
    return [target.line(rows)[-1] for target in TARGETS]


def test_the_committed_page_is_what_the_committed_rows_give():
    assert sparse_page.main(["--check"]) == 0, "run python -m report.sparse_page"


def test_a_page_of_nothing(at):
    assert sparse_page.main([]) == 0 and sparse_page.main(["--check"]) == 0
    text = (at / "BLOCK_SPARSE.md").read_text()
    assert "Nothing has been measured yet" in text and text.count("| not measured |") == len(TARGETS)
    assert not list((at / "figures").iterdir())


def test_a_whole_page_and_its_pictures(at, capsys):
    table.write_whole(at / names.FILE, rows(), names.SparseRow)
    (at / names.MACHINE).write_text('{"gpu": "NVIDIA H200"}')
    assert sparse_page.main([]) == 0 and sparse_page.main(["--check"]) == 0
    drawn = {path.name for path in (at / "figures").iterdir()}
    assert drawn == {"block-sparse-64.svg", "block-sparse-128.svg", "block-sparse-density.svg"}
    assert drawn <= set(plots.OTHERS)
    text = (at / "BLOCK_SPARSE.md").read_text()
    assert all(f"**{pattern}**" in text for pattern in names.PATTERNS) and text.count("figures/") == 3
    (at / "BLOCK_SPARSE.md").write_text(text.replace("fast", "fats", 1))
    (at / "figures" / "block-sparse-64.svg").write_text("")
    assert sparse_page.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "BLOCK_SPARSE.md is not what" in said and "block-sparse-64.svg is not what" in said


@pytest.mark.parametrize("every", [2, 3, 7])
def test_a_page_of_half_a_table(every):
    some = rows()[::every]
    assert "| --- |" in sparse_page.page(some, MACHINE)
    for name in sparse_page.planned(some):
        assert name.startswith("block-sparse-")


def test_no_number_is_nan_or_none():
    text = sparse_page.page(rows(), MACHINE)
    assert "nan" not in text.replace("NaN", "") and "None" not in text and "{" not in text


def test_the_worst_row_decides():
    found = rows()
    assert all("met" in line or "rows" in line for line in verdicts(found))
    causal = names.SparsePoint("causal", 2048, 64).row("fast").key
    worse = [replace(row, over_flex=0.42) if row.key == causal else row for row in found]
    line = TARGETS[0].line(worse)
    assert line[2:4] == ["0.42 x", "causal 2k, block 64"] and line[4].endswith("of 60 rows")


def test_a_row_that_is_wrong_says_so_and_no_target_is_met_by_leaving_it_out():
    wrong = "wrong: off by 2.5e-01 at (b, h, row, d) = (0, 1, 2, 3), where 1e-03 is allowed"
    key = names.SparsePoint(names.FULL_MAP, 2048, 64).row("fast").key
    found = [table.not_measured(row, "failed", wrong) if row.key == key else row for row in rows()]
    assert TARGETS[2].line(found)[-1] == "7 of 8 rows"
    text = sparse_page.page(found, MACHINE)
    assert "| wrong <sup>1</sup> |" in text and f"<sup>1</sup> {wrong}" in text


def test_which_rows_count():
    found = {target.words: [row for row in rows() if target.figure(row) is not None] for target in TARGETS}
    flex, cudnn, full, half, tenth, maps = found.values()
    assert len(flex) == 60 and {row.kernel for row in flex} == {"fast"}
    assert len(cudnn) == 4 * 4 * 2 and {row.pattern for row in cudnn}.isdisjoint({"interleaved"})
    assert len(full) == 8 and len(half) == len(tenth) == 2 and len(maps) == 6


def test_linear_is_speed_times_density():
    half = next(row for row in rows() if row.kernel == "fast at 0.5")
    assert TARGETS[3].figure(replace(half, over_dense=2.0, density=0.5)) == 1.0
    assert TARGETS[3].figure(replace(half, over_dense=1.5, density=0.5)) == 0.75
