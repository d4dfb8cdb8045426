"""What the pages say of the code is there: files, links and commands that they name, and the picture of the rooms."""

import json
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec

import pytest

from grader.kinds.registry import EVERY, PROBLEMS, cases_of
from grader.tests.support import ROOT
from report.__main__ import OTHERS, STUDIES
from report.__main__ import PAGES as REPORT_PAGES
from report.measuring.command import parse
from report.measuring.study import of_name

TREES = ("grader", "report", "solutions", "problems", "notebooks", "web", "docs", "locks")
EXAMPLES = {
    "s1_softmax.py",
    "NN_name.py",
    "ours.py",
    "derived.py",
    "NAME.py",
    "pN_what_is_unusual.py",
    "pN_what_it_does.py",
    "lovelaceada_4711_99_p3_flash_attention.py",
}  # of the reader, or made in a child's folder
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FILES = {path.name for tree in TREES for path in (ROOT / tree).rglob("*.*")} | {path.name for path in ROOT.iterdir()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_that_a_page_names_exist(page):
    named = re.findall(r"`(?:[\w./-]*/)?([\w.-]+\.py)(?:::?\w+)?`", page.read_text())
    missing = set(named) - FILES - EXAMPLES
    assert not missing


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "instructors.md"], ids=lambda page: page.name)
def test_the_tables_that_a_page_shows_have_as_many_cases_as_are_asked(page):
    shown = re.findall(r"^\|(p\d) .*?\| +\d+/(\d+) \| +[\d.]+ s", page.read_text(), re.M)
    asked = {id: sum(not case.gpu for case in cases_of(problem, 0)) for id, problem in PROBLEMS.items()}
    assert {id: int(count) for id, count in shown} == asked


def prose():
    """{name: text} of everything that a reader is given: pages, notebooks and skeletons."""
    files = [*PAGES, *(ROOT / "report").glob("*.md"), *(ROOT / "problems").glob("*.py")]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts[path.relative_to(ROOT).as_posix()] = "\n\n".join("".join(cell["source"]) for cell in cells)
    return texts


PROSE = prose()


@pytest.mark.parametrize("name", PROSE)
def test_links_resolve(name):
    for file, anchor in re.findall(r"\]\(([\w./-]*(?:\.\w+|/)|(?=#))#?([\w-]*)\)", PROSE[name]):
        path = (ROOT / name).parent / (file or ROOT / name)
        assert path.exists(), file
        if anchor and path.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
            assert anchor in [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings], (
                anchor
            )


def commands(text):
    """The words of each command in a text: in backquotes, which may be broken over lines, or alone in its line."""
    text = re.sub(r"^(?:> |# |    )", "", text, flags=re.M)
    found = re.findall(r"(?<!`)`((?:make|(?:\.venv/bin/)?python3?) [^`]+)`", text)
    found += re.findall(r"^(?:\$ )?((?:make|(?:\.venv/bin/)?python3?) [^`|\n#]+)", text, re.M)
    return [words for command in found if len(words := shlex.split(command)) > 1]


def test_the_commands_that_are_named_exist():
    makefile = "".join((ROOT / name).read_text() for name in ("Makefile", "instructors.mk"))
    targets = set(" ".join(re.findall(r"^\.PHONY: (.*)$", makefile, re.M)).split())
    options = {"REST", *re.search(r"^SIZES := (.*)$", makefile, re.M)[1].split()}
    options |= set(re.search(r"^OPTIONS := ((?:.*\\\n)*.*)$", makefile, re.M)[1].replace("\\", "").split())
    checked = 0
    for name, text in PROSE.items():
        for words in commands(text):
            checked += 1
            where = f"{name}: {' '.join(words)}"
            if words[0] == "make":
                check_make(words, targets, options, where)
            elif words[1] == "-m":
                check_module(words[2:], where)
            elif words[1] not in ("-", "-c"):
                assert (ROOT / words[1]).exists(), where
    assert checked > 150


def check_make(words, targets, options, where):
    given = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    assert {word for word in words[1:] if "=" not in word} <= targets and set(given) <= options, where
    cases = {case.name for id, problem in EVERY.items() if id.strip("p") == given.get("P") for case in problem.cases}
    assert given.get("P") is None or "CASE" not in given or given["CASE"] in cases, where
    if "SWEEP" in given:
        parse(of_name("sweep"), shlex.split(given["SWEEP"]))


def check_module(words, where):
    assert find_spec(words[0]), where
    if words[0] == "report" and len(words) > 1 and words[1].islower():
        assert words[1] in {"pages", *STUDIES, *OTHERS}, where
        assert words[1] != "pages" or {word for word in words[2:] if word.islower()} <= {"--of", *REPORT_PAGES}, where


def test_the_files_that_the_code_names_exist():
    found = {}
    for path in (ROOT / "grader").rglob("*.py"):
        if "tests" not in path.parts:
            for name in re.findall(r"(?<![\w<>{}*])([a-z_]+\.py)\b", path.read_text()):
                if name not in FILES | EXAMPLES:
                    found.setdefault(path.name, set()).add(name)
    assert not found


def test_the_picture_of_the_rooms_is_what_the_code_has():
    pytest.importorskip("grimp", reason="of pyproject.toml's tools, which PYTHON= may lack")
    assert subprocess.run([sys.executable, ROOT / "docs" / "rooms.py", "--check"]).returncode == 0
