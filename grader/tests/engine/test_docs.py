"""What the pages say of the code is there: files and links that they name, and the picture of the rooms."""

import re
import subprocess
import sys

import pytest

from grader.registry import PROBLEMS
from grader.tests.support import ROOT, prose

TREES = ["grader", "model", "report", "solutions", "kernels", "classroom", "problems", "notebooks", "web", "docs"]
TREES += ["locks"]
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
    named = re.findall(r"`(?:[\w./-]*/)?([\w.-]+\.py)(?:::?\w+)?`", page.read_text("utf-8"))
    missing = set(named) - FILES - EXAMPLES
    assert not missing


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "instructors.md"], ids=lambda page: page.name)
def test_the_tables_that_a_page_shows_have_as_many_cases_as_are_asked(page):
    shown = re.findall(r"^\|(p\d) .*?\| +\d+/(\d+) \| +[\d.]+ s", page.read_text("utf-8"), re.M)
    asked = {id: sum(not case.gpu for case in problem.kind.cases(problem, 0)) for id, problem in PROBLEMS.items()}
    assert {id: int(count) for id, count in shown} == asked


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


def test_the_files_that_the_code_names_exist():
    found = {}
    for path in (ROOT / "grader").rglob("*.py"):
        if "tests" not in path.parts:
            for name in re.findall(r"(?<![\w<>{}*])([a-z_]+\.py)\b", path.read_text("utf-8")):
                if name not in FILES | EXAMPLES:
                    found.setdefault(path.name, set()).add(name)
    assert not found


def test_the_picture_of_the_rooms_is_what_the_code_has():
    pytest.importorskip("grimp", reason="of pyproject.toml's tools, which PYTHON= may lack")
    assert subprocess.run([sys.executable, ROOT / "docs" / "rooms.py", "--check"]).returncode == 0
