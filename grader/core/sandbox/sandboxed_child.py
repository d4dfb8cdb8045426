"""A sandboxed child: it loads one submitted module, or runs programs, and can hurt nobody.

Where it runs, and what it may see and take, is the matter of server.py, bubblewrap.py and worker/rlimits.py.
"""

import contextlib
import os
import re
import secrets
import signal
import time
from pathlib import Path
from typing import Any

import msgspec

from grader.core.protocol import messages
from grader.core.protocol.messages import Envelope, Loaded, RecorderSetup, Reply, RunnerSetup, plain_bytes
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
ENVELOPES = msgspec.json.Decoder(Envelope)
REPLIES: dict[type, msgspec.json.Decoder[Any]] = {
    RecorderSetup: msgspec.json.Decoder(messages.RecorderReply),
    RunnerSetup: msgspec.json.Decoder(messages.RunnerReply),
}
LIVE: set["SandboxedChild"] = set()  # children that run now: what Ctrl-C must not leave behind


class SandboxedChild(Child):
    """A process of a device, forked by its sandbox process; ask it with `call`, close it with the `with` statement.

    setup: what it begins with; its device is one of server.KINDS. submission: the folder that it sees.
    folder: its current folder, where `put` leaves a file for the next request.
    `failure` is None where the module was loaded, else the Raised that says why it was not.
    Raises CannotStart where the grader's own part fails, TimedOut or Died where the module does while it loads.
    """

    sandbox: SandboxServer
    pid: int
    folder: Folder

    def __init__(self, setup: RecorderSetup | RunnerSetup, load_seconds: float, submission: Path | None = None):
        self.device, self.submission, self.replies = setup.device, submission, REPLIES[type(setup)]
        their_input, requests = os.pipe()
        printed, their_output = os.pipe()
        channel, their_channel = os.pipe()
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
        LIVE.add(self)
        try:
            reply = self.read(self.receive_line(load_seconds), "")
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
                self.folder = self.sandbox.scratch.new_folder()
                setup.folder = self.folder.path
                self.pid = self.sandbox.fork(self.device, setup, descriptors)
                return
            except (CannotStart, OSError):
                self.sandbox.close()
                if attempt or not used:
                    raise

    # Requests and files ----------------------------------------------------------------------------------------------

    def call(self, request: messages.RecorderRequest | messages.RunnerRequest, seconds: float) -> Reply:
        """The reply to one request. Raises TimedOut, and Died where it sends something else."""
        token = secrets.token_hex(8)
        line = msgspec.json.encode(Envelope(token, plain_bytes(request)))
        return self.read(self.exchange(line, seconds), token)

    def read(self, line: bytes, token: str) -> Reply:
        """The reply in one line, of the types that this child may send, its texts clean."""
        try:
            envelope = ENVELOPES.decode(line)
            if envelope.token != token:
                raise Died(NO_REPLY)
            body: bytes = envelope.body
            if b"\\" in line or not line.isascii():  # else no text of it can hold anything to clean away
                body = msgspec.json.encode(cleaned(msgspec.json.decode(body)))
            return self.replies.decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise Died(NO_REPLY) from None

    def put(self, files: dict[str, bytes]) -> None:
        """Leave files, {name: bytes}, in its folder; raises Died where the child has left no room for them."""
        try:
            for name, data in files.items():
                self.folder.put(name, data)
        except OSError as error:
            raise Died(f"it left no room for a file of the grader's: {error.strerror}") from None

    def take(self, name: str, most: int, size: int | None = None) -> bytes:
        """The bytes of the file that the child wrote beside its reply; raises Died without one.

        most: bytes; size: exactly so many. A link or a device there would have us read what the child may not.
        """
        try:
            return self.folder.take(name, most, size)
        except OSError:
            raise Died(f"its process left no file {name}, or another one") from None

    def take_printed(self) -> str:
        """What it printed since the last call."""
        return self.output.take(cut=leave_out_workers_calls)

    # What it does, and how it ends -----------------------------------------------------------------------------------

    def how_it_ended(self) -> str:
        status = None
        try:
            for _ in range(50):
                status = self.sandbox.exit_status(self.device, self.pid)
                if status is not None:
                    break
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
            return self.sandbox.program_names(self.device, self.pid)
        return []

    def running_line(self, file_name: str) -> int | None:
        """The innermost line of a file that runs now, or None; what it had printed stays in `output`."""
        with contextlib.suppress(CannotStart):
            self.sandbox.signal(self.device, self.pid, signal.SIGUSR1)
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
        if self not in LIVE:
            return
        LIVE.discard(self)
        self.sandbox.end_child(self.device, self.pid)
        self.output.close()
        os.close(self.requests)
        os.close(self.channel)
        self.folder.remove()
        pool.end_retired({child.sandbox for child in list(LIVE)})


def renew() -> None:
    """Have new runners serve new children; an old one ends with the last child that it has, another submission's."""
    pool.retire()
    pool.end_retired({child.sandbox for child in list(LIVE)})


def close_all() -> None:
    """End every sandboxed child, and every sandbox process with all that is inside."""
    for child in list(LIVE):
        child.close()
    pool.close_all()


def leave_out_workers_calls(text: str) -> str:
    """What a crash printed without what is not the module's: addresses, which differ each time, and the worker's calls.

    A dump that was cut short stays as it is from there on.
    """

    def calls(found: re.Match[str]) -> str:
        above, _, _ = found[1].partition(f'  File "{CORE}')
        return f"Most recent call first:\n{above}"

    return LOADED.sub("\n", CALLS.sub(calls, text))
