"""Faults seeded in our own code: each is told as ours and leaves its points open; no student can bring one about."""

import shutil
from dataclasses import replace

import pytest

from grader import score
from grader.core.sandbox import pool, server
from grader.core.sandbox.submission import Submission
from grader.course import course
from grader.engine import case_grader, compare_values, cross_case
from grader.engine.cause import Diagnosis
from grader.engine.kind import Kind
from grader.engine.problem_grader import ProblemGrader, is_certain
from grader.engine.request import Request
from grader.gpu import compiling
from grader.kinds.attention import answer_cache, inputs, oracle, work
from grader.registry import PROBLEMS
from grader.result import Aspect, Cause, Outcome, Result
from grader.tests.support import grade_text, solution, thorough_but

CASE = "fewer tokens than a tile"
# Where a function of ours raises, in the grader's own process and in the two that it asks.
HERE = (
    (compare_values, "mismatch"), (Kind, "judge"), (answer_cache, "to"), (inputs, "make"), (work, "by_torch"),
    (Kind, "handler"), (oracle, "attention"), (Submission, "take_outputs"),
)  # fmt: skip
INSIDE = (
    ("record/recorder.py", "def one_call"), ("record/record.py", "    def program"),
    ("record/record.py", "    def plain"), ("record/recorder.py", "def load_function"), ("run/runner.py", "def run("),
    ("protocol/program.py", "def check("), ("machine/type_check.py", "    def operation("),
    ("run/replay.py", "    def tensor"), ("machine/cost_meter.py", "    def ran"),
    ("run/allocations.py", "    def broken_fences("), ("machine/accesses.py", "def check("),
    ("machine/report.py", "    def make("), ("worker/replies.py", "def write_outputs"),
)  # fmt: skip
NAMES = {f"{owner.__name__}.{name}": (owner, name) for owner, name in HERE}


def is_ours(results):
    """True where every case of these results is told as a fault of ours, and its points are open."""
    cases = [r for r in results if r.aspect.concerns_case]
    earned, possible = score.total(results)
    said = all("The grader failed, not your code" in r.sentence for r in cases)
    return {r.outcome for r in cases} == {Outcome.GRADER_FAULT} and said and earned == 0 < possible


# The comparison, the oracle and the child are in `make test`.
@pytest.mark.parametrize("place", thorough_but([*NAMES][::3], NAMES))
def test_a_fault_in_the_grader_is_ours(place, tmp_path, monkeypatch):
    owner, name = NAMES[place]

    def fail(*_, **__):
        raise ValueError("seeded")

    monkeypatch.setattr(owner, name, fail)
    monkeypatch.setattr(answer_cache, "KEPT", {})  # what another test has kept would not be asked for
    assert is_ours(grade_text(tmp_path, "p3", solution("p3"), names=[CASE]))


# Each starts processes of its own, which takes 6 s: one is in `make test`.
QUICK = [INSIDE[7]]


@pytest.mark.parametrize("place", thorough_but(QUICK, INSIDE), ids=" ".join)
def test_a_fault_in_the_processes_that_it_asks_is_ours(place, tmp_path, monkeypatch):
    file, start = place
    copy = tmp_path / "copy"
    shutil.copytree(server.CORE, copy)
    handed_in = tmp_path / "handed in"
    handed_in.mkdir()
    text = (copy / file).read_text("utf-8")
    head, found, rest = text.partition(start)
    signature, colon, body = rest.partition(":\n")
    assert found and colon
    indent = " " * (4 + len(start) - len(start.lstrip()))
    (copy / file).write_text(f'{head}{found}{signature}{colon}{indent}raise ValueError("seeded")\n{body}', "utf-8")
    monkeypatch.setattr(server, "FORK_SERVER", copy / "worker" / "fork_server.py")
    monkeypatch.setattr(server, "CORE", copy)
    monkeypatch.setattr(pool, "_running", {})  # those that run have the whole core
    try:
        assert is_ours(grade_text(handed_in, "p3", solution("p3"), names=[CASE]))
    finally:
        pool.close_all()


def test_a_fault_that_does_not_come_again_costs_nothing(tmp_path, monkeypatch):
    calls, right = [], compare_values.mismatch

    def fail_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise OSError("once")
        return right(*arguments)

    monkeypatch.setattr(compare_values, "mismatch", fail_once)
    (result,) = grade_text(tmp_path, "p3", solution("p3"), names=[CASE])
    assert result.outcome is Outcome.PASSED


@pytest.mark.parametrize("error", [ValueError, MemoryError])
def test_what_a_submission_alone_brings_about_is_its_own(error, tmp_path, monkeypatch):
    """Whatever fails in us for its program, and not for ours, is a crash of the submission: nothing is gained."""
    right = Kind.judge

    def fail(kind, problem, case, placed, answer, device):
        if "odd_kernel" in str(answer.reply.kernels):
            raise error("a surprise")
        return right(kind, problem, case, placed, answer, device)

    monkeypatch.setattr(Kind, "judge", fail)
    text = solution("p3").replace("flash_attention_kernel", "odd_kernel")
    (result,) = grade_text(tmp_path, "p3", text, names=[CASE])
    assert result.outcome is Outcome.CRASHED and "a surprise" in result.sentence


def test_a_fault_in_the_cross_case_check_costs_the_causes_alone(tmp_path, monkeypatch):
    def fail(*_):
        raise ValueError("seeded")

    text = solution("p3").replace("LOG2_E / math.sqrt(D)", "LOG2_E / D")
    assert text != solution("p3")
    before = grade_text(tmp_path, "p3", text, names=[CASE])
    monkeypatch.setattr(cross_case, "check", fail)
    monkeypatch.setenv("GRADER_DEBUG", "0")
    (result,) = grade_text(tmp_path, "p3", text, names=[CASE])
    assert [r.outcome for r in before] == [result.outcome] == [Outcome.WRONG]
    assert not result.facts.causes and "got " in result.sentence


def test_a_cause_is_certain_where_it_alone_explains_half_of_what_is_wrong():
    def results(*causes):
        return [replace(WRONG, diagnosis=Diagnosis("output", "", [Cause(c, "?", "") for c in each])) for each in causes]

    window, scale = "a window of {}".format, "no scale"
    assert is_certain(results([window(33)], [window(65)], [scale], []))
    assert not is_certain(results([window(33)], [scale], []))
    assert not is_certain(results([window(33), scale])) and not is_certain(results()) and not is_certain(results([]))


WRONG = Result("p6", "one", Aspect.CORRECT, Outcome.WRONG)


DIES = "    os.kill(os.getpid(), 11)\n"


@pytest.mark.parametrize("works", [True, False])
def test_in_a_handout_a_kernel_of_ours_is_tried_and_the_doubt_is_said(works, tmp_path, monkeypatch):
    """There is no solution to try in the same place."""
    elsewhere = replace(course.current(), folder=tmp_path)
    monkeypatch.setattr(course, "current", lambda: elsewhere)
    broken = tmp_path / "canary.py"
    broken.write_text(compiling.CANARY.read_text("utf-8") if works else "raise ValueError('seeded')\n", "utf-8")
    monkeypatch.setattr(compiling, "CANARY", broken)
    text = solution("p3").replace("    check_arguments(q, k, v)\n", f"    check_arguments(q, k, v)\n{DIES}", 1)
    (tmp_path / "in").mkdir()
    result = next(r for r in grade_text(tmp_path / "in", "p3", text, names=[CASE]) if r.case == CASE)
    assert result.outcome is (Outcome.CRASHED if works else Outcome.GRADER_FAULT)
    assert (case_grader.UNSURE in result.sentence) == works
    monkeypatch.setattr(Kind, "judge", None)  # ours, and wrong: that the canary runs says nothing of it
    monkeypatch.setenv("GRADER_DEBUG", "0")
    (tmp_path / "right").mkdir()
    (result,) = grade_text(tmp_path / "right", "p3", solution("p3"), names=[CASE])
    assert result.outcome is Outcome.GRADER_FAULT


def test_beside_one_case_on_a_gpu_the_machine_runs_none_of_the_gpus_own(tmp_path, monkeypatch):
    monkeypatch.setattr(case_grader.machine, "first_gpu", lambda: None)
    request = Request(tmp_path, (PROBLEMS["p3"],), frozenset(["ragged tail"]), "cuda", 0, hear_others=True)
    grader, asked = ProblemGrader(request, PROBLEMS["p3"], None), []
    monkeypatch.setattr(grader.in_machine, "without_doubt", asked.append)
    grader.results = [replace(WRONG, problem="p3", case="ragged tail", diagnosis=Diagnosis("output", ""))]
    grader.with_others(request.cases(PROBLEMS["p3"]))
    assert len(asked) > 40 and not any(case.gpu for case in asked)
