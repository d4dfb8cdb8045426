"""Calls a function in a fork with limits of its own: what it reads was made by nobody that can be trusted."""

import contextlib
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from grader.core.sandbox.child import ChildFailed, Died, TimedOut
from grader.core.worker import rlimits

MEMORY = 1 << 30  # bytes beyond what is there at the fork
FILE_BYTES = 16 << 20  # of one file that it writes


class Limited(contextlib.AbstractContextManager):
    """`work(argument)` in a fork, which serves one call after the other and is made anew where one was lost.

    Its value and its OSErrors come back. What ends otherwise is tried once more, since a machine may be short of memory
    for a moment, and then raises ChildFailed. seconds: of one call. Close it with the `with` statement.
    """

    def __init__(self, work: Callable[[Any], Any], seconds: float, memory: int = MEMORY) -> None:
        self.work, self.seconds, self.memory = work, seconds, memory
        self.process: BaseProcess | None = None

    def __call__(self, argument: Any) -> Any:
        try:
            return self.attempt(argument)
        except ChildFailed:
            return self.attempt(argument)

    def attempt(self, argument: Any) -> Any:
        if self.process is None:
            self.start()
        value: Any = TimedOut(f"it took more than {self.seconds:g} s")
        try:
            self.channel.send(argument)
            if self.channel.poll(self.seconds):
                value = self.channel.recv()
        except (EOFError, ConnectionError):
            value = Died("its process was ended")
        if isinstance(value, ChildFailed):
            self.close()
        if isinstance(value, Exception):
            raise value
        return value

    def start(self) -> None:
        self.channel, theirs = multiprocessing.Pipe()
        # A fork, since `work` knows what the caller knows; a daemon, since it must not outlive this process.
        self.process = multiprocessing.get_context("fork").Process(target=self.serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def serve(self, channel: Connection) -> None:
        """In the fork: answer until the other end is closed."""
        self.channel.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        rlimits.most(resource.RLIMIT_AS, rlimits.mapped() + self.memory)
        rlimits.most(resource.RLIMIT_FSIZE, FILE_BYTES)
        rlimits.most(resource.RLIMIT_CORE, 0)
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                argument = channel.recv()
                try:
                    value = self.work(argument)
                except OSError as error:
                    value = error
                except Exception as error:
                    value = Died(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
                channel.send(value)
        os._exit(0)

    def close(self) -> None:
        if self.process is not None:
            self.channel.close()
            self.process.kill()
            self.process.join()
            self.process = None

    def __exit__(self, *exc: object) -> None:
        self.close()
