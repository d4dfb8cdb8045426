"""A child process that runs one submitted module and can hurt nobody: its own group, limits on time and output."""

import contextlib
import json
import os
import re
import select
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from grader.nursery import NurseryFailed, nursery

PRINTED_LIMIT = 4000  # characters kept of what a submission prints in one case
LIVE = set()  # children that run now: what Ctrl-C must not leave behind


class ChildFailed(Exception):
    """The child gave no reply: `how` is "timed out" or "died", the text a sentence about it.

    printed and line: what it had printed, and where it was, where it failed before there was a Child to ask.
    """

    def __init__(self, how, text):
        super().__init__(text)
        self.how, self.printed, self.line = how, "", None


class WorkerBroken(Exception):
    """The child could not even start its own part: a fault of the grader or of the machine, never of a student."""


class Child:
    """One module in a process of its own; ask it with `call`, and close it with the `with` statement.

    gpu: plain data of the GPU that it compiles for, where `device` is "compile".
    After start, `loading` is None where the module was loaded, else the reply that says why it was not.
    Raises WorkerBroken when the grader's own part fails, ChildFailed when the module hangs or dies while it loads.
    """

    def __init__(self, module, entry_point, arguments, device, load_seconds, gpu=None):
        self.module = Path(module)
        self.scratch = tempfile.TemporaryDirectory(prefix="grade-")
        self.folder = Path(self.scratch.name)
        their_input, self.requests = os.pipe()
        printed, their_output = os.pipe()
        self.channel, their_channel = os.pipe()
        theirs = [their_input, their_output, their_channel]
        setup = {
            "module": str(module), "entry_point": entry_point, "arguments": list(arguments), "device": device,
            "folder": str(self.folder), "submission": str(Path(module).parent), "sys_path": outside_paths(),
            "gpu": gpu,
        }  # fmt: skip
        try:
            self.nursery = nursery(device)
            self.pid = self.nursery.fork(setup, theirs)
        except (NurseryFailed, OSError) as failure:
            for descriptor in (self.requests, printed, self.channel):
                os.close(descriptor)
            self.scratch.cleanup()
            raise WorkerBroken(str(failure)) from None
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self.pending = b""
        self.output = Output(os.fdopen(printed, "rb", buffering=0))
        LIVE.add(self)
        try:
            reply = self._receive(load_seconds)
            self.loading = None if reply["status"] == "loaded" else reply
        except ChildFailed as failure:
            failure.line = self.where() if failure.how == "timed out" else None
            failure.printed = self.output.take()
            self.close()
            raise

    def call(self, request, seconds):
        """The reply to one request; raises ChildFailed when none comes within `seconds` or the child dies."""
        self._send(**request)
        return self._receive(seconds)

    def _send(self, **message):
        with contextlib.suppress(BrokenPipeError):  # a dead child is noticed when its reply is awaited
            data = json.dumps(message).encode() + b"\n"
            while data:
                data = data[os.write(self.requests, data) :]

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
        for _ in range(50):
            status = self.nursery.how_it_ended(self.pid)
            if status is not None:
                break
            time.sleep(0.02)
        if status is None:
            return "the process closed its channel to the grader"
        if status < 0:
            return f"the process was killed by {signal.Signals(-status).name}"
        return f"the process ended itself with exit status {status}"

    def where(self):
        """The innermost line of the module that runs now, or None; what the child had printed stays in `output`."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGUSR1)
            time.sleep(0.3)
        with self.output.lock:
            printed = self.output.kept.decode(errors="replace")
            start = printed.rfind("Current thread ")
            start = start if start >= 0 else printed.rfind("Thread ")
            if start >= 0:
                self.output.kept = printed[:start].encode()
        name = re.escape(self.module.name)
        found = re.search(rf'{name}", line (\d+)', printed[start:]) if start >= 0 else None
        return int(found.group(1)) if found else None

    def close(self):
        """Kill the whole process group and remove the scratch folder."""
        if self not in LIVE:
            return
        LIVE.discard(self)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.output.stop()
        os.close(self.requests)
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
        while chunk := self.stream.read(1 << 16):
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


def outside_paths():
    """Where the child finds torch and triton: this process's path without the grader's own root."""
    root = Path(__file__).resolve().parent.parent
    return [entry for entry in sys.path if entry and Path(entry).resolve() != root]
