"""An id stays with its owner, and so do the page and the decisions that know a submission by it."""

import csv
import io
import json
import os
import random
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from grader.classroom import claims, details, ids, intake, journal, names, one, page, plan
from grader.classroom.export import decisions, everything, gradebook, pages
from grader.classroom.record import Class, Row
from grader.kinds.registry import PROBLEMS
from grader.result import Aspect, Outcome, Result
from grader.tests.classroom import quick_class
from grader.tests.classroom.class_sample import make, record, write_class
from grader.tests.classroom.test_identity import P1, put, zipped
from grader.tests.support import ROOT

KEYS = {"p1": "k" * 64}


def ids_of(tmp_path):
    """{entry: id} of the folder `in`, as `make class` takes it in."""
    found, _ = intake.take_in(tmp_path / "in", tmp_path / "out", [PROBLEMS["p1"]])
    return {submission.owner.words: submission.id for submission in found}


# Ids ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("squatter", ["alice.py", "Alice.zip", "alice"])
def test_an_id_stays_with_its_owner(tmp_path, squatter):
    put(tmp_path, {"alice.zip": "alice = 1\n", "bob": "bob = 1\n"})
    before = ids_of(tmp_path)
    assert before == {"alice.zip": "alice", "bob": "bob"}
    put(tmp_path, {squatter: "mallory = 1\n"})
    assert (ids_of(tmp_path).items() > before.items()) and len(set(ids_of(tmp_path).values())) == 3
    (tmp_path / "in" / "alice.zip").unlink()
    assert ids_of(tmp_path)[squatter] != "alice", "an id was given to another when its owner was gone"


@pytest.mark.parametrize("first", ["alice.py", "alice.zip"])
def test_an_id_does_not_depend_on_who_came_first(tmp_path, first):
    put(tmp_path, {"alice.py": "x = 1\n", "alice.zip": "y = 1\n", "alice": "z = 1\n"})
    assert ids_of(tmp_path)[first] == f"alice-{names.hashed(f'./{first}')}"


def test_a_second_hand_in_on_gradescope_keeps_the_id(tmp_path):
    submitters = "submission_{}:\n  :submitters:\n  - :name: Ann\n    :sid: s1\n    :email: a@x.org\n"
    for number in (77, 78):
        put(tmp_path, {f"submission_{number}": f"n = {number}\n"})
        (tmp_path / "in" / "submission_metadata.yml").write_text(submitters.format(number))
        assert ids_of(tmp_path)[f"submission_{number}"] == "s1"
        (tmp_path / "in" / f"submission_{number}" / P1).unlink()
        (tmp_path / "in" / f"submission_{number}").rmdir()


@pytest.mark.parametrize("name", ["中é_1001", "Zoë"])
def test_an_id_is_the_same_in_every_locale(name):
    code = f"from grader.classroom.names import slug; print(slug({name!a}))"
    ascii_alone = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=ascii_alone, capture_output=True, text=True)
    assert done.stdout.strip() == names.slug(name), done.stderr


@pytest.mark.parametrize("table", ["{", '{"./alice": 3}', "[]"])
def test_a_damaged_table_is_a_sentence(tmp_path, capsys, table):
    put(tmp_path, {"alice": "alice = 1\n"})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ids.NAME).write_text(table)
    assert quick_class.main([str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--problems", "1"]) == 2
    assert re.match(r"class: .*ids.json is damaged, and says which page.*\n$", capsys.readouterr().err)


@pytest.mark.parametrize("name", ["Bob Lee", "BOB LEE!"])
def test_an_absent_student_has_an_id_of_their_own(tmp_path, name):
    from grader.classroom.roster import Student

    digits = names.hashed("s7", 16)
    put(tmp_path, {"bob-lee.zip": "x = 1\n", f"bob-lee-{digits[:8]}.zip": "y = 1\n"})
    found, _ = intake.take_in(tmp_path / "in", tmp_path / "out", [PROBLEMS["p1"]])
    rows, _, _ = claims.join(found, [Student("s7", name), Student("s8", name)])
    assert len({row.id for row in rows}) == len(rows) == 4


@pytest.mark.parametrize("name", ["x.records.y", "x.job.y"])
def test_a_job_and_its_records_have_two_files(tmp_path, name):
    put(tmp_path, {f"{name}.zip": "x = 1\n"})
    assert quick_class.main([str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--problems", "1"]) == 0


@pytest.mark.parametrize("other", [{"submission": "bob"}, {"key": "another"}])
def test_records_of_another_job_are_no_grades(tmp_path, other):
    from grader.classroom.local import read_records

    job = plan.Job("ann", "Ann", ("p1",), "", str(tmp_path), KEYS)
    (written,) = plan.fault_records(job, "x")
    (tmp_path / "records").write_text(replace(written, **other).to_json())
    (found,) = read_records(job, tmp_path / "records")
    assert found.remarks == ("The machine failed: the process that graded this left another's records.",)


# Pages ----------------------------------------------------------------------------------------------------------------


def job_of(out, id="alice", keys=KEYS, title="Alice Lee"):
    return plan.Job(id, title, tuple(keys), str(out), str(out), keys)


def graded_by(out, job, points="10"):
    """The class of one submission, with a record and the details of its results."""
    result = Result("p1", "c", Aspect.CORRECT, Outcome.PASSED, f"{points} points of {job.title}")
    details.write(job, "p1", [result])
    made = replace(record(job.submission, "p1", 0.0, random.Random(0)), key=job.keys["p1"])
    return Class(
        (Row(job.submission, job.title, owner=f"./{job.submission}"),), {"p1": "10"}, {(job.submission, "p1"): made}
    )


@pytest.mark.parametrize("stale", ["another's page", None])
def test_a_page_that_shows_something_else_is_written_anew(tmp_path, stale):
    job = job_of(tmp_path)
    graded = graded_by(tmp_path, job)
    if stale:
        page.write(tmp_path, "alice", {"p1": "mallory's"}, stale)
    index = {(job.submission, "p1", job.keys["p1"]): graded.records["alice", "p1"]}
    one.write_missing_pages([job], index)
    text = page.path_of(tmp_path, "alice").read_text()
    assert "Alice Lee" in text and text.endswith(page.mark("alice", KEYS)) and "another's" not in text
    assert pages.pages_of(graded, tmp_path) == ({"alice": "pages/alice.html"}, [])


@pytest.mark.parametrize("text", ["a page of before", "mallory's" + page.mark("alice", {"p1": "m"})])
def test_a_page_that_shows_something_else_is_not_linked(tmp_path, text):
    graded = graded_by(tmp_path, job_of(tmp_path))
    (tmp_path / "pages").mkdir()
    page.path_of(tmp_path, "alice").write_text(text)
    links, (note,) = pages.pages_of(graded, tmp_path)
    assert links == {} and note.startswith(
        "Not linked, because their pages show something else than what counts now: A"
    )
    assert note in pages.render(graded, tmp_path).replace("&#39;", "'")


@pytest.mark.parametrize("handed_in", [True, False])
def test_a_student_without_records_has_no_page(tmp_path, handed_in):
    page.write(tmp_path, "alice", {}, "mallory's")
    graded = Class((Row("alice", "Alice", handed_in=handed_in),), {"p1": "10"}, {})
    assert pages.pages_of(graded, tmp_path) == ({}, [])


@pytest.mark.parametrize("gone", ["gone", "sub-9999"])
def test_pages_and_results_of_who_is_gone_are_removed(tmp_path, gone):
    out = write_class(tmp_path / "class", make())
    for folder, ending in (("pages", "html"), ("gradescope", "json")):
        for id in (gone, "sub-0001"):
            put(out, {})
            (out / folder).mkdir(exist_ok=True)
            (out / folder / f"{id}.{ending}").write_text("x")
    list(everything.write(out))
    left = {path.stem for folder in ("pages", "gradescope") for path in (out / folder).iterdir()}
    assert gone not in left and (out / "pages" / "sub-0001.html").exists()


# Decisions ------------------------------------------------------------------------------------------------------------

REVIEWED = "sub-0005"


def owned(owner):
    """The sample class, its submission with a case to review owned by this."""
    graded = make()
    return replace(
        graded, submissions=tuple(replace(r, owner=owner if r.id == REVIEWED else "") for r in graded.submissions)
    )


def decided(out, **cells):
    """Fill in the first row of decisions.csv."""
    rows = list(csv.DictReader(io.StringIO((out / decisions.NAME).read_text(encoding="utf-8-sig"))))
    written = io.StringIO()
    writer = csv.DictWriter(written, [name for name in rows[0] if cells.get(name, "") is not None])
    writer.writeheader()
    writer.writerow({name: text for name, text in (rows[0] | cells).items() if text is not None})
    (out / decisions.NAME).write_text(written.getvalue())


def waits(graded, out):
    applied = decisions.applied(graded, out)
    return bool(applied.records[REVIEWED, "p3"].to_review), applied.notes


@pytest.mark.parametrize("owner", ["./alice.zip", "canvas 1001 =alice", "gradescope s1 a@x.org"])
def test_a_decision_is_bound_to_the_owner(tmp_path, owner):
    decisions.ask(owned(owner), tmp_path)
    decided(tmp_path, points="12")
    assert waits(owned(owner), tmp_path) == (False, ())
    still, notes = waits(owned("./alice.py"), tmp_path)
    assert still and f"line 2 ({REVIEWED} p3); this does not count" in notes[0]
    decisions.ask(decisions.applied(owned("./alice.py"), tmp_path), tmp_path)
    rows = list(csv.DictReader(io.StringIO((tmp_path / decisions.NAME).read_text(encoding="utf-8-sig"))))
    assert [row["owner"] for row in rows] == [owner, "./alice.py"] and rows[1]["points"] == ""


@pytest.mark.parametrize("cell", [None, ""])
def test_decisions_of_before_still_count(tmp_path, cell):
    decisions.ask(owned("./alice.zip"), tmp_path)
    decided(tmp_path, points="12", owner=cell)
    assert waits(owned("./alice.zip"), tmp_path) == (False, ())
    assert decisions.ask(decisions.applied(owned("./alice.zip"), tmp_path), tmp_path) is None


@pytest.mark.parametrize("cells", [{"submission": "12"}, {"record": "0123456789abcdef"}])
def test_a_decision_that_matches_nothing_is_said(tmp_path, cells):
    out = write_class(tmp_path / "class", owned("./alice.zip"))
    decisions.ask(owned("./alice.zip"), out)
    decided(out, points="12", **cells)
    said = list(everything.write(out))
    assert said[0].startswith("decisions.csv decides on what needs no review now") and "line 2" in said[0]
    assert said[0] in (out / "class.html").read_text().replace("&#39;", "'")


def test_a_class_of_before_is_read(tmp_path):
    out = write_class(tmp_path / "class", make())
    plain = json.loads((out / journal.SUBMISSIONS).read_text())
    for entry in plain["submissions"]:
        del entry["owner"]
    (out / journal.SUBMISSIONS).write_text(json.dumps(plain))
    assert gradebook.render(journal.read(out)) == gradebook.render(make())


def test_the_owner_reaches_the_class(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "alice.zip").write_bytes(zipped("x = 1\n"))
    assert quick_class.main([str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--problems", "1"]) == 0
    (row,) = journal.read(tmp_path / "out").submissions
    assert (row.id, row.owner) == ("alice", "./alice.zip")
