"""Turns on this machine: a run that did not end in time is tried once more while no other grader of this user runs one.

A run holds a shared lock on one file, a run alone an exclusive one. Both first pass a gate, a second file, so that runs
that go on beginning beside each other do not keep a run alone waiting. Nobody waits for longer than WAIT_SECONDS: the
holder may be stopped.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator

WAIT_SECONDS = 120.0  # longer than a case may take on a slow machine
PAUSE_SECONDS = 0.02


def beside_others() -> contextlib.AbstractContextManager[None]:
    """The turn of a run that others may run beside."""
    return take_turn(fcntl.LOCK_SH)


def alone() -> contextlib.AbstractContextManager[None]:
    """The turn of a run that has the machine to itself, as far as graders of this user go. Not inside another turn."""
    return take_turn(fcntl.LOCK_EX)


@contextlib.contextmanager
def take_turn(how: int) -> Iterator[None]:
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # without a place for the locks everybody runs
            gate, runs = [held.enter_context(open_lock(name)) for name in ("gate", "runs")]
            until = time.monotonic() + WAIT_SECONDS
            lock(gate, fcntl.LOCK_EX, until)
            lock(runs, how, until)
            fcntl.flock(gate, fcntl.LOCK_UN)
        yield


@contextlib.contextmanager
def open_lock(name: str) -> Iterator[int]:
    """The descriptor of a lock file of this user's, unlocked at the end; raises OSError where none can be made."""
    path = os.path.join(tempfile.gettempdir(), f"grader-{os.getuid()}-{name}.lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a fork may hold the descriptor for longer
        os.close(descriptor)


def lock(descriptor: int, how: int, until: float) -> None:
    while time.monotonic() < until:
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        time.sleep(PAUSE_SECONDS)
