"""The journal keeps what was written, whatever happens to the process, the disk or the file."""

import errno
import json
import os
import random
import subprocess
import sys
import textwrap

import pytest

from grader.classroom import journal
from grader.classroom.journal import Index, Journal, JournalBroken, JournalBusy
from grader.classroom.record import GRADED, MACHINE_FAULT, Record, Row
from grader.tests.support import ROOT


def record(submission="ann", problem="p1", key="k", status=GRADED, earned="10", **more):
    results = ({"case": "ragged tail", "outcome": "wrong", "sentence": "näher\n\u2028 }", "seconds": 0.1},)
    earned = earned if status == GRADED else None
    return Record(key, submission, problem, status, earned, "10", results, **more)


def write(folder, *records):
    with Journal(folder) as book:
        book.append(records)


def test_a_record_survives_its_line():
    assert Record.from_json(record().to_json()) == record()
    assert "\n" not in record().to_json() and record().to_json().isascii()


def test_what_is_written_is_read_by_the_next_run(tmp_path):
    write(tmp_path, record(), record("bob"))
    write(tmp_path, record("cy"))
    with Journal(tmp_path) as book:
        assert dict(book.index) == {(name, "p1", "k"): record(name) for name in ("ann", "bob", "cy")}
        assert book.notes == [] and book.index.status("ann", "p1", "k") == GRADED
        assert book.index.status("ann", "p1", "other") is None


def test_a_line_is_json(tmp_path):
    write(tmp_path, record())
    (line,) = (tmp_path / journal.JOURNAL).read_text().splitlines()
    assert Record.from_json(json.dumps(json.loads(line)["record"])) == record()


@pytest.mark.parametrize("lost", [1, 2, 40, 150])
def test_a_torn_tail_is_dropped_with_a_remark(tmp_path, lost):
    write(tmp_path, record(), record("bob"))
    path = tmp_path / journal.JOURNAL
    path.write_bytes(path.read_bytes()[:-lost])
    with Journal(tmp_path) as book:
        assert list(book.index) == [("ann", "p1", "k")] + [("bob", "p1", "k")] * (lost == 1)
        assert bool(book.notes) == (lost > 1) and all("was cut off and is dropped" in note for note in book.notes)
        book.append([record("cy")])
    with Journal(tmp_path) as book:
        assert ("cy", "p1", "k") in book.index and ("ann", "p1", "k") in book.index and book.notes == []


@pytest.mark.parametrize("damage", [b"\0", b"9", b"\xff", b"\n", b"}"])
def test_a_damaged_line_is_reported_and_costs_no_other(tmp_path, damage):
    write(tmp_path, record(), record("bob"), record("cy"))
    path = tmp_path / journal.JOURNAL
    data = path.read_bytes()
    place = data.index(b'"submission":"bob"') - 5
    assert data[place : place + 1] != damage
    path.write_bytes(data[:place] + damage + data[place + 1 :])
    with Journal(tmp_path) as book:
        assert {name for name, _, _ in book.index} == {"ann", "cy"}
        assert book.notes and all("is damaged and does not count" in note for note in book.notes)
        book.append([record("bob")])
    assert path.read_bytes().startswith(data[: data.index(b"\n") + 1])
    assert ("bob", "p1", "k") in Index(path)


@pytest.mark.parametrize("seed", range(20))
def test_any_damage_leaves_whole_records_or_none(tmp_path, seed):
    draw = random.Random(seed)
    names = [f"s{n}" for n in range(8)]
    write(tmp_path, *map(record, names))
    path = tmp_path / journal.JOURNAL
    data = bytearray(path.read_bytes())
    for _ in range(draw.randrange(1, 4)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    path.write_bytes(data[: draw.randrange(len(data))])
    with Journal(tmp_path) as book:
        assert all(found == record(name) for (name, _, _), found in book.index.items())
        book.append([record("new")])
        assert book.index["new", "p1", "k"] == record("new")
    assert Index(path)["new", "p1", "k"] == record("new")


def test_the_last_record_stands_but_a_grade_is_never_lost_to_a_fault(tmp_path):
    fault = record(status=MACHINE_FAULT)
    write(tmp_path, fault, record(earned="7"), fault)
    with Journal(tmp_path) as book:
        assert book.index["ann", "p1", "k"].earned == "7"
    write(tmp_path, record(earned="8"))
    assert Index(tmp_path / journal.JOURNAL)["ann", "p1", "k"].earned == "8"


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path, monkeypatch):
    with Journal(tmp_path) as book:
        book.append([record()])
        before, real = book.path.read_bytes(), os.write

        def full(descriptor, data):
            if descriptor == book.file and len(data) < 100:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(descriptor, data[: max(1, len(data) // 2)])

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            book.append([record("bob")])
        monkeypatch.undo()
        assert book.path.read_bytes() == before and list(book.index) == [("ann", "p1", "k")]
        book.append([record("bob")])
        assert book.index["bob", "p1", "k"] == record("bob")


def test_two_runs_at_once_are_refused(tmp_path):
    with Journal(tmp_path), pytest.raises(JournalBusy, match=f"is being graded by process {os.getpid()} on"):
        Journal(tmp_path)
    Journal(tmp_path).close()


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path):
    code = f"import os, signal; from grader.classroom.journal import Journal; j = Journal({str(tmp_path)!r}); " \
           "os.kill(os.getpid(), signal.SIGKILL)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT)
    assert done.returncode == -9 and (tmp_path / journal.LOCK).read_text().startswith("process ")
    Journal(tmp_path).close()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / journal.JOURNAL).mkdir()
    with pytest.raises(JournalBroken, match="cannot be written"):
        Journal(tmp_path)


# The class ------------------------------------------------------------------------------------------------------------


def test_a_class_is_read_back(tmp_path):
    rows = [Row("ann", "Ann", ("late",), ("p1_naive_attention.py",), {"id": "1"}), Row("bob", "Bob", handed_in=False)]
    write(tmp_path, record(key="old", earned="3"), record(key="new", earned="4"), record(key="other", earned="5"))
    journal.write_class(tmp_path, rows, {"p1": "10"}, {"ann": {"p1": "new"}}, ["a note"])
    read = journal.read(tmp_path)
    assert read.submissions == tuple(rows) and read.problems == {"p1": "10"} and read.notes == ("a note",)
    assert {pair: found.earned for pair, found in read.records.items()} == {("ann", "p1"): "4"}
    assert read.find_records(rows[0])["p1"].earned == "4" and read.find_records(rows[1]) == {}


def test_a_folder_without_a_class_says_so(tmp_path):
    with pytest.raises(JournalBroken, match="no class was graded there"):
        journal.read(tmp_path)
    (tmp_path / journal.SUBMISSIONS).write_text('{"submissions": 3}')
    with pytest.raises(JournalBroken, match="run make class again"):
        journal.read(tmp_path)


@pytest.mark.thorough
def test_memory_stays_flat(tmp_path):
    """A journal of 5,000 records as large as real ones: what a run keeps of it in memory is its index."""
    code = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        from pathlib import Path
        from grader.classroom import journal
        from grader.classroom.record import Record, Row
        folder, count = Path(sys.argv[1]), int(sys.argv[2])
        result = {{"case": "ragged tail", "outcome": "wrong", "sentence": "s" * 200, "printed": "p" * 300}}
        with journal.Journal(folder) as book:
            for s in range(count // 7):
                results = tuple(dict(result, case=f"{{i}} {{s}}") for i in range(26))
                names = [(f"{{7 * s + i:064}}", f"s{{s}}", f"p{{i + 1}}") for i in range(7)]
                book.append([Record(*name, "graded", "1", "15", results) for name in names])
        rows = [Row(f"s{{n}}", "x") for n in range(count // 7)]
        keys = {{f"s{{n}}": {{f"p{{i + 1}}": f"{{7 * n + i:064}}" for i in range(7)}} for n in range(count // 7)}}
        journal.write_class(folder, rows, {{f"p{{i}}": "15" for i in range(1, 8)}}, keys)
        known = journal.read(folder)
        total = sum(record.points for row in known.submissions for record in known.find_records(row).values())
        assert total == count // 7 * 7
        lines = Path("/proc/self/status").read_text().splitlines()
        print(next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")))
    """)
    used = []
    for count in (70, 5_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        done = subprocess.run([sys.executable, "-c", code, folder, str(count)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        used.append(int(done.stdout))
    assert used[1] < 200 and used[1] - used[0] < 60, f"MB with 70 and 5,000 records: {used}"
