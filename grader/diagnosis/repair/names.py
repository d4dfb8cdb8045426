"""Families of changes of a name: another one of its kind, the same letter of another tensor, a factor that is missing.

Names are read by their spelling, as people read them: `stride_kn` is a stride of K's.
"""

import ast
import itertools
import re

STRIDE = re.compile(r"(?:stride_?|s)([qkvo])_?([bhzsnmd]|batch|head|seq|token|row)$", re.IGNORECASE)
ROLES = {  # of an int: only one of its own role is put in its place
    "stride": STRIDE,
    "block": re.compile(r"(?i)(b|block|tile)_?[mnqk]$"),
    "head": re.compile(r"(?i)(h|hq|hk|hkv|b|bh|batch|z|.*head.*|.*group.*)$"),
    "size": re.compile(r"(?i)(n|d|.*window.*|.*sink.*|.*size|.*dim)$"),
}


def role(name):
    return next((role for role, pattern in ROLES.items() if pattern.match(name)), "place")


def another_name(kernel, node):
    """Another name of the same kind, of a stride another tensor's or another dimension's."""
    if not isinstance(node, ast.Name) or (kind := kernel.kinds.get(node.id)) is None:
        return
    if isinstance(kernel.parents[node], ast.Attribute):
        return
    mine, passed_on = role(node.id), isinstance(kernel.parents[node], ast.Call)
    if kind == "int" and passed_on:
        yield "bound", node, "0"
    for name in kernel.names(kind):
        bounds = passed_on and {mine, role(name)} == {"place", "size"}  # where a loop begins and ends
        if name in (node.id, "_") or (kind == "int" and role(name) != mine and not bounds):
            continue
        if mine == "stride" and kind == "int" and not one_letter_apart(name, node.id):
            continue
        yield "name", node, name


def one_letter_apart(a, b):
    return len(a) == len(b) and sum(x != y for x, y in zip(a, b, strict=True)) == 1


def another_tensor(kernel, node):
    """A whole expression about another tensor: K, stride_kb and stride_kh where V's stand."""
    if not isinstance(node, ast.BinOp | ast.Call) or isinstance(kernel.parents[node], ast.BinOp):
        return
    text = kernel.text(node)
    if not re.search(r"\b[QKVO]\b|stride|\bs[qkvo]", text) or len(text) > 200:
        return
    for letter in "qkvo":
        for name in ("pointer too", "strides alone"):
            new = of_tensor(kernel, text, letter, pointer=name == "pointer too")
            if new and new != text:
                yield "tensor", node, new


def of_tensor(kernel, text, letter, pointer):
    """The text with the strides (and the pointer) of one tensor, or None where it has no such names."""
    words = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", text))
    for word in words:
        if found := STRIDE.match(word):
            at = found.start(1)
            new = word[:at] + (letter.upper() if word[at].isupper() else letter) + word[at + 1 :]
        elif pointer and word in ("Q", "K", "V", "O"):
            new = letter.upper()
        else:
            continue
        if new not in kernel.kinds:
            return None
        text = re.sub(rf"\b{word}\b", new, text)
    return text


def exchanged_arguments(kernel, node):
    """Two numbers of a call of the file's own function, one in the other's place."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return
    names = [i for i, each in enumerate(node.args) if isinstance(each, ast.Name) and kernel.kinds.get(each.id) == "int"]
    for one, other in itertools.combinations(names, 2):
        texts = [*map(kernel.text, node.args), *map(kernel.text, node.keywords)]
        texts[one], texts[other] = texts[other], texts[one]
        yield "name", node, f"{node.func.id}({', '.join(texts)})"


def missing_factor(kernel, node):
    """A running value that is not rescaled, a score that is not scaled, a maximum that forgets the one before."""
    around, numbers = kernel.parents[node], kernel.names("float")
    if isinstance(around, ast.Assign) and kernel.kinds.get(kernel.text(around.targets[0])) == "f1":
        for name in kernel.names("f1"):
            yield "running value", node, f"tl.maximum({name}, {kernel.text(node)})"
    if isinstance(node, ast.Name) and isinstance(around, ast.BinOp | ast.Call):
        yield from (("factor", node, f"{node.id} * {factor}") for factor in factors(kernel, node))
    elif isinstance(node, ast.Subscript) and kernel.kinds.get(kernel.text(node.value)) == "f1":
        yield from (("factor", node, f"{kernel.text(node)} * {name}") for name in numbers)
    elif isinstance(node, ast.Call) and kernel.text(node.func) in ("tl.max", "tl.dot", "tl.sum"):
        yield from (("factor", node, f"{kernel.text(node)} * {name}") for name in numbers)
        if kernel.text(node.func) == "tl.max":
            for name in kernel.names("f1"):
                yield "running value", node, f"tl.maximum({name}, {kernel.text(node)})"


def factors(kernel, node):
    """What a block of floats may be multiplied by: a number, a vector, of a running value a quotient of vectors."""
    kind, vectors = kernel.kinds.get(node.id), [name for name in kernel.names("f1") if name != node.id]
    if kind not in ("f1", "f2"):
        return
    axis = "[:, None]" if kind == "f2" else ""
    yield from (f"{name}{axis}" for name in vectors)
    yield from kernel.names("float")
    if kernel.quantity(node) == node.id:
        yield from (f"({a} / {b}){axis}" for a in vectors for b in vectors if a != b)


def index(kernel, node):
    """Which head and batch: quotients and remainders of what the program has."""
    if not isinstance(around := kernel.parents[node], ast.Assign) or around.value is not node:
        return
    target = kernel.text(around.targets[0])
    if kernel.kinds.get(target) != "int" or role(target) != "head":
        return
    heads = [name for name in kernel.names("int") if role(name) == "head" and name != target]
    for a in heads:
        yield "index", node, a
        for b in heads:
            if a != b:
                yield "index", node, f"{a} // {b}"
                yield "index", node, f"{a} % {b}"
                for c in heads:
                    if c not in (a, b) and {b, c} <= kernel.parameters:
                        yield "index", node, f"{a} // ({b} // {c})"


def bound(kernel, node):
    """Where a loop begins or ends: no further than another bound, or rounded down to a tile."""
    around = kernel.parents[node]
    if not isinstance(around, ast.Assign) or around.value is not node:
        return
    target, text = kernel.text(around.targets[0]), kernel.text(node)
    if kernel.kinds.get(target) != "int" or role(target) == "head":
        return
    for name in kernel.names("int"):
        if role(name) == "block":
            yield "rounding", node, f"({text}) // {name} * {name}"
        elif role(name) in ("place", "size") and name not in (target, text):
            yield "bound", node, f"tl.minimum({text}, {name})"
            yield "bound", node, f"tl.maximum({text}, {name})"


def mirrored(text):
    """The same about V where it was about K, and the other way round."""
    other = {"K": "V", "V": "K", "k": "v", "v": "k"}
    return re.sub(
        r"\b(stride_|s)?([KVkv])(?=\b|_(?!pos|start|end)|[bhsnmd]\b)", lambda m: (m[1] or "") + other[m[2]], text
    )


FAMILIES = (another_name, another_tensor, exchanged_arguments, missing_factor, index, bound)
