"""What a class's grading shows while it runs: a live picture on a terminal, a line for each submission elsewhere."""

import sys
import time
from collections import Counter
from contextlib import contextmanager

from grader.classroom.export.standing import decimal
from grader.classroom.names import list_some
from grader.classroom.record import MACHINE_FAULT

NAMES = 6  # of running submissions, on one line


class Tally:
    """What is known of the run. total: submissions left to grade."""

    def __init__(self, total):
        self.total = total
        self.started, self.running, self.done = time.monotonic(), {}, 0
        self.lost = Counter()  # submissions with what went wrong: "with mistakes", "to review", "machine fault"

    def start(self, job):
        self.running[job.submission] = time.monotonic()

    def finish(self, job, records, again):
        """One attempt is over; `again` is the Job that tries what failed, or None. Returns a line, or None."""
        self.running.pop(job.submission, None)
        if again:
            return f"{job.submission}: {records_fault(records) or 'the machine failed'}; it is tried again"
        self.done += 1
        faults = [r for r in records if r.status == MACHINE_FAULT]
        self.lost["machine fault"] += bool(faults)
        self.lost["to review"] += any(r.to_review for r in records)
        self.lost["with mistakes"] += any(r.points is not None and r.points < r.most for r in records)
        number = f"[{self.done}/{self.total}, {clock(time.monotonic() - self.started)}{self.left()}]"
        return f"{number} {job.submission}: {', '.join(summary(records, faults))}"

    def left(self):
        """`, 12 min left`, as long as anything is."""
        if not 0 < self.done < self.total:
            return ""
        seconds = (time.monotonic() - self.started) / self.done * (self.total - self.done)
        return f", about {clock(seconds)} left"

    def words(self):
        """The whole in one line: done, running, what went wrong, the time left."""
        counted = [f"{count} {what}" for what, count in self.lost.items() if count]
        return ", ".join([f"{self.done} of {self.total} done", *counted]) + self.left()

    def who_runs(self):
        now = time.monotonic()
        said = [f"{name} ({now - since:.0f} s)" for name, since in self.running.items()]
        return f"running: {list_some(said, NAMES) or 'nothing'}"


def summary(records, faults):
    """`71.5 of 85 points`, `1 to review`, `machine fault: why`"""
    graded = [r for r in records if r.points is not None]
    said = []
    if graded:
        said.append(f"{decimal(sum(r.points for r in graded))} of {decimal(sum(r.most for r in graded))} points")
    if waiting := sum(len(r.to_review) for r in graded):
        said.append(f"{waiting} cases to review")
    if faults:
        said.append(f"machine fault in {', '.join(r.problem for r in faults)}: {records_fault(faults)}")
    return said


def records_fault(records):
    return next((r.remarks[0].rstrip(".") for r in records if r.status == MACHINE_FAULT and r.remarks), "")


def clock(seconds):
    """`40 s`, `12 min`, `1 h 05 min`"""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


@contextmanager
def shown(tally, file=None):
    """A function (line or None) to call after each change of `tally`."""
    file = file or sys.stderr
    if not file.isatty():
        yield lambda line=None: print(line, file=file, flush=True) if line else None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.markup import escape
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    def picture():
        table = Table.grid(padding=(0, 1))
        table.add_row(ProgressBar(total=max(1, tally.total), completed=tally.done, width=40))
        table.add_row(escape(tally.words()))
        table.add_row(escape(tally.who_runs()), style="dim")
        return table

    console = Console(file=file, highlight=False)
    with Live(console=console, get_renderable=picture, refresh_per_second=2, transient=True) as live:

        def show(line=None):
            if line and ("machine" in line or "to review" in line):  # what the instructor will look into
                live.console.print(line, markup=False, soft_wrap=True)

        yield show
