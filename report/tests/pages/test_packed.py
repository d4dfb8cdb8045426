"""The page on packed attention: one of some rows, and what its guide says of rows made up."""

from dataclasses import replace

from report.measuring.rows import not_measured, write_whole
from report.pages import packed
from report.studies import packed as names


def row(tokens, kernel, over, sparsity=0.5, batch=1):
    blank = names.STUDY.blank(names.point(tokens, batch, 12, 64), kernel)
    return replace(
        blank, sparsity=sparsity, block_sparsity=sparsity, median_us=100 / over, p20_us=99 / over, p80_us=101 / over,
        samples=9, tflops=1.0, host_ms=0.05, over_cudnn=over, over_cudnn_low=over - 0.01, over_cudnn_high=over + 0.01,
        over_all_ones=over, over_all_ones_low=over, over_all_ones_high=over,
    )  # fmt: skip


def lines(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]


def test_the_fastest_block_on_the_whole_is_named_and_dense_where_none_is_faster():
    rows = [row(577, "local 128", 1.2, batch=batch) for batch in (1, 2)]
    rows += [row(577, "local 192", over, batch=batch) for batch, over in ((1, 1.5), (2, 0.9))]
    rows += [row(577, "strided 128", 0.8), row(197, "local 128", 1.1, 0.0)]
    found = {line[0]: line[1:] for line in lines(packed.guide(rows, 12, 64))}
    assert found == {"577": ["128: 1.20", "dense"], "197": ["hides nothing", ""]}


def test_it_pays_from_where_no_longer_image_is_slower():
    rows = [
        row(197, "local 128", 1.5),
        row(577, "local 128", 0.9),
        row(784, "local 128", 1.1),
        row(1025, "local 128", 2.0),
    ]
    rows += [row(1920, "local 128", 3.0), row(1920, "local 128", 1.005, batch=2)]
    table = dict(lines(packed.pays_table(rows[:4], [(12, 64)])))
    assert table["local"] == "784" and table["strided"] == "none of these"
    assert dict(lines(packed.pays_table(rows, [(12, 64)])))["local"] == "none of these", "within the interval of 1"


def test_how_much_must_be_hidden_is_above_every_slower_row():
    rows = [row(577, "local 128", 0.9, 0.6), row(577, "diagonal 128", 1.5, 0.8), row(577, "strided 128", 1.1, 0.5),
            row(577, "global 128", 0.7, 0.7)]  # fmt: skip
    assert lines(packed.needed_table(rows, [(12, 64)])) == [["577", "80 %"]]


def test_a_page_of_some_rows_and_one_that_failed(tmp_path):
    rows = [row(n, names.arm(p, b), 1.1, 0.4) for n in (197, 577) for p in names.PATTERNS for b in (128, 192)]
    rows += [row(n, names.CUDNN, 1.0, 0.0) for n in (197, 577)]
    rows[0] = not_measured(rows[0], "failed", "wrong: off by 1")
    write_whole(tmp_path / names.STUDY.csv, rows, names.Row)
    (tmp_path / names.STUDY.facts).write_text('{"gpu": "NVIDIA H200"}', "utf-8")
    made = packed.files(tmp_path)
    text = "".join(made[page] for page in packed.PAGES)
    assert set(made) == {*packed.PAGES, *packed.FIGURES} and "failed: wrong: off by 1" in text
    assert "None" not in text and "{" not in text and "nan" not in text
