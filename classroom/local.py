"""The engine of one machine: lanes, each a process that grades one submission at a time (lane.py).

An engine is a class of two methods. `run(jobs, on_end, on_start)` grades all and returns when the last is done;
`close()` ends what it started. on_end(job, why) is called for each attempt: why is "" where its results are there, else
what the machine did; where it returns a Job, that is run too, last.
"""

import collections
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec

from classroom.jobs import Job
from grader.core.sandbox.child import CannotStart, Died, TimedOut, TrustedChild, describe_exit

ROOT = Path(__file__).resolve().parents[1]
COMMAND = (sys.executable, "-m", "classroom.lane")
GRACE = 3.0  # seconds for a process to take its children with it, before it is killed
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # no fork has another's


class Lane:
    """A child that is started before its first job, and again where it was lost. command: what serves as lane.py does.

    `grade` is called by one thread; `close`, after which nothing is graded, by another.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.command, self.closed = tuple(command), False
        self.child: TrustedChild | None = None

    def grade(self, path: Path, seconds: float) -> str:
        """Why the job in the file `path` is not done, or ""."""
        try:
            if self.child is None:
                self.child = TrustedChild([*self.command], ROOT, os.environ | ONE_THREAD)
            if self.closed:
                raise Died("was stopped")
            self.child.output.take()  # what was printed until now is of another job
            reply = self.child.call({"job": str(path)}, seconds)
        except CannotStart as failure:
            return str(failure)
        except (TimedOut, Died) as failure:
            assert self.child is not None
            late, last = isinstance(failure, TimedOut), self.child.output.last_line()
            self.child.close(GRACE)  # a fork may still be there
            self.child = None
            if late:
                return f"{failure}, the sum of all limits{f' ({last[:200]})' if last else ''}"
            return f"the process that graded this {failure}"
        if code := reply["status"]:
            return f"the process that graded this {describe_exit(code, self.child.output.last_line())}"
        return ""

    def close(self) -> None:
        self.closed = True
        if child := self.child:
            child.end(GRACE)


class Local:
    """Runs jobs on this machine: at most `lanes` at a time on the CPU, and beside them one at a time on the GPU.

    command: of each lane's process. pause: seconds before another attempt of what the machine failed.
    """

    def __init__(self, lanes: int, command: Sequence[str] = COMMAND, pause: float = 2.0) -> None:
        self.lanes, self.command, self.pause = lanes, command, pause
        self.every: list[Lane] = []

    def run(
        self, jobs: Sequence[Job], on_end: Callable[[Job, str], Job | None], on_start: Callable[[Job], None]
    ) -> None:
        waiting = {gpu: collections.deque(job for job in jobs if job.needs_gpu == gpu) for gpu in (False, True)}
        most = {False: self.lanes, True: 1}
        free = {gpu: [Lane(self.command) for _ in range(min(most[gpu], len(waiting[gpu])))] for gpu in most}
        self.every = [lane for lanes in free.values() for lane in lanes]
        running: dict[Future[str], tuple[Lane, Job]] = {}
        pool = ThreadPoolExecutor(max(1, len(self.every)))
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
                    if again := on_end(job, future.result()):
                        waiting[job.needs_gpu].append(again)
        finally:
            self.close()
            pool.shutdown()

    def attempt(self, lane: Lane, job: Job) -> str:
        """Grade one job; why it is not done, or ""."""
        if job.attempt > 1:
            time.sleep(self.pause)
        path = Path(job.out) / "work" / "jobs" / f"{job.row}.{job.attempt}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.encode(job))
            return lane.grade(path, job.limit)
        except OSError as error:
            return f"{error.strerror}{f' ({error.filename})' if error.filename else ''}"
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        enders = [threading.Thread(target=lane.close) for lane in self.every]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join()
        self.every = []
