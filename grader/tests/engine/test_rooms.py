"""What may import what: the contracts in pyproject.toml, and what is there where a submission's code runs."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grader.tests.support import ROOT

GRADER = ROOT / "grader"
RECORDER, RUNNER, INSIDE = GRADER / "recorder", GRADER / "runner", GRADER / "processes" / "inside"


def test_a_room_imports_those_below_it_and_no_imports_go_round():
    """import-linter reads every import; pyproject.toml has the floors. A new room must be put on one."""
    pytest.importorskip("importlinter", reason="of pyproject.toml's tools, which PYTHON= may lack")
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and " KEPT" in done.stdout, done.stdout


def test_no_clock_that_can_be_set_is_read():
    sources = [path for path in GRADER.rglob("*.py") if not path.is_relative_to(GRADER / "tests")]
    clock = re.compile(r"\btime\.time(_ns)?\(|\bdatetime\.|\bdate\.today")
    assert not [path.name for path in sources if clock.search(path.read_text())]


# What a sandboxed process can read: the libraries, the files of its role and what both roles share -------------------

LIBRARIES = sys.stdlib_module_names | {"torch", "triton", "numpy", "msgspec"}


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
    assert len(names_in(folder)) >= 5 and "grader" not in allowed
    strange = {path.name: whole_names(path) - allowed for path in folder.glob("*.py")}
    assert not {name: found for name, found in strange.items() if found}


def test_the_roles_share_no_name_but_their_own():
    """Neighbours are imported by bare name: two files of one name would hide each other."""
    inside = names_in(INSIDE)
    assert not inside & (names_in(RECORDER) | names_in(RUNNER))
    assert names_in(RECORDER) & names_in(RUNNER) == {"role"}
