"""Families of changes of a statement: deleted, exchanged with its neighbour, = for +=, the value of its twin.

changes(kernel, statement) yields (name of the family, [(node, new text)]).
"""

import ast
import itertools
import re

from grader.diagnosis.repair.kernel import COMPOUND
from grader.diagnosis.repair.names import mirrored


def changes(kernel, node):
    yield from taken_apart_otherwise(kernel, node)
    if isinstance(node, ast.Return | ast.Pass) or is_text(node):
        return
    if isinstance(node, ast.If):
        yield "condition", [(node.test, "True")]
        yield "condition", [(node.test, "False")]
    if isinstance(node, COMPOUND):
        return
    if not isinstance(node, ast.Assign) or is_assigned_elsewhere(kernel, node):
        yield "statement", [(node, "pass")]
    yield from other_operator(kernel, node)
    yield from rescaled_beside(kernel, node)
    yield from exchanged(kernel, node)
    yield from by_analogy(kernel, node)
    for other, name in carried_over(kernel, node):
        yield "running value", [(node, f"{kernel.text(node)}; {other} = {name}")]
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        for value in (*twins(kernel, node), *online_softmax(kernel, node), *same_positions(kernel, node)):
            yield "value", [(node.value, value)]


def is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def names_stored(node):
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def is_assigned_elsewhere(kernel, node):
    """True where the names still have a value without this statement."""
    mine = names_stored(node)
    others = (o for o in ast.walk(kernel.tree) if isinstance(o, ast.Assign | ast.AugAssign) and o is not node)
    return bool(mine & kernel.parameters) or any(mine & names_stored(other) for other in others)


def other_operator(kernel, node):
    if isinstance(node, ast.AugAssign):
        name, value = kernel.text(node.target), kernel.text(node.value)
        yield "statement", [(node, f"{name} = {value}")]
        for factor in kernel.names("f1") if kernel.kinds.get(name) in ("f1", "f2") else ():
            axis = "[:, None]" if kernel.kinds[name] == "f2" else ""
            yield "factor", [(node, f"{name} = {name} * {factor}{axis} + {value}")]
    elif isinstance(node, ast.Assign) and kernel.kinds.get(kernel.text(node.targets[0])) in ("f1", "f2"):
        yield "statement", [(node, f"{kernel.text(node.targets[0])} += {kernel.text(node.value)}")]


def rescaled_beside(kernel, node):
    """Beside `row_sum *= alpha`: the same of another running value."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult) and isinstance(node.value, ast.Name):
        name, factor = kernel.text(node.target), node.value.id
        for other in unpacked(kernel) if kernel.kinds.get(factor) == "f1" else ():
            if other != name and kernel.kinds.get(other) in ("f1", "f2"):
                axis = "[:, None]" if kernel.kinds[other] == "f2" else ""
                yield "factor", [(node, f"{kernel.text(node)}; {other} *= {factor}{axis}")]


def by_analogy(kernel, node):
    """Of V what another statement says of K, and the other way round."""
    if not isinstance(node, ast.Assign | ast.AugAssign):
        return
    for other in (like for every in kernel.statements.values() for like in every if type(like) is type(node)):
        if kernel.quantity(other) != kernel.quantity(node) == mirrored(kernel.quantity(other)):
            yield "tensor", [(node.value, mirrored(kernel.text(other.value)))]


def taken_apart_otherwise(kernel, node):
    """Two names of a tuple that is taken apart, or returned, one in the other's place."""
    place = node.targets[0] if isinstance(node, ast.Assign) else node.value if isinstance(node, ast.Return) else None
    if isinstance(place, ast.Tuple):
        for one, other in itertools.combinations(range(len(place.elts)), 2):
            names = [kernel.text(each) for each in place.elts]
            names[one], names[other] = names[other], names[one]
            yield "name", [(place, ", ".join(names))]


def exchanged(kernel, node):
    """With the statement after it."""
    body = next(b for b in bodies(kernel.parents[node]) if node in b)
    following = body[body.index(node) + 1 : body.index(node) + 2]
    if following and not isinstance(following[0], (*COMPOUND, ast.Return)):
        yield "order", [(node, kernel.text(following[0])), (following[0], kernel.text(node))]


def bodies(node):
    return [getattr(node, name) for name in ("body", "orelse") if getattr(node, name, None)]


def twins(kernel, node):
    """What is assigned to the same name elsewhere."""
    for other in ast.walk(kernel.tree):
        if isinstance(other, ast.Assign) and other is not node and kernel.text(other.targets[0]) == node.targets[0].id:
            yield kernel.text(other.value)


def same_positions(kernel, node):
    """The positions of another name, where positions are made: which rows or keys are these?"""
    name = node.targets[0].id
    if kernel.kinds.get(name) == "i1":
        yield from (other for other in kernel.names("i1") if other not in (name, kernel.text(node.value)))


def carried_over(kernel, node):
    """[(running value, what it may be meant to become)] behind a statement: `row_max = new_max` is missing.

    Behind the statement that makes the new value, or at the end of its loop.
    """
    parent = kernel.parents[node]
    if isinstance(parent, ast.FunctionDef) or not isinstance(node, ast.Assign | ast.AugAssign):
        return
    made = names_stored(node)
    if isinstance(parent, ast.For | ast.While) and parent.body[-1] is node:
        made |= set().union(*map(names_stored, parent.body))
    vectors = set(kernel.names("f1"))
    running = vectors & {*kernel.parameters, *unpacked(kernel)}
    yield from ((other, name) for name in sorted(made & vectors) for other in sorted(running - {name}))


def unpacked(kernel):
    """Names that the kernel takes from a tuple, or starts before its loop."""
    top = [s for s in kernel.tree.body if isinstance(s, ast.Assign)]
    return sorted(set().union(*map(names_stored, top)))


def online_softmax(kernel, node):
    """The lines of an online softmax, written with the names that are there."""
    name = node.targets[0].id
    kind = kernel.kinds.get(name)
    vectors = kernel.names("f1")
    blocks = [b for b in kernel.names("f2") if not re.search(rf"\b{b} = tl.load", kernel.source)]
    if kind == "f2" and name not in blocks:
        return
    exp = "tl.exp2" if "exp2" in kernel.source else "tl.exp"
    looped = not isinstance(kernel.parents[node], ast.FunctionDef)
    if kind == "f2" and not looped:
        yield from (f"{name} / {v}[:, None]" for v in vectors)
    elif kind == "f2":
        yield from (f"{exp}({b} - {v}[:, None])" for v in vectors for b in blocks)
    elif kind == "f1" and looped:
        yield from (f'tl.where({v} == float("-inf"), 0.0, {v})' for v in vectors if v != name)
        yield from (f"tl.maximum({v}, tl.max({b}, 1))" for v in vectors for b in blocks)
        yield from (f"{name} * {v} + tl.sum({b}, 1)" for v in vectors for b in blocks if v != name)
        yield from (f"{exp}({a} - {b})" for a in vectors for b in vectors if a != b)
