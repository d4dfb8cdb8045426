"""Families of changes of an expression: operators, comparisons, constants, calls, axes, dtypes, what is left out.

A family is a function of a kernel and a node: it yields (name of the family, the node that is replaced, new text).
"""

import ast

COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
OPERATORS = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/", "//"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*", "%"), ast.Mod: ("%", "//"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
}  # fmt: skip
CALLS = {
    "exp": ("exp2",), "exp2": ("exp",), "log": ("log2",), "log2": ("log",), "maximum": ("minimum",),
    "minimum": ("maximum",), "max": ("sum",), "sum": ("max",), "zeros": (), "full": (), "cdiv": (),
}  # fmt: skip
FLOATS = ("0.0", "1.0", "1.4426950408889634", "0.6931471805599453", 'float("-inf")')


def comparison(kernel, node):
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or type(node.ops[0]) not in COMPARISONS:
        return
    left, right, now = kernel.text(node.left), kernel.text(node.comparators[0]), COMPARISONS[type(node.ops[0])]
    for other in COMPARISONS.values():
        if other != now:
            yield "comparison", node, f"{left} {other} {right}"
    for more in ("+ 1", "- 1"):
        yield "comparison", node, f"{left} {now} {right} {more}"


def operator(kernel, node):
    """Another operator, or its operands exchanged; a division that is rounded up."""
    if not isinstance(node, ast.BinOp) or type(node.op) not in OPERATORS:
        return
    left, right = kernel.bracketed(node.left), kernel.bracketed(node.right)
    now, *others = OPERATORS[type(node.op)]
    for other in others:
        yield "operator", node, f"{left} {other} {right}"
    if now in ("-", "//", "%", "/"):
        yield "operator", node, f"{right} {now} {left}"
    if now == "//":
        yield "rounding", node, f"tl.cdiv({kernel.text(node.left)}, {kernel.text(node.right)})"
    if now == "+" or now == "-":
        for block in kernel.names("int"):
            if "BLOCK" in block.upper():
                yield "rounding", node, f"{kernel.text(node)} + {block}"
                yield "rounding", node, f"{kernel.text(node)} - {block}"


def left_out(kernel, node):
    """One operand for the whole: a factor, a term or a step too many."""
    if isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
    elif isinstance(node, ast.IfExp):
        parts = [node.body, node.orelse]
    elif isinstance(node, ast.Call) and called(node) in ("maximum", "minimum", "where", "min", "max"):
        parts = [part for part in node.args if not isinstance(part, ast.Constant) or called(node) != "max"]
        parts = parts[1:] if called(node) == "where" else parts
    elif isinstance(node, ast.UnaryOp):
        parts = [node.operand]
    else:
        parts = []
    for part in parts:
        yield "left out", node, kernel.text(part)


def only_a_name(kernel, node):
    """One of its names for a whole expression."""
    whole = isinstance(node, ast.BinOp | ast.IfExp) or (isinstance(node, ast.Call) and called(node) not in ("load",))
    if not whole or len(kernel.text(node)) > 120 or "[" in kernel.text(node):
        return
    inner = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and each.id in kernel.kinds]
    for name in dict.fromkeys(inner):
        if not kernel.kinds[name].startswith("p"):
            yield "left out", node, name


def constant(kernel, node):
    """Another number near by, or one of the few that attention knows."""
    if not isinstance(node, ast.Constant) or in_index(kernel, node):
        return
    value = node.value
    if isinstance(value, bool):
        yield "constant", node, str(not value)
    elif isinstance(value, int):
        for other in {value + 1: 0, value - 1: 0, 0: 0, 1: 0, value * 2: 0, value // 2: 0}:
            if other != value and other >= 0:
                yield "constant", node, str(other)
        for name in kernel.names("int"):
            yield "constant", node, name
    elif isinstance(value, float):
        for other in FLOATS:
            yield "constant", node, other


def infinite(kernel, node):
    """Minus infinity for a finite number."""
    negative = (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)
    )
    if negative or (isinstance(node, ast.Constant) and isinstance(node.value, float)):
        yield "constant", node, 'float("-inf")'


def call(kernel, node):
    """Another function of the same form; other first values."""
    if not isinstance(node, ast.Call) or called(node) not in CALLS:
        return
    before, arguments = kernel.text(node.func), kernel.text(node)[len(kernel.text(node.func)) :]
    for other in CALLS[called(node)]:
        yield "function", node, before[: -len(called(node))] + other + arguments
    if called(node) == "cdiv" and len(node.args) == 2:
        yield "rounding", node, " // ".join(map(kernel.bracketed, node.args))
    if called(node) in ("zeros", "full") and node.args:
        shape = kernel.text(node.args[0])
        for value in ("0.0", 'float("-inf")', "1.0"):
            yield "first value", node, f"tl.full({shape}, {value}, tl.float32)"


def axis(kernel, node):
    """Over the other axis, along the other axis, of another axis of the grid."""
    if isinstance(node, ast.Call) and called(node) in ("sum", "max", "min", "program_id"):
        for part in (*node.args[called(node) != "program_id" :], *(k.value for k in node.keywords if k.arg == "axis")):
            if isinstance(part, ast.Constant) and type(part.value) is int:
                for other in range(3 if called(node) == "program_id" else 2):
                    yield "axis", part, str(other)
    elif isinstance(node, ast.Subscript):
        text, value = kernel.text(node), kernel.text(node.value)
        if text.endswith("[:, None]"):
            yield "axis", node, f"{value}[None, :]"
        elif text.endswith("[None, :]"):
            yield "axis", node, f"{value}[:, None]"
    elif kernel.kinds.get(getattr(node, "id", "")) in ("f1", "i1", "b1"):
        bare = isinstance(kernel.parents[node], ast.BinOp | ast.Compare)
        for suffix in ("[:, None]", "[None, :]") if bare else ():
            yield "axis", node, f"{node.id}{suffix}"


def transposed(kernel, node):
    if not isinstance(node, ast.Call) or called(node) != "dot":
        return
    for part in node.args[:2]:
        if isinstance(part, ast.Call) and called(part) == "trans":
            yield "axis", part, kernel.text(part.args[0])
        else:
            yield "axis", part, f"tl.trans({kernel.text(part)})"


def dtype(kernel, node):
    """Not converted, or converted to another dtype."""
    if isinstance(node, ast.Call) and called(node) == "to" and isinstance(node.func, ast.Attribute):
        value = kernel.text(node.func.value)
        yield "dtype", node, value
        for other in ("tl.float32", *element_types(kernel)):
            yield "dtype", node, f"{value}.to({other})"
    elif isinstance(node, ast.Attribute) and node.attr in ("float16", "bfloat16"):
        for other in ("tl.float32", *element_types(kernel)):
            yield "dtype", node, other


def element_types(kernel):
    return [f"{name}.dtype" for name in ("q", "v") if kernel.kinds.get(name) == "f2"] + [
        f"{name}.dtype.element_ty" for name in ("O",) if kernel.kinds.get(name) == "p0"
    ]


def called(node):
    """The last word of what a call calls."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def in_index(kernel, node):
    """True inside `[...]`, and where `axis` asks already."""
    around = kernel.parents[node]
    return isinstance(around, ast.Subscript | ast.Slice | ast.Tuple) or (
        isinstance(around, ast.Call) and called(around) == "program_id"
    )


FAMILIES = (
    comparison, operator, left_out, only_a_name, constant, infinite, call, axis, transposed, dtype,
)  # fmt: skip
