"""What the README and CONTRIBUTING.md say of the rooms is true: every module is named, every arrow is an import."""

import ast
import itertools
import re
import sys

import pytest

from grader.tests.support import ROOT

GRADER = ROOT / "grader"
RECORDER, RUNNER, INSIDE = GRADER / "recorder", GRADER / "runner", GRADER / "processes" / "inside"
FOLDERS = (GRADER, RECORDER, RUNNER, INSIDE.parent, INSIDE, GRADER / "profile", GRADER / "classroom")
MODULES = [
    path
    for folder in (*FOLDERS, GRADER / "classroom" / "export")
    for path in folder.glob("*.py")
    if path.stem != "__init__"
]
BY_NAME = {}  # {module's name: its paths}: render/ and classroom/export/ both have a gradescope.py
for path in (*MODULES, *(GRADER / "render").glob("*.py")):
    BY_NAME.setdefault(path.stem, []).append(path)
FENCE = re.compile(r"^```\n(.*?)^```\n", re.S | re.M)


def arrows():
    """(imported, importer) for each arrow of CONTRIBUTING.md."""
    found = []
    for block in FENCE.findall((ROOT / "CONTRIBUTING.md").read_text()):
        for line in (line for line in block.splitlines() if " <- " in line):
            groups = [group.split(", ") for group in line.split(" <- ")]
            for left, right in itertools.pairwise(groups):
                found += itertools.product(left, right)
    return found


def imported_by(path):
    """The last names of all that a module imports, wherever it does."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.name.split(".")[-1] for alias in node.names}
            names |= {node.module.split(".")[-1]} if isinstance(node, ast.ImportFrom) else set()
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_tree_names_every_module(path):
    (tree,) = (block for block in FENCE.findall((ROOT / "README.md").read_text()) if "\ngrader/\n" in block)
    assert re.search(rf"\b{path.name}\b", tree), f"README.md's tree does not name {path.name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_clock_that_can_be_set_is_read(path):
    assert not re.search(r"\btime\.time(_ns)?\(|\bdatetime\.|\bdate\.today", path.read_text())


def test_every_arrow_is_an_import():
    assert len(arrows()) > 40
    wrong = [f"{a} <- {b}" for a, b in arrows() if not any(a in imported_by(path) for path in BY_NAME.get(b, ()))]
    wrong += [f"{a} is no module" for a, _ in arrows() if a not in BY_NAME]
    assert not wrong, f"CONTRIBUTING.md draws arrows that are not there: {wrong}"


def test_the_arrows_name_every_module_that_imports_another():
    drawn = {name for pair in arrows() for name in pair}
    joined = {path.stem for path in MODULES if imported_by(path) & set(BY_NAME)}
    assert not joined - drawn, f"CONTRIBUTING.md's arrows leave out {sorted(joined - drawn)}"


# What a sandboxed process can read: the libraries, the files of its role and what both roles share -------------------

LIBRARIES = sys.stdlib_module_names | {"torch", "triton", "numpy"}


def whole_names(path):
    """The first names of all that a module imports, wherever it does; "." for what is imported relatively."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names |= {"." if node.level else node.module.split(".")[0]}
    return names


def names_in(*folders):
    return {path.stem for folder in folders for path in folder.glob("*.py")}


SEEN = {RECORDER: (RECORDER, INSIDE), RUNNER: (RUNNER, INSIDE), INSIDE: (INSIDE,)}


@pytest.mark.parametrize("folder", SEEN, ids=lambda folder: folder.name)
def test_what_runs_inside_imports_what_is_there(folder):
    allowed = LIBRARIES | names_in(*SEEN[folder]) | ({"role"} if folder == INSIDE else set())
    assert len(names_in(folder)) > 5 and "grader" not in allowed
    strange = {path.name: whole_names(path) - allowed for path in folder.glob("*.py")}
    assert not {name: found for name, found in strange.items() if found}


def test_the_roles_share_no_name_but_their_own():
    """Neighbours are imported by bare name: two files of one name would hide each other."""
    inside = names_in(INSIDE)
    assert not inside & (names_in(RECORDER) | names_in(RUNNER))
    assert names_in(RECORDER) & names_in(RUNNER) == {"role"}
