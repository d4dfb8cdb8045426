"""Repair search: the one small change that makes a wrong kernel right says at which line it is wrong.

Candidates run on one program of the grid of the first wrong case; those that are right there are confirmed on the whole
of it, on the other wrong cases, and on cases that pass already. What is told is the line and a question, never the
change.
"""

import contextlib
import itertools
import time
from dataclasses import dataclass

import torch

from grader.diagnosis.repair import questions, rank
from grader.diagnosis.repair.edits import Edit, every
from grader.diagnosis.repair.kernel import Kernel
from grader.diagnosis.repair.launches import Launch

BATCH = 100  # candidates of one request
MOST = 1500  # candidates tried, so that the same submission is told the same
SURVIVORS = 60  # that are confirmed
FEW = 6  # survivors that are confirmed on whole cases at once
MUCH = 1.5  # times the loads of a case that passes: its mask is not minded, where a tile may have been left out
PROGRAMS = 64  # of a grid that are looked at
CONFIRMING = 0.4  # of the time is kept for it


class NotRun(Exception):
    """The program or a candidate did not run as it did before: there is nothing to compare with."""


@dataclass(frozen=True)
class Trial:
    """A case to try candidates on. request, files: what the runner is asked of it, by Kind.request.

    expected, allowed: float64, of the first output; dtype: that output's. passes: True where the submission is right.
    """

    request: dict
    files: dict
    expected: torch.Tensor
    allowed: torch.Tensor
    dtype: str
    passes: bool = False

    @property
    def rows(self):
        return self.expected.numel() // self.expected.shape[-1]

    def is_right(self, rows, data):
        """True where the rows with these numbers, as bytes, hold what they must."""
        width = self.expected.shape[-1]
        if not rows or len(data) != len(rows) * width * getattr(torch, self.dtype).itemsize:
            return False
        got = torch.frombuffer(bytearray(data), dtype=getattr(torch, self.dtype)).view(-1, width).double()
        error = (got - self.expected.reshape(-1, width)[rows]).abs()
        return bool((error <= self.allowed.reshape(-1, width)[rows]).all())


def find(submission, trials, implicated=(), seconds=10.0, progress=None):
    """[Suspect], at most two; empty where nothing, or too much, makes it right.

    trials: wrong cases, the smallest first, then some that pass. implicated: kinds of mistake, of rank.FAMILIES, the
    likeliest first. seconds: of a core. progress(tried, all) is called now and then. Raises ChildFailed where the
    runner is lost.
    """
    implicated = [kind for kind in implicated if kind in rank.FAMILIES]
    hits, kernels = repairs(submission, trials, implicated, seconds, progress)
    return questions.suspects(hits, kernels, implicated)


def repairs(submission, trials, implicated, seconds, progress=None):
    """([Hit], {number: Kernel}): every candidate that makes all of these cases right."""
    bench = Bench(submission, trials[0], Clock(seconds))
    kernels = bench.kernels
    edits = rank.ranked(every(kernels, bench.launches), kernels, implicated)[:MOST]
    programs, rows = bench.focus()
    kept = []
    for first in range(0, len(edits), BATCH):
        batch = edits[first : first + BATCH]
        seen = bench.run(batch, kernels, programs, keep=CONFIRMING * seconds)
        kept += [edit for edit, each in zip(batch, seen, strict=False) if each.right and len(each.rows) >= rows]
        if progress:
            progress(first + len(seen), len(edits))
        if len(seen) < len(batch) or len(kept) >= SURVIVORS:
            break
    return confirmed(submission, trials, kept[:SURVIVORS], kernels, bench.clock), kernels


def confirmed(submission, trials, edits, kernels, clock):
    """[Hit] of the edits that make all of these cases right, and load about as much where the kernel was right before.

    One wrong program of each case refutes most of them, and is quick.
    """
    for trial in trials[1:]:
        if len(edits) > FEW and not trial.passes:
            bench = Bench(submission, trial, clock, watch=False)
            programs, rows = bench.focus()
            if programs:
                seen = bench.run(edits, kernels, programs)
                edits = [e for e, each in zip(edits, seen, strict=False) if each.right and len(each.rows) >= rows]
    hits = [Hit(edit, False) for edit in edits]
    for trial in trials:
        if not hits:
            break
        bench = Bench(submission, trial, clock, watch=False)
        seen = bench.run([hit.edit for hit in hits], kernels, None)
        hits = [
            Hit(hit.edit, hit.loads_more or each.loaded > bench.loaded)
            for hit, each in zip(hits, seen, strict=False)
            if each.right and len(each.rows) == trial.rows and not (trial.passes and each.loaded > MUCH * bench.loaded)
        ]
    return hits


@dataclass(frozen=True)
class Hit:
    """A repair that is confirmed. loads_more: of a wrong case, than the kernel did."""

    edit: Edit
    loads_more: bool


@dataclass(frozen=True)
class Seen:
    """What came of a candidate: the rows that it wrote, whether they are right, elements loaded."""

    rows: tuple = ()
    right: bool = False
    loaded: int = 0


class Clock:
    """Core-seconds of this thread and of the runner together, against how many there are."""

    def __init__(self, seconds):
        self.seconds, self.began, self.elsewhere = seconds, time.thread_time(), 0.0

    def left(self):
        return self.seconds - self.elsewhere - (time.thread_time() - self.began)


class Bench:
    """A recorded case in the runner. kernels: {number: Kernel} and launches: [Launch], of its program.

    watch: whether it is to be run for what the names in its kernels are. loaded: elements, by the program itself.
    """

    def __init__(self, submission, trial, clock, watch=True):
        self.submission, self.trial, self.clock, self.loaded = submission, trial, clock, 0
        reply = submission.run(trial.request | {"watch": watch}, trial.files, op="look")
        if reply["status"] != "returned":
            raise NotRun(reply.get("text") or reply["status"])
        ran = frozenset(reply["ran"])
        self.kernels = {
            number: Kernel(number, each["source"], each["line"], reply["kinds"].get(each["name"], {}), ran)
            for number, each in enumerate(reply["kernels"])
            if each["kind"] == "kernel"
        }
        self.launches = [
            Launch(each["number"], each["line"] or 0, tuple(each["grid"]), each["args"], each["expressions"])
            for each in reply["launches"]
        ]

    def focus(self):
        """([the program of the grid that is wrong and loads least], rows that must be right), or (None, all rows).

        A program that writes into rows of another one may write to more rows than it should.
        """
        cells = list(itertools.product(*map(range, self.launches[0].grid))) if len(self.launches) == 1 else []
        if len(cells) == 1:
            return cells, self.trial.rows
        cells = cells[:: -(-len(cells) // PROGRAMS)] if cells else []
        seen = self.ask([{"programs": [cell]} for cell in cells], [], 0.0) if cells else []
        wrong = [
            (each.loaded, cell, len(each.rows))
            for cell, each in zip(cells, seen, strict=False)
            if each.rows and not each.right
        ]
        if not wrong:
            return None, self.trial.rows
        _, cell, rows = min(wrong)
        return [cell], (rows + 1) // 2

    def run(self, edits, kernels, programs, keep=0.0):
        """[Seen] of the edits, fewer where the time is over. kernels: those that the edits were made of."""
        return self.ask([self.candidate(edit, kernels) for edit in edits], programs, keep)

    def candidate(self, edit, kernels):
        """What the runner is asked: in this case's program a kernel may have another number, or be missing."""
        texts = {kernels[number].source: text for number, text in edit.texts(kernels).items()}
        asked = {"kernels": {n: texts[k.source] for n, k in self.kernels.items() if k.source in texts}}
        if edit.launch:
            with contextlib.suppress(LookupError, AttributeError, TypeError):
                launch = next(each for each in self.launches if each.number == edit.launch.number)
                asked["launches"] = {launch.number: edit.launch.applied(launch)}
        return asked

    def ask(self, candidates, programs, keep):
        seconds = self.clock.left() - keep
        request = {"inputs": self.trial.request["inputs"], "candidates": candidates, "programs": programs}
        reply = self.submission.run_again({"op": "candidates", "seconds": max(0.0, seconds)} | request)
        if reply["status"] != "returned":
            raise NotRun(reply.get("text") or reply["status"])
        self.clock.elsewhere += reply["spent"]
        self.loaded = reply["loaded"]
        data = self.submission.runner.take("outputs.bin", reply["bytes"], reply["bytes"])
        starts = [*(each["start"] for each in reply["distinct"]), len(data)]
        right = [
            self.trial.is_right(each["rows"], data[start:end])
            for each, (start, end) in zip(reply["distinct"], itertools.pairwise(starts), strict=True)
        ]
        rows = [tuple(each["rows"]) for each in reply["distinct"]]
        return [
            Seen() if isinstance(result, str) else Seen(rows[result[0]], right[result[0]], *result[1:])
            for result in reply["results"]
        ]
