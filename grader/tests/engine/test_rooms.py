"""What may import what: the contracts in pyproject.toml, and what is there where a submission's code runs."""

import ast
import re
import subprocess
import sys

import pytest

from grader.core.sandbox import server
from grader.engine.kind import Kind
from grader.registry import KINDS
from grader.tests.support import ROOT

GRADER = ROOT / "grader"


def test_a_room_imports_those_below_it_and_no_imports_go_round():
    """import-linter reads every import; pyproject.toml has the floors. A new room must be put on one."""
    pytest.importorskip("importlinter", reason="of pyproject.toml's tools, which PYTHON= may lack")
    linter = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    done = subprocess.run([*linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and " KEPT" in done.stdout, done.stdout


def test_no_kind_inherits_from_another():
    """The contract keeps another kind's kind.py out; a class elsewhere is no base either."""
    classes = [*Kind.__subclasses__()]
    for each in classes:  # grows
        classes += each.__subclasses__()
        rooms = {base.__module__.rpartition(".")[0] for base in each.__mro__[1:-1]}
        assert rooms <= {each.__module__.rpartition(".")[0], "grader.engine"}, each
    assert len(classes) > len(KINDS)


@pytest.mark.thorough
def test_the_types_are_right():
    """mypy, as `make lint` runs it: every function of the core says what it takes and gives."""
    pytest.importorskip("mypy", reason="of the extra `lint`, which make test-all adds")
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_no_clock_that_can_be_set_is_read():
    sources = [path for path in GRADER.rglob("*.py") if not path.is_relative_to(GRADER / "tests")]
    clock = re.compile(r"\btime\.time(_ns)?\(|\bdatetime\.(now|utcnow|today)\(|\bdate\.today")
    assert not [path.name for path in sources if clock.search(path.read_text("utf-8"))]


def test_no_file_is_read_or_written_in_the_encoding_of_the_machine():
    """ruff finds `open` without an encoding, and the methods of a Path only where it sees that it is one."""
    for path in (path for path in ROOT.glob("[!.]*/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("read_text", "write_text"):
                given = len(node.args) - (node.func.attr == "write_text") + len(node.keywords)
                assert given >= 1, f"{path.relative_to(ROOT)}:{node.lineno}"


# What a sandboxed process can read: the libraries, and the rooms of the core that it is shown -------------------------

LIBRARIES = sys.stdlib_module_names | {"torch", "triton", "numpy", "msgspec", "pyseccomp"}


def imported(path):
    """The names of all modules that a module imports, wherever it does."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


@pytest.mark.parametrize("kind", server.KINDS)
def test_what_runs_inside_imports_what_is_there(kind):
    rooms = [f"grader.core.{folder.name}" for folder in server.KINDS[kind].folders]
    files = [path for folder in server.KINDS[kind].folders for path in folder.glob("*.py")]
    assert len(files) > 12
    for path in files:
        for name in imported(path):
            known = name.split(".")[0] in LIBRARIES or any(f"{name}.".startswith(f"{room}.") for room in rooms)
            assert known or name == "grader.core", f"{path.name} imports {name}"


# Words of attention and of this course; a name in another word, as in `monkeys`, is none of them.
COURSE = r"q|k|v|qkv|BLOCK_[A-Z]|quer(y|ies)|keys|heads?|causal|sinks?|lse|attention|scores?|[px][1-9]"
WORD = re.compile(rf"(?<![\w.])({COURSE})(?![\w])", re.IGNORECASE)
OTHERS = (
    "tl.dot takes",  # M x K and K x N: matrices
    r"m\d+n\d+k\d+",  # PTX
    "keys of the user",  # of Linux
    "The keys of the user's session",
    "def query(self)",  # a CUDA event's
    "keys & known.keys()",
    "keys = {",
)


def test_the_core_has_no_word_of_the_course():
    found = [
        f"{path.relative_to(GRADER)}: {line.strip()}"
        for path in sorted((GRADER / "core").rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if WORD.search(line) and not any(words in line for words in OTHERS)
    ]
    assert not found, "\n".join(found)


OF_OURS = re.compile(r"attention|flash|softmax|causal|sinks?\b|gqa|\b[pwx][1-7]\b", re.I)
NOT_OURS = {"_softmax _log_softmax", "SOFTMAX"}  # operations of PyTorch


def test_no_problem_of_ours_is_named_outside_its_kind():
    """What the grader says and does is any course's: neither a name nor a text of its code is about attention."""
    found = []
    for path in sorted(GRADER.rglob("*.py")):
        inside = path.relative_to(GRADER).parts
        if inside[0] == "tests" or (inside[0] == "kinds" and len(inside) > 2):
            continue
        found += [f"{path.relative_to(GRADER)}: {text}" for text in texts_of(path) - NOT_OURS if OF_OURS.search(text)]
    assert not found, "\n".join(found)


def texts_of(path):
    """The names and the texts of a file's code, without its docstrings."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    bodies = [node.body for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    said = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in said}
    names = {str(getattr(node, name, "")) for node in nodes for name in ("id", "attr", "name", "arg")}
    return texts | names
