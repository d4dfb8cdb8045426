"""A study's side of the process that measures: ask it, make rows of what it says, and survive its end. No torch."""

import contextlib
import os
import sys
import threading
from dataclasses import asdict

from grader.core.sandbox.child import CannotStart, ChildFailed, TimedOut, TrustedChild
from report.measuring.rows import not_measured
from report.places import ROOT, Refused

COMMAND = (sys.executable, "-m", "report.measuring.serve")
SECONDS_TO_START = 180.0  # the imports and the first use of the GPU
ALONE = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TRITON_INTERPRET": "0"}  # those that compile ahead are many already
SECONDS_TO_SEND = 10.0


class NoChild(Refused):
    """No process can be started; the text is one sentence."""


class Ended(Exception):
    """The process is gone. kernel: the arm in hand, or None; the text is the reason."""

    def __init__(self, kernel, reason):
        super().__init__(reason)
        self.kernel = kernel


class Runner:
    """Measures points in a process, with a new one after each end of one. limit: seconds for one step of an arm.

    machine: the facts that the process found. command: what starts it, less the study and the device.
    """

    def __init__(self, study, device, limit, command=COMMAND):
        self.study, self.device, self.limit, self.command, self.child = study, device, limit, command, None
        self.start()

    def start(self):
        """Raises NoChild."""
        try:
            command = [*self.command, self.study.name, self.device]
            self.child = TrustedChild(command, ROOT, os.environ | ALONE)
            message = self.child.receive(SECONDS_TO_START)
        except (CannotStart, ChildFailed) as failure:
            self.close()
            raise NoChild(f"the process that measures does not start: it {failure}") from None
        except BaseException:
            self.close()
            raise
        if message["event"] != "ready":
            self.close()
            raise NoChild(message["reason"])
        self.machine = message["machine"]

    def close(self):
        if self.child is not None:
            self.child.close()
        self.child = None

    def ask(self, **request):
        """Yields messages up to the last one; raises Ended where there is none within the limit, or none will come."""
        kernel = None
        try:
            self.child.send(request, SECONDS_TO_SEND)
            while True:
                message = self.child.receive(self.limit)
                if message["event"] == "doing":
                    kernel = message["kernel"]
                    continue
                if message["event"] == "dying":
                    raise Ended(message["kernel"], message["reason"])
                yield message
                if message["event"] != "row":
                    return
        except TimedOut:
            reason = f"no result within {self.limit:g} s, the limit for one step of a kernel (--limit)"
            raise Ended(kernel, reason) from None
        except ChildFailed as failure:
            raise Ended(kernel, f"its process {failure}") from None

    def measure(self, point, names, companions, budget):
        """Yields a row for each arm in `names`, as they are known; the death of one costs the others their turn
        in that run only."""
        left, companions = list(names), list(companions)

        def without_time(name, status, reason):
            return not_measured(self.study.blank(point, name), status, reason)

        while left:
            try:
                for message in self.ask(
                    op="measure", point=asdict(point), kernels=left, companions=companions, budget=budget
                ):
                    if message["event"] == "row":
                        row = self.study.row(**message["row"])
                        left.remove(row.kernel)
                        yield row
                    elif message["event"] == "fault":
                        yield from (without_time(name, "not run", message["reason"]) for name in left)
                return
            except Ended as ended:
                self.close()
                self.start()
                if ended.kernel in left:
                    left.remove(ended.kernel)
                    yield without_time(ended.kernel, "failed", str(ended))
                elif ended.kernel in companions:
                    companions.remove(ended.kernel)
                else:
                    reason = f"the process that measures ended with no kernel in hand: {ended}"
                    yield from (without_time(name, "not run", reason) for name in left)
                    return

    def prepare(self, point, names, share):
        """Let the process fill the caches of the compilers; nothing is measured, and no failure counts."""
        try:
            for _ in self.ask(op="prepare", point=asdict(point), kernels=names, share=share):
                pass
        except Ended:
            self.close()
            self.start()

    def machine_now(self):
        """The facts of the machine as they are now: the clocks after the run."""
        return next(self.ask(op="machine"))["machine"]


def prepare(new, left, processes, on_point):
    """Let `processes` processes compile ahead for [(point, names)], each with its share of the GPU's memory.

    new() makes the Runner of each. What does not fit in that share has been compiled before it runs out of memory.
    on_point(point) after each.
    """
    waiting, failures = list(reversed(left)), []

    def work():
        try:
            with contextlib.closing(new()) as runner, contextlib.suppress(IndexError):
                while True:
                    point, names = waiting.pop()
                    runner.prepare(point, names, 0.8 / processes)
                    on_point(point)
        except NoChild as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(processes)]  # Ctrl-C waits for none
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures and waiting:
        raise failures[0]
