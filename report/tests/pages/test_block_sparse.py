"""The page on block-sparse attention: the committed one, an empty one, one of half a table, and what it says."""

from dataclasses import replace

import pytest

from report.measuring.rows import not_measured, write_whole
from report.pages import block_sparse
from report.pages.block_sparse_targets import TARGETS
from report.studies import block_sparse as names
from report.tests.block_sparse_synthetic import MACHINE, rows


def met_in(rows):
    return [target.line(rows)[-1] for target in TARGETS]


def whole(some):
    """Both pages of these rows."""
    return "".join(block_sparse.pages(some, MACHINE).values())


def test_a_page_of_nothing(tmp_path):
    text = "".join(block_sparse.files(tmp_path).values())
    assert text.count("| not measured |") == len(TARGETS)


def test_a_whole_page_and_its_pictures(tmp_path):
    write_whole(tmp_path / names.STUDY.csv, rows(), names.Row)
    (tmp_path / names.STUDY.facts).write_text('{"gpu": "NVIDIA H200"}', "utf-8")
    made = block_sparse.files(tmp_path)
    assert set(made) == {
        *block_sparse.PAGES,
        *(f"figures/block-sparse-{what}.svg" for what in ("64", "128", "density")),
    }
    text = "".join(made[page] for page in block_sparse.PAGES)
    assert all(f"**{pattern}**" in text for pattern in names.PATTERNS) and text.count("figures/") == 3


@pytest.mark.parametrize("every", [2, 3, 7])
def test_a_page_of_half_a_table(every):
    some = rows()[::every]
    assert "| --- |" in whole(some)
    for name in block_sparse.planned(some):
        assert name.startswith("figures/block-sparse-")


def test_no_number_is_nan_or_none():
    text = whole(rows())
    assert "nan" not in text.replace("NaN", "") and "None" not in text and "{" not in text


def test_the_worst_row_decides():
    found = rows()
    assert all(line.endswith("rows") for line in met_in(found))
    causal = "causal", 2048, 64, "fast"
    worse = [replace(row, over_flex=0.42) if row.key == causal else row for row in found]
    line = TARGETS[0].line(worse)
    assert line[2:4] == ["0.42 x", "causal 2k, block 64"] and line[4].endswith("of 60 rows")


def test_a_row_that_is_wrong_says_so_and_no_target_is_met_by_leaving_it_out():
    wrong = "wrong: off by 2.5e-01 at (b, h, row, d) = (0, 1, 2, 3), where 1e-03 is allowed"
    key = names.FULL_MAP, 2048, 64, "fast"
    found = [not_measured(row, "failed", wrong) if row.key == key else row for row in rows()]
    assert TARGETS[2].line(found)[-1] == "7 of 8 rows"
    text = whole(found)
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
