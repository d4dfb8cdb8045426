"""The sandbox processes that run: each is started on first use, may be shared by forks, and is ended here."""

import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Iterable
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
        process.start_device(device)
    except CannotStart:
        with _changing:
            if _running.get(key) is process:
                close(key)
        raise
    return process


def prepare(device: str, submission: Path | None = None) -> None:
    """Have the sandbox process of this device import what it needs, while this process does something else."""

    def wait() -> None:
        with contextlib.suppress(OSError, CannotStart):  # `serving` raises it again for whoever asks for the process
            serving(device, submission)

    threading.Thread(target=wait, name=f"prepare {device}", daemon=True).start()


def begin(device: str, submission: Path | None = None) -> None:
    """Start the sandbox process of this device and wait for nothing: whoever needs it waits less."""
    with (
        _changing,
        contextlib.suppress(OSError, CannotStart),
    ):  # `serving` raises it again for whoever asks for the process
        start(device, submission)


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


def share(devices: Iterable[str]) -> None:
    """Start the runners of these devices for all forks of this process."""
    for device in devices:
        serving(device)


def retire() -> None:
    """Have new runners serve whoever asks from now on; `end_retired` ends the others."""
    with _changing:
        _retired.extend(_running.pop(key) for key in [key for key in _running if key[1] is None])


def end_retired(used: set[SandboxServer]) -> None:
    """End the retired runners that are not used any more: their children may be other submissions'."""
    with _changing:
        for process in [process for process in _retired if process not in used]:
            _retired.remove(process)
            process.close()


def leave(submission: Path) -> None:
    """End what serves the submission in that folder: nobody asks for it again."""
    close_where(lambda served: served == Path(os.path.abspath(submission)))


def close_where(is_meant: Callable[[Path | None], bool]) -> None:
    with _changing:
        for key in [key for key in _running if is_meant(key[1])]:
            close(key)


@atexit.register
def close_all() -> None:
    """End every sandbox process and all that is inside."""
    while _running:
        close(next(iter(_running)))
    end_retired(set())
