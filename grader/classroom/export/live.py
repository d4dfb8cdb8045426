"""The statements of a module in one formatting, and which of them can do anything when its entry points are called.

Remarks, strings that stand alone, `pass`, `x = x` and what stands behind a return or under `if False` are left out. Of
the rest a statement is live that does something by itself (returns, raises, writes into an object, calls a kernel), or
that binds a name which a live statement reads; in a function that no live statement reads, nothing is. Names are told
apart by their spelling alone. What a module reaches by other means, as `globals()`, is not seen to be live.

Source: Cooper and Torczon, "Engineering a Compiler", 2nd edition, section 10.2.1: useless code, found by marking.
"""

import ast
import builtins
import copy
import re
import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

PARSED = 1 << 16  # characters parsed at once: Python 3.11 needs minutes for one f-string of 1 MB
ODD = (SyntaxError, ValueError, RecursionError, MemoryError)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
LEAVING = (ast.Return, ast.Raise, ast.Break, ast.Continue)
BODIES = ("body", "orelse", "handlers", "finalbody", "cases")
NAMED = (*DEFINITIONS, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
BLOCK = re.compile(r"^(?=@|[^\W\d])(?!(?:else|elif|except|finally)\b)", re.M)  # where a block of a module may begin
REMARK = re.compile(r"^[ \t]*#.*", re.M)
WORD = re.compile(r"[^\W\d]\w*")
BUILTINS = frozenset(vars(builtins))


class Line(NamedTuple):
    """A statement, or the head of one. first, last: the numbers of its lines in the file, from 0."""

    text: str
    first: int
    last: int
    live: bool


@dataclass(eq=False)
class Statement:
    """inside: what encloses it. home: the function or class that it belongs to. waiting: what is live once this is."""

    first: int
    last: int
    inside: object = None
    home: object = None
    text: str = ""
    reads: set = field(default_factory=set)
    binds: set = field(default_factory=set)
    acts: bool = False  # it does something by itself
    live: bool = False
    waiting: list = field(default_factory=list)


def lines(text, entries=(), seen=None):
    """The Lines of a module, in order. entries: names of what is called; where it has none, all its functions are.

    What does not parse is taken line by line, as it is written. seen: a dict that the modules of a class share, by
    which a statement of many is read once.
    """
    found, seen = [], {} if seen is None else seen
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the submission's odd escapes
        for start, part, tree in parts(REMARK.sub("", text)):
            found += unread(part, start) if tree is None else collected(tree, start, part.split("\n"), seen)
    mark(found, entries)
    return [Line(piece, s.first, s.last, s.live) for s in found for piece in s.text.split("\n")]


def parts(text):
    """(number of its first line, text, its tree or None): the whole, or where that does not parse block by block."""
    if (tree := parsed(text)) is not None:
        yield 0, text, tree
        return
    at, block = 0, ""
    for piece in BLOCK.split(text):
        block += piece
        if not piece.startswith("@"):
            yield at, block, parsed(block)
            at, block = at + block.count("\n"), ""
    yield at, block, parsed(block)


def parsed(text):
    """The tree, or None where it has none."""
    try:
        return ast.parse(text) if len(text) - text.count("\n") <= PARSED else None
    except ODD:
        return None


def unread(text, start):
    """Lines that do not parse, each taken for live."""
    for i, line in enumerate(text.split("\n"), start):
        if line.strip():
            yield Statement(i, i, text=line.strip(), reads=set(WORD.findall(line)), acts=True)


def collected(tree, start, source, seen):
    """The Statements of a tree, in the file's order."""
    todo = [(node, None, None) for node in reversed(running(tree.body))]
    while todo:
        node, inside, home = todo.pop()
        inner = blocks(node)
        first, last, *rest = head(node, inner, source) if inner else simple(node, source, seen)
        yield (statement := Statement(start + first - 1, start + last - 1, inside, home, *rest))
        home = statement if isinstance(node, DEFINITIONS) else home
        todo += [(child, statement, home) for block in reversed(inner.values()) for child in reversed(running(block))]


def running(block):
    """What of a block can be reached, without what does nothing."""
    found, todo = [], list(reversed(block))
    while todo:
        node = todo.pop()
        if (branch := taken(node)) is not None:
            todo += reversed(branch)
        elif not is_nothing(node):
            found.append(node)
        if isinstance(node, LEAVING):
            break
    return found


def taken(node):
    """The branch of an `if` or a `while` that is sure to be taken, or None where none is."""
    if isinstance(node, ast.If | ast.While) and isinstance(node.test, ast.Constant):
        if not node.test.value:
            return node.orelse
        return node.body if isinstance(node, ast.If) else None
    is_main = (
        isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and "__name__" in names_of(ast.walk(node.test))
    )
    return node.orelse if is_main else None


def is_nothing(node):
    if isinstance(node, ast.Expr):
        return not any(isinstance(part, ast.Call | ast.Await | ast.Yield | ast.YieldFrom) for part in ast.walk(node))
    if isinstance(node, ast.Assign):
        targets = {getattr(target, "id", None) for target in node.targets}
        return isinstance(node.value, ast.Name) and targets == {node.value.id}
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant))


def blocks(node):
    """{field: the statements in it} of what encloses others; of an expression `body` is no list."""
    fields = ((name, getattr(node, name, None)) for name in BODIES)
    return {name: part for name, part in fields if isinstance(part, list)}


def simple(node, source, seen):
    """(first line, last line, text, reads, binds, acts) of a statement that encloses no other."""
    written = "\n".join(source[node.lineno - 1 : node.end_lineno])
    key = written, node.col_offset, node.end_col_offset
    if key not in seen:
        seen[key] = meaning(node, written)
    return node.lineno, node.end_lineno, *seen[key]


def head(node, inner, source):
    """The same of one that does, without what it encloses."""
    bare = copy.copy(node)
    vars(bare).update({name: [] for name in inner})
    placed = [part for part in ast.walk(bare) if part is not bare and hasattr(part, "lineno")] or [node]
    first = min(part.lineno for part in [*placed, *([node] if hasattr(node, "lineno") else [])])
    last = max(part.end_lineno for part in placed) if placed != [node] else node.lineno
    return first, last, *meaning(bare, "\n".join(source[first - 1 : last]))


def meaning(node, written):
    """(text, reads, binds, acts) of a statement; `written` stands for one that cannot be formatted."""
    nodes = list(ast.walk(node))
    try:
        text = ast.unparse(node)
    except ODD:
        text = " ".join(written.split())
    acts = not isinstance(node, DEFINITIONS) and (isinstance(node, LEAVING) or any(map(is_act, nodes)))
    return text, names_of(nodes), bound(nodes), acts


def is_act(node):
    """A write into an object, or a call that may make one: of a name or of kernel[grid], none of tl.exp2 or float."""
    if isinstance(node, ast.Attribute | ast.Subscript):
        return isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.Call):
        func = node.func
        return not (isinstance(func, ast.Attribute) or (isinstance(func, ast.Name) and func.id in BUILTINS))
    return isinstance(node, ast.Expr | ast.Assert | ast.Await | ast.Yield | ast.YieldFrom)


def names_of(nodes):
    """The names that are read: also of attributes, and in strings, by which getattr finds them."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            found.add(node.value)
    return found


def bound(nodes):
    """The names that are bound."""
    found = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    found |= {node.name for node in nodes if isinstance(node, NAMED) and node.name}
    return found | {(node.asname or node.name).split(".")[0] for node in nodes if isinstance(node, ast.alias)}


def mark(found, entries):
    """Set `live`, beginning at what acts when the module is imported and at its entries."""
    binders = defaultdict(list)
    for statement in found:
        for name in statement.binds:
            binders[name].append(statement)
    functions = [s for s in found if s.home is None and s.text.startswith(("def ", "async def ", "class ", "@"))]
    called = {name for name in entries if name in binders} or {name for s in functions for name in s.binds}
    used = set(called)
    todo = [s for s in found if s.acts or "*" in s.binds] + [s for name in called for s in binders[name]]
    while todo:
        statement = todo.pop()
        if statement.live:
            continue
        if statement.home is not None and not statement.home.live:
            statement.home.waiting.append(statement)
            continue
        statement.live = True
        todo += statement.waiting
        todo += [statement.inside] if statement.inside else []
        new = statement.reads - used
        used |= new
        todo += [binder for name in new for binder in binders[name]]
