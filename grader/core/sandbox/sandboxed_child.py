"""A sandboxed child: it loads one submitted module, or runs programs, and can hurt nobody.

Where it runs, and what it may see and take, is the matter of server.py, bubblewrap.py and worker/rlimits.py.
"""

import contextlib
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import msgspec

from grader.core.protocol import messages
from grader.core.protocol.messages import Loaded, RecorderSetup, Reply, RunnerSetup
from grader.core.sandbox import pool
from grader.core.sandbox.bubblewrap import outside_paths
from grader.core.sandbox.child import NO_REPLY, CannotStart, Child, ChildFailed, Died, TimedOut
from grader.core.sandbox.scratch import Folder
from grader.core.sandbox.server import CORE, KINDS, SandboxServer
from grader.core.sandbox.texts import cleaned

TOO_MUCH = "it took more than {} GiB of memory"
# What faulthandler prints where a process crashes: its threads, their calls, the modules in C that are loaded.
CALLS = re.compile(r"^(?:Current t|T)hread [^\n]*\(most recent call first\):\n((?:  File [^\n]*\n?)*)", re.MULTILINE)
LOADED = re.compile(r"\n*^Extension modules: [^\n]*\n?", re.MULTILINE)
REPLIES: dict[type, msgspec.json.Decoder[Any]] = {
    RecorderSetup: msgspec.json.Decoder(messages.RecorderReply),
    RunnerSetup: msgspec.json.Decoder(messages.RunnerReply),
}


class SandboxedChild(Child):
    """A process of a device, forked by its sandbox process; ask it with `call`, close it with the `with` statement.

    setup: what it begins with; its device is one of server.KINDS. submission: the folder that it sees.
    folder: its current folder, whose `put` leaves files for the next request.
    `failure` is None where the module was loaded, else the Raised that says why it was not.
    Raises CannotStart where the grader's own part fails, TimedOut or Died where the module does while it loads.
    """

    sandbox: SandboxServer
    pid: int
    folder: Folder

    def __init__(self, setup: RecorderSetup | RunnerSetup, load_seconds: float, submission: Path | None = None):
        self.device, self.submission, self.replies = setup.device, submission, REPLIES[type(setup)]
        (their_input, requests), (printed, their_output), (channel, their_channel) = (os.pipe() for _ in range(3))
        theirs = [their_input, their_output, their_channel]
        setup.sys_path, setup.submission = outside_paths(), str(submission) if submission else None
        try:
            self.start(setup, theirs)
        except (CannotStart, OSError) as failure:
            for descriptor in (requests, printed, channel):
                os.close(descriptor)
            raise CannotStart(str(failure)) from None
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        super().__init__(requests, channel, printed)
        self.closed = False
        try:
            reply = self.read(self.receive_line(load_seconds))
            self.failure = None if isinstance(reply, Loaded) else reply
        except ChildFailed as failure:
            module = Path(setup.module).name
            failure.line = self.running_line(module) if isinstance(failure, TimedOut) else None
            failure.printed = self.take_printed()
            self.close()
            raise

    def start(self, setup: RecorderSetup | RunnerSetup, descriptors: list[int]) -> None:
        """Have the child forked; where an earlier child of the submission broke the sandbox process, by a new one."""
        for attempt in range(2):
            self.sandbox = pool.serving(self.device, self.submission)
            used = self.sandbox.forked
            try:
                self.folder = Folder(self.sandbox.scratch)
                setup.folder = self.folder.path
                self.pid = self.sandbox.fork(setup, descriptors)
                return
            except (CannotStart, OSError):
                self.sandbox.close()
                if attempt or not used:
                    raise

    # Requests and files ----------------------------------------------------------------------------------------------

    def call(self, request: messages.RecorderRequest | messages.RunnerRequest, seconds: float) -> Reply:
        """The reply to one request. Raises TimedOut, and Died where it sends something else."""
        return self.read(self.exchange(msgspec.json.encode(request), seconds))

    def read(self, line: bytes) -> Reply:
        """The reply in one line, of the types that this child may send, its texts clean."""
        try:
            if b"\\" in line or not line.isascii():  # else no text of it can hold anything to clean away
                line = msgspec.json.encode(cleaned(msgspec.json.decode(line)))
            return self.replies.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise Died(NO_REPLY) from None

    def take_printed(self) -> str:
        """What it printed since the last call."""
        return self.output.take(cut=leave_out_workers_calls)

    # What it does, and how it ends -----------------------------------------------------------------------------------

    def how_it_ended(self) -> str:
        until = time.monotonic() + 1.0
        try:
            while (status := self.sandbox.look(self.pid).status) is None and time.monotonic() < until:
                time.sleep(0.02)
        except CannotStart:  # the fork server is gone, and runs nothing but children of this submission
            taken = self.sandbox.group.memory_kills()
            self.sandbox.close()
            return self.too_much_memory() if taken else "it brought down the process that watches over it"
        if status is None:
            return "the process closed its channel to the grader"
        if status == -signal.SIGKILL and self.sandbox.group.memory_kills():
            return self.too_much_memory()
        if status < 0:
            return f"the process was killed by {signal.Signals(-status).name}"
        return f"the process ended itself with exit status {status}"

    def too_much_memory(self) -> str:
        return TOO_MUCH.format(KINDS[self.sandbox.kind].memory_bytes >> 30)

    def program_names(self) -> list[str]:
        """Names of the programs that run for this child now, itself among them."""
        with contextlib.suppress(CannotStart):
            return self.sandbox.look(self.pid).programs
        return []

    def running_line(self, file_name: str) -> int | None:
        """The innermost line of a file that runs now, or None; what it had printed stays in `output`."""
        with contextlib.suppress(CannotStart):
            self.sandbox.look(self.pid, signal.SIGUSR1)
            time.sleep(0.3)
        self.output.drain()
        printed = self.output.kept.decode(errors="replace")
        start = printed.find("Current thread ")
        start = start if start >= 0 else printed.rfind("Thread ")
        if start < 0:
            return None
        self.output.kept = printed[:start].encode()
        found = re.search(rf'{re.escape(file_name)}", line (\d+)', printed[start:])
        return int(found.group(1)) if found else None

    def close(self) -> None:
        """Kill the child and all that came of it, and remove its folder."""
        if self.closed:
            return
        self.closed = True
        self.sandbox.end_child(self.pid)
        self.output.close()
        os.close(self.requests)
        os.close(self.channel)
        self.folder.remove()


def leave_out_workers_calls(text: str) -> str:
    """What a crash printed without what is not the module's: addresses, which differ each time, and the worker's calls.

    A dump that was cut short stays as it is from there on.
    """

    def calls(found: re.Match[str]) -> str:
        above, _, _ = found[1].partition(f'  File "{CORE}')
        return f"Most recent call first:\n{above}"

    return LOADED.sub("\n", CALLS.sub(calls, text))
