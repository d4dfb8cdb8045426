"""A child process that runs one submitted module and can hurt nobody: its own group, limits on time and output."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")
START_SECONDS = 120.0  # to import torch and triton: slow only on a cold, busy disk
PRINTED_LIMIT = 4000  # characters kept of what a submission prints in one case
# What a child may inherit: enough to find programs, libraries and GPUs.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CC", "VIRTUAL_ENV")
INHERITED_PREFIXES = ("CUDA_", "NVIDIA_", "TRITON_CACHE", "HIP_", "ROCR_")


LIVE = set()  # children that run now: what Ctrl-C must not leave behind


class ChildFailed(Exception):
    """The child gave no reply: `how` is "timed out" or "died", the text a sentence about it."""

    def __init__(self, how, text):
        super().__init__(text)
        self.how = how


class WorkerBroken(Exception):
    """The child could not even start its own part: a fault of the grader or of the machine, never of a student."""


class Child:
    """One module in a process of its own; ask it with `call`, and close it with the `with` statement.

    After start, `loading` is None where the module was loaded, else the reply that says why it was not.
    Raises WorkerBroken when the grader's own part fails, ChildFailed when the module hangs or dies while it loads.
    """

    def __init__(self, module, entry_point, arguments, device, uses_triton, load_seconds, threads=1):
        self.scratch = tempfile.TemporaryDirectory(prefix="grade-")
        self.folder = Path(self.scratch.name)
        receive, channel = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(WORKER), str(channel)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=(channel,), cwd=self.folder, env=environment(device), start_new_session=True,
        )  # fmt: skip
        os.close(channel)
        self.channel, self.pending = receive, b""
        self.output = Output(self.process.stdout)
        LIVE.add(self)
        try:
            self._send(
                here=str(WORKER.parent), sys_path=[p for p in sys.path if p and Path(p) != WORKER.parent.parent],
                submission=str(Path(module).parent), module=str(module), entry_point=entry_point,
                arguments=list(arguments), device=device, uses_triton=uses_triton, threads=threads,
            )  # fmt: skip
            self._await_ready()
            reply = self._receive(load_seconds)
            self.loading = None if reply["status"] == "loaded" else reply
        except BaseException:
            self.close()
            raise

    def _await_ready(self):
        try:
            reply = self._receive(START_SECONDS)
        except ChildFailed as failure:
            raise WorkerBroken(f"{failure}; it said: {self.output.take() or 'nothing'}") from None
        if reply["status"] == "broken":
            raise WorkerBroken(reply["error"])

    def call(self, request, seconds):
        """The reply to one request; raises ChildFailed when none comes within `seconds` or the child dies."""
        self._send(**request)
        return self._receive(seconds)

    def _send(self, **message):
        with contextlib.suppress(BrokenPipeError):  # a dead child is noticed when its reply is awaited
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def _receive(self, seconds):
        deadline = time.monotonic() + seconds
        while b"\n" not in self.pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.channel], [], [], left)[0]:
                raise ChildFailed("timed out", f"no result within {seconds:g} s")
            chunk = os.read(self.channel, 1 << 16)
            if not chunk:
                raise ChildFailed("died", self._how_it_ended())
            self.pending += chunk
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def _how_it_ended(self):
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "the process closed its channel to the grader"
        if code < 0:
            return f"the process was killed by {signal.Signals(-code).name}"
        return f"the process ended itself with exit status {code}"

    def close(self):
        """Kill the whole process group and remove the scratch folder."""
        LIVE.discard(self)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.output.stop()
        os.close(self.channel)
        self.scratch.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def close_all():
    """Close every child that is still alive."""
    for child in list(LIVE):
        child.close()


class Output:
    """Drains what the child prints, so that a flood neither blocks it nor fills memory, and keeps the beginning."""

    def __init__(self, stream):
        self.stream, self.kept, self.dropped, self.lock = stream, b"", 0, threading.Lock()
        self.thread = threading.Thread(target=self._drain, daemon=True)
        self.thread.start()

    def _drain(self):
        while chunk := self.stream.read1(1 << 16):
            with self.lock:
                room = max(0, PRINTED_LIMIT - len(self.kept))
                self.kept += chunk[:room]
                self.dropped += len(chunk[room:])

    def take(self):
        """What was printed since the last call, cut at a sensible length."""
        time.sleep(0.005)  # what the child flushed before its reply may still be in the pipe
        with self.lock:
            text, dropped = self.kept.decode(errors="replace"), self.dropped
            self.kept, self.dropped = b"", 0
        return text.rstrip() + (f"\n[... {dropped} more bytes not shown]" if dropped else "")

    def stop(self):
        """Stop reading; a descendant that left the process group may hold the pipe open, and is not waited for."""
        self.thread.join(timeout=1)
        if not self.thread.is_alive():
            self.stream.close()


def environment(device):
    """The child's environment: little is inherited; TRITON_INTERPRET must stand before triton is imported."""
    kept = {
        name: value for name, value in os.environ.items() if name in INHERITED or name.startswith(INHERITED_PREFIXES)
    }
    kept |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    if device == "cpu":
        kept |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    return kept
