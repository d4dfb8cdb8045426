"""In the runner: which products a kernel's text adds to a pointer, and which lines make their numbers.

A pointer is followed back through assignments and calls: `X + page * sp + line * sl` has the terms `page * sp` and
`line * sl`, and a line `page = pid % P` makes one of their numbers. What differs from lane to lane is left out.
"""

import ast
from collections.abc import Collection, Iterator
from types import FrameType
from typing import Any, TypeGuard

import numpy as np
import triton.language as tl

from grader.core.protocol.observed import Term

MOST = 6  # terms, lines and values that are told
UNCHANGED = {"to", "expand_dims", "broadcast_to"}  # methods whose result has the numbers of what they are called on


class Text:
    """The functions of a file, and where each name of theirs gets a value."""

    def __init__(self, lines: list[str]) -> None:
        try:
            tree = ast.parse("".join(lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            tree = ast.Module([], [])
        self.functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        self.values = {function: assigned(function) for function in self.functions}

    def function_at(self, line: int) -> ast.FunctionDef | None:
        return next((f for f in self.functions if f.lineno <= line <= (f.end_lineno or 0)), None)


def assigned(function: ast.FunctionDef) -> dict[str, list[ast.expr]]:
    """{name: [its values, as nodes]}; of a tuple that is taken apart, its elements."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            found.setdefault(ast.unparse(node.target), []).append(node.value)
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple):
                pairs = [(name, element(node.value, i)) for i, name in enumerate(target.elts)]
            for name, value in pairs:
                found.setdefault(ast.unparse(name), []).append(value)
    return found


def element(node: ast.expr, i: int) -> ast.expr:
    """The element of a tuple, as a node: itself where the tuple is written down."""
    if isinstance(node, ast.Tuple):
        return node.elts[i] if i < len(node.elts) else node
    return ast.copy_location(ast.Subscript(node, ast.copy_location(ast.Constant(i), node), ast.Load()), node)


class Terms:
    """The terms of one access. frames: of the kernel and the functions that it has called, the innermost first."""

    def __init__(self, text: Text, frames: list[FrameType]) -> None:
        self.text, self.frames = text, frames
        self.seen: set[tuple] = set()  # (depth, name), (depth, line, column)
        self.functions = [text.function_at(frame.f_lineno) for frame in frames]
        self.terms: list[tuple[list[ast.expr], int, int]] = []
        self.with_lanes: set[str] = set()

    def report(self) -> list[Term]:
        """[Term]"""
        pointer = self.argument_of_call(0, ("load", "store"), 0, "pointer")
        if pointer is None:
            return []
        self.follow(pointer, 0)
        told = []
        for factors, line, depth in self.terms:
            moving = [factor for factor in factors if self.depends(factor, depth, "program_id")]
            strides = [ast.unparse(factor) for factor in factors if factor not in moving]
            if not moving or self.with_lanes & set(strides):  # a row's, or none of a program's own
                continue
            lines: set[int] = set()
            plain: set[int] = set()
            values: dict[str, int] = {}
            for factor in moving:
                self.makers(factor, depth, lines, plain, values)
            used = {each.id for each in moving if isinstance(each, ast.Name)}
            stride = self.value_of(strides[0], depth) if len(strides) == 1 else None
            text, kept = " * ".join(map(ast.unparse, factors)), dict(list(values.items())[:MOST])
            told.append(Term(text, line, sorted(used), stride, sorted(lines or plain)[:MOST], kept))
        return told[:MOST]

    # Following -------------------------------------------------------------------------------------------------------

    def argument_of_call(self, depth: int, names: Collection[str], place: int, name: str) -> ast.expr | None:
        """The argument at this place, or of this name, of a call in the line that runs in this frame, or None."""
        function, line = self.functions[depth], self.frames[depth].f_lineno
        for node in ast.walk(function) if function else ():
            if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or 0):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
                if called in names:
                    named = {keyword.arg: keyword.value for keyword in node.keywords}
                    return node.args[place] if place < len(node.args) else named.get(name)
        return None

    def sources(self, name: str, depth: int) -> list[tuple[ast.expr, int]]:
        """[(node, depth)] that a name gets its value from; of a parameter, what the caller passes."""
        function = self.functions[depth]
        if function is None or (depth, name) in self.seen:
            return []
        parameters = [argument.arg for argument in function.args.args]
        found = [(value, depth) for value in self.text.values[function].get(name, ())]
        if name in parameters and depth + 1 < len(self.frames):
            passed = self.argument_of_call(depth + 1, (function.name,), parameters.index(name), name)
            found += [(passed, depth + 1)] if passed is not None else []
        return found

    def follow(self, node: ast.expr, depth: int) -> None:
        """Note the products that are added up to this expression."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            self.follow(node.left, depth)
            self.follow(node.right, depth)
        elif node is not bare(node):
            self.follow(bare(node), depth)
        elif elements := self.elements(node, depth):
            for value, at in elements:
                self.follow(value, at)
        elif isinstance(node, ast.Name):
            sources = self.sources(node.id, depth)
            self.seen.add((depth, node.id))
            for value, at in sources:
                self.follow(value, at)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            factors = factors_of(node)
            if any(self.depends(factor, depth, "arange") for factor in factors):
                self.with_lanes |= {ast.unparse(f) for f in factors if not self.depends(f, depth, "arange")}
            elif (depth, node.lineno, node.col_offset) not in self.seen:
                self.seen.add((depth, node.lineno, node.col_offset))
                self.terms.append((factors, node.lineno, depth))

    def elements(self, node: ast.AST, depth: int) -> list[tuple[ast.expr, int]]:
        """[(node, depth)] that `name[2]` may be, of a tuple that is written down; else empty."""
        if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and is_number(node.slice)):
            return []
        found = self.every_source(node.value.id, depth)
        while found and all(isinstance(source, ast.Name) for source, _ in found):  # handed on
            names = [(source.id, at) for source, at in found if isinstance(source, ast.Name)]
            found = [each for name, at in names for each in self.every_source(name, at)]
        place: Any = node.slice.value
        return [(element(source, place), at) for source, at in found if isinstance(source, ast.Tuple)]

    def leaves(self, node: ast.AST, depth: int) -> Iterator[tuple[ast.Name | ast.Attribute, int]]:
        """[(name or attribute, depth)] in an expression."""
        if elements := self.elements(node, depth):
            for value, at in elements:
                yield from self.leaves(value, at)
            return
        if isinstance(node, ast.Name | ast.Attribute):
            yield node, depth
        for child in ast.iter_child_nodes(node):
            yield from self.leaves(child, depth)

    def depends(self, node: ast.expr, depth: int, call: str, seen: frozenset[tuple[int, str]] = frozenset()) -> bool:
        """True where this expression comes from a call of tl.arange or tl.program_id."""
        for part, here in self.leaves(node, depth):
            if isinstance(part, ast.Attribute) and part.attr == call:
                return True
            if isinstance(part, ast.Name) and (here, part.id) not in seen:
                inner = seen | {(here, part.id)}
                if any(self.depends(value, at, call, inner) for value, at in self.every_source(part.id, here)):
                    return True
        return False

    def every_source(self, name: str, depth: int) -> list[tuple[ast.expr, int]]:
        kept, self.seen = self.seen, set()
        try:
            return self.sources(name, depth)
        finally:
            self.seen = kept

    def makers(
        self,
        node: ast.expr,
        depth: int,
        lines: set[int],
        plain: set[int],
        values: dict[str, int],
        seen: set[tuple[int, str]] | None = None,
    ) -> None:
        """Add the lines that make a number of the program's place in the grid, and the values of what else is used.

        plain: the lines that only ask for the place.
        """
        seen = set() if seen is None else seen
        for part, here in self.leaves(node, depth):
            if not isinstance(part, ast.Name) or (here, part.id) in seen:
                continue
            seen.add((here, part.id))
            if not self.depends(part, here, "program_id"):
                value = self.value_of(part.id, here)
                if value is not None:
                    values[part.id] = value
                continue
            for source, at in self.every_source(part.id, here):
                if at == here and not isinstance(source, ast.Name):
                    (plain if is_place(source) else lines).add(source.lineno)
                self.makers(source, at, lines, plain, values, seen)

    def value_of(self, name: str, depth: int) -> int | None:
        """The whole number that a name holds in this frame, or None."""
        value = self.frames[depth].f_locals.get(name)
        value = value.value if isinstance(value, tl.constexpr) else value
        data = np.asarray(value.handle.data) if isinstance(value, tl.tensor) else np.asarray(value)
        return int(data.flat[0]) if data.size == 1 and data.dtype.kind in "iu" else None


def bare(node: ast.expr) -> ast.expr:
    """A node without what leaves its numbers as they are."""
    while True:
        if isinstance(node, ast.Subscript) and not is_number(node.slice):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in UNCHANGED:
            node = node.func.value
        else:
            return node


def is_number(node: ast.expr) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def is_place(node: ast.expr) -> bool:
    node = bare(node)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "program_id"


def factors_of(node: ast.expr) -> list[ast.expr]:
    """The factors of a product."""
    node = bare(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*factors_of(node.left), *factors_of(node.right)]
    return [node]
