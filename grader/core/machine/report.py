"""All that observers found in one run, as reports.TraceReport has it: by kernel, argument and line."""

import io
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from grader.core.machine.cost_meter import CostMeter
from grader.core.machine.definitions import define, function_of
from grader.core.machine.first_accesses import Addresses, describe
from grader.core.machine.legality import First, Legality
from grader.core.machine.lines import Lines
from grader.core.machine.observer import Launch, Observer
from grader.core.machine.terms import Terms
from grader.core.machine.text import Module, Operation, operations_in
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
        self.kernels: dict[Module, tuple[str, Lines]] = {}
        self.failed: list[str] = []  # tracebacks of what changes no verdict
        followed = (self, self.legality, self.addresses, self.costs, self.own)
        self.observers: list[Observer] = [observer for observer in followed if observer]

    def begin_launch(self, launch: Launch) -> None:
        self.kernels[launch.module] = launch.kernel, self.lines

    def make(self) -> TraceReport:
        """Faults and undefined lanes, most lanes first."""
        faults = sorted(self.list_faults(), key=lambda fault: fault.kind != "int32 overflow")  # it causes others
        return TraceReport(
            faults, list(self.list_undefined()),
            addresses=self.addresses.tables_of_kinds("store", *(["load"] if faults else [])),
            inside_rows=self.addresses.inside_rows, kernels=self.costs.kernels, costs=self.costs.report(),
            own=plain_bytes(self.own and self.own.report()), failed=self.failed,
        )  # fmt: skip

    def list_faults(self) -> Iterator[Fault]:
        """Each by its line: what one line does in several places of the text is one fault."""
        places, lanes = self.places(), Counter[tuple[str, str, str, int, str]]()
        first: dict[tuple[str, str, str, int, str], tuple[Operation, First]] = {}
        for (kind, operation, argument, where), count in self.legality.faults.items():
            _, kernel, lines = places[operation]
            key = kind, kernel, argument, lines.line(operation.where) or 0, where
            lanes[key] += count
            found = self.legality.first[kind, operation, argument, where]
            if key not in first or found.comes_before(first[key][1]):
                first[key] = operation, found
        for key, count in lanes.most_common(MOST):
            kind, kernel, argument, line, where = key
            operation, found = first[key]
            _, _, lines = places[operation]
            buffer, block = found.buffer, found.block
            at = describe(block, buffer) if buffer and block is not None else None
            yield Fault(
                kind, kernel, argument, line, count, self.source(lines, line), where,
                [found.launch.place(program) for program in found.programs],
                list(buffer.tensor.shape) if buffer else [], at, self.terms(operation, found),
            )  # fmt: skip

    def list_undefined(self) -> Iterator[Undefined]:
        places, lanes = self.places(), Counter[tuple[str, str, int, str]]()
        for (operation, argument), count in self.legality.hidden.items():
            _, kernel, lines = places[operation]
            line = lines.line(operation.where) or 0
            lanes[kernel, argument, line, self.source(lines, line)] += count
        for (kernel, argument, line, source), count in lanes.most_common(MOST):
            yield Undefined(kernel, argument, line, count, source)

    def places(self) -> dict[Operation, tuple[Module, str, Lines]]:
        """Of all operations that may have run."""
        return {
            operation: (module, kernel, lines) for module, (kernel, lines) in self.kernels.items()
            for function in module.functions.values() for operation in operations_in(function.body)
        }  # fmt: skip

    def source(self, lines: Lines, line: int) -> str:
        """The text of a line; lines end where Python ends them."""
        text = io.StringIO(lines.text, newline=None).readlines()
        return text[line - 1].strip() if 0 < line <= len(text) else ""

    def terms(self, operation: Operation, found: First) -> list[Term]:
        """What the text adds to the pointer of an access, as terms.py tells it."""
        module = found.launch.module
        _, lines = self.kernels[module]
        try:
            definitions = define(function_of(module, operation))
            scope = definitions.scopes[operation]
            numbers = {scope[name]: number for name, number in found.numbers.items() if name in scope}
            return Terms(definitions, lines, numbers).find(operation)
        except Exception:  # words, on which no verdict depends: whoever reads the report logs it
            if os.environ.get("GRADER_DEBUG") == "1":
                raise
            self.failed.append(traceback.format_exc()[-LOGGED:])
            return []
