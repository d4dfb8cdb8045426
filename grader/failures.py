"""Failures of the grader's own: each goes into one log with its traceback; those that change no verdict are counted."""

import contextlib
import logging
import os

from grader.result import Outcome, Verdict

LOG, DEBUG = "grader.log", "GRADER_DEBUG"  # with GRADER_DEBUG=1 in the environment such a failure is raised
_log, _counted = logging.getLogger("grader"), list[str]()


def begin(folder):
    """Write the log into `folder`, behind what stands there; no file is made before there is something to write."""
    for handler in _log.handlers[:]:
        _log.removeHandler(handler)
        handler.close()
    handler = logging.FileHandler(folder / LOG, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s process %(process)d: %(message)s"))
    _log.addHandler(handler)
    _log.propagate = False
    _counted.clear()


@contextlib.contextmanager
def harmless(what):
    """Around what changes no verdict. what: the explanation or the picture that fails, as the log calls it."""
    try:
        yield
    except Exception as error:
        if os.environ.get(DEBUG) == "1":
            raise
        count(what, error)


def count(what, error):
    """Count a failure. error: the exception, or a traceback as text from a process that has no log."""
    _counted.append(what)
    log(what, error)


def log(what, error):
    """Write a failure that a result tells by itself, or that is counted, into the log."""
    with contextlib.suppress(OSError):  # a full disk: the count is left
        if isinstance(error, BaseException):
            _log.error("%s failed", what, exc_info=error)
        else:
            _log.error("%s failed\n%s", what, error)


def counted():
    return len(_counted)


def name(error):
    """An exception of ours, or the words that stand for one, in a line."""
    return error if isinstance(error, str) else f"{type(error).__name__}: {str(error).strip()}".rstrip(": ")[:500]


def as_verdict(error):
    """The Verdict for a failure that is not the student's."""
    log("the grader", error)
    return Verdict(Outcome.GRADER_FAULT, f"The grader failed, not your code: these points are open. {name(error)}")


def in_words(number, folder):
    """`2 explanations failed, and no verdict changed: see grader.log`, or an empty string."""
    what = "1 explanation" if number == 1 else f"{number} explanations"
    return f"{what} failed, and no verdict changed: see {folder / LOG}" if number else ""
