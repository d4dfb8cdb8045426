"""The engine of one machine: lanes, each of which grades one submission at a time in a process of its own."""

import collections
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

from grader.classroom import plan
from grader.classroom.node import last_words
from grader.classroom.record import Record

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "grader.classroom.one")
GRACE = 3.0  # seconds for a process to take its children with it, before it is killed


class Local:
    """Runs jobs on this machine: at most `lanes` at a time on the CPU, and beside them one at a time on the GPU.

    command: what grades one job, given the job's file and that of its records. pause: seconds before another attempt
    of what the machine failed.
    """

    def __init__(self, lanes, command=COMMAND, pause=2.0):
        self.lanes, self.command, self.pause = lanes, tuple(command), pause
        self.changed = threading.Condition()
        self.waiting = {"cpu": collections.deque(), "gpu": collections.deque()}
        self.running, self.left, self.failure, self.stopping = {}, 0, None, False

    def run(self, jobs, on_done, on_start=lambda job: None):
        """Grade all jobs; returns when the last is done.

        on_done(job, records) is called once for each attempt, never twice at a time; where it returns a Job, that is
        run too, last. An exception in it, or Ctrl-C here, stops all lanes.
        """
        for job in jobs:
            self.waiting[lane_of(job)].append(job)
        self.left = sum(map(len, self.waiting.values()))
        kinds = ["cpu"] * min(self.lanes, len(self.waiting["cpu"])) + ["gpu"] * bool(self.waiting["gpu"])
        threads = [threading.Thread(target=self.work, args=(k, on_done, on_start), daemon=True) for k in kinds]
        try:
            for thread in threads:
                thread.start()
            with self.changed:
                while self.left and not self.failure:
                    self.changed.wait(0.5)  # with a timeout, so that signals are heard
        finally:
            self.stop()
            for thread in threads:
                thread.join(2 * GRACE)
        if self.failure:
            raise self.failure

    def work(self, kind, on_done, on_start):
        """One lane: take a job, grade it, hand its records over."""
        while job := self.take(kind):
            try:
                with self.changed:
                    on_start(job)
                if job.attempt > 1:
                    time.sleep(self.pause)
                records = self.attempt(job)
                with self.changed:
                    if self.stopping:
                        return
                    if again := on_done(job, records):
                        self.waiting[kind].append(again)
                    else:
                        self.left -= 1
                    self.changed.notify_all()
            except BaseException as error:  # the caller must hear of it, whatever it is
                with self.changed:
                    self.failure = self.failure or error
                    self.changed.notify_all()
                return

    def take(self, kind):
        """The next job of this kind, or None when there will be no more."""
        with self.changed:
            while self.left and not self.stopping and not self.failure:
                if self.waiting[kind]:
                    return self.waiting[kind].popleft()
                self.changed.wait(0.5)  # another lane's job may fail and come back
        return None

    def attempt(self, job):
        """The records of one job: those of its process, or of the machine's fault that ended it."""
        out = plan.result_path(job)
        given = out.with_name(out.name.replace(".records.", ".job."))
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.unlink(missing_ok=True)
            given.write_text(job.to_json(), encoding="utf-8")
            with tempfile.TemporaryFile() as log:
                why, used = self.wait_for(job, [*self.command, str(given), str(out), "--leashed"], log)
                why = why and f"{why}{last_words(log)}"
            return plan.fault_records(job, f"{why}.") if why else read_records(job, out, used)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            return plan.fault_records(job, f"The machine failed: {error.strerror}{where}.")
        finally:
            for path in (out, given):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    def wait_for(self, job, command, log):
        """(why there are no records, or None; the core-seconds of the process and of all that it waited for)"""
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        late = threading.Event()
        timer = threading.Timer(job.limit, lambda: (late.set(), end(process)))
        timer.daemon = True
        with self.changed:
            self.running[process.pid] = process
            stopping = self.stopping
        if stopping:
            end(process)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = code = os.waitstatus_to_exitcode(status)
        with self.changed:
            del self.running[process.pid]
        kill_group(process.pid)
        process.stdin.close()
        if late.is_set():
            return f"The machine failed: no result within {job.limit:.0f} s, the sum of all limits", 0.0
        if code:
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
            return f"The machine failed: the process that graded this was {how}".replace("was ended", "ended"), 0.0
        return None, usage.ru_utime + usage.ru_stime

    def stop(self):
        """End every process that runs; what they had in hand is graded again by the next run."""
        with self.changed:
            self.stopping = True
            running = list(self.running.values())
            self.changed.notify_all()
        enders = [threading.Thread(target=end, args=(process,), daemon=True) for process in running]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join(2 * GRACE)


def lane_of(job):
    return "gpu" if job.needs_gpu else "cpu"


def end(process):
    """Let go of the leash, so that the process takes its children with it; where it does not, kill its group."""
    with contextlib.suppress(OSError, ValueError):
        process.stdin.close()
    deadline = time.monotonic() + GRACE
    while time.monotonic() < deadline and process.returncode is None:
        time.sleep(0.02)  # its lane waits for it and sets the code
    if process.returncode is None:
        kill_group(process.pid)


def kill_group(pid):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def read_records(job, path, core_seconds):
    """The records of a job's process, the core-seconds divided among its problems as their seconds are."""
    try:
        records = [Record.from_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        return plan.fault_records(job, f"The machine failed: the records of this submission cannot be read ({error}).")
    if tuple(record.problem for record in records) != job.problems:
        return plan.fault_records(job, "The machine failed: the process that graded this left no full records.")
    whole = sum(record.seconds for record in records) or 1.0
    if any(record.core_seconds for record in records):  # it counted itself, and what ran in the sandbox
        return records
    return [replace(r, core_seconds=round(core_seconds * r.seconds / whole, 3)) for r in records]
