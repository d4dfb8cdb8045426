"""The engine of one machine: lanes, each of which grades one submission at a time."""

import collections
import contextlib
import threading
import time
from dataclasses import replace

from grader.classroom import plan
from grader.classroom.lane import COMMAND, GRACE, Lane
from grader.classroom.record import Record


class Local:
    """Runs jobs on this machine: at most `lanes` at a time on the CPU, and beside them one at a time on the GPU.

    command: of each lane's process. pause: seconds before another attempt of what the machine failed.
    """

    def __init__(self, lanes, command=COMMAND, pause=2.0):
        self.lanes, self.command, self.pause = lanes, tuple(command), pause
        self.changed = threading.Condition()
        self.waiting = {"cpu": collections.deque(), "gpu": collections.deque()}
        self.running, self.left, self.failure, self.stopping = [], 0, None, False

    def run(self, jobs, on_done, on_start=lambda job: None):
        """Grade all jobs; returns when the last is done.

        on_done(job, records) is called once for each attempt, never twice at a time; where it returns a Job, that is
        run too, last. An exception in it, or Ctrl-C here, stops all lanes.
        """
        for job in jobs:
            self.waiting[lane_of(job)].append(job)
        self.left = sum(map(len, self.waiting.values()))
        kinds = ["cpu"] * min(self.lanes, len(self.waiting["cpu"])) + ["gpu"] * bool(self.waiting["gpu"])
        self.running = [Lane(self.command) for _ in kinds]
        lanes = zip(self.running, kinds, strict=True)
        threads = [threading.Thread(target=self.work, args=(*lane, on_done, on_start), daemon=True) for lane in lanes]
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

    def work(self, lane, kind, on_done, on_start):
        """Of one lane: take a job, grade it, hand its records over."""
        while job := self.take(kind):
            try:
                with self.changed:
                    on_start(job)
                if job.attempt > 1:
                    time.sleep(self.pause)
                records = self.attempt(lane, job)
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

    def attempt(self, lane, job):
        """The records of one job: those that its lane made, or of the machine's fault that ended it."""
        given, out = plan.paths_of(job)
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.unlink(missing_ok=True)
            given.write_text(job.to_json(), encoding="utf-8")
            why, used = lane.grade(given, job.limit)
            return plan.fault_records(job, f"The machine failed: {why}.") if why else read_records(job, out, used)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            return plan.fault_records(job, f"The machine failed: {error.strerror}{where}.")
        finally:
            for path in (out, given):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    def stop(self):
        """End every process that runs; what they had in hand is graded again by the next run."""
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
        enders = [threading.Thread(target=each.close, daemon=True) for each in self.running]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join(2 * GRACE)


def lane_of(job):
    return "gpu" if job.needs_gpu else "cpu"


def read_records(job, path, core_seconds):
    """The records of a job's process, the core-seconds divided among its problems as their seconds are."""
    try:
        records = [Record.from_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        return plan.fault_records(job, f"The machine failed: the records of this submission cannot be read ({error}).")
    if tuple(record.problem for record in records) != job.problems:
        return plan.fault_records(job, "The machine failed: the process that graded this left no full records.")
    if any((record.submission, record.key) != (job.submission, job.keys[record.problem]) for record in records):
        return plan.fault_records(job, "The machine failed: the process that graded this left another's records.")
    whole = sum(record.seconds for record in records) or 1.0
    if any(record.core_seconds for record in records):  # it counted itself, and what ran in the sandbox
        return records
    return [replace(r, core_seconds=round(core_seconds * r.seconds / whole, 3)) for r in records]
