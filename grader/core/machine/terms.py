"""Which products a kernel adds to a pointer, and which lines make their numbers: `X + page * sp + line * sl` has the
terms `page * sp` and `line * sl`, and a line `page = pid % P` makes one of their numbers.

The sum is read off the IR, what its numbers are called off the submission's text, where the IR's locations lead. What
differs from lane to lane is left out.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from grader.core.machine.definitions import Definitions
from grader.core.machine.lines import Lines, read_tree
from grader.core.machine.text import Operation
from grader.core.protocol.reports import Term

MOST = 6  # terms, lines and values in a report
UNCHANGED = {"tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "arith.extsi", "arith.extui", "arith.trunci"}
SUMS = {"tt.addptr", "arith.addi", "arith.subi"}
NODES: dict[str, tuple[type, ...]] = {
    "arith.muli": (ast.Mult,), "arith.addi": (ast.Add,), "arith.subi": (ast.Sub,),
    "arith.divsi": (ast.FloorDiv, ast.Div), "arith.remsi": (ast.Mod,),
}  # fmt: skip
EITHER_WAY = {"arith.muli", "arith.addi"}
KEEPS = {"to", "expand_dims", "broadcast_to"}  # methods whose result has the numbers of what they are called on


@dataclass(frozen=True)
class Factor:
    """A number of a product. value: its name in the IR; text, name: in the submission; name only of a variable."""

    value: str
    text: str
    name: str | None


class Terms:
    """Of one kernel's accesses. numbers: {name: value} of the program that is looked at."""

    def __init__(self, definitions: Definitions, lines: Lines, numbers: dict[str, int]) -> None:
        self.definitions, self.made, self.lines, self.numbers = definitions, definitions.made, lines, numbers
        self.nodes = find_operations(lines.text)
        named = {lines.variable(made.where) for made in self.made.values() if made.name != "arith.constant"}
        self.variables = named | {name.lstrip("%") for name in definitions.types if name not in self.made}

    def find(self, access: Operation) -> list[Term]:
        """The terms of an access to memory, but for those of descriptors."""
        if not access.name.startswith(("tt.load", "tt.store", "tt.atomic")):
            return []
        products = [(name, self.factors(name)) for name in self.products(access.operands[0])]
        along, told = set[str](), []  # along: what multiplies lanes, as the stride of a row does
        for _, factors in products:
            rest = {factor.text for factor in factors if not self.comes_from("tt.make_range", factor.value)}
            along |= rest if len(rest) < len(factors) else set()
        for product, factors in products:
            moving = [factor for factor in factors if self.comes_from("tt.get_program_id", factor.value)]
            strides = [factor for factor in factors if factor not in moving]
            lanes = any(self.comes_from("tt.make_range", factor.value) for factor in factors)
            if moving and not lanes and along.isdisjoint(factor.text for factor in strides):
                names = sorted({factor.name for factor in moving if factor.name})
                stride = self.numbers.get(strides[0].value) if len(strides) == 1 else None
                text = " * ".join(factor.text for factor in factors)
                line = self.line(product) or 0
                told.append(Term(text, line, names, stride, *self.makers(moving, line)))
        return told[:MOST]

    def products(self, pointer: str) -> Iterator[str]:
        """The products that are added up to a pointer."""
        seen, left = set[str](), [pointer]
        while left:
            name = self.bare(left.pop())
            if name not in seen:
                seen.add(name)
                made = self.made.get(name)
                if made and made.name == "arith.muli":
                    yield name
                elif made and made.name in SUMS:
                    left += reversed(made.operands)
                elif not made:
                    left += reversed(self.definitions.origins(name))

    def bare(self, name: str) -> str:
        """The value without what leaves its numbers as they are."""
        while (made := self.made.get(name)) and made.name in UNCHANGED:
            (name,) = made.operands
        return name

    def factors(self, product: str) -> list[Factor]:
        """Of a product, in the order of its text."""
        found: list[Factor] = []
        for name, node in self.parts(self.made[product]):
            made = self.made.get(name)
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and made and made.name == "arith.muli":
                found += self.factors(name)
            elif node is None:
                variable = self.variable(name)
                found.append(Factor(name, variable or str(self.numbers.get(name, "?")), variable))
            else:
                found.append(Factor(name, ast.unparse(node), node.id if isinstance(node, ast.Name) else None))
        return found

    def parts(self, made: Operation) -> list[tuple[str, Any]]:
        """(operand, what the text has for it or None) of an operation of two operands, in the order of the text."""
        a, b = map(self.bare, made.operands)
        place = next(iter(self.lines.places(made.where)), None)
        node = next((n for n in self.nodes.get(place, ()) if isinstance(n.op, NODES.get(made.name, ()))), None)
        if node is None:
            return [(a, None), (b, None)]
        left, right = bare(node.left), bare(node.right)
        last = self.made.get(b)  # constants are last in the IR
        if made.name in EITHER_WAY and last and last.name == "arith.constant" and self.is_made(right):
            return [(b, left), (a, right)]
        return [(a, left), (b, right)]

    def is_made(self, node: ast.AST) -> bool:
        """True where an expression cannot be a constant: it has a variable that an operation makes, or a call."""
        parts = list(ast.walk(node))
        names = {part.id for part in parts if isinstance(part, ast.Name)}
        return any(isinstance(part, ast.Call) for part in parts) or not names.isdisjoint(self.variables)

    def comes_from(self, operation: str, name: str) -> bool:
        return any(name in self.made and self.made[name].name == operation for name in self.definitions.back([name]))

    def makers(self, moving: list[Factor], own: int) -> tuple[list[int], dict[str, int]]:
        """The lines that make numbers of the program's place in the grid, and the values of the other names in them.

        own: the line of the product.
        """
        made, asked, values = set[int](), set[int](), dict[str, int]()
        for name in self.definitions.back([factor.value for factor in moving]):
            operation = self.made.get(name)
            if operation is None or not self.comes_from("tt.get_program_id", name):
                continue
            line = self.line(name)
            place = self.made.get(self.bare(name))
            is_place = place is not None and place.name == "tt.get_program_id"
            if line and line != own:
                (asked if is_place else made).add(line)
            for operand, node in self.parts(operation) if len(operation.operands) == 2 else ():
                named = self.variable(operand) if node is None else getattr(node, "id", None)
                is_number = operand in self.numbers and self.definitions.types[operand].kind == "number"
                if named and is_number and not self.comes_from("tt.get_program_id", operand):
                    values[named] = self.numbers[operand]
        return sorted(made or asked)[:MOST], dict(list(values.items())[:MOST])

    def line(self, name: str) -> int | None:
        return self.lines.line(self.made[name].where) if name in self.made else None

    def variable(self, name: str) -> str | None:
        """What the submission calls a value: its variable, or the function's argument."""
        if name in self.made:
            return self.lines.variable(self.made[name].where)
        return None if self.definitions.origins(name) else name.lstrip("%").partition(" ")[0]


def bare(node: Any) -> Any:
    """A node without what leaves its numbers as they are."""
    if isinstance(node, ast.Subscript) and not (isinstance(node.slice, ast.Constant) and node.slice.value is not None):
        return bare(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS:
        return bare(node.func.value)
    return node


@lru_cache(maxsize=16)
def find_operations(text: str) -> dict[Any, list[ast.BinOp]]:
    """{(line, column): operations of two operands}, by where Triton's front end says that they are: at their right
    operand."""
    found: dict[Any, list[ast.BinOp]] = {}
    for node in ast.walk(read_tree(text)):
        if isinstance(node, ast.BinOp):
            found.setdefault((node.right.lineno, node.right.col_offset), []).append(node)
    return found
