"""The sandbox processes that run: each is started on first use, may be shared by forks, and is ended here."""

import atexit
import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grader.core.sandbox.child import CannotStart
from grader.core.sandbox.server import KINDS, SandboxServer

Key = tuple[str, Path | None]  # kind, the submission's folder
_running: dict[Key, SandboxServer] = {}
_retired: list[SandboxServer] = []
_changing = threading.Lock()
# bubblewrap ends with the thread that started it, so that nothing outlives a grader that was killed: this one stays.
_starter: ThreadPoolExecutor


def new_starter() -> None:
    global _starter
    _starter = ThreadPoolExecutor(1, thread_name_prefix="sandbox process")


new_starter()
os.register_at_fork(after_in_child=new_starter)  # a fork has no threads


def serving(device: str, submission: Path | None = None) -> SandboxServer:
    """The SandboxServer of this device, ready to fork. Raises CannotStart and OSError.

    A recorder's serves the submission in that folder, a runner's all of them.
    """
    with _changing:
        key = start(device, submission)
        process = _running[key]
    try:
        process.wait()
    except CannotStart:
        with _changing:
            if _running.get(key) is process:
                close(key)
        raise
    return process


def begin(device: str, submission: Path | None = None) -> None:
    """Have the sandbox process of this device start, while this process does something else."""

    def wait() -> None:
        with contextlib.suppress(OSError, CannotStart):  # `serving` raises it again for whoever asks for the process
            serving(device, submission)

    threading.Thread(target=wait, name=f"begin {device}", daemon=True).start()


def start(device: str, submission: Path | None) -> Key:
    """The key of the sandbox process of this device, which is started where there is none that lives."""
    kind = next(kind for kind in KINDS if device in KINDS[kind].devices)
    key = kind, submission and Path(os.path.abspath(submission))
    if key in _running and not _running[key].alive():
        close(key)
    if key not in _running:
        _running[key] = _starter.submit(SandboxServer, *key).result()
    return key


def close(key: Key) -> None:
    """End the sandbox process of this key and all that is inside."""
    _running.pop(key).close()


def renew() -> None:
    """Have new runners serve new children; an old one ends with the last child that it has, another submission's."""
    with _changing:
        for key in [key for key in _running if key[1] is None and _running[key].ready]:  # one that starts is new
            _retired.append(_running.pop(key))
            _retired[-1].retire()


def leave(submission: Path) -> None:
    """End what serves the submission in that folder: nobody asks for it again."""
    with _changing:
        for key in [key for key in _running if key[1] == Path(os.path.abspath(submission))]:
            close(key)


@atexit.register
def close_all() -> None:
    """End every sandbox process and all that is inside."""
    while _running:
        close(next(iter(_running)))
    while _retired:
        _retired.pop().close()
