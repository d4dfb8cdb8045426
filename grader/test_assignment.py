"""The pytest face: one test for each problem, case and aspect, over the same results as every other face.

pytest grader --submission DIR -k "p4 and ragged"; a lab's are run where its name is in the command, as in -k x1
"""

from dataclasses import replace

import pytest
import torch

from grader.course.problem import COMPILES, WORK
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.gpu import gpus
from grader.registry import EVERY
from grader.result import Aspect, Outcome


def every_test(seed):
    on_gpu = torch.cuda.is_available()
    for problem in EVERY.values():
        for case in problem.kind.cases(problem, seed):
            if on_gpu or not case.gpu:
                yield problem, case, Aspect.CORRECT
        if problem.counts_work:
            yield problem, replace(problem.cases[0], name=WORK), Aspect.WORK
        if problem.compiled_case and not on_gpu:
            yield problem, problem.kind.compiled_case(problem, COMPILES), Aspect.COMPILE
        if problem.speed_case:
            yield problem, problem.speed_case, Aspect.SPEED


def pytest_generate_tests(metafunc):
    tests = list(every_test(metafunc.config.option.seed))
    names = [f"{p.id}-{case.name}-{aspect.value}" for p, case, aspect in tests]
    metafunc.parametrize(("problem", "case", "aspect"), tests, ids=names)


@pytest.fixture(scope="session")
def results(request):
    """{(problem, case, aspect): Result}, filled one problem at a time with the cases that were selected."""
    return {}


def grade_selected(results, session, problem):
    """Grade the cases of `problem` that this session selected; its speed too, if that was selected."""
    chosen = [item.callspec.params for item in session.items if item.callspec.params["problem"] is problem]
    timed = any(params["aspect"] is Aspect.SPEED for params in chosen)
    names = frozenset(params["case"].name for params in chosen)
    options = session.config.option
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    folder = options.submission.resolve()
    usual = folder == session.config.rootpath / "problems"
    targets = () if device == "cuda" else gpus.DEFAULT
    names = None if timed else names
    request = Request(folder, (problem,), names, device, options.seed, usual, targets=targets)
    for result in grade(request, lanes=1):
        results[result.problem, result.case, result.aspect] = result


def test_submission(problem, case, aspect, results, request):
    key = problem.id, case.name, aspect
    if key not in results:
        grade_selected(results, request.session, problem)
    if key not in results:
        pytest.skip("needs a GPU" if aspect is Aspect.SPEED else "not run")
    result = results[key]
    if result.outcome is Outcome.NOT_RUN:
        pytest.skip(result.sentence)
    if result.outcome is not Outcome.PASSED:
        printed = f"\n  it printed:\n{result.printed}" if result.printed else ""
        head = f'{result.problem} "{result.case}" ({result.description}): {result.outcome.value}'
        pytest.fail(f"{head}\n  {result.sentence}\n  again: {result.again}{printed}", pytrace=False)
