"""A small repository to make a site of, and what the tests need that may not be installed."""

import json
import shutil

import pytest

from web import build

README = """# Small

Read [the notebook](notebooks/00_two.ipynb), [the report](report/REPORT.md#numbers) and [the code](solve.py).

<details><summary>Answer</summary>

**Two.**

</details>

$$m' = \\max_j s_j$$
"""

REPORT = """# Report

## Numbers

[The code](../solve.py).

# Copy from here

## Name
"""


def small(folder):
    """README.md, a notebook, a page of the report and a file of code, in `folder`; nothing is wrong with them."""
    (folder / "notebooks").mkdir(parents=True)
    (folder / "report").mkdir()
    (folder / "README.md").write_text(README, "utf-8")
    (folder / "solve.py").write_text("def two():\n    return 1 + 1  # <= 2\n", "utf-8")
    (folder / "report/REPORT.md").write_text(REPORT, "utf-8")
    prose = {"cell_type": "markdown", "source": "# Two\n\n[Home](../README.md)", "metadata": {}, "id": "a"}
    cell = {"cell_type": "code", "source": "two()", "execution_count": 1, "outputs": [], "metadata": {}, "id": "b"}
    book = {
        "cells": [prose, cell],
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (folder / "notebooks/00_two.ipynb").write_text(json.dumps(book), "utf-8")
    return folder


def needs_builder():
    for module in build.LOADED:
        pytest.importorskip(module, reason=f"needs {module}: make site installs it")


def chromium():
    """Where the machine's Chromium is; skips the test where there is none, or nothing to drive it with."""
    pytest.importorskip("playwright", reason="needs playwright: make site-test installs it")
    found = [path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path]
    if not found:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    return found[0]
