"""What is judged of a problem as a whole, beside its cases: its work, its compiling, its speed."""

import torch

from grader import failures
from grader.core.sandbox.child import ChildFailed, TimedOut
from grader.course.problem import COMPILES
from grader.gpu import compiling, speed
from grader.result import Facts, Outcome, Verdict

# Work ----------------------------------------------------------------------------------------------------------------


def judge_work(problem, results) -> Verdict:
    """What the kernels cost, judged over the cases that are right."""
    try:
        verdict = problem.kind.judge_work(results)
        if verdict.outcome in (Outcome.NEEDS_REVIEW, Outcome.GRADER_FAULT):
            return verdict
        return not_learned(problem, results) or verdict
    except Exception as error:
        return failures.as_verdict(error)


def not_learned(problem, results) -> Verdict | None:
    """The Verdict where a case that shows the problem's lesson is not right, else None."""
    missed = [r for r in results if r.case in problem.lesson and r.outcome is not Outcome.PASSED]
    theirs = [r for r in missed if r.outcome is not Outcome.GRADER_FAULT]
    if not theirs:
        return Verdict(Outcome.GRADER_FAULT, missed[0].sentence) if missed else None
    return Verdict(Outcome.NOT_RUN, f'not judged yet: first make case "{theirs[0].case}" pass', Facts(earned=False))


# Compiling -----------------------------------------------------------------------------------------------------------


def compile_kernels(request, problem, path, given, outcomes) -> Verdict:
    """Compile the submission's kernels for the GPUs of the request; an unfinished problem is spared.

    given: the Verdict that holds for all of the problem, or None.
    """
    if given:
        return given
    passed = Outcome.PASSED in outcomes
    if outcomes and not passed:
        return Verdict(Outcome.NOT_RUN, "not compiled: no case has passed")
    try:
        return compiling.judge(subject_of(problem), path, request.targets, passed, request.all_targets)
    except Exception as error:  # it can cost points alone, so that nothing is gained by it
        failures.log("compiling", error)
        return Verdict(Outcome.NOT_RUN, f"not compiled: {failures.name(error)}")


def subject_of(problem) -> compiling.Subject:
    """What compiling.py needs of a problem."""
    case = problem.kind.compiled_case(problem, COMPILES)
    return compiling.Subject(problem, problem.kind.unvalued_call(case), problem.kind.beside(case))


# Speed ---------------------------------------------------------------------------------------------------------------


def judge_speed(request, problem, path, outcomes, host_time) -> Verdict:
    """Time the submission against naive PyTorch and the reference, where that is possible and earned.

    host_time: the future of what the wrapper takes on the host; None where nothing ran on a GPU.
    """
    if request.device != "cuda":
        return Verdict(Outcome.NOT_RUN, "not run: needs a GPU")
    if not all(outcome in (Outcome.PASSED, Outcome.GRADER_FAULT) for outcome in outcomes):
        return Verdict(Outcome.NOT_RUN, "not run: only a kernel that passes every case is timed", Facts(earned=False))
    if Outcome.GRADER_FAULT in outcomes:  # not timed because of us: what it earns is open, too
        return Verdict(Outcome.GRADER_FAULT, "The grader failed on a case before, not your code: the speed is open.")
    if torch.cuda.get_device_capability() < speed.OLDEST_GPU:
        return Verdict(Outcome.NOT_RUN, "not run: for a GPU older than sm_80 Triton makes no matrix instructions")
    try:
        return speed.judge(problem, problem.kind, path, request.seed, host_time.result())
    except TimedOut as failure:
        return Verdict(Outcome.NOT_RUN, f"not judged: {failure} while it was timed. This costs nothing")
    except ChildFailed as failure:
        return Verdict(Outcome.CRASHED, f"While it was timed, your code did not return: {failure}.")
    except Exception as error:
        return failures.as_verdict(error)
