"""Which candidates first: those of the kinds of change, and at the places, that what was measured speaks of."""

import ast
import re
from collections import Counter

IN_TURN = 12  # changes of one kind before the next
# Kinds of change in the order in which they pay where nothing is known.
PRIOR = (
    "dtype", "comparison", "function", "tensor", "stride", "running value", "left out", "value", "statement", "order",
    "axis", "scale", "number", "factor", "first value", "constant", "operator", "rounding", "bound", "index",
    "condition", "name", "grid", "mask", "second mask",
)  # fmt: skip
MASKS = (
    "comparison", "rounding", "bound", "constant", "left out", "operator", "axis", "name", "mask", "value", "order",
    "condition", "number", "statement", "grid", "second mask",
)  # fmt: skip
HEADS = ("index", "tensor", "stride", "number", "axis", "name", "operator", "left out", "grid", "statement")
STEPS = (
    "running value", "statement", "order", "function", "left out", "axis", "factor", "first value", "value", "name",
    "operator", "constant",
)  # fmt: skip
SCALES = ("function", "scale", "factor", "left out", "constant", "operator", "name", "value", "number", "statement")
SCORES = ("axis", "tensor", "stride", "factor", "name", "left out", "running value", "value", "order", "number", "mask")
FAMILIES = {  # what was measured -> the kinds of change that mend such mistakes
    "mask": MASKS, "double": MASKS, "finite": ("constant", *MASKS), "uneven": (*STEPS, *MASKS),
    "sum": (*STEPS, "comparison", "dtype", *MASKS), "scale": SCALES, "rescale": STEPS, "v head": HEADS, "k head": HEADS,
    "q head": HEADS, "groups": HEADS, "heads": HEADS, "exchange": ("tensor", "name"), "layout": ("stride", *HEADS),
    "column": ("axis", "tensor", "stride", "number", "name"), "precision": ("dtype", "function", "constant", "scale"),
    "dtype": ("dtype", "function", "constant", "left out", "order"),
    "scores": (*SCORES, *SCALES), "values": (*STEPS, *SCALES, *MASKS), "tail": MASKS,
    "nan": (*MASKS, *STEPS, "factor"), "rows": ("value", "name", "tensor", "stride", "index", "number", "grid"),
}  # fmt: skip


def ranked(edits, kernels, implicated):
    """The Edits, the likeliest first: a few of each kind of change in turn, since some kinds have many."""
    order = list(dict.fromkeys([*(family for kind in implicated for family in FAMILIES[kind]), *PRIOR]))
    lines = set().union(*(concerned(kernels.values(), kind) for kind in implicated))
    counts = Counter()

    def place(edit):
        far = bool(lines) and not edit.launch and not lines & set(edit.lines)
        group = not uses_unused(edit, kernels), not fits(edit, implicated), far
        counts[group, edit.family] += 1
        return *group, counts[group, edit.family] // IN_TURN, order.index(edit.family)

    return sorted(edits, key=place)


def uses_unused(edit, kernels):
    """True where a change reads a name that the kernel makes and never reads."""
    return any(re.search(rf"\b{name}\b", new) for number, _, _, new in edit.spans for name in kernels[number].unused)


def fits(edit, implicated):
    """True where this kind of change mends what was measured."""
    return not implicated or any(edit.family in FAMILIES[kind] for kind in implicated)


def concerned(kernels, kind):
    """The lines of the file that touch what a kind of mistake is about."""
    found = set()
    for kernel in kernels:
        words = "|".join(map(re.escape, sorted(names_for(kernel, kind)))) or "$^"
        pattern = re.compile(rf"\b({words})\b|{PATTERNS.get(kind, '$^')}")
        found |= {kernel.first + i for i, line in enumerate(kernel.source.splitlines()) if pattern.search(line)}
    return found


PATTERNS = {
    "mask": r"\[None, :\]|where|range\(|inf|(?i:window|sink)", "double": r"range\(|where|[<>]",
    "finite": r"inf|-\d|where", "uneven": r"range\(|where|[<>]|exp", "sum": r"tl\.sum", "scale": r"exp|scale|dot",
    "rescale": "exp", "layout": r"stride|\bs[qkvo]", "v head": r"[Hh]ead|group|stride",
    "k head": r"[Hh]ead|group|stride",
    "nan": r"inf|where|range\(|[<>]|exp", "precision": r"float16|\.to\(|exp|scale", "scores": r"stride|load|dot|exp",
    "rows": r"store|\bO\b|\bo_", "exchange": r"load|dot", "tail": r"inf|where|<",
}  # fmt: skip


def names_for(kernel, kind):
    """Names of the quantities that a kind of mistake is about, by what is assigned to them."""
    steps, bounds = set(), set(kernel.names("int")) if kind in ("mask", "double", "nan", "tail", "uneven") else set()
    for node in ast.walk(kernel.tree):
        if isinstance(node, ast.Assign | ast.AugAssign):
            target = kernel.text(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            value = kernel.text(node.value)
            if kernel.kinds.get(target) == "f1" or re.search(r"exp|tl\.dot|tl\.sum", value):
                steps.add(target)
    bounds -= kernel.parameters
    return bounds | (steps if kind in ("sum", "scale", "rescale", "nan", "scores", "values", "uneven") else set())
