"""Families of changes of a mask: a term more, another term, a load or a store that has none."""

import ast
import re

from grader.diagnosis.repair.expressions import called

LENGTHS = ("N", "N_CTX", "Nk", "seqlen", "seqlen_k", "n", "num_keys")


def terms(kernel):
    """The comparisons of blocks that the kernel has, and those that attention knows with its names."""
    found = [
        kernel.text(node)
        for node in ast.walk(kernel.tree)
        if isinstance(node, ast.Compare) and "[" in kernel.text(node)
    ]
    rows = columns = [name for name in kernel.names("i1") if not re.match(r"d|offs_d|cols_d", name)]
    sizes = kernel.names("int")
    found += [f"{column}[None, :] < {n}" for column in columns for n in sizes if n in LENGTHS]
    for row in rows:
        for column in columns:
            if row != column:
                found.append(f"{row}[:, None] >= {column}[None, :]")
                found += [f"{row}[:, None] - {column}[None, :] < {w}" for w in sizes if "window" in w.lower()]
    found += [f"{column}[None, :] < {s}" for column in columns for s in sizes if "sink" in s.lower()]
    return list(dict.fromkeys(found))


def term(kernel, node):
    """Another term in the place of one, or one more."""
    if not is_mask(kernel, node):
        return
    now = kernel.text(node)
    for other in [*terms(kernel), *kernel.names("b2")]:
        if other in now:
            continue
        if isinstance(node, ast.Compare):
            yield "mask", node, other
            if "sink" in other.lower():
                yield "mask", node, f"({now}) | ({other})"
        if not isinstance(kernel.parents[node], ast.BinOp):
            yield "second mask", node, f"({now}) & ({other})"


def is_mask(kernel, node):
    if isinstance(node, ast.Name):
        used = isinstance(kernel.parents[node], ast.Call | ast.Assign | ast.keyword)
        return used and kernel.kinds.get(node.id) in ("b1", "b2")
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitAnd | ast.BitOr)
    inside = (kernel.kinds.get(name.id) for name in ast.walk(node) if isinstance(name, ast.Name))
    return isinstance(node, ast.Compare) and any(kind in ("i1", "i2") for kind in inside)


def unmasked(kernel, node):
    """A load or a store without a mask gets one."""
    if not isinstance(node, ast.Call) or called(node) not in ("load", "store"):
        return
    if any(keyword.arg == "mask" for keyword in node.keywords) or len(node.args) > 2:
        return
    other = ", other=0.0" if called(node) == "load" else ""
    for mask in [*terms(kernel), *kernel.names("b2")]:
        yield "second mask", node, f"{kernel.text(node)[:-1]}, mask={mask}{other})"


def hidden(kernel, node):
    """Scores or weights that no mask touches get one."""
    around = kernel.parents[node]
    if not isinstance(around, ast.Assign) or around.value is not node:
        return
    if kernel.kinds.get(kernel.text(around.targets[0])) != "f2" or re.search("load|where", kernel.text(node)):
        return
    for mask in [*terms(kernel), *kernel.names("b2")]:
        for value in ('float("-inf")', "0.0"):
            yield "second mask", node, f"tl.where({mask}, {kernel.text(node)}, {value})"


FAMILIES = (term, unmasked, hidden)
