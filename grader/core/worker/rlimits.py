"""In the forked child, before a line of the submission runs: what it may take, and who it is."""

import contextlib
import ctypes
import os
import resource
import signal

from grader.core.protocol.control import Limits

DEATH_SIGNAL, DUMPABLE, SUBREAPER = 1, 4, 36  # of prctl


def prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def protect_server() -> None:
    """Of the sandbox process: nobody reads its memory or traces it, and orphans of its children come to it."""
    prctl(DUMPABLE, 0)
    prctl(SUBREAPER, 1)


def apply(limits: Limits) -> None:
    """Give the child no more than control.Limits, and no way back; of its own memory it may read all."""
    if limits.memory_bytes is not None:  # what torch maps at its import is not the submission's
        most(resource.RLIMIT_AS, mapped() + limits.memory_bytes)
    most(resource.RLIMIT_FSIZE, limits.file_bytes)
    most(resource.RLIMIT_NOFILE, limits.files)
    most(resource.RLIMIT_CORE, 0)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="utf-8") as file:
        file.write("1000")  # where memory runs out, the submission goes first
    if limits.uid is not None:
        os.setgroups([])
        os.setresgid(limits.uid, limits.uid, limits.uid)
        os.setresuid(limits.uid, limits.uid, limits.uid)
    most(resource.RLIMIT_NPROC, limits.processes)
    prctl(DUMPABLE, 1)
    prctl(DEATH_SIGNAL, signal.SIGKILL)  # it ends with the sandbox process; a change of user takes this back


def most(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def mapped() -> int:
    """Bytes of this process's address space."""
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
