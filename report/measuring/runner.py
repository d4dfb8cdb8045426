"""A study's side of the process that measures: ask it, make rows of what it says, and survive its end. No torch."""

import contextlib
import threading

from report.measuring.child import Child, ChildEnded
from report.measuring.rows import not_measured
from report.measuring.serve import serve
from report.places import Refused

START_LIMIT = 180.0  # seconds for the imports and the first use of the GPU


class NoChild(Refused):
    """No process can be started; the text is one sentence."""


class InHand(ChildEnded):
    """The process is gone. kernel: the arm in hand, or None."""

    def __init__(self, kernel, reason):
        super().__init__(reason)
        self.kernel = kernel


class Runner:
    """Measures points in a process, with a new one after each end of one. limit: seconds for one step of an arm.

    machine: the facts that the process found. serve: what runs in it.
    """

    def __init__(self, study, device, limit, serve=serve):
        self.study, self.device, self.limit, self.serve = study, device, limit, serve
        self.start()

    def start(self):
        """Raises NoChild."""
        self.child = Child(self.serve, self.study, self.device)
        try:
            message = self.child.hear(START_LIMIT)
        except ChildEnded as ended:
            self.child.close()
            raise NoChild(f"the process that measures does not start: {ended}") from None
        except BaseException:
            self.child.close()
            raise
        kind, said = message or ("late", f"the process that measures does not start within {START_LIMIT:g} s")
        if kind != "ready":
            self.child.close()
            raise NoChild(said)
        self.machine = said

    def ask(self, **request):
        """Yields messages up to the last one; raises InHand where there is none within the limit, or none will come."""
        kernel = None
        try:
            self.child.send(request)
            while True:
                message = self.child.hear(self.limit)
                if message is None:
                    raise ChildEnded(f"no result within {self.limit:g} s, the limit for one step of a kernel (--limit)")
                kind, *values = message
                if kind == "doing":
                    (kernel,) = values
                elif kind == "dying":
                    kernel, reason = values
                    raise ChildEnded(reason)
                else:
                    yield message
                    if kind != "row":
                        return
        except ChildEnded as ended:
            self.child.close()
            raise InHand(kernel, str(ended)) from None

    def measure(self, point, names, companions, budget):
        """Yields a row for each arm in `names`, as they are known; the death of one costs the others their turn
        in that run only."""
        left, companions = list(names), list(companions)

        def without_time(name, status, reason):
            return not_measured(self.study.blank(point, name), status, reason)

        while left:
            try:
                for kind, *values in self.ask(
                    op="measure", point=point, kernels=left, companions=companions, budget=budget
                ):
                    if kind == "row":
                        row = self.study.row(**values[0])
                        left.remove(row.kernel)
                        yield row
                    elif kind == "fault":
                        yield from (without_time(name, "not run", values[0]) for name in left)
                return
            except InHand as ended:
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
            for _ in self.ask(op="prepare", point=point, kernels=names, share=share):
                pass
        except InHand:
            self.start()

    def machine_now(self):
        """The facts of the machine as they are now: the clocks after the run."""
        return next(self.ask(op="machine"))[1]

    def close(self):
        self.child.close()


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
