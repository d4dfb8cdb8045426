"""A warm process that has imported torch and triton once and forks a child for each module, in milliseconds.

One for each submission and device, inside the sandbox (confine.py), started when first needed, gone with the grader:
its end of the socket closes then. It runs no submitted code itself, and its children cannot touch it. The devices:
"cuda", "cpu" (Triton's interpreter), "compile" (kernels are compiled and never run).
"""

import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grader import confine
from grader.cgroup import Group

WORKER = Path(__file__).parent / "child" / "worker.py"
START_SECONDS = 120.0  # to import torch and triton: slow only on a cold, busy disk
ANSWER_SECONDS = 10.0  # to fork, or to say how a child ended
# What a child may inherit: enough to find programs, libraries and GPUs.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CC", "VIRTUAL_ENV")
INHERITED_PREFIXES = ("CUDA_", "NVIDIA_", "TRITON_CACHE", "HIP_", "ROCR_")

# What a submission may take. Memory: of all its processes where a control group can be made, else of each; on a GPU the
# address space says nothing of memory, since CUDA maps far more than there is.
MEMORY = {"cpu": 6 << 30, "compile": 8 << 30, "cuda": 48 << 30}
PROCESSES = 256
FILE_BYTES = 1 << 30  # of one file
FOLDER_BYTES = 4 << 30  # of all that lies in the scratch folder
FILES = 1024

SHARED = []  # folders whose submissions trust each other and share a warm process: those of the grader's own tests

USAGE_SECONDS = 0.5  # to say what was used, before the end
SPENT = []  # core-seconds of the warm processes that have ended, with their children


class NurseryFailed(Exception):
    """The warm process did not start or does not answer."""


class Nursery:
    """The warm process of one device and submission; `fork` gives a child. Raises NurseryFailed. Safe to use from
    several threads.

    forked: how many children it had. Once it has one, its end is the submission's doing, since it runs nothing else.
    """

    def __init__(self, device, submission):
        self.device, self.lock, self.forked = device, threading.Lock(), 0
        self.living = set()
        self.room = Path(os.path.realpath(tempfile.mkdtemp(prefix="grade-")))
        self.room.chmod(0o711)
        self.scratch = self.room / "scratch"
        self.scratch.mkdir(mode=0o755)
        self.confined = confine.refused(device) is None
        read_only = [submission] if self.confined else [submission, sys.prefix, sys.base_prefix, WORKER.parent]
        self.uid = confine.uid_for(read_only, self.confined)
        self.home = self.folder("home")
        self.group = Group(MEMORY[device], PROCESSES)
        self.socket, theirs = socket.socketpair()
        try:
            self.start(theirs, submission)
        except NurseryFailed:
            self.close()
            raise

    def start(self, theirs, submission):
        program = [sys.executable, "-I", "-B", "-u", str(WORKER), str(theirs.fileno()), self.device]
        if self.confined:
            outside = [submission, *([] if WORKER.is_relative_to(confine.CHILD) else [WORKER.parent])]
            program = confine.command(shutil.which("bwrap"), self.device, outside, self.scratch) + program
        private = {name: str(self.home) for name in ("HOME", "TMPDIR")} | {"USER": "grade", "LOGNAME": "grade"}
        private |= {"TRITON_CACHE_DIR": str(self.home / "triton")}
        with tempfile.TemporaryFile() as said:
            self.process = subprocess.Popen(
                self.group.enter() + program, pass_fds=(theirs.fileno(),), env=environment(self.device) | private,
                start_new_session=True, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, cwd="/",
            )  # fmt: skip
            theirs.close()
            try:
                reply = self._receive(START_SECONDS)
            except NurseryFailed as failure:
                self.process.kill()
                said.seek(0)
                words = said.read().decode(errors="replace").strip().splitlines()
                raise NurseryFailed(f"{failure}; {words[-1] if words else 'it said nothing'}") from None
        if reply["status"] != "ready":
            raise NurseryFailed(reply["error"])

    def folder(self, prefix="case-"):
        """A new folder to write in, of the user that the children become."""
        made = Path(tempfile.mkdtemp(prefix=prefix, dir=self.scratch))
        if self.uid is not None:
            os.chown(made, self.uid, self.uid)
        return made

    def limits(self):
        held = "memory" in self.group.held or self.device == "cuda"
        others = 0 if self.confined or self.uid is not None or os.geteuid() == 0 else tasks_of(os.getuid())
        return {
            "memory_bytes": None if held else MEMORY[self.device], "file_bytes": FILE_BYTES, "files": FILES,
            "processes": PROCESSES + others, "uid": self.uid,
        }  # fmt: skip

    def fork(self, setup, descriptors):
        """A child with these descriptors as requests, output and channel; returns its number inside."""
        with self.lock:
            self.forked += 1
            message = json.dumps({"op": "fork", "limits": self.limits(), **setup}).encode() + b"\n"
            try:
                socket.send_fds(self.socket, [message], descriptors)
            except OSError as error:
                raise NurseryFailed(f"the warm process takes no requests: {error.strerror}") from None
            pid = self._receive(ANSWER_SECONDS)["pid"]
            self.living.add(pid)
            return pid

    def how_it_ended(self, pid):
        """The exit status of a child, negative for a signal, or None while it lives."""
        return self.ask(op="status", pid=pid)["status"]

    def signal(self, pid, number):
        self.ask(op="signal", pid=pid, number=int(number))

    def programs(self, pid):
        """Names of the programs that run for this child."""
        return self.ask(op="programs", pid=pid)["programs"]

    def end(self, pid):
        """Kill a child and all that came of it; where that cannot be done, the warm process goes too."""
        try:
            gone = self.ask(op="end", pid=pid)["gone"]
        except NurseryFailed:
            gone = False
        if gone:
            self.living.discard(pid)
        else:
            self.close()

    def ask(self, **message):
        with self.lock:
            try:
                self.socket.sendall(json.dumps(message).encode() + b"\n")
            except OSError as error:
                raise NurseryFailed(f"the warm process takes no requests: {error.strerror}") from None
            return self._receive(ANSWER_SECONDS)

    def _receive(self, seconds):
        self.socket.settimeout(seconds)
        message = b""
        while not message.endswith(b"\n"):  # one answer to one question, on a line
            try:
                part = self.socket.recv(1 << 16)
            except TimeoutError:
                raise NurseryFailed(f"the warm process did not answer within {seconds:g} s") from None
            except OSError:
                part = b""
            if not part:
                raise NurseryFailed("the warm process ended")
            message += part
        return json.loads(message)

    def alive(self):
        return self.process.poll() is None and self.socket.fileno() >= 0

    def close(self):
        """Kill all that is inside, or, without a sandbox, all that can be found of it; remove what it wrote."""
        self.note_usage()
        self.socket.close()
        process = getattr(self, "process", None)
        if process:
            process.kill()
        for pid in () if self.confined else self.living:  # inside, none outlives the warm process
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        for pid in self.left():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if process:  # last: one that traces it would be told of its end before us
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ANSWER_SECONDS)
        self.group.close()
        with contextlib.suppress(RecursionError):
            shutil.rmtree(self.room, ignore_errors=True)

    def note_usage(self):
        """Add what was used to SPENT: inside a sandbox nobody else can count it. What it does not say is lost."""
        if not hasattr(self, "process") or not self.alive():
            return
        with contextlib.suppress(OSError, NurseryFailed, KeyError, TypeError, ValueError):
            self.socket.sendall(b'{"op": "usage"}\n')
            SPENT.append(float(self._receive(USAGE_SECONDS)["core_seconds"]))

    def left(self):
        """Numbers of processes that outlived the warm one: by the control group, or by the user that only they have."""
        yield from self.group.processes()
        if self.uid is not None:
            for folder in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    if folder.stat().st_uid == self.uid:
                        yield int(folder.name)


def environment(device):
    """The child's environment: little is inherited; TRITON_INTERPRET must stand before triton is imported."""
    kept = {
        name: value for name, value in os.environ.items() if name in INHERITED or name.startswith(INHERITED_PREFIXES)
    }
    # One thread each: cases run side by side, and a forked child has no threads of its parent's pools.
    kept |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if device == "cpu":
        kept |= {"TRITON_INTERPRET": "1"}
    if device != "cuda":
        kept |= {"CUDA_VISIBLE_DEVICES": ""}
    return kept


def tasks_of(uid):
    """How many threads this user runs now: the limit on processes counts them all."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == uid:
                count += len(os.listdir(folder / "task"))
    return count


_running, _using = {}, threading.Lock()
# bubblewrap ends with the thread that started it, so that nothing outlives a grader that was killed: this one stays.
_starter = ThreadPoolExecutor(1, thread_name_prefix="nursery")


def nursery(device, submission):
    """The nursery of this device for the submission in that folder, started on first use."""
    submission = Path(os.path.abspath(submission))
    submission = next((folder for folder in SHARED if submission.is_relative_to(folder)), submission)
    with _using:
        key = device, WORKER, submission
        if key in _running and not _running[key].alive():
            _running.pop(key).close()
        if key not in _running:
            _running[key] = _starter.submit(Nursery, device, submission).result()
        return _running[key]


@atexit.register
def close_all():
    """End every warm process and all that is inside."""
    while _running:
        _running.popitem()[1].close()
