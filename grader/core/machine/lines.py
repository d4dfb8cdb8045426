"""Where an operation stands in the student's file, from the locations in its text.

Method: MLIR's locations (Language Reference, Location): a file's line, a name, or a call from somewhere else.
"""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

FILE = re.compile(r'loc\("((?:[^"\\]|\\.)*)":(\d{1,7}):(\d{1,7})\)')
NAMED = re.compile(r'loc\("((?:[^"\\]|\\.)*)"\((#loc\d*)\)\)')
CALL = re.compile(r"loc\(callsite\((#loc\d*) at (#loc\d*)\)\)")
DEEPEST = 40


class Lines:
    """The lines of `file`, by its base name, that locations name, as text.Module has them.

    text: of the file. Triton says where the last operand of an operation is; the line is that on which the operation
    begins, as Python has it.
    """

    def __init__(self, locations: dict[str, str], file: str, text: str = "") -> None:
        self.locations, self.file, self.text = locations, file.rpartition("/")[2], text
        self.places = lru_cache(maxsize=None)(self.find_places)

    def find_parts(self, where: str) -> Iterator[re.Match[str]]:
        """What the location is made of, each a match of NAMED or FILE: of a call, the callee's part comes first."""
        names = [where]
        for _ in range(DEEPEST):
            text = self.locations.get(names.pop(), "") if names else ""
            if matched := CALL.fullmatch(text):
                names += [matched[2], matched[1]]
            elif matched := NAMED.fullmatch(text):
                names.append(matched[2])
                yield matched
            elif matched := FILE.fullmatch(text):
                yield matched

    def find_places(self, where: str) -> tuple[tuple[int, int], ...]:
        """(line, column) in the file, that of the innermost function first; () where none is known."""
        parts = [part for part in self.find_parts(where) if part.re is FILE and part[1].rpartition("/")[2] == self.file]
        return tuple((int(part[2]), int(part[3])) for part in parts if int(part[2]))

    def line(self, where: str, which: int = 0) -> int | None:
        """The line on which the operation that runs begins, in whichever function, the innermost first."""
        if not (places := self.places(where)):
            return None
        line, column = places[which]
        return find_beginnings(self.text, line).get((line, column), line)

    def kernel_line(self, where: str) -> int | None:
        """The line of the kernel itself, which may be a call of the function that runs."""
        return self.line(where, -1)

    def variable(self, where: str) -> str | None:
        """The variable of the file that gets the operation's result, or of which that is a part; None where none is."""
        named = (part for part in self.find_parts(where) if part.re is NAMED)
        return next((part[1] for part in named if self.places(part[2])), None)


@lru_cache(maxsize=16)
def read_tree(text: str) -> ast.Module:
    """The text's syntax tree; an empty one where it has none."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


@lru_cache(maxsize=1024)
def find_beginnings(text: str, line: int) -> dict[tuple[int, int], int]:
    """{(line, column) of an operand: the line on which the operation begins}; of nested ones, the outermost. Those of
    the statement of the module, as a kernel is one, that has this line."""
    for node in read_tree(text).body:
        if node.lineno <= line <= (node.end_lineno or 0):
            return beginnings_in(node)
    return {}


@lru_cache(maxsize=64)
def beginnings_in(statement: ast.stmt) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for node in ast.walk(statement):
        if isinstance(node, ast.expr):
            for operand in ast.iter_child_nodes(node):
                if isinstance(operand, ast.expr | ast.keyword):
                    found.setdefault((operand.lineno, operand.col_offset), node.lineno)
    return found
