"""All that observers found in one run, as reports.TraceReport has it: by kernel, argument and line."""

import io
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from grader.core.machine.cost_meter import CostMeter
from grader.core.machine.definitions import define
from grader.core.machine.first_accesses import Addresses, describe
from grader.core.machine.legality import UNDEFINED, First, Legality
from grader.core.machine.lines import Lines
from grader.core.machine.observer import Launch, Observer
from grader.core.machine.terms import Terms
from grader.core.machine.text import Module, Operation
from grader.core.protocol.messages import plain_bytes
from grader.core.protocol.reports import Fault, Term, TraceReport, Undefined

MOST = 20  # faults that are told, and lines with undefined lanes
LOGGED = 2000  # characters of a traceback


class Report(Observer):
    """The observers of one run, itself among them. inputs: of the call. own: makes the course's own, or None."""

    def __init__(
        self, inputs: dict[str, torch.Tensor], own: Callable[[dict[str, torch.Tensor]], Any] | None = None
    ) -> None:
        self.legality, self.costs = Legality(), CostMeter()
        self.addresses, self.own = Addresses(self.legality), own(inputs) if own else None
        self.lines_of: dict[Module, Lines] = {}
        self.failed: list[str] = []  # tracebacks of what changes no verdict
        followed = (self, self.legality, self.addresses, self.costs, self.own)
        self.observers: list[Observer] = [observer for observer in followed if observer]

    def begin_launch(self, launch: Launch) -> None:
        self.lines_of[launch.module] = self.lines

    def make(self) -> TraceReport:
        """Faults and undefined lanes, most lanes first."""
        found = list(self.list_faults())
        faults = [fault for fault in found if fault.kind != UNDEFINED][:MOST]
        undefined = [fault for fault in found if fault.kind == UNDEFINED][:MOST]
        return TraceReport(
            sorted(faults, key=lambda fault: fault.kind != "int32 overflow"),  # it causes others
            [Undefined(each.kernel, each.argument, each.line, each.lanes, each.source) for each in undefined],
            addresses=self.addresses.tables_of_kinds("store", *(["load"] if faults else [])),
            inside_rows=self.addresses.inside_rows, kernels=self.costs.kernels, costs=self.costs.report(),
            own=plain_bytes(self.own and self.own.report()), failed=self.failed,
        )  # fmt: skip

    def list_faults(self) -> Iterator[Fault]:
        """Each by its line: what one line does in several places of the text is one fault."""
        lanes = Counter[tuple[str, str, str, int, str]]()
        first: dict[tuple[str, str, str, int, str], tuple[Operation, First]] = {}
        for fault, count in (self.legality.faults | self.legality.hidden).items():
            kind, operation, argument, where = fault
            found = self.legality.first[fault]
            lines = self.lines_of[found.launch.module]
            key = kind, found.launch.kernel, argument, lines.line(operation.where) or 0, where
            lanes[key] += count
            if key not in first or found.comes_before(first[key][1]):
                first[key] = operation, found
        for key, count in lanes.most_common():
            kind, kernel, argument, line, where = key
            operation, found = first[key]
            buffer, block, lines = found.buffer, found.block, self.lines_of[found.launch.module]
            yield Fault(
                kind, kernel, argument, line, count, source(lines, line), where,
                [found.launch.place(program) for program in found.programs],
                list(buffer.tensor.shape) if buffer else [],
                describe(block, buffer) if buffer and block is not None else None,
                [] if kind == UNDEFINED else self.terms(operation, found, lines),
            )  # fmt: skip

    def terms(self, operation: Operation, found: First, lines: Lines) -> list[Term]:
        """What the text adds to the pointer of an access, as terms.py tells it."""
        try:
            assert operation.function
            return Terms(define(operation.function), lines, found.numbers).find(operation)
        except Exception:  # words, on which no verdict depends: whoever reads the report logs it
            if os.environ.get("GRADER_DEBUG") == "1":
                raise
            self.failed.append(traceback.format_exc()[-LOGGED:])
            return []


def source(lines: Lines, line: int) -> str:
    """The text of a line; lines end where Python ends them."""
    text = io.StringIO(lines.text, newline=None).readlines()
    return text[line - 1].strip() if 0 < line <= len(text) else ""
