"""The fork server of a device, in the sandbox process of a submission: it forks a child for each module, in
milliseconds."""

import atexit
import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grader.processes import sandbox_process
from grader.processes.sandbox_process import DEVICES, ForkServerFailed, SandboxProcess

START_SECONDS = 120.0  # to import torch and triton: slow only on a cold, busy disk
SHARED = []  # folders whose submissions trust each other and share a sandbox process: those of the grader's own tests


class ForkServer:
    """One device's fork server in a sandbox process; `fork` gives a child. Safe to use from several threads.

    Raises ForkServerFailed.
    """

    def __init__(self, device, home):
        self.device, self.sandbox_process, self.lock = device, home, threading.Lock()
        try:
            answer = self.ask({"op": "start", "device": device}, START_SECONDS)
        except ForkServerFailed as failure:
            raise ForkServerFailed(f"{failure}; {home.last_words()}") from None
        if answer["status"] != "ready":
            raise ForkServerFailed(answer["error"])
        home.answering.append(device)

    def fork(self, setup, descriptors):
        """A child with these descriptors as requests, output and channel; returns its number inside."""
        self.sandbox_process.forked += 1
        message = {"op": "fork", "limits": self.sandbox_process.limits(), **setup}
        pid = self.ask(message, descriptors=descriptors)["pid"]
        self.sandbox_process.living.add(pid)
        return pid

    def how_it_ended(self, pid):
        """The exit status of a child, negative for a signal, or None while it lives."""
        return self.ask({"op": "status", "pid": pid})["status"]

    def signal(self, pid, number):
        self.ask({"op": "signal", "pid": pid, "number": int(number)})

    def programs(self, pid):
        """Names of the programs that run for this child."""
        return self.ask({"op": "programs", "pid": pid})["programs"]

    def end(self, pid):
        """Kill a child and all that came of it; where that cannot be done, the sandbox process goes too."""
        try:
            gone = self.ask({"op": "end", "pid": pid})["gone"]
        except ForkServerFailed:
            gone = False
        if gone:
            self.sandbox_process.living.discard(pid)
        else:
            self.sandbox_process.close()

    def ask(self, message, seconds=sandbox_process.ANSWER_SECONDS, descriptors=()):
        with self.lock:
            return self.sandbox_process.ask(self.device, message, seconds, descriptors)


_sandbox_processes, _fork_servers, _using = {}, {}, threading.Lock()
# bubblewrap ends with the thread that started it, so that nothing outlives a grader that was killed: this one stays.
_starter = None


def new_starter():
    global _starter
    _starter = ThreadPoolExecutor(1, thread_name_prefix="sandbox process")


new_starter()
os.register_at_fork(after_in_child=new_starter)  # a fork has no threads


def fork_server(device, submission=None):
    """The fork server of this device, started on first use.

    A recorder's serves one submission, a runner's all of them.
    """
    with _using:
        key = begun(device, submission)
        if (key, device) not in _fork_servers:
            try:
                _fork_servers[key, device] = ForkServer(device, _sandbox_processes[key])
            except ForkServerFailed:
                close(key)
                raise
        return _fork_servers[key, device]


def begin(device, submission=None):
    """Start the sandbox process of this device and wait for nothing: whoever asks for its fork server waits less."""
    with _using, contextlib.suppress(OSError, ForkServerFailed):  # who asks for it is told
        begun(device, submission)


def begun(device, submission):
    """The key of the sandbox process of this device, which is started where there is none that lives."""
    if submission is not None:
        submission = Path(os.path.abspath(submission))
        submission = next((folder for folder in SHARED if submission.is_relative_to(folder)), submission)
    kind = next(kind for kind, devices in DEVICES.items() if device in devices)
    key = kind, sandbox_process.WORKER, submission
    if key in _sandbox_processes and not _sandbox_processes[key].alive():
        close(key)
    if key not in _sandbox_processes:
        _sandbox_processes[key] = _starter.submit(SandboxProcess, kind, submission).result()
    return key


def close(key):
    """End the sandbox process of this key and all that is inside."""
    for device in DEVICES[key[0]]:
        _fork_servers.pop((key, device), None)
    _sandbox_processes.pop(key).close()


def share(devices):
    """Start the runners of these devices for all forks of this process; what they used so far is not a fork's."""
    for device in devices:
        fork_server(device).sandbox_process.share()


def renew():
    """End the runners that forks shared: one of them ended in the middle of a request."""
    with _using:
        for key in [key for key in _sandbox_processes if key[2] is None]:
            close(key)


def leave(submission):
    """End what serves the submission in that folder: nobody asks for it again."""
    with _using:
        for key in [key for key in _sandbox_processes if key[2] == Path(os.path.abspath(submission))]:
            close(key)


@atexit.register
def close_all():
    """End every sandbox process and all that is inside."""
    while _sandbox_processes:
        close(next(iter(_sandbox_processes)))
