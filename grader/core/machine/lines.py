"""Where an operation stands in the student's file, from the locations in its text.

Method: MLIR's locations (Language Reference, Location): a file's line, a name, or a call from somewhere else.
"""

import ast
import re
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
        self.begins = find_beginnings(text)
        self.places = lru_cache(maxsize=None)(self.find_places)

    def find_places(self, where: str) -> tuple[tuple[int, int], ...]:
        """(line, column) in the file, that of the innermost function first; () where none is known."""
        found: list[tuple[int, int]] = []
        names = [where]
        for _ in range(DEEPEST):
            if not names:
                break
            text = self.locations.get(names.pop(), "")
            if matched := FILE.fullmatch(text):
                if matched[1].rpartition("/")[2] == self.file and int(matched[2]):
                    found.append((int(matched[2]), int(matched[3])))
            elif matched := NAMED.fullmatch(text):
                names.append(matched[2])
            elif matched := CALL.fullmatch(text):
                names += [matched[2], matched[1]]  # the callee is looked at first
        return tuple(found)

    def line(self, where: str) -> int | None:
        """The line that runs, in whichever function."""
        places = self.places(where)
        return self.begins.get(places[0], places[0][0]) if places else None

    def kernel_line(self, where: str) -> int | None:
        """The line of the kernel itself, which may be a call of the function that runs."""
        places = self.places(where)
        return self.begins.get(places[-1], places[-1][0]) if places else None

    def variable(self, where: str) -> str | None:
        """The name that the operation's result gets in the file, or None."""
        names = [where]
        for _ in range(DEEPEST):
            if not names:
                return None
            text = self.locations.get(names.pop(), "")
            if matched := NAMED.fullmatch(text):
                return matched[1]
            if matched := CALL.fullmatch(text):
                names = [matched[1]]
        return None


@lru_cache(maxsize=16)
def read_tree(text: str) -> ast.Module:
    """The text's syntax tree; an empty one where it has none."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


@lru_cache(maxsize=16)
def find_beginnings(text: str) -> dict[tuple[int, int], int]:
    """{(line, column) of an operand: the line on which the operation begins}; of nested ones, the outermost."""
    found: dict[tuple[int, int], int] = {}
    for node in ast.walk(read_tree(text)):
        if isinstance(node, ast.expr):
            for operand in ast.iter_child_nodes(node):
                if isinstance(operand, ast.expr | ast.keyword):
                    found.setdefault((operand.lineno, operand.col_offset), node.lineno)
    return found
