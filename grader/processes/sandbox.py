"""A child process that loads one submitted module, or runs programs, and can hurt nobody: asked, heard and ended here.

Where it runs, and what it may see and take, is the matter of sandbox_process.py, fork_server.py, confine.py and
inside/limits.py.
"""

import contextlib
import json
import os
import re
import secrets
import select
import signal
import time
from pathlib import Path

from grader.processes import sandbox_process, watch
from grader.processes.confine import outside_paths
from grader.processes.fork_server import ForkServerFailed, fork_server
from grader.processes.text import clean, cleaned

READ_BYTES = 1 << 16
NO_REPLY = "what its process sent is no reply"
TOO_MUCH = "it took more than {} GiB of memory"
REPLY_BYTES = 16 << 20  # of one reply; the longest of ours has one
LOOK_SECONDS = 0.5  # between two looks at what has been written
PARTS = 64  # of READ_BYTES, more than a pipe holds
PRINTED_LIMIT = 4000  # characters kept of what a submission prints in one case
# What faulthandler prints where a process crashes: its threads, their calls, the modules in C that are loaded.
CALLS = re.compile(r"^(?:Current t|T)hread [^\n]*\(most recent call first\):\n((?:  File [^\n]*\n?)*)", re.MULTILINE)
LOADED = re.compile(r"\n*^Extension modules: [^\n]*\n?", re.MULTILINE)
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
    """A process of a device; ask it with `call`, and close it with the `with` statement.

    setup: what it begins with: of a recorder its module, by "module". submission: the folder that it sees.
    folder: its current folder, where `put` leaves a file for the next request.
    After start, `loading` is None where the module was loaded, else the reply that says why it was not.
    Raises WorkerBroken when the grader's own part fails, ChildFailed when the module hangs or dies while it loads.
    """

    def __init__(self, device, load_seconds, submission=None, **setup):
        self.module, self.submission = Path(setup.get("module", "")), submission
        self.fork_server, self.sandbox_process, self.pid, self.pending = None, None, None, bytearray()
        their_input, self.requests = os.pipe()
        printed, their_output = os.pipe()
        self.channel, their_channel = os.pipe()
        theirs = [their_input, their_output, their_channel]
        setup |= {"device": device, "sys_path": outside_paths(), "submission": submission and str(submission)}
        try:
            self.start(setup, theirs)
        except (ForkServerFailed, OSError) as failure:
            for descriptor in (self.requests, printed, self.channel):
                os.close(descriptor)
            raise WorkerBroken(str(failure)) from None
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        os.set_blocking(self.requests, False)
        self.output = Output(printed)
        LIVE.add(self)
        try:
            reply = self._receive(load_seconds)
            self.loading = None if reply["status"] == "loaded" else reply
        except ChildFailed as failure:
            failure.line = self.where(self.module.name) if failure.how == "timed out" else None
            failure.printed = self.output.take()
            self.close()
            raise

    def start(self, setup, descriptors):
        """Have the child forked; where an earlier child of the submission broke the sandbox process, by a new one."""
        for attempt in range(2):
            self.fork_server = fork_server(setup["device"], self.submission)
            self.sandbox_process = self.fork_server.sandbox_process
            used = self.sandbox_process.forked
            try:
                self.folder = self.sandbox_process.scratch.folder()
                self.pid = self.fork_server.fork(setup | {"folder": self.folder.path}, descriptors)
                return
            except (ForkServerFailed, OSError):
                self.sandbox_process.close()
                if attempt or not used:
                    raise

    def call(self, request, seconds):
        """The reply to one request; raises ChildFailed when none comes within `seconds` or the child dies."""
        token = secrets.token_hex(8)  # what was written before the request, or beside its reply, is none
        deadline = time.monotonic() + seconds
        self._send(deadline, **request, token=token)
        reply = self._receive(max(0.0, deadline - time.monotonic()))
        if reply.pop("token", None) != token:
            raise ChildFailed("died", NO_REPLY)
        return reply

    def put(self, name, data):
        """Leave a file; raises ChildFailed where the child has left no room for it."""
        try:
            self.folder.put(name, data)
        except OSError as error:
            raise ChildFailed("died", f"it left no room for a file of the grader's: {error.strerror}") from None

    def _send(self, deadline, **message):
        data = memoryview(json.dumps(message).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):  # a dead child is noticed when its reply is awaited
            while data and time.monotonic() < deadline:  # one that reads nothing has no reply in time either
                if select.select([], [self.requests], [], LOOK_SECONDS)[1]:
                    with contextlib.suppress(BlockingIOError):
                        data = data[os.write(self.requests, data) :]

    def _receive(self, seconds):
        deadline, looked = time.monotonic() + seconds, time.monotonic()
        while b"\n" not in self.pending[-READ_BYTES:]:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ChildFailed("timed out", f"no result within {round(seconds, 1):g} s")
            if time.monotonic() > looked + LOOK_SECONDS:
                looked = time.monotonic()
                self._look_at_folder()
            ready = self.output.wait(min(left, LOOK_SECONDS), self.channel)
            if self.channel not in ready:
                continue
            chunk = os.read(self.channel, READ_BYTES)
            if not chunk:
                raise ChildFailed("died", self._how_it_ended())
            self.pending += chunk
            if len(self.pending) > REPLY_BYTES:
                raise ChildFailed("died", NO_REPLY)
        line, _, rest = bytes(self.pending).partition(b"\n")
        self.pending = bytearray(rest)
        return self._read(line)

    def _read(self, line):
        with contextlib.suppress(ValueError, RecursionError):
            reply = json.loads(line)
            if b"\\" in line or not line.isascii():  # else no text of it can hold anything to clean away
                reply = cleaned(reply)
            if isinstance(reply, dict) and isinstance(reply.get("status"), str):
                return reply
        raise ChildFailed("died", NO_REPLY)

    def _look_at_folder(self):
        """Raise ChildFailed where the submission fills the disk; a tmpfs has a size."""
        around = self.sandbox_process
        if around.room and (what := watch.too_much(around.room, around.inhabitants())):
            raise ChildFailed("died", what)

    def _how_it_ended(self):
        status = None
        try:
            for _ in range(50):
                status = self.fork_server.how_it_ended(self.pid)
                if status is not None:
                    break
                time.sleep(0.02)
        except ForkServerFailed:  # which runs nothing but children of this submission
            taken = self.sandbox_process.group.memory_kills()
            self.sandbox_process.close()
            return TOO_MUCH.format(self.memory()) if taken else "it brought down the process that watches over it"
        if status is None:
            return "the process closed its channel to the grader"
        if status == -signal.SIGKILL and self.sandbox_process.group.memory_kills():
            return TOO_MUCH.format(self.memory())
        if status < 0:
            return f"the process was killed by {signal.Signals(-status).name}"
        return f"the process ended itself with exit status {status}"

    def memory(self):
        """GiB that the submission may take."""
        return sandbox_process.MEMORY[self.sandbox_process.kind] >> 30

    def programs(self):
        """Names of the programs that run for this child now, itself among them."""
        with contextlib.suppress(ForkServerFailed):
            return self.fork_server.programs(self.pid)
        return []

    def returned(self, name, most, size=None):
        """The bytes of the file that the child wrote beside its reply; raises ChildFailed without one.

        most: bytes; size: exactly so many. A link or a device there would have us read what the child may not.
        """
        try:
            return self.folder.take(name, most, size)
        except OSError:
            raise ChildFailed("died", f"its process left no file {name}, or another one") from None

    def where(self, module):
        """The innermost line of the file `module` that runs now, or None; what it had printed stays in `output`."""
        with contextlib.suppress(ForkServerFailed):
            self.fork_server.signal(self.pid, signal.SIGUSR1)
            time.sleep(0.3)
        self.output.drain()
        printed = self.output.kept.decode(errors="replace")
        start = printed.find("Current thread ")
        start = start if start >= 0 else printed.rfind("Thread ")
        if start >= 0:
            self.output.kept = printed[:start].encode()
        name = re.escape(module)
        found = re.search(rf'{name}", line (\d+)', printed[start:]) if start >= 0 else None
        return int(found.group(1)) if found else None

    def close(self):
        """Kill the child and all that came of it, and remove the scratch folder."""
        if self not in LIVE:
            return
        LIVE.discard(self)
        self.fork_server.end(self.pid)
        self.output.close()
        os.close(self.requests)
        os.close(self.channel)
        self.folder.remove()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def close_all():
    """Close every child that is still alive."""
    for child in list(LIVE):
        child.close()


class Output:
    """The beginning of what is printed into a pipe; the rest is counted, and thrown away: a flood fills no memory.

    Whoever prints waits while nobody drains it.
    """

    def __init__(self, descriptor):
        self.descriptor, self.kept, self.dropped, self.ended = descriptor, b"", 0, False
        os.set_blocking(descriptor, False)

    def wait(self, seconds, *others):
        """Drain until one of the other descriptors has something to read, or for so long; returns which are ready."""
        watched = [*others, *([] if self.ended else [self.descriptor])]
        ready = select.select(watched, [], [], seconds)[0]
        if self.descriptor in ready:
            self.drain()
        return ready

    def drain(self):
        """Read what is there, and no more than PARTS of it, so that a flood keeps nobody here."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(PARTS):
                chunk = os.read(self.descriptor, READ_BYTES)
                if not chunk:
                    self.ended = True
                    return
                room = max(0, PRINTED_LIMIT - len(self.kept))
                self.kept += chunk[:room]
                self.dropped += len(chunk[room:])

    def take(self):
        """What was printed since the last call, cut at a sensible length."""
        self.drain()
        text, dropped = self.kept.decode(errors="replace"), self.dropped
        self.kept, self.dropped = b"", 0
        return clean(of_the_module(text)).rstrip() + (f"\n[... {dropped} more bytes not shown]" if dropped else "")

    def close(self):
        """A descendant that left the process group may hold the pipe open, and is not waited for."""
        self.drain()
        os.close(self.descriptor)
        self.ended, self.descriptor = True, -1


def of_the_module(text):
    """What a crash printed without what is not the module's: addresses, which differ each time, and the worker's calls.

    A dump that was cut short stays as it is from there on.
    """

    def calls(found):
        above, _, _ = found[1].partition(f'  File "{sandbox_process.ROOMS}')
        return f"Most recent call first:\n{above}"

    return LOADED.sub("\n", CALLS.sub(calls, text))
