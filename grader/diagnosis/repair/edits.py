"""Candidates: every small change of a program's kernels and launches that might repair it."""

import ast
from dataclasses import dataclass

from grader.diagnosis.repair import expressions, launches, masks, names, statements
from grader.diagnosis.repair.kernel import COMPOUND, PARTS
from grader.diagnosis.repair.names import mirrored

FAMILIES = (*expressions.FAMILIES, *names.FAMILIES, *masks.FAMILIES)  # family(kernel, node) -> (name, node, new text)
LONG_ENOUGH = 5  # characters of an expression whose every place is changed together
PLACES = 6


@dataclass(frozen=True)
class Edit:
    """One candidate. family: the kind of change. lines: of the submission's file. quantity: what is made there.

    spans: ((kernel, start, end, new text), ...) in bytes. launch: a launches.Change, or None.
    """

    family: str
    lines: tuple
    quantity: str
    spans: tuple = ()
    launch: object = None

    def texts(self, kernels):
        """{number of a kernel: its new text}."""
        found = {}
        for number, start, end, new in sorted(self.spans, reverse=True):
            data = found.get(number, kernels[number].data)
            found[number] = data[:start] + new.encode() + data[end:]
        return {number: data.decode() for number, data in found.items()}


def every(kernels, launched):
    """All Edits, each once. kernels: {number: Kernel}; launched: [launches.Launch]."""
    found = {}
    for kernel in kernels.values():
        for edit in in_kernel(kernel, kernels.values()):
            if any(kernels[number].data[start:end].decode() != new for number, start, end, new in edit.spans):
                found.setdefault((edit.spans, edit.launch), edit)
    for launch in launched:
        for change in launches.changes(launch):
            edit = Edit(change.family, (launch.line,), change.quantity, launch=change)
            found.setdefault((edit.spans, edit.launch), edit)
    return list(found.values())


def in_kernel(kernel, kernels):
    """The Edits of one kernel."""
    for node in ast.walk(kernel.tree):
        if not hasattr(node, "lineno") or node is kernel.tree or not kernel.has_run(node):
            continue
        if isinstance(node, ast.stmt):
            for family, changed in statements.changes(kernel, node):
                yield made(family, kernel, node, changed)
        elif isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", None), ast.Store):
            for family in FAMILIES:
                for name, place, new in family(kernel, node):
                    yield from with_like_places(name, kernel, place, kernel.fitted(place, new), kernels)


def made(family, kernel, node, changed):
    """An Edit of one kernel. changed: [(node, new text)]."""
    spans = tuple((kernel.number, *kernel.span(each), new) for each, new in changed)
    return Edit(family, tuple(kernel.line(each) for each, _ in changed), kernel.quantity(node), spans)


def with_like_places(family, kernel, node, new, kernels):
    """The Edit that puts `new` in the place of a node, and those that do the same at every like place."""
    old = kernel.text(node)
    if new == old:
        return
    yield made(family, kernel, node, [(node, new)])
    if len(old) >= LONG_ENOUGH and isinstance(node, PARTS):
        yield from everywhere(family, kernel, node, new, same_text(old, kernels))
    yield from everywhere(family, kernel, node, new, in_like_statements(kernel, node, kernels))


def everywhere(family, kernel, node, new, places):
    """One Edit of several places. places: [(kernel, node, True where K stands for V)]."""
    if not 1 < len(places) <= PLACES:
        return
    spans = tuple((k.number, *k.span(each), mirrored(new) if turned else new) for k, each, turned in places)
    yield Edit(family, tuple(k.line(each) for k, each, _ in places), kernel.quantity(node), spans)


def same_text(old, kernels):
    return [(kernel, node, False) for kernel in kernels for node in kernel.parts.get(old, ())]


def in_like_statements(kernel, node, kernels):
    """The same part of every statement with the same text, and of those that say of V what this one says of K."""
    home = kernel.statement(node)
    if isinstance(home, COMPOUND):
        return []
    text, shift = kernel.text(home), kernel.span(node)[0] - kernel.span(home)[0]
    found = []
    for like in dict.fromkeys((text, mirrored(text))):
        for other in kernels:
            for statement in other.statements.get(like, ()):
                part = part_at(other, statement, other.span(statement)[0] + shift, type(node))
                found += [(other, part, like != text)] if part is not None else []
    return found


def part_at(kernel, statement, start, kind):
    """The largest node of a kind that begins at a byte."""
    parts = [n for n in ast.walk(statement) if type(n) is kind and kernel.span(n)[0] == start]
    return max(parts, key=lambda part: kernel.span(part)[1], default=None)
