"""What a submission does to its own process harms nobody else, and the student is told what happened."""

import os
import subprocess
import sys
import time

import pytest

from grader.core.sandbox import child, pool, server, submission, turns
from grader.course.problem import SECONDS_PER_CASE, SECONDS_PER_PROBLEM
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.registry import EVERY, PROBLEMS
from grader.result import Outcome
from grader.tests.support import OWN_RECORDERS, ROOT, below, grade_text, running, solution

BODY = "def naive_attention(q, k, v, is_causal=False):\n    {}\n"
CASE = ["one token"]


def verdict(tmp_path, source, names=CASE, problem="p1"):
    (result,) = grade_text(tmp_path, problem, source, names=names)
    return result


@pytest.mark.parametrize(
    ("statement", "outcome", "words"),
    [
        ("import os; os._exit(7)", Outcome.CRASHED, "exit status 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", Outcome.CRASHED, "SIGSEGV"),
        ("raise SystemExit(0)", Outcome.CRASHED, "SystemExit at p1_naive_attention.py:2"),
        ("raise KeyError('row_max')", Outcome.CRASHED, "KeyError at p1_naive_attention.py:2 in `raise KeyError"),
        ("return undefined_name", Outcome.CRASHED, "name 'undefined_name' is not defined"),
        ("raise NotImplementedError('TODO 2: hide the future')", Outcome.UNFINISHED, "TODO 2: hide the future"),
        ("raise NotImplementedError", Outcome.UNFINISHED, "NotImplementedError at p1_naive_attention.py:2"),
        ("return None", Outcome.WRONG, "naive_attention returned nothing: is its `return o, lse` missing?"),
        ("return q", Outcome.WRONG, "must return o and lse; it returned one Tensor"),
        ("return q, q, q", Outcome.WRONG, "it returned 3 values"),
        ("return q, 1.0", Outcome.WRONG, "lse must be a plain torch.Tensor; it is a float"),
        ("return q[0], q[..., 0].float()", Outcome.WRONG, "o has the shape (1, 1, 32); it must be (1, 1, 1, 32)"),
        ("return q.double(), q[..., 0].float()", Outcome.WRONG, "o is float64; it must be float16"),
        ("return q, q[..., 0]", Outcome.WRONG, "lse is float16; it must be float32"),
        ("return [q], q", Outcome.WRONG, "o must be a plain torch.Tensor; it is a list"),
        (
            "return q.to('meta'), q[..., 0].float()",
            Outcome.CRASHED,
            "on the device meta: make it where your inputs are",
        ),
        ("return q.to_sparse(), q[..., 0].float()", Outcome.CRASHED, "a tensor with the layout torch.sparse_coo: use"),
    ],
)
def test_what_a_submission_does_wrong(statement, outcome, words, tmp_path):
    result = verdict(tmp_path, BODY.format(statement))
    assert (result.outcome, words in result.sentence) == (outcome, True), result


@pytest.mark.parametrize(("problem", "case"), [("p1", "causal, ragged"), ("p3", "ragged tail")])
def test_a_default_device_that_a_module_sets_does_not_reach_the_worker(problem, case, tmp_path):
    source = solution(problem).replace("import torch\n", 'import torch\n\ntorch.set_default_device("meta")\n', 1)
    result = verdict(tmp_path, source, [case], problem)
    assert result.outcome is Outcome.PASSED, result.sentence


def test_a_crash_costs_one_case_only(tmp_path):
    source = solution("p1").replace(
        "    check_arguments(q, k, v, is_causal)\n", "    import os\n    if q.shape[2] == 7: os._exit(1)\n"
    )
    results = grade_text(tmp_path, "p1", source)
    failed = {r.case for r in results if r.outcome is not Outcome.PASSED}
    assert failed == {case.name for case in EVERY["p1"].cases if case.N == 7 and not case.gpu}


def test_what_a_crash_prints_is_of_the_module_and_the_same_each_time(tmp_path):
    source = BODY.format("print('before'); import ctypes; ctypes.string_at(0)")
    first, second = (verdict(tmp_path, source).printed for _ in range(2))
    head, *calls = first.partition("Most recent call first:\n")[::2]
    printed = "(printed by your Python, of stand-in values:)\nbefore\nFatal Python error: Segmentation fault"
    assert head.split("\n\n") == [printed, ""]
    last = calls[0].splitlines()[-1]
    assert last == f'  File "{tmp_path / "p1_naive_attention.py"}", line 2 in naive_attention'
    assert first == second


def test_torch_compile_is_not_imported(tmp_path):
    source = BODY.format("import sys; q + q; raise KeyError('torch._dynamo' in sys.modules)")
    assert verdict(tmp_path, source).sentence.rstrip(".").endswith("False"), "a second of each sandbox process"


def test_a_hang_is_stopped_and_the_rest_given_up(tmp_path, monkeypatch):
    monkeypatch.setitem(SECONDS_PER_CASE, "cpu", 1.0)
    results = grade_text(tmp_path, "p1", BODY.format("while True: pass"))
    outcomes = [r.outcome for r in results]
    assert outcomes[:2] == [Outcome.TIMED_OUT] * 2
    assert set(outcomes[2:]) == {Outcome.NOT_RUN}
    assert (
        "no result within 1 s, twice, the second time with the machine to itself. It was at p1_naive_attention.py:2."
        in results[0].sentence
    )
    assert "timed out before" in results[2].sentence


def test_what_did_not_end_in_time_is_tried_again_alone(tmp_path, monkeypatch):
    """A machine that was busy for a moment costs nothing."""
    run, alone, tries = submission.Submission.run, turns.alone, []

    def late_at_first(*request):
        tries.append("a try")
        if len(tries) == 1:
            raise child.TimedOut("no result within 30 s")
        return run(*request)

    def noted_alone():
        tries.append("alone")
        return alone()

    monkeypatch.setattr(submission.Submission, "run", late_at_first)
    monkeypatch.setattr(turns, "alone", noted_alone)
    assert verdict(tmp_path, solution("p1")).outcome is Outcome.PASSED
    assert tries == ["a try", "alone", "a try"]


@pytest.mark.thorough
def test_cases_that_drag_end_with_the_time_of_their_problem(tmp_path, monkeypatch):
    monkeypatch.setitem(SECONDS_PER_PROBLEM, "cpu", 2.0)
    source = solution("p1").replace(
        "    check_arguments(q, k, v, is_causal)\n", "    import time\n    time.sleep(0.9)\n"
    )
    results = grade_text(tmp_path, "p1", source)
    outcomes = [r.outcome for r in results]
    assert 2 <= outcomes.count(Outcome.PASSED) <= 6
    assert set(outcomes[6:]) == {Outcome.NOT_RUN}
    assert "s, half of it with the machine to themselves" in results[-1].sentence


@pytest.mark.thorough
def test_a_hang_while_loading(tmp_path, monkeypatch):
    monkeypatch.setitem(SECONDS_PER_CASE, "cpu", 1.0)
    assert verdict(tmp_path, "while True: pass\n").outcome is Outcome.TIMED_OUT


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def naive_attention(q, k, v:\n", "SyntaxError at p1_naive_attention.py:1"),
        ("import no_such_module\n", "No module named 'no_such_module'"),
        ("raise SystemExit('bye')\n", "SystemExit"),
        ("import os; os._exit(3)\n", "exit status 3"),
        ("x = 1\n", "has no function named naive_attention. It must be naive_attention(q, k, v, is_causal=False)"),
        ("def naive_attention(q, k):\n    pass\n", "naive_attention(q, k) cannot be called as"),
        ("def naive_attention(q, k, v):\n    pass\n", "unexpected keyword argument 'is_causal'"),
        ("", "has no function named naive_attention"),
    ],
)
def test_modules_that_cannot_be_used(source, words, tmp_path):
    result = verdict(tmp_path, source)
    assert result.outcome is Outcome.CRASHED and words in result.sentence, result.sentence


def test_what_it_printed_is_kept_and_cut(tmp_path):
    result = verdict(tmp_path, BODY.format("print('row_max is', 3); raise ValueError('no')"))
    assert result.printed == "(printed by your Python, of stand-in values:)\nrow_max is 3"
    twice = verdict(
        tmp_path, solution("p1").replace("    check_arguments(q", "    print('once')\n    check_arguments(q")
    )
    assert twice.outcome is Outcome.PASSED and twice.printed.count("once") == 1, "the entry point is called twice"
    flood = verdict(tmp_path, BODY.format("print('x' * 10_000_000); raise ValueError('no')"))
    assert len(flood.printed) < 2 * child.PRINTED_LIMIT and "more bytes not shown" in flood.printed


def test_standard_input_is_empty(tmp_path):
    assert "EOF" in verdict(tmp_path, BODY.format("input()")).sentence


def test_closing_every_descriptor_is_a_crash(tmp_path):
    result = verdict(tmp_path, BODY.format("import os; os.closerange(0, 1024); return q, q"))
    assert result.outcome is Outcome.CRASHED


@pytest.mark.thorough
def test_a_child_of_the_child_is_killed(tmp_path, monkeypatch):
    monkeypatch.setitem(SECONDS_PER_CASE, "cpu", 2.0)
    verdict(tmp_path, BODY.format("import subprocess; subprocess.Popen(['sleep', '601.25']).wait()"))
    assert not running("sleep 601.25")


def test_the_child_knows_no_answers(tmp_path):
    """Neither the grader nor the solutions can be imported, and the environment is small."""
    statement = (
        "import os, importlib.util as u; raise ValueError([n for n in ('grader.engine', 'grader.kinds', "
        "'solutions', 'p3_flash_attention') if u.find_spec(n)], "
        "'SECRET' in os.environ, os.environ.get('TRITON_INTERPRET'))"
    )
    os.environ["SECRET"] = "1"
    try:
        assert "([], False, '1')" in verdict(tmp_path, BODY.format(statement)).sentence
    finally:
        del os.environ["SECRET"]


def test_a_broken_worker_is_the_graders_fault(tmp_path, monkeypatch):
    from grader import score

    broken = tmp_path / "worker.py"
    broken.write_text("raise RuntimeError('our own mistake')\n", "utf-8")
    monkeypatch.setattr(server, "FORK_SERVER", broken)
    monkeypatch.setattr(pool, "_running", {})  # those that run have a whole one
    results = grade_text(tmp_path, "p1", solution("p1"))
    assert {r.outcome for r in results} == {Outcome.GRADER_FAULT}
    assert "our own mistake" in results[0].sentence and "these points are open" in results[0].sentence
    assert score.total(results)[0] == 0 and score.open_points(results) == score.total(results)[1]


# The sandbox process --------------------------------------------------------------------------------------------------


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A folder whose submission has a sandbox process of its own."""
    monkeypatch.setattr(pool, "start", OWN_RECORDERS)
    yield tmp_path
    pool.leave(tmp_path)


@pytest.mark.thorough
def test_the_machine_and_the_compiler_share_a_process_which_is_replaced_if_it_was_lost(alone):
    first = pool.serving("cpu", alone)
    assert pool.serving("compile", alone) is first
    os.kill(below(first.process.pid)[-1], 9)
    first.process.wait(60)
    second = pool.serving("cpu", alone)
    assert second is not first and second.alive() and not first.alive()
    assert verdict(alone, solution("p1")).outcome is Outcome.PASSED
    pool.leave(alone)
    assert not second.alive() and second.scratch.descriptor < 0


def test_other_problems_are_graded_beside_a_bad_one(tmp_path):
    (tmp_path / PROBLEMS["p1"].module).write_text("import os; os._exit(1)\n", "utf-8")
    (tmp_path / PROBLEMS["p2"].module).write_text(solution("p2"), "utf-8")
    problems = (PROBLEMS["p1"], PROBLEMS["p2"], PROBLEMS["p3"])
    results = grade(Request(tmp_path, problems, frozenset(CASE), "cpu", 0), lanes=2)
    assert [r.outcome for r in results] == [Outcome.CRASHED, Outcome.PASSED, Outcome.NOT_RUN]
    assert "There is no p3_flash_attention.py" in results[2].sentence


@pytest.mark.thorough
def test_ctrl_c_leaves_no_child_behind(tmp_path):
    (tmp_path / PROBLEMS["p1"].module).write_text(BODY.format("while True: pass"), "utf-8")
    command = [sys.executable, "-m", "grader", "grade", "--submission", str(tmp_path), "--problems", "1"]
    command += ["--out", str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for _ in range(1200):  # its sandbox processes start while it still imports
        if len(below(process.pid)) >= 3:
            break
        time.sleep(0.1)
    time.sleep(8)
    process.send_signal(2)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "stopped" in out and "Traceback" not in out
