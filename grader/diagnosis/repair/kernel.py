"""A kernel's text with what a run told of it: where each part stands, and of what kind each name is."""

import ast
import re
from dataclasses import dataclass, field
from functools import cached_property

COMPOUND = (ast.FunctionDef, ast.For, ast.While, ast.If)
PARTS = ast.BinOp | ast.Compare | ast.Call | ast.Attribute | ast.Subscript
ATOMS = (ast.Name, ast.Call, ast.Subscript, ast.Constant, ast.Attribute)


@dataclass(frozen=True)
class Kernel:
    """The kernel `number` of a program. first: the line of its `def` in the submission's file.

    kinds: {name: "int", "float", or a letter and the number of dimensions: "f2", "i1", "b2", "p0" (a pointer)}.
    ran: lines of the file that ran. Raises ValueError for a text that is no function.
    """

    number: int
    source: str
    first: int
    kinds: dict = field(hash=False)
    ran: frozenset = field(hash=False)

    @cached_property
    def tree(self):
        try:
            return ast.parse(self.source).body[0]
        except (SyntaxError, RecursionError, MemoryError):
            raise ValueError("a text that is no function") from None

    @cached_property
    def data(self):
        return self.source.encode()

    @cached_property
    def starts(self):
        """Where each line begins, in bytes."""
        starts = [0]
        for line in self.data.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    @cached_property
    def parents(self):
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def parameters(self):
        return {argument.arg for argument in self.tree.args.args}

    @cached_property
    def parts(self):
        """{text: its expressions}."""
        return self.by_text(node for node in ast.walk(self.tree) if isinstance(node, PARTS))

    @cached_property
    def statements(self):
        """{text: its statements} of one line or several, without those that hold others."""
        simple = (n for n in ast.walk(self.tree) if isinstance(n, ast.stmt) and not isinstance(n, COMPOUND))
        return self.by_text(simple)

    @cached_property
    def unused(self):
        """The names that get a value, or come as arguments, and are never read."""
        names = [node for node in ast.walk(self.tree) if isinstance(node, ast.Name)]
        stored = {node.id for node in names if isinstance(node.ctx, ast.Store)} | self.parameters
        return stored - {node.id for node in names if isinstance(node.ctx, ast.Load)} - {"_"}

    def by_text(self, nodes):
        found = {}
        for node in nodes:
            found.setdefault(self.text(node), []).append(node)
        return found

    def span(self, node):
        """(start, end) in bytes."""
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def text(self, node):
        start, end = self.span(node)
        return self.data[start:end].decode()

    def line(self, node):
        """Its line in the submission's file."""
        return self.first + node.lineno - 1

    def has_run(self, node):
        return any(self.first + line - 1 in self.ran for line in range(node.lineno, node.end_lineno + 1))

    def names(self, *kinds):
        """The names of these kinds, in the order in which the kernel got them."""
        return [name for name, kind in self.kinds.items() if kind in kinds]

    def statement(self, node):
        """The statement that a node is part of."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def quantity(self, node):
        """What the statement of a node makes: `row_sum`, or the start of its text."""
        statement = self.statement(node)
        if isinstance(statement, ast.Assign | ast.AugAssign | ast.For):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            return self.text(target)
        if isinstance(statement, ast.If | ast.While):
            return self.text(statement.test)
        return self.text(statement).partition("(")[0]

    def bracketed(self, node):
        """The text of a node as an operand."""
        return self.text(node) if isinstance(node, ATOMS) else f"({self.text(node)})"

    def fitted(self, node, new):
        """A new text in the place of a node: in brackets where the place needs them."""
        around = self.parents.get(node)
        inside = isinstance(around, ast.BinOp | ast.Compare | ast.UnaryOp | ast.Attribute | ast.BoolOp)
        inside |= isinstance(around, ast.Subscript) and around.value is node
        return f"({new})" if inside and not re.fullmatch(r"[\w.]+(\([^()]*\)|\[[^\[\]]*\])?", new) else new
