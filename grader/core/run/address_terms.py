"""In the runner, interpreted: which products a kernel's text adds to a pointer, and which lines make their numbers.

A pointer is followed back through assignments and calls: `X + page * sp + line * sl` has the terms `page * sp` and
`line * sl`, and a line `page = pid % P` makes one of their numbers. What differs from lane to lane is left out.
"""

import ast
import functools
from collections.abc import Callable, Collection, Iterable, Iterator
from types import FrameType
from typing import Any, TypeGuard

import numpy as np
import triton.language as tl

from grader.core.protocol.reports import Term

MOST = 6  # terms, lines and values in a report
UNCHANGED = {"to", "expand_dims", "broadcast_to"}  # methods whose result has the numbers of what they are called on
Found = tuple[Any, int]  # a node of the text, and the number of the frame that runs it


def find_terms(lines: list[str], frames: list[FrameType]) -> list[Term]:
    """The terms of the access that runs. frames: of the kernel and what it has called, the innermost first."""
    try:
        body = ast.parse("".join(lines)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return Terms([node for node in body if isinstance(node, ast.FunctionDef)], frames).report()


class Terms:
    def __init__(self, functions: list[ast.FunctionDef], frames: list[FrameType]) -> None:
        lines = [frame.f_lineno for frame in frames]
        at = [next((f for f in functions if f.lineno <= line <= (f.end_lineno or 0)), None) for line in lines]
        self.frames, self.functions = frames, at

    def report(self) -> list[Term]:
        pointer = self.argument(0, ("load", "store"), 0, "pointer")
        products = list(self.products(pointer, 0, set())) if pointer else []
        along, told = set[str](), []  # along: what multiplies lanes, as the stride of a row does
        for factors, _, depth in products:
            rest = {ast.unparse(factor) for factor in factors if not self.comes_from("arange", factor, depth)}
            along |= rest if len(rest) < len(factors) else set()
        for factors, line, depth in products:
            moving = [factor for factor in factors if self.comes_from("program_id", factor, depth)]
            strides = [ast.unparse(factor) for factor in factors if factor not in moving]
            lanes = any(self.comes_from("arange", factor, depth) for factor in factors)
            if moving and not lanes and along.isdisjoint(strides):
                names = sorted({factor.id for factor in moving if isinstance(factor, ast.Name)})
                stride = self.value_of(strides[0], depth) if len(strides) == 1 else None
                text = " * ".join(map(ast.unparse, factors))
                told.append(Term(text, line, names, stride, *self.makers(moving, depth)))
        return told[:MOST]

    def argument(self, depth: int, names: Collection[str], place: int, name: str) -> ast.expr | None:
        """The argument at this place, or of this name, of a call in the line that runs in this frame, or None."""
        function, line = self.functions[depth], self.frames[depth].f_lineno
        nodes: Iterable[Any] = ast.walk(function) if function else ()
        for node in nodes:
            here = isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or 0)
            if here and (getattr(node.func, "attr", None) or ast.unparse(node.func)) in names:
                named = {keyword.arg: keyword.value for keyword in node.keywords}
                return node.args[place] if place < len(node.args) else named.get(name)
        return None

    def products(self, node: Any, depth: int, seen: set) -> Iterator[tuple[list[ast.expr], int, int]]:
        """(factors, line, depth) of each product that is added up to this expression."""
        node = bare(node)
        key = depth, ast.unparse(node), 0 if isinstance(node, ast.Name) else getattr(node, "lineno", 0)
        if key in seen:
            return
        seen.add(key)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            yield from self.products(node.left, depth, seen)
            yield from self.products(node.right, depth, seen)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            yield factors_of(node), node.lineno, depth
        for source, at in self.sources(node, depth):
            yield from self.products(source, at, seen)

    def sources(self, node: Any, depth: int) -> list[Found]:
        """What a name gets its values from, a parameter from its caller; of `name[2]`, as far as tuples are written."""
        if isinstance(node, ast.Subscript) and is_number(node.slice):
            held = [each for each in self.sources(node.value, depth) if isinstance(each[0], ast.Tuple | ast.Name)]
            place: Any = node.slice.value
            return [(element(source, place), at) for source, at in held]
        function = self.functions[depth]
        if not isinstance(node, ast.Name) or function is None:
            return []
        found: list[Found] = [(value, depth) for value in assigned(function).get(node.id, ())]
        parameters = [argument.arg for argument in function.args.args]
        if node.id in parameters and depth + 1 < len(self.frames):
            passed = self.argument(depth + 1, (function.name,), parameters.index(node.id), node.id)
            found += [(passed, depth + 1)] if passed is not None else []
        return found

    def walk(self, node: Any, depth: int, seen: set, into: Callable[[Any, int], bool]) -> Iterator[Found]:
        """All that an expression is made of; names that `into` allows are followed back to what they are made of."""
        yield node, depth
        sources = self.sources(node, depth)
        if sources:
            key = depth, ast.unparse(node)
            sources = sources if key not in seen and into(node, depth) else []
            seen.add(key)
        else:
            sources = [(child, depth) for child in ast.iter_child_nodes(node)]
        for source, at in sources:
            yield from self.walk(source, at, seen, into)

    def comes_from(self, call: str, node: Any, depth: int) -> bool:
        """True where this expression comes from a call of tl.arange or tl.program_id."""
        parts = self.walk(node, depth, set(), lambda *_: True)
        return any(isinstance(part, ast.Attribute) and part.attr == call for part, _ in parts)

    def makers(self, moving: list[ast.expr], depth: int) -> tuple[list[int], dict[str, int]]:
        """The lines that make numbers of the program's place in the grid, and the values of the other names in them."""
        made, asked, values, seen = set[int](), set[int](), dict[str, int](), set[tuple]()
        of_the_grid = functools.partial(self.comes_from, "program_id")
        for part, at in (found for factor in moving for found in self.walk(factor, depth, seen, of_the_grid)):
            if isinstance(part, ast.Name) and of_the_grid(part, at):
                for source, here in self.sources(part, at):
                    if here == at and not isinstance(source, ast.Name):
                        (asked if is_place(source) else made).add(source.lineno)
            elif isinstance(part, ast.Name) and (value := self.value_of(part.id, at)) is not None:
                values[part.id] = value
        return sorted(made or asked)[:MOST], dict(list(values.items())[:MOST])

    def value_of(self, name: str, depth: int) -> int | None:
        """The whole number that a name holds in this frame, or None."""
        value = self.frames[depth].f_locals.get(name)
        value = value.value if isinstance(value, tl.constexpr) else value
        data = np.asarray(value.handle.data) if isinstance(value, tl.tensor) else np.asarray(value)
        return int(data.flat[0]) if data.size == 1 and data.dtype.kind in "iu" else None


@functools.cache
def assigned(function: ast.FunctionDef) -> dict[str, list[Any]]:
    """{name: [its values, as nodes]}; of a tuple that is taken apart, its elements."""
    found: dict[str, list[Any]] = {}
    nodes: Iterable[Any] = ast.walk(function)
    for node in nodes:
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            found.setdefault(ast.unparse(node.target), []).append(node.value)
        targets: list[Any] = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            whole = not isinstance(target, ast.Tuple)
            for i, name in enumerate([target] if whole else target.elts):
                found.setdefault(ast.unparse(name), []).append(node.value if whole else element(node.value, i))
    return found


def element(node: Any, i: int) -> Any:
    """The element of a tuple, as a node: itself where the tuple is written down."""
    if isinstance(node, ast.Tuple):
        return node.elts[i] if i < len(node.elts) else node
    return ast.fix_missing_locations(ast.copy_location(ast.Subscript(node, ast.Constant(i), ast.Load()), node))


def bare(node: Any) -> Any:
    """A node without what leaves its numbers as they are."""
    if isinstance(node, ast.Subscript) and not is_number(node.slice):
        return bare(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in UNCHANGED:
        return bare(node.func.value)
    return node


def is_number(node: Any) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def is_place(node: Any) -> bool:
    node = bare(node)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "program_id"


def factors_of(node: Any) -> list[ast.expr]:
    """The factors of a product."""
    node = bare(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*factors_of(node.left), *factors_of(node.right)]
    return [node]
