"""The CSV: what is written is read, what is torn is mended, what is not ours is left alone."""

import errno
import os

import pytest

from report.measuring import rows
from report.measuring.rows import BadTable, Writer
from report.measuring.study import find_study
from report.places import PUBLISHED
from report.studies.sweep import Row

ROW = Row("P4", "B=1 H=12 D=64", 512, 512, 64, 12, 12, 1, True, None, None, "float16", median_ms=0.25, samples=9)
WINDOW = Row(
    "P7", "B=1 H=32/8 D=64 window=128 sinks=0", 4096, 4096, 64, 32, 8, 1, True, 128, 0, "bfloat16",
    status="failed", reason='wrong: "off",\nby far',
)  # fmt: skip


def written(folder, *given):
    writer = Writer(folder / "sweep.csv", Row)
    for row in given:
        writer.add(row)
    return writer.path


def test_what_is_written_is_read(tmp_path):
    path = written(tmp_path, ROW, WINDOW)
    first, second = rows.read(path, Row)
    assert first == ROW
    assert second.reason == 'wrong: "off", by far' and second.sinks == 0 and second.median_ms is None
    assert path.read_text("utf-8").count("\n") == 3


@pytest.mark.parametrize("name", ["sweep", "ladder", "steps", "block_sparse", "packed", "orders"])
def test_the_committed_rows_are_those_that_are_asked_and_written_as_they_are_read(name):
    study = find_study(name)
    found = rows.read(PUBLISHED / study.csv, study.row)
    assert {row.key for row in found} == {study.blank(p, kernel).key for p in study.whole for kernel in p.kernels}
    text = rows.header(study.row) + "\n" + "".join(map(rows.line, found))
    assert text == (PUBLISHED / study.csv).read_text("utf-8")


def test_of_two_rows_with_one_key_the_later_counts(tmp_path):
    path = written(tmp_path, ROW, WINDOW, rows.not_measured(ROW, "oom", "out of memory"))
    assert [row.status for row in rows.read(path, Row)] == ["failed", "oom"]
    writer = Writer(path, Row)
    writer.tidy()
    assert len(path.read_text("utf-8").splitlines()) == 3 and rows.read(path, Row)[1].median_ms is None


@pytest.mark.parametrize("tail", ["P4,B=1 H=12 D", "P4,\0\0\0\0", "\0\0\0"])
def test_a_torn_line_is_dropped_and_said(tmp_path, tail):
    path = written(tmp_path, ROW)
    whole = path.read_bytes()
    with path.open("a") as file:
        file.write(tail)
    assert rows.read(path, Row) == [ROW]
    writer = Writer(path, Row)
    assert "never finished" in writer.mended and path.read_bytes() == whole
    writer.add(WINDOW)
    assert [row.kernel for row in rows.read(path, Row)] == ["P4", "P7"]


@pytest.mark.parametrize("start", ["", "kernel,ti"])
def test_a_file_whose_header_was_torn_starts_over(tmp_path, start):
    path = tmp_path / "sweep.csv"
    path.write_text(start, "utf-8")
    Writer(path, Row).add(ROW)
    assert rows.read(path, Row) == [ROW]


def test_another_header_is_refused_and_untouched(tmp_path):
    path = tmp_path / "sweep.csv"
    path.write_text("kernel,tier,q_len\nP4,x,512\nP4,y", "utf-8")
    before = path.read_bytes()
    for use in (Writer, rows.read):
        with pytest.raises(BadTable, match="another version"):
            use(path, Row)
    assert path.read_bytes() == before


@pytest.mark.parametrize("broken", ["P4,only,three", rows.line(ROW).strip().replace(",512,", ",many,")])
def test_a_line_that_cannot_be_read_is_named(tmp_path, broken):
    path = written(tmp_path, ROW)
    with path.open("a") as file:
        file.write(broken + "\n" + rows.line(WINDOW))
    with pytest.raises(BadTable, match=r"line 3 of .*sweep\.csv"):
        rows.read(path, Row)


def test_a_full_disk_leaves_only_whole_rows(tmp_path, monkeypatch):
    path = written(tmp_path, ROW)
    before, writer = path.read_bytes(), Writer(path, Row)

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        writer.add(WINDOW)
    assert path.read_bytes() == before and WINDOW.key not in writer.rows


def test_no_file_is_one_sentence(tmp_path):
    with pytest.raises(BadTable, match="python -m report sweep"):
        rows.read(tmp_path / "sweep.csv", Row)
