"""What a class's grading shows while it runs: a live picture on a terminal, a line for each submission elsewhere."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from classroom.data import Record
from classroom.jobs import Job
from classroom.names import list_some
from grader import score

NAMES = 6  # of running submissions, on one line


class Tally:
    """What is known of the run. total: submissions left to grade."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.started, self.running = time.monotonic(), dict[str, float]()
        self.lost = Counter[str]()  # submissions with what went wrong

    def start(self, job: Job) -> None:
        self.running[job.row] = time.monotonic()

    def finish(self, job: Job, records: list[Record], why: str, again: bool) -> str:
        """One attempt is over; the line to show. why: what the machine did, or ""; again: it is tried again."""
        self.running.pop(job.row, None)
        if again:
            return f"{job.row}: machine fault: {why}; it is tried again"
        self.done += 1
        wrong = any(record.points != sum(score.max_points(record.results)) for record in records)
        waiting = sum(bool(record.to_review) for record in records)
        said = [f"{', '.join(record.problem for record in records)} graded"] if records else []
        said += [f"{waiting} to review"] if waiting else []
        said += [f"machine fault: {why}"] if why else []
        self.lost["with mistakes"] += wrong
        self.lost["to review"] += bool(waiting)
        self.lost["machine fault"] += bool(why)
        spent = clock(time.monotonic() - self.started)
        return f"[{self.done}/{self.total}, {spent}{self.left()}] {job.row}: {', '.join(said)}"

    def left(self) -> str:
        """`, 12 min left`, as long as anything is."""
        if not 0 < self.done < self.total:
            return ""
        seconds = (time.monotonic() - self.started) / self.done * (self.total - self.done)
        return f", about {clock(seconds)} left"

    def words(self) -> str:
        """The whole in one line: done, what went wrong, the time left."""
        counted = [f"{count} {what}" for what, count in self.lost.items() if count]
        return ", ".join([f"{self.done} of {self.total} done", *counted]) + self.left()

    def who_runs(self) -> str:
        now = time.monotonic()
        said = [f"{name} ({now - since:.0f} s)" for name, since in self.running.items()]
        return f"running: {list_some(said, NAMES) or 'nothing'}"


def clock(seconds: float) -> str:
    """`40 s`, `12 min`, `1 h 05 min`"""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


@contextmanager
def shown(tally: Tally, file: Any = None) -> Iterator[Callable[..., None]]:
    """A function (a line, or nothing) to call after each change of `tally`."""
    file = file or sys.stderr
    if not file.isatty():
        yield lambda line="": print(line, file=file, flush=True) if line else None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.markup import escape
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    def picture() -> Table:
        table = Table.grid(padding=(0, 1))
        table.add_row(ProgressBar(total=max(1, tally.total), completed=tally.done, width=40))
        table.add_row(escape(tally.words()))
        table.add_row(escape(tally.who_runs()), style="dim")
        return table

    console = Console(file=file, highlight=False)
    with Live(console=console, get_renderable=picture, refresh_per_second=2, transient=True) as live:

        def show(line: str = "") -> None:
            if "machine fault" in line or "to review" in line:  # what the instructor will look into
                live.console.print(line, markup=False, soft_wrap=True)

        yield show
