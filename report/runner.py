"""The sweep's side of its child: start it, ask it, and survive its end."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path

from report.table import Row, not_measured

ROOT = Path(__file__).resolve().parent.parent
COMMAND = (sys.executable, "-m", "report.bench")
START_LIMIT = 180.0  # seconds for the imports and the first use of the GPU


class ChildEnded(Exception):
    """The child is gone. kernel: the one in hand, or None; the text is the reason."""

    def __init__(self, kernel, reason):
        super().__init__(reason)
        self.kernel = kernel


class NoChild(Exception):
    """No child can be started; the text is one sentence."""


class Child:
    """A running child; `machine` holds the facts that it found. command: what starts it, less the device.

    interpreted: Triton's kernels run in its interpreter where the device is the CPU.
    """

    def __init__(self, device, command=COMMAND, interpreted=False):
        self.log = tempfile.TemporaryFile()  # noqa: SIM115, closed in `close`
        # One process compiles for itself: those that compile ahead are many already.
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        environment.pop("TRITON_INTERPRET", None)
        if interpreted and device == "cpu":
            environment["TRITON_INTERPRET"] = "1"
        self.process = subprocess.Popen(
            [*command, device], cwd=ROOT, env=environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
        )  # fmt: skip
        self.events = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()
        try:
            event = self.hear(None, START_LIMIT)
        except ChildEnded as ended:
            raise NoChild(f"the process that measures does not start: {ended}") from None
        except BaseException:
            self.close()
            raise
        if event["event"] != "ready":
            self.close()
            raise NoChild(event["reason"])
        self.machine = event["machine"]

    def listen(self):
        for line in self.process.stdout:
            self.events.put(json.loads(line))
        self.events.put(None)

    def hear(self, kernel, limit):
        """The next event; raises ChildEnded where there is none within `limit` seconds, or none will come."""
        try:
            event = self.events.get(timeout=limit)
        except queue.Empty:
            self.close()
            reason = f"no result within {limit:g} s, the limit for one step of a kernel (--limit)"
            raise ChildEnded(kernel, reason) from None
        if event is None:
            raise ChildEnded(kernel, self.last_words())
        if event["event"] == "dying":
            self.close()
            raise ChildEnded(event["kernel"], event["reason"])
        return event

    def last_words(self):
        """Why the process ended: its signal or exit status, and the last line that it wrote."""
        status = self.process.wait()
        if status < 0:
            ended = f"its process was ended by signal {signal.Signals(-status).name}"
        else:
            ended = f"its process ended with exit status {status}"
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - 10_000))
        lines = [line.strip() for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
        self.close()
        return f"{ended} ({lines[-1][:200]})" if lines else ended

    def ask(self, request, limit):
        """Send `request`; yields events up to the last one, `done` or `fault`; raises ChildEnded."""
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except OSError:
            raise ChildEnded(None, self.last_words()) from None
        kernel = None
        while True:
            event = self.hear(kernel, limit)
            if event["event"] == "doing":
                kernel = event["kernel"]
                continue
            yield event
            if event["event"] in ("done", "fault", "machine"):
                return

    def close(self):
        """End the child and whatever it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)  # a GPU that hangs can keep a killed process
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        if not self.log.closed:
            self.log.close()


class Runner:
    """Measures points in a child, with a new child after each end of one. limit: seconds for one step of a kernel.

    row: the class of the rows; interpreted: see Child.
    """

    def __init__(self, device, limit, command=COMMAND, row=Row, interpreted=False):
        self.limit, self.row, self.start = limit, row, lambda: Child(device, command, interpreted)
        self.child = self.start()

    @property
    def machine(self):
        return self.child.machine

    def measure(self, point, names, companions, budget):
        """Yields a row for each kernel in `names`, as they are known; the death of one costs the others their turn
        in that run only."""
        left, companions = list(names), list(companions)
        while left:
            request = {
                "op": "measure", "point": asdict(point), "kernels": left, "companions": companions, "budget": budget,
            }  # fmt: skip
            try:
                for event in self.child.ask(request, self.limit):
                    if event["event"] == "row":
                        row = self.row(**event["row"])
                        left.remove(row.kernel)
                        yield row
                    elif event["event"] == "fault":
                        yield from (not_measured(point.row(name), "not run", event["reason"]) for name in left)
                        return
                return
            except ChildEnded as ended:
                self.child = self.start()
                if ended.kernel in left:
                    left.remove(ended.kernel)
                    yield not_measured(point.row(ended.kernel), "failed", str(ended))
                elif ended.kernel in companions:
                    companions.remove(ended.kernel)
                else:
                    reason = f"the process that measures ended with no kernel in hand: {ended}"
                    yield from (not_measured(point.row(name), "not run", reason) for name in left)
                    return

    def prepare(self, point, names, share):
        """Let the child fill the caches of the compilers; nothing is measured, and no failure counts."""
        request = {"op": "prepare", "point": asdict(point), "kernels": names, "share": share}
        try:
            for _ in self.child.ask(request, self.limit):
                pass
        except ChildEnded:
            self.child = self.start()

    def machine_now(self):
        """The facts of the machine as they are now: the clocks after the run."""
        return next(iter(self.child.ask({"op": "machine"}, self.limit)))["machine"]

    def close(self):
        self.child.close()


def prepare(new, points, kernels, processes, on_point):
    """Let `processes` children compile ahead for all points, each with its share of the GPU's memory.

    new() makes the Runner of each. What does not fit in that share has been compiled before it runs out of memory.
    on_point(point) after each.
    """
    waiting = queue.SimpleQueue()
    for point in points:
        waiting.put(point)
    runners, failures = [], []

    def work():
        try:
            runner = new()
            runners.append(runner)
            while True:
                point = waiting.get_nowait()
                runner.prepare(point, kernels(point), 0.8 / processes)
                on_point(point)
        except NoChild as failure:
            failures.append(failure)
        except queue.Empty:
            return

    threads = [threading.Thread(target=work, daemon=True) for _ in range(processes)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for runner in runners:
            runner.close()
    if failures and not waiting.empty():
        raise failures[0]
