"""The nursery of a device, in the warm process of a submission: it forks a child for each module, in milliseconds."""

import atexit
import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grader.processes import house
from grader.processes.house import DEVICES, House, NurseryFailed

START_SECONDS = 120.0  # to import torch and triton: slow only on a cold, busy disk
SHARED = []  # folders whose submissions trust each other and share a warm process: those of the grader's own tests


class Nursery:
    """One device's nursery in a house; `fork` gives a child. Raises NurseryFailed. Safe to use from several threads."""

    def __init__(self, device, home):
        self.device, self.house, self.lock = device, home, threading.Lock()
        try:
            answer = self.ask({"op": "start", "device": device}, START_SECONDS)
        except NurseryFailed as failure:
            raise NurseryFailed(f"{failure}; {home.last_words()}") from None
        if answer["status"] != "ready":
            raise NurseryFailed(answer["error"])
        home.answering.append(device)

    def fork(self, setup, descriptors):
        """A child with these descriptors as requests, output and channel; returns its number inside."""
        self.house.forked += 1
        message = {"op": "fork", "limits": self.house.limits(), **setup}
        pid = self.ask(message, descriptors=descriptors)["pid"]
        self.house.living.add(pid)
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
        """Kill a child and all that came of it; where that cannot be done, the warm process goes too."""
        try:
            gone = self.ask({"op": "end", "pid": pid})["gone"]
        except NurseryFailed:
            gone = False
        if gone:
            self.house.living.discard(pid)
        else:
            self.house.close()

    def ask(self, message, seconds=house.ANSWER_SECONDS, descriptors=()):
        with self.lock:
            return self.house.ask(self.device, message, seconds, descriptors)


_houses, _nurseries, _using = {}, {}, threading.Lock()
# bubblewrap ends with the thread that started it, so that nothing outlives a grader that was killed: this one stays.
_starter = None


def new_starter():
    global _starter
    _starter = ThreadPoolExecutor(1, thread_name_prefix="house")


new_starter()
os.register_at_fork(after_in_child=new_starter)  # a fork has no threads


def nursery(device, submission=None):
    """The nursery of this device, started on first use: a recorder's for that submission alone, a runner's for all."""
    with _using:
        key = begun(device, submission)
        if (key, device) not in _nurseries:
            try:
                _nurseries[key, device] = Nursery(device, _houses[key])
            except NurseryFailed:
                close(key)
                raise
        return _nurseries[key, device]


def begin(device, submission=None):
    """Start the warm process of this device and wait for nothing: whoever asks for its nursery waits less."""
    with _using, contextlib.suppress(OSError, NurseryFailed):  # who asks for it is told
        begun(device, submission)


def begun(device, submission):
    """The key of the house of this device, which is started where there is none that lives."""
    if submission is not None:
        submission = Path(os.path.abspath(submission))
        submission = next((folder for folder in SHARED if submission.is_relative_to(folder)), submission)
    kind = next(kind for kind, devices in DEVICES.items() if device in devices)
    key = kind, house.WORKER, submission
    if key in _houses and not _houses[key].alive():
        close(key)
    if key not in _houses:
        _houses[key] = _starter.submit(House, kind, submission).result()
    return key


def close(key):
    """End the house of this key and all that is inside."""
    for device in DEVICES[key[0]]:
        _nurseries.pop((key, device), None)
    _houses.pop(key).close()


def share(devices):
    """Start the runners of these devices for all forks of this process; what they used so far is not a fork's."""
    for device in devices:
        nursery(device).house.share()


def renew():
    """End the runners that forks shared: one of them ended in the middle of a request."""
    with _using:
        for key in [key for key in _houses if key[2] is None]:
            close(key)


def leave(submission):
    """End what serves the submission in that folder: nobody asks for it again."""
    with _using:
        for key in [key for key in _houses if key[2] == Path(os.path.abspath(submission))]:
            close(key)


@atexit.register
def close_all():
    """End every warm process and all that is inside."""
    while _houses:
        close(next(iter(_houses)))
