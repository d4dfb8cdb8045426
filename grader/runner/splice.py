"""In the runner, interpreted: the code of a kernel of which one statement is another, without reading it all again."""

import ast
import textwrap


def find_change(tree, old, new):
    """(list of statements, index, text in its place), where the lines differ inside one simple statement, else None.

    tree: of the old text, lines counted from that of its `def`, `tree.body[0].lineno`.
    """
    before, after = old.splitlines(), new.splitlines()
    first = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
    if first is None:
        return None
    same = next((i for i, (a, b) in enumerate(zip(before[::-1], after[::-1], strict=False)) if a != b), 0)
    last, offset = len(before) - same - 1, tree.body[0].lineno
    if last < first:
        return None
    for body in bodies(tree.body[0]):
        for i, statement in enumerate(body):
            start, end = statement.lineno - offset, statement.end_lineno - offset
            if start <= first and last <= end and not hasattr(statement, "body"):
                return body, i, "\n".join(after[start : end + 1 + len(after) - len(before)])
    return None


def bodies(node):
    """All lists of statements in a statement."""
    for name in ("body", "orelse"):
        if part := getattr(node, name, None):
            yield part
            for inner in part:
                yield from bodies(inner)


def parse_statement(text, line):
    """A module of what stands at this line; raises SyntaxError."""
    return ast.parse("\n" * (line - 1) + textwrap.dedent(text))
