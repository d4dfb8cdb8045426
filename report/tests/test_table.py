"""The CSV: what is written is read, what is torn is mended, what is not ours is left alone."""

import errno
import os

import pytest

from report import table
from report.table import BadTable, Row, Writer

ROW = Row("P4", "B=1 H=12 D=64", 512, 512, 64, 12, 12, 1, True, None, None, "float16", median_ms=0.25, samples=9)
WINDOW = Row(
    "P7", "B=1 H=32/8 D=64 window=128 sinks=0", 4096, 4096, 64, 32, 8, 1, True, 128, 0, "bfloat16",
    status="failed", reason='wrong: "off",\nby far',
)  # fmt: skip


def written(folder, *rows):
    writer = Writer(folder / "sweep.csv")
    for row in rows:
        writer.add(row)
    return writer.path


def test_what_is_written_is_read(tmp_path):
    path = written(tmp_path, ROW, WINDOW)
    first, second = table.read(path)
    assert first == ROW
    assert second.reason == 'wrong: "off", by far' and second.sinks == 0 and second.median_ms is None
    assert path.read_text().count("\n") == 3


def test_the_older_columns_are_there():
    older = ["kernel", "tier", "q_len", "k_len", "head_dim", "heads", "batch", "avg_ms", "std_ms", "min_ms"]
    assert set(older) <= set(table.COLUMNS)


def test_of_two_rows_with_one_key_the_later_counts(tmp_path):
    path = written(tmp_path, ROW, WINDOW, table.not_measured(ROW, "oom", "out of memory"))
    assert [row.status for row in table.read(path)] == ["failed", "oom"]
    writer = Writer(path)
    writer.tidy()
    assert len(path.read_text().splitlines()) == 3 and table.read(path)[1].median_ms is None


@pytest.mark.parametrize("tail", ["P4,B=1 H=12 D", "P4,\0\0\0\0", "\0\0\0"])
def test_a_torn_line_is_dropped_and_said(tmp_path, tail):
    path = written(tmp_path, ROW)
    whole = path.read_bytes()
    with path.open("a") as file:
        file.write(tail)
    assert table.read(path) == [ROW]
    writer = Writer(path)
    assert "never finished" in writer.mended and path.read_bytes() == whole
    writer.add(WINDOW)
    assert [row.kernel for row in table.read(path)] == ["P4", "P7"]


@pytest.mark.parametrize("start", ["", "kernel,ti"])
def test_a_file_whose_header_was_torn_starts_over(tmp_path, start):
    path = tmp_path / "sweep.csv"
    path.write_text(start)
    Writer(path).add(ROW)
    assert table.read(path) == [ROW]


def test_another_header_is_refused_and_untouched(tmp_path):
    path = tmp_path / "sweep.csv"
    path.write_text("kernel,tier,q_len\nP4,x,512\nP4,y")
    before = path.read_bytes()
    for use in (Writer, table.read):
        with pytest.raises(BadTable, match="another version"):
            use(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("broken", ["P4,only,three", table.line(ROW).strip().replace(",512,", ",many,")])
def test_a_line_that_cannot_be_read_is_named(tmp_path, broken):
    path = written(tmp_path, ROW)
    with path.open("a") as file:
        file.write(broken + "\n" + table.line(WINDOW))
    with pytest.raises(BadTable, match=r"line 3 of .*sweep\.csv"):
        table.read(path)


def test_a_full_disk_leaves_only_whole_rows(tmp_path, monkeypatch):
    path = written(tmp_path, ROW)
    before, writer = path.read_bytes(), Writer(path)

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        writer.add(WINDOW)
    assert path.read_bytes() == before and WINDOW.key not in writer.rows


def test_no_file_is_one_sentence(tmp_path):
    with pytest.raises(BadTable, match=r"python -m report\.sweep"):
        table.read(tmp_path / "sweep.csv")
