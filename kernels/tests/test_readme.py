"""The README's speeds are OVERVIEW's, its files are there, and its imports work."""

import re

import pytest

from grader.tests.support import KERNELS, ROOT

TEXT = (KERNELS / "README.md").read_text(encoding="utf-8")


def rows(text):
    return [
        [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
        for line in text.splitlines()
        if line[:1] == "|"
    ]


def test_its_speeds_are_those_of_the_overview():
    measured = rows((ROOT / "report" / "OVERVIEW.md").read_text(encoding="utf-8"))
    known = {tuple(row[:3]): row for row in measured if len(row) == 7}
    mine = [row for row in rows(TEXT.partition("## Speed")[2]) if len(row) == 5 and "N=" in row[1]]
    assert len(mine) >= 5
    for kernel, shape, mask, cudnn, flex in mine:
        row = known[kernel, shape, mask]
        assert (cudnn, flex) == (row[4].split(" ")[0], row[6].split(" ")[0]), (kernel, shape)


def test_every_module_is_in_it_and_every_file_that_it_names_is_there():
    named = set(re.findall(r"`(\w+\.py)`", TEXT)) | {f"{name}.py" for name in re.findall(r"from kernels\.(\w+) ", TEXT)}
    assert named == {path.name for path in KERNELS.glob("*.py")} - {"__init__.py"}


@pytest.mark.parametrize("line", re.findall(r"^(from kernels\.\w+ import \w+)", TEXT, re.MULTILINE))
def test_its_imports_work(line):
    pytest.importorskip("triton")
    exec(line, {})
