"""docs/a-kind-of-your-own.md as it stands: its files are written, its commands typed, and what it shows is printed."""

import os
import re
import subprocess
import sys

import pytest

from grader.tests.support import ROOT

PAGE = (ROOT / "docs" / "a-kind-of-your-own.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(?P<what>[^\n]*)\n(?P<text>.*?)^```$", PAGE, re.M | re.S)
FIRST = "export COURSE=$HOME/rows\n"  # the test has a folder of its own


def plain(text):
    """Without what a clock and the width of a column change."""
    text = re.sub(r"\d+(\.\d)? s\b", "T s", text)
    return [" ".join(re.sub(r"[-+]{3,}", "--", line).split()) for line in text.splitlines()]


def follow(course):
    """[(the block of commands, what was printed, what the page shows)] of the page from its first line to its last."""
    environment = os.environ | {
        "COURSE": str(course),
        "PYTHON": sys.executable,
        "DEVICE": "cpu",
        "OUT": str(course / "out"),
    }
    done = []
    for what, text in BLOCKS:
        if what == "sh":
            ran = subprocess.run(
                ["bash", "-c", text.replace(FIRST, "")], cwd=ROOT, env=environment, capture_output=True, text=True
            )
            done.append((text, ran.stdout + ran.stderr, ""))
        elif what:
            (course / what.split(" ", 1)[1]).write_text(text, "utf-8")
        else:
            done[-1] = (*done[-1][:2], text)
    return done


def test_the_page_is_short_and_its_blocks_are_of_a_kind_that_is_run():
    assert len(PAGE.splitlines()) <= 180
    kinds = [what for what, _ in BLOCKS]
    assert all(re.fullmatch(r"|sh|(python|toml) [\w/.]+", what) for what in kinds) and kinds.count("sh") >= 4
    assert BLOCKS[0][1].startswith(FIRST)


@pytest.mark.thorough
def test_what_the_page_says_is_what_happens(tmp_path):
    tmp_path.chmod(0o755)
    for commands, printed, shown in follow(tmp_path):
        lines = plain(printed)
        for line in plain(shown):
            assert line in lines, f"{commands}\nprints no line\n  {line}\nbut\n{printed}"
