"""Whose fault is it? A failure is ours only where our own kernel fails in the same place."""

from dataclasses import replace

from grader.course import course
from grader.diagnosis import failures
from grader.result import Outcome, Verdict


def reference_passes(request, problem, case, grader):
    """True where the reference passes this case here, now.

    grader: the class that grades a problem; the reference goes the way that the submission went.
    """
    reference = grader(replace(request, submission=course.current().solutions), problem, lambda problem, name: None)
    try:
        result, doubt = reference.attempt(case)
    finally:
        reference.close()
    return doubt is None and result.outcome is Outcome.PASSED


def in_words(error):
    """An exception of ours, or the words that stand for one, in a line."""
    if isinstance(error, str):
        return error
    return f"{type(error).__name__}: {str(error).strip()}".rstrip(": ")[:500]


def grader_fault(error):
    """The Verdict for a failure that is not the student's."""
    failures.log("the grader", error)
    return Verdict(Outcome.GRADER_FAULT, f"The grader failed, not your code: these points are open. {in_words(error)}")
