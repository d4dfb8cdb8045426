"""The notebooks are the runs of their sources, and the check of that can fail."""

import json

import pytest

from notebooks import build, check, source

PROSE, TEXT = "# %% [markdown]\n# # Two\n#\n# What is 1 + 1?\n", "# %%\none = 1\n\n\n# %%\nprint(one + 1.0)\n"


@pytest.mark.parametrize("name", source.names())
def test_each_notebook_is_as_it_should_be(name):
    assert check.faults(name) == []


def code(text, count, *outputs):
    return {"cell_type": "code", "source": text, "execution_count": count, "outputs": list(outputs), "metadata": {}}


def stream(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


@pytest.fixture
def folder(tmp_path):
    """A folder with one notebook in which nothing is wrong."""
    (tmp_path / "00_two.py").write_text(PROSE + TEXT, "utf-8")
    prose = {"cell_type": "markdown", "source": ["# Two\n", "\n", "What is 1 + 1?"], "metadata": {}}
    write(tmp_path, [prose, code("one = 1", 1), code("print(one + 1.0)", 2, stream("2.0\n"))])
    return tmp_path


def write(folder, cells):
    (folder / "00_two.ipynb").write_text(json.dumps({"cells": cells, "metadata": {"matplotlib": "1"}}), "utf-8")


def read(folder):
    return json.loads((folder / "00_two.ipynb").read_text(encoding="utf-8"))


def test_a_good_notebook_has_no_fault(folder):
    assert check.check(folder=folder) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"source": "print(one + 2)"}, "cell 3 is not the source's"),
        ({"execution_count": 7}, "not run once each from top to bottom"),
        ({"execution_count": None}, "not run once each from top to bottom"),
        ({"outputs": [{"output_type": "error", "ename": "NameError", "traceback": []}]}, "cell 3 ended in NameError"),
        ({"outputs": [stream("UserWarning: no", "stderr")]}, "a warning?"),
        ({"outputs": [stream("saved in /home/ann/x.png")]}, "path of somebody's machine: '/home/a'"),
        ({"outputs": [stream("10%\r20%")]}, "progress bar"),
        ({"outputs": [stream("x" * 1_000_001)]}, "over 1,000,000"),
    ],
)
def test_each_fault_is_seen(folder, change, said):
    cells = read(folder)["cells"]
    cells[2] |= change
    write(folder, cells)
    (fault,) = check.check(folder=folder)
    assert said in fault and fault.startswith("00_two.ipynb: ")


def test_long_cells_wide_lines_lost_cells_and_lone_files_are_seen(folder):
    long = "\n".join(["one = 1"] * (check.MOST_LINES + 1))
    (folder / "00_two.py").write_text(PROSE + TEXT + f"\n\n# %%\n{long}\n", "utf-8")
    assert ["cell 4 is not the source's" in fault for fault in check.check(folder=folder)] == [True]
    write(folder, [*read(folder)["cells"], code(long, 3)])
    assert ["cell 4 has 16 lines" in fault for fault in check.check(folder=folder)] == [True]
    wide = f"one = {'1' * check.MOST_COLUMNS}"
    (folder / "00_two.py").write_text(PROSE + TEXT + f"\n\n# %%\n{wide}\n", "utf-8")
    write(folder, [*read(folder)["cells"][:3], code(wide, 3)])
    assert ["cell 4 has a line of more than" in fault for fault in check.check(folder=folder)] == [True]
    (folder / "01_new.py").write_text(TEXT, "utf-8")
    (folder / "00_two.py").unlink()
    lone, new = check.check(folder=folder)
    assert "no source" in lone and "never executed" in new


def test_headings_go_down_a_step_at_a_time():
    prose = [{"cell_type": "markdown", "source": text} for text in ("# One\n\n## Two", "### Three\n## Two")]
    assert check.headings(prose) == []
    assert check.headings([prose[0], *prose[1:], {"cell_type": "markdown", "source": "#### Four"}])
    assert check.headings([{"cell_type": "markdown", "source": "# One\n\n### Three"}]) == [
        "heading 'Three' skips a level"
    ]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("error 1.2e-07 of 3,072", "error 3.1e-08 of 3,072", True),
        ("off by 0.50000 at 7", "off by  0.50001 at 7", True),
        ("7 tiles", "8 tiles", False),
        ("7 tiles", "7 keys", False),
        ("1,000 of 2", "1,000", False),
    ],
)
def test_numbers_may_differ_by_rounding_and_words_may_not(one, other, equal):
    assert build.same(one, other) is equal


def test_a_stale_output_is_told_from_one_that_only_varies(folder):
    old, new = read(folder), read(folder)
    assert build.difference(old, new) is None
    new["cells"][2]["outputs"] = [stream("3.0\n")]
    assert build.difference(old, new) == "cell 3 shows something else"
    new["cells"][2]["metadata"]["tags"] = ["varies"]
    assert build.difference(old, new) == "its cells' tags were not the source's"
    old["cells"][2]["metadata"]["tags"] = ["varies"]
    assert build.difference(old, new) is None

    picture = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "AAAA", "text/plain": "<Figure>"}}
    old["cells"][1]["outputs"] = [picture]
    assert "cell 2" in build.difference(old, new)
    new["cells"][1]["outputs"] = [picture | {"data": picture["data"] | {"image/png": "BBBB"}}]
    assert "cell 2" in build.difference(old, new)
    new["metadata"]["matplotlib"] = "2"  # another version draws other bytes
    assert build.difference(old, new) is None


@pytest.mark.parametrize("name", source.names())
def test_the_cells_are_those_that_jupytext_reads(name):
    jupytext = pytest.importorskip("jupytext", reason="needs jupytext: make notebooks installs it")
    text = (source.FOLDER / f"{name}.py").read_text(encoding="utf-8")
    cells = [(cell.cell_type, cell.source) for cell in jupytext.reads(text, fmt="py:percent").cells]
    assert source.cells(text) == cells


@pytest.mark.thorough
def test_a_build_writes_what_is_stale_and_leaves_what_is_not(tmp_path):
    for module in build.LOADED:
        pytest.importorskip(module, reason="needs Jupyter: make notebooks installs it")
    (tmp_path / "00_two.py").write_text(PROSE + TEXT + "\n\n# %%\nfrom grader.kinds.attention import masks\n", "utf-8")
    assert build.build("00_two", tmp_path) == "it is new"
    assert check.check(folder=tmp_path) == []
    written = (tmp_path / "00_two.ipynb").read_bytes()
    assert build.build("00_two", tmp_path) is None
    assert (tmp_path / "00_two.ipynb").read_bytes() == written
    (tmp_path / "00_two.ipynb").write_text(written.decode().replace("2.0", "3.0"), "utf-8")
    assert build.build("00_two", tmp_path) == "cell 3 shows something else"
    assert (tmp_path / "00_two.ipynb").read_bytes() == written
