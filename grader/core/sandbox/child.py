"""A child process: it reads requests and writes replies, a line of JSON each, within a limit of time.

This file has what every child has in common, and the child that is trusted.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from grader.core.sandbox.texts import clean

READ_BYTES = 1 << 16
REPLY_BYTES = 16 << 20  # of one reply; the longest of ours has one
LOOK_SECONDS = 0.5  # between two looks at a child that is waited for
PARTS = 64  # of READ_BYTES, more than a pipe holds
PRINTED_LIMIT = 4000  # characters kept of the beginning of what a child prints
LAST_BYTES = 10_000  # kept of its end
NO_REPLY = "what its process sent is no reply"


class ChildFailed(Exception):
    """The child gave no reply: the text is a clause about it.

    printed and line: what it had printed, and where it was, where it failed before there was a Child to ask.
    """

    printed: str = ""
    line: int | None = None


class TimedOut(ChildFailed):
    """No reply came in time."""


class Died(ChildFailed):
    """The process ended, or what it sent or left is no reply."""


class CannotStart(Exception):
    """The process could not even start its own part: a fault of the grader or of the machine, never of a student."""


class Child(contextlib.AbstractContextManager):
    """What every child has: `requests` and `channel`, descriptors of pipes to and from it, and its `output`.

    A subclass starts it and ends it (`close`, also at the end of a `with` statement), and says how it ended.
    """

    def __init__(self, requests: int, channel: int, printed: int) -> None:
        self.requests, self.channel, self.output, self.pending = requests, channel, Printed(printed), bytearray()
        os.set_blocking(requests, False)

    def exchange(self, line: bytes, seconds: float) -> bytes:
        """Send one line, and return the line that comes back. Raises TimedOut and Died."""
        deadline = time.monotonic() + seconds
        self.send_line(line, seconds)
        return self.receive_line(max(0.0, deadline - time.monotonic()))

    def send_line(self, line: bytes, seconds: float) -> None:
        """Send one line. If the child reads nothing, or is dead, `receive_line` says so."""
        data, deadline = memoryview(line + b"\n"), time.monotonic() + seconds
        with contextlib.suppress(BrokenPipeError):
            while data and time.monotonic() < deadline:
                if select.select([], [self.requests], [], LOOK_SECONDS)[1]:
                    with contextlib.suppress(BlockingIOError):
                        data = data[os.write(self.requests, data) :]

    def receive_line(self, seconds: float) -> bytes:
        """The next line; raises TimedOut and Died."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self.pending[-READ_BYTES:]:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimedOut(f"no result within {round(seconds, 1):g} s")
            if self.channel not in self.output.wait(min(left, LOOK_SECONDS), self.channel):
                continue
            chunk = os.read(self.channel, READ_BYTES)
            if not chunk:
                raise Died(self.how_it_ended())
            self.pending += chunk
            if len(self.pending) > REPLY_BYTES:
                raise Died(NO_REPLY)
        line, _, self.pending = self.pending.partition(b"\n")
        return bytes(line)

    def how_it_ended(self) -> str:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __exit__(self, *exc: object) -> None:
        self.close()


class TrustedChild(Child):
    """A program of ours in a process group of its own: JSON lines on its standard input and standard output.

    command, folder, environment: as subprocess.Popen takes them. replies: False for a program whose standard output is
    only kept like what it prints on standard error. Raises CannotStart.
    """

    def __init__(
        self, command: list[str], folder: Path | None = None, environment: Mapping[str, str] | None = None,
        replies: bool = True,
    ) -> None:  # fmt: skip
        error = subprocess.PIPE if replies else subprocess.STDOUT
        try:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, start_new_session=True, bufsize=0, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=error,
            )  # fmt: skip
        except OSError as failure:
            raise CannotStart(f"{command[0]} cannot be started: {failure.strerror}") from None
        assert self.process.stdin and self.process.stdout
        channel, said = self.process.stdout.fileno(), (self.process.stderr or self.process.stdout).fileno()
        super().__init__(self.process.stdin.fileno(), channel if replies else -1, os.dup(said))
        self.is_over = False

    def call(self, request: dict, seconds: float) -> dict:
        """The reply to one request, both plain data. Raises TimedOut and Died."""
        return read_reply(self.exchange(json.dumps(request).encode(), seconds))

    def send(self, request: dict, seconds: float) -> None:
        self.send_line(json.dumps(request).encode(), seconds)

    def receive(self, seconds: float) -> dict:
        """The next reply; raises TimedOut and Died."""
        return read_reply(self.receive_line(seconds))

    def wait(self, seconds: float | None = None) -> int:
        """Its exit status, negative for a signal, once it has ended by itself; raises TimedOut."""
        started = time.monotonic()
        while self.process.poll() is None:
            if seconds is not None and time.monotonic() > started + seconds:
                raise TimedOut(f"no result within {round(seconds, 1):g} s")
            self.output.wait(LOOK_SECONDS)
        return self.process.returncode

    def how_it_ended(self) -> str:
        """`was killed by SIGKILL (the last line that it printed)`, once it has closed its end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(LOOK_SECONDS)
        return describe_exit(self.process.poll(), self.output.last_line())

    def end(self, grace: float = 0.0) -> None:
        """Close its input, so that it may take its own children with it; after `grace` seconds kill its group."""
        if self.is_over:  # by now its number may be another's
            return
        self.is_over = True
        with contextlib.suppress(OSError):
            if self.process.stdin:
                self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(grace)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)  # a GPU that hangs can keep a killed process

    def close(self, grace: float = 0.0) -> None:
        """End it, and let go of its pipes."""
        self.end(grace)
        self.output.close()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()


def read_reply(line: bytes) -> dict:
    with contextlib.suppress(ValueError, RecursionError):
        reply = json.loads(line)
        if isinstance(reply, dict):
            return reply
    raise Died(NO_REPLY)


def describe_exit(code: int | None, last_line: str = "") -> str:
    """`was killed by SIGKILL (the last line that it printed)`. code: the exit status, None where it still runs."""
    if code is None:
        how = "closed its channel"
    else:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
    return f"{how} ({last_line[:200]})" if last_line else how


class Printed:
    """What is printed into a pipe: its beginning and its end; a flood fills no memory.

    Whoever prints waits while nobody drains it.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.ended, self.kept, self.dropped, self.last = descriptor, False, b"", 0, b""
        os.set_blocking(descriptor, False)

    def wait(self, seconds: float, *others: int) -> list[int]:
        """Drain until one of the other descriptors has something to read, or for so long; returns which are ready."""
        watched = [*others, *([] if self.ended else [self.descriptor])]
        ready = select.select(watched, [], [], seconds)[0]
        if self.descriptor in ready:
            self.drain()
        return ready

    def drain(self) -> None:
        """Read what is there, and no more than PARTS of it, so that a flood keeps nobody here."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(0 if self.ended else PARTS):
                chunk = os.read(self.descriptor, READ_BYTES)
                if not chunk:
                    self.ended = True
                    return
                room = max(0, PRINTED_LIMIT - len(self.kept))
                self.kept += chunk[:room]
                self.dropped += len(chunk[room:])
                self.last = (self.last + chunk)[-LAST_BYTES:]

    def take(self, cut: Callable[[str], str] = lambda text: text) -> str:
        """What was printed since the last call, clean and of a sensible length. cut: leaves out parts of it."""
        self.drain()
        text, dropped = self.kept.decode(errors="replace"), self.dropped
        self.kept, self.dropped, self.last = b"", 0, b""
        return clean(cut(text)).rstrip() + (f"\n[... {dropped} more bytes not shown]" if dropped else "")

    def last_line(self) -> str:
        """The last line that is not blank, or an empty string."""
        self.drain()
        lines = self.last.decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def close(self) -> None:
        """A descendant that left the process group may hold the pipe open, and is not waited for."""
        self.drain()
        os.close(self.descriptor)
        self.ended, self.descriptor = True, -1
