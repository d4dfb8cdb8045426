"""A process of its own for what may crash or hang: asked and heard through a pipe, and ended with all it started."""

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading

from report.places import Refused

SPAWN = multiprocessing.get_context("spawn")  # a fork would have the parent's CUDA and threads


class ChildEnded(Refused):
    """The process is gone; the text says how."""


class Child:
    """`serve(channel, *arguments)` in a process of its own, which the parent's end takes with it.

    What it and its libraries print goes to a log, whose last line is among the words with which its end is told.
    """

    def __init__(self, serve, *arguments):
        self.log = tempfile.NamedTemporaryFile()  # noqa: SIM115, closed in `close`
        self.channel, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=begin, args=(self.log.name, serve, theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, message):
        try:
            self.channel.send(message)
        except OSError:
            raise ChildEnded(self.last_words()) from None

    def hear(self, seconds):
        """The next message, or None where there is none within that time; raises ChildEnded."""
        try:
            return self.channel.recv() if self.channel.poll(seconds) else None
        except (EOFError, OSError):
            raise ChildEnded(self.last_words()) from None

    def last_words(self):
        """Why the process ended: its signal or exit status, and the last line that it wrote."""
        self.process.join()
        status = self.process.exitcode
        how = f"ended by signal {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - 10_000))
        lines = [line.strip() for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
        was = "its process was" if status < 0 else "its process"
        return f"{was} {how} ({lines[-1][:200]})" if lines else f"{was} {how}"

    def close(self):
        """End the process and whatever it started."""
        if self.process.is_alive():
            with contextlib.suppress(ProcessLookupError):  # it has no group of its own yet
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()
        self.process.join(30)  # a GPU that hangs can keep a killed process
        self.channel.close()
        self.log.close()


def begin(log, serve, channel, *arguments):
    """In the process: a group of its own, what is printed to the log, and no life beyond the parent's."""
    os.setsid()
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    threading.Thread(target=end_with_parent, daemon=True).start()
    serve(channel, *arguments)


def end_with_parent():
    multiprocessing.parent_process().join()
    os._exit(0)
