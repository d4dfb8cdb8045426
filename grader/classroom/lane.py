"""One lane of this machine: a process that grades one submission at a time (warm.py), started, asked and ended."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from grader.classroom.node import last_words

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "grader.classroom.warm")
GRACE = 3.0  # seconds for a process to take its children with it, before it is killed
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # no fork has another's


class Lane:
    """The process is started when it is first asked, and again where it was lost. command: what serves as warm.py does.

    `grade` is called by one thread; `close`, after which nothing is graded, by any.
    """

    def __init__(self, command=COMMAND):
        self.command, self.process = tuple(command), None
        self.log = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        self.changing, self.closed = threading.Lock(), False

    def grade(self, given, seconds):
        """(why there are no records, or None; the core-seconds) of the job in the file `given`."""
        with self.changing:
            if self.closed:
                return "the run was stopped", 0.0
            if self.process is None or self.process.poll() is not None:
                self.start(given.parent)
        late = threading.Event()
        timer = threading.Timer(seconds, lambda: (late.set(), self.end()))
        timer.daemon = True
        timer.start()
        reply = self.ask(given.name.removesuffix(".job.json"))
        timer.cancel()
        if late.is_set():
            return f"no result within {seconds:.0f} s, the sum of all limits{last_words(self.log)}", 0.0
        if reply is None:
            self.end()  # a fork may still be there
            reply = {"status": self.process.returncode}
        if code := reply["status"]:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
            return f"the process that graded this {how}{last_words(self.log)}", 0.0
        return None, reply["core_seconds"]

    def start(self, folder):
        self.process = subprocess.Popen(
            [*self.command, str(folder)], cwd=ROOT, env=os.environ | ONE_THREAD, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
        )  # fmt: skip

    def ask(self, name):
        """The reply to one job, or None where the process ended."""
        self.log.truncate(0)
        try:
            self.process.stdin.write(f"{name}\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (OSError, ValueError):
            return None

    def end(self):
        """Close its input, so that the process takes its children with it; what is left of its group is killed."""
        process = self.process
        with contextlib.suppress(OSError, ValueError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self):
        with self.changing:
            self.closed = True
        if self.process and self.process.poll() is None:  # of one that ended nothing is left, and its number is free
            self.end()
