"""Failures of the grader's own that change no verdict: each goes into one log with its traceback, and is counted."""

import contextlib
import logging
import os

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


def in_words(number, folder):
    """`2 explanations failed, and no verdict changed: see grader.log`, or an empty string."""
    what = "1 explanation" if number == 1 else f"{number} explanations"
    return f"{what} failed, and no verdict changed: see {folder / LOG}" if number else ""
