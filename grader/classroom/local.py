"""The engine of one machine: lanes, each a process that grades one submission at a time (lane.py)."""

import collections
import contextlib
import os
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

from grader.classroom import plan
from grader.classroom.record import Record
from grader.core.sandbox.child import CannotStart, Died, TimedOut, TrustedChild, describe_exit

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "grader.classroom.lane")
GRACE = 3.0  # seconds for a process to take its children with it, before it is killed
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # no fork has another's


class Lane:
    """A child that is started before its first job, and again where it was lost. command: what serves as lane.py does.

    `grade` is called by one thread; `close`, after which nothing is graded, by another.
    """

    def __init__(self, command):
        self.command, self.child, self.closed = tuple(command), None, False

    def grade(self, given, seconds):
        """Why there are no records of the job in the file `given`, or None."""
        try:
            if self.child is None:
                self.child = TrustedChild([*self.command, str(given.parent)], ROOT, os.environ | ONE_THREAD)
            if self.closed:
                raise Died("was stopped")
            self.child.output.take()  # what was printed until now is of another job
            reply = self.child.call({"job": given.name.removesuffix(".job.json")}, seconds)
        except CannotStart as failure:
            return str(failure)
        except (TimedOut, Died) as failure:
            late, last = isinstance(failure, TimedOut), self.child.output.last_line()
            self.child.close(GRACE)  # a fork may still be there
            self.child = None
            if late:
                return f"{failure}, the sum of all limits{f' ({last[:200]})' if last else ''}"
            return f"the process that graded this {failure}"
        if code := reply["status"]:
            return f"the process that graded this {describe_exit(code, self.child.output.last_line())}"
        return None

    def close(self):
        self.closed = True
        if child := self.child:
            child.end(GRACE)


class Local:
    """Runs jobs on this machine: at most `lanes` at a time on the CPU, and beside them one at a time on the GPU.

    command: of each lane's process. pause: seconds before another attempt of what the machine failed.
    """

    def __init__(self, lanes, command=COMMAND, pause=2.0):
        self.lanes, self.command, self.pause = lanes, command, pause

    def run(self, jobs, on_done, on_start=lambda job: None):
        """Grade all jobs; returns when the last is done.

        on_done(job, records) is called once for each attempt; where it returns a Job, that is run too, last. An
        exception in it, or Ctrl-C, stops all lanes: what they had in hand is graded again by the next run.
        """
        waiting = {gpu: collections.deque(job for job in jobs if job.needs_gpu == gpu) for gpu in (False, True)}
        most = {False: self.lanes, True: 1}
        free = {gpu: [Lane(self.command) for _ in range(min(most[gpu], len(waiting[gpu])))] for gpu in most}
        every, running = [lane for lanes in free.values() for lane in lanes], {}
        pool = ThreadPoolExecutor(max(1, len(every)))
        try:
            while running or any(waiting.values()):
                for gpu in free:
                    while free[gpu] and waiting[gpu]:
                        lane, job = free[gpu].pop(), waiting[gpu].popleft()
                        on_start(job)
                        running[pool.submit(self.attempt, lane, job)] = lane, job
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    lane, job = running.pop(future)
                    free[job.needs_gpu].append(lane)
                    if again := on_done(job, future.result()):
                        waiting[job.needs_gpu].append(again)
        finally:
            enders = [threading.Thread(target=lane.close) for lane in every]
            for ender in enders:
                ender.start()
            for ender in enders:
                ender.join()
            pool.shutdown()

    def attempt(self, lane, job):
        """The records of one job: those that its lane made, or of the machine's fault that ended it."""
        if job.attempt > 1:
            time.sleep(self.pause)
        name = Path(job.out) / "work" / "jobs" / f"{job.submission}.{job.attempt}"
        given, out = (name.with_name(f"{name.name}.{kind}.json") for kind in ("job", "records"))
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.unlink(missing_ok=True)
            given.write_text(job.to_json(), encoding="utf-8")
            why = lane.grade(given, job.limit)
            return plan.fault_records(job, f"The machine failed: {why}.") if why else read_records(job, out)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            return plan.fault_records(job, f"The machine failed: {error.strerror}{where}.")
        finally:
            for path in (out, given):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)


def read_records(job, path):
    """The records that a job's process left, or of the machine's fault where they are not this job's."""
    try:
        records = [Record.from_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        return plan.fault_records(job, f"The machine failed: the records of this submission cannot be read ({error}).")
    if tuple(record.problem for record in records) != job.problems:
        return plan.fault_records(job, "The machine failed: the process that graded this left no full records.")
    if any((record.submission, record.key) != (job.submission, job.keys[record.problem]) for record in records):
        return plan.fault_records(job, "The machine failed: the process that graded this left another's records.")
    return records
