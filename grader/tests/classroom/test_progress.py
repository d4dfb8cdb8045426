"""What is shown while a class is graded, what is exported after it, and the synthetic class that measures it."""

import io
import sys
import types

import pytest

from grader.classroom import __main__ as command
from grader.classroom import details, plan, progress
from grader.classroom.record import GRADED, Record
from grader.result import Aspect, Cause, Facts, Outcome, Result
from grader.tests.classroom import synthetic


def job(name="ann"):
    return plan.Job(name, name, ("p1",), "work/x", "out", {"p1": "k" * 64})


def records(earned="7/2", outcome="passed"):
    return [Record("k", "ann", "p1", GRADED, earned, "10", ({"outcome": outcome},))]


def test_a_line_for_each_submission_and_the_time_left(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    tally = progress.Tally(4)
    tally.start(job())
    assert tally.who_runs() == "running: ann (0 s)"
    now[0] = 100.0
    assert tally.finish(job(), records(), None) == "[1/4, 2 min, about 5 min left] ann: 3.5 of 10 points"
    tally.finish(job("bob"), records("10", "needs review"), None)
    fault = plan.fault_records(job("cy"), "The disk was full.")
    assert tally.finish(job("cy"), fault, job("cy")) == "cy: The disk was full; it is tried again"
    assert "machine fault in p1: The disk was full" in tally.finish(job("cy"), fault, None)
    assert tally.words() == "3 of 4 done, 1 machine fault, 1 to review, 1 with mistakes, about 33 s left"


def test_a_terminal_has_a_live_picture_and_a_file_has_lines():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for file in (Terminal(), io.StringIO()):
        tally = progress.Tally(2)
        with progress.shown(tally, file) as show:
            tally.start(job())
            show()
            show(tally.finish(job(), records(), None))
        assert ("ann: 3.5 of 10" in file.getvalue()) != file.isatty()
        assert ("1 of 2 done" in file.getvalue()) == file.isatty()


def test_what_cannot_be_exported_costs_no_grade(tmp_path, monkeypatch):
    broken = types.ModuleType("grader.classroom.export.everything")
    broken.write = lambda out: (_ for _ in ()).throw(ValueError("no such column"))
    monkeypatch.setitem(sys.modules, "grader.classroom.export.everything", broken)
    assert "ValueError: no such column); the grades stand" in command.export(tmp_path)[0]
    monkeypatch.setitem(sys.modules, "grader.classroom.export.everything", None)
    assert "were not written" in command.export(tmp_path)[0] and "journal.jsonl" in command.export(tmp_path)[0]


def test_details_come_back_as_results(tmp_path):
    from dataclasses import replace

    given = Result(
        "p1", "ragged tail", Aspect.CORRECT, Outcome.WRONG, "off",
        Facts(picture={"heads": (1, 2)}, share=0.5, causes=(Cause("a window of 33", "how old?", "Windows"),)),
    )  # fmt: skip
    here = replace(job(), out=str(tmp_path))
    details.write(here, "p1", [given])
    (found,) = details.read(here, "p1")
    assert found.message == given.message and found.facts.picture == {"heads": [1, 2]} and found.case == given.case
    details.write(replace(here, keys={"p1": "n" * 64}), "p1", [given])
    assert details.read(here, "p1") == [], "what another version said is gone"


@pytest.fixture(scope="module")
def synthetic_class(tmp_path_factory):
    folder = tmp_path_factory.mktemp("synthetic") / "in"
    return folder, synthetic.make(folder, 100, seed=3)


def test_the_synthetic_class_has_every_kind(synthetic_class):
    _, made = synthetic_class
    kinds = [kind for _, kind in made]
    assert len(made) == len({name for name, _ in made}) == 100
    for kind, share in synthetic.KINDS:
        assert abs(kinds.count(kind) - share) <= 1, kind


@pytest.mark.thorough
def test_the_synthetic_class_is_the_same_for_a_seed(synthetic_class, tmp_path):
    folder, made = synthetic_class
    assert synthetic.make(tmp_path / "again", 100, seed=3) == made
    for path in folder.rglob("*"):
        if path.is_file():
            assert (tmp_path / "again" / path.relative_to(folder)).read_bytes() == path.read_bytes()
    assert synthetic.make(tmp_path / "other", 100, seed=4) != made


def test_the_synthetic_class_is_taken_in(synthetic_class, tmp_path):
    from grader.classroom import claims, intake, roster
    from grader.kinds.registry import PROBLEMS

    folder, _ = synthetic_class
    submissions, _ = intake.take_in(folder, tmp_path, tuple(PROBLEMS.values()))
    students, _ = roster.read(folder.with_name("in-roster.csv"))
    rows, graded, _ = claims.join(submissions, students)
    assert len(graded) == len([row for row in rows if row.handed_in]) == 100 and len(rows) == 101
    assert all(row.roster for row in rows)
