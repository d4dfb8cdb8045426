"""The command behind `make handout`: a course as its students get it, a repository without answers.

In it are the skeletons, the grader without its tests and its class, notebooks that run, and the page for students. No
solution, rubric or report is; every text is searched for what fills a gap (grader/course/gap_leaks.py).
"""

import argparse
import ast
import functools
import json
import os
import re
import subprocess
from pathlib import Path

import jinja2

from grader.commands import handout_notebooks, skeletons
from grader.commands.arguments import BadArguments, choose_problems
from grader.course import course, gap_leaks
from grader.course.course import THIS, Course
from grader.course.problem import Problem
from grader.registry import EVERY, LABS, PROBLEMS

ALONE = (
    "Makefile", "LICENSE", "AGENTS.md", "pyproject.toml", ".gitignore", "locks/*.txt", ".github/workflows/grade.yml",
    ".devcontainer/devcontainer.json", "conftest.py",
)  # fmt: skip
OF_COURSE = ("docs/students.md", "docs/hosted-notebooks.md", "report/template.md", "kinds/**/*")
NOT_STUDENTS = (
    "grader/tests/", "model/tests/", "model/train.py", "model/corpus", "model/weights/learned",
)  # fmt: skip
CODE = ("grader", "report", "notebooks")  # packages that a notebook's cells may import
TEMPLATE = Path(__file__).with_name("handout.md.jinja")
LINK = re.compile(r"\[([^\]\n]+)\]\((?!https?:|#|attachment:)([^)#\n]*)(#[^)\n]*)?\)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problems", default="", metavar="LIST", help="like 3-5 (default: all that show no answer)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")


def main(arguments: argparse.Namespace) -> int:
    """Write a handout; raises BadArguments where it cannot be written, or would hold an answer."""
    given, out = course.current(), arguments.out
    solutions = [given.solutions / problem.module for problem in EVERY.values()]
    every = [answer for path in solutions if path.is_file() for answer in gap_leaks.read_answers(path)]
    named = choose_problems(arguments.problems, PROBLEMS, LABS) if arguments.problems else ()
    texts = ((p, (given.students / p.module).read_text(encoding="utf-8")) for p in LABS.values() if not named)
    hidden = [problem for problem, text in texts if any(gap_leaks.find_answers(text, every))]
    problems = [problem for problem in EVERY.values() if (problem in named if named else problem not in hidden)]
    if out.exists() and any(out.iterdir()):
        raise BadArguments(f"{out} is not empty: name a new folder, as in make handout OUT=handout")
    try:
        commit, date = find_commit(given.folder)
        files = collect(given, problems, commit)
        if found := find_answers(files, every, problems):
            raise BadArguments(f"no handout was written: {found}")
        for name, data in sorted(files.items()):
            path = out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        made = make_repository(out, commit, date)
    except OSError as error:
        raise BadArguments(f"{error.filename or out}: {error.strerror}") from None
    print(f"{out}: {', '.join(p.id for p in problems)}; {len(files)} files of {commit}{made}")
    if hidden:
        ids = ", ".join(problem.id for problem in hidden)
        print(f"not in it: {ids}, whose skeletons show what another problem asks; P=... names them")
    return 0


def find_commit(folder: Path) -> tuple[str, str]:
    """(the commit that a handout comes from, in words, its date in git's form)."""
    name, date = git(folder, "rev-parse", "--short=12", "HEAD"), git(folder, "log", "-1", "--format=%cI")
    if not name:
        return "files outside of git", "2000-01-01T00:00:00Z"
    changed = git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"commit {name}{' and changes after it' if changed else ''}", date or ""


def make_repository(out: Path, commit: str, date: str) -> str:
    """Make `out` a repository of one commit, the same whenever it is made; what to say where that fails."""
    for role in ("AUTHOR", "COMMITTER"):
        who = {"NAME": "handout", "EMAIL": "handout@localhost", "DATE": date}
        os.environ.update({f"GIT_{role}_{name}": value for name, value in who.items()})
    first = ("init", "--quiet", "--initial-branch=main"), ("add", "--all", "--force")
    last = ("commit", "--quiet", "--no-verify", "--no-gpg-sign", "-m", f"Handout, from {commit}")
    return "; it is no repository: git failed" if None in [git(out, *step) for step in (*first, last)] else ""


def git(folder: Path, *arguments: str) -> str | None:
    """What git prints, or None where it fails or is not there."""
    command = ["git", "-C", str(folder), "-c", "core.hooksPath=/dev/null", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def collect(given: Course, problems: list[Problem], commit: str) -> dict[str, bytes]:
    """{name in the handout: its bytes}."""
    files = matching(THIS, "grader/**/*", "model/**/*", *ALONE) | matching(given.folder, *OF_COURSE)
    files = {name: path for name, path in files.items() if not name.startswith(NOT_STUDENTS)}
    made = {name: path.read_bytes() for name, path in files.items()}
    made |= {f"problems/{p.module}": (given.students / p.module).read_bytes() for p in problems}
    hints = {module: found for module, found in skeletons.load_hints().items() if f"problems/{module}" in made}
    made[f"problems/{skeletons.HINTS}"] = skeletons.write_hints(hints).encode()
    absent = {entry.notebook for entry in given.said.problem if entry.id not in {problem.id for problem in problems}}
    opened = {}
    for path in sorted(given.notebooks.glob("*.ipynb")):
        text = path.read_text(encoding="utf-8")
        if path.stem not in absent and not handout_notebooks.starts_from_solutions(text):
            opened[f"notebooks/{path.name}"] = handout_notebooks.without_solutions(text)
    code = "\n".join(handout_notebooks.code_of(notebook) for notebook in opened.values())
    made |= {name: path.read_bytes() for name, path in imported(given.folder, code).items()}
    made["course.toml"] = course.write(given, [problem.id for problem in problems]).encode()
    about = {
        "title": given.said.title, "problems": problems, "notebooks": list(opened), "commit": commit,
        "guide": "docs/students.md" in made,
    }  # fmt: skip
    page = jinja2.Template(
        TEMPLATE.read_text(encoding="utf-8"), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    made["README.md"] = page.render(about).encode()
    known = {*made, *opened}
    for name, notebook in opened.items():
        handout_notebooks.rewrite(notebook, functools.partial(without_links, name, known=known))
        made[name] = (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()
    for name in [name for name in made if name.endswith(".md")]:
        made[name] = without_links(name, made[name].decode(), known).encode()
    return made


def matching(root: Path, *patterns: str) -> dict[str, Path]:
    """{name: path} of files that git knows, or of all where there is no git."""
    tracked = set((git(root, "ls-files", "-z") or "").split("\0"))
    paths = [path for pattern in patterns for path in sorted(root.glob(pattern)) if path.is_file()]
    found = {path.relative_to(root).as_posix(): path for path in paths if "__pycache__" not in path.parts}
    return {name: path for name, path in found.items() if name in tracked or tracked == {""}}


def imported(root: Path, code: str) -> dict[str, Path]:
    """{name: path} of the modules of CODE that the code imports, and of those that they import."""
    found: dict[str, Path] = {}
    left = [code]
    while left:
        for module in modules(left.pop()):
            parts = module.split(".")
            for path in (root.joinpath(*parts[:n]) for n in range(1, len(parts) + 1)):
                for file in (path.with_suffix(".py"), path / "__init__.py"):
                    if file.is_file() and (name := file.relative_to(root).as_posix()) not in found:
                        found[name] = file
                        left.append(file.read_text(encoding="utf-8"))
    return found | (matching(root, "report/results/**/*") if any(name.startswith("report/") for name in found) else {})


def modules(code: str) -> set[str]:
    """The modules of CODE that a text imports; of `from a import b` also a.b, which may be one."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.split(".")[0] in CODE}


def without_links(name: str, text: str, known: set[str]) -> str:
    """A page's text, where a link to what the handout does not have is its words alone."""

    def link(found: re.Match) -> str:
        target = os.path.normpath(os.path.join(os.path.dirname(name), found[2])) if found[2] else name
        return found[0] if target in known or any(other.startswith(f"{target}/") for other in known) else found[1]

    return LINK.sub(link, text)


def find_answers(files: dict[str, bytes], every: list[gap_leaks.Answer], problems: list[Problem]) -> str:
    """A sentence that names the first answer in a file, or an empty one.

    A lab that was named may show what another problem asks; its own gaps are open as everywhere.
    """
    named = {f"problems/{problem.module}" for problem in problems if problem.id in LABS}
    for name, data in sorted(files.items()):
        text = gap_leaks.shown(name, data)
        for answer, line in gap_leaks.find_answers(text, every):
            if name not in named or name == f"problems/{answer.module}":
                return f"line {line} of {name} is what fills gap {answer.number} of {answer.module}"
    return ""
