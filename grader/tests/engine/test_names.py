"""One name for one thing: modules have different names, and what a docstring or a comment names is there."""

import ast
import re
from collections import defaultdict

from grader.tests.support import ROOT

TOPS = ("grader", "classroom", "kernels", "solutions", "model", "report", "notebooks", "web")
OTHERS = re.compile("O|tma|torch|tl|triton|gl|np|numpy|os|sys|msgspec|self")  # whose names are theirs
ENDINGS = {"py", "md", "csv", "json", "toml", "txt", "svg", "html", "ipynb"}  # files, which test_docs looks up
DOTTED = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\([^`]*\))?`")


def sources():
    """The files of code, without the tests' submissions."""
    every = (path for top in TOPS for path in sorted((ROOT / top).rglob("*.py")))
    return [path for path in every if "submissions" not in path.parts]


def test_no_two_modules_of_the_grader_have_one_name():
    """Those inside a kind's folder apart: the folder says whose they are."""
    places = defaultdict(list)
    for path in (ROOT / "grader").rglob("*.py"):
        inside = path.relative_to(ROOT / "grader").parts
        if inside[0] != "tests" and not path.stem.startswith("__") and not (inside[0] == "kinds" and len(inside) > 2):
            places[path.stem].append("/".join(inside))
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_what_is_named_in_backquotes_is_there():
    known = defaultdict(set)  # {a module's name: what any module of that name has}
    for path in sources():
        known[path.stem] |= names_in(ast.parse(path.read_text(encoding="utf-8")))
    every = set().union(*known.values()) | set(known)
    missing = []
    for path in sources():
        for line in path.read_text(encoding="utf-8").splitlines():
            for name in DOTTED.findall(line):
                *_, holder, last = parts = name.split(".")
                if OTHERS.fullmatch(parts[0]) or last in ENDINGS or last in known:
                    continue
                if last not in known.get(holder, every):
                    missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert not missing, missing


def names_in(tree):
    """Functions, classes, and what is assigned anywhere in a module."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found
