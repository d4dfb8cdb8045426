"""make try: a file called as it is, its numbers beside the right ones up to the first difference."""

import math
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from grader.__main__ import main
from grader.course import course
from grader.engine import trying
from grader.kinds.attention import inputs, tables
from grader.kinds.attention.cases import Case
from grader.registry import EVERY, PROBLEMS
from grader.tests.support import ROOT, solution

HERE = course.current()
CASE = Case("try", B=1, Hq=2, Hkv=2, N=20, D=16, dtype="float32", causal=True)


def attention(q, k, v, is_causal, scale=0.25, hidden=-math.inf, swap=False, times=1.0):
    scores = q @ k.mT * scale
    rows, keys = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    scores = scores.masked_fill(keys > rows, hidden)
    o = scores.softmax(-1) @ (v.flip(1) if swap else v) * times
    return o, scores.logsumexp(-1)


def told(**mistake):
    """(the sentence on the first difference or None, [Table])"""

    def call(q, k, v):
        return attention(q, k, v, True, **mistake)

    placed = inputs.make(CASE, 0)
    returned = call(*(each.tensor for each in placed))
    shown = tables.measure(call, PROBLEMS["p1"], CASE, placed, returned, "cpu")
    return PROBLEMS["p1"].kind.first_difference(CASE, shown), shown


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ({}, None),
        ({"hidden": math.nan}, "; your weight is NaN: where all keys so far are hidden, is it -inf - -inf, or"),
        ({"hidden": -2.0}, "head 0, scores of query 0, key 1: yours -"),
        ({"scale": 0.5}, "head 0, lse of query 0: yours "),
        ({"times": 0.5}, "weights of query 0, key 0: yours 0.5000, right 1.0000 (visible); the scores"),
        ({"swap": True}, "the weights of this row are right"),
    ],
)
def test_the_first_difference_is_told(mistake, words):
    said, shown = told(**mistake)
    assert [table.name.partition(" ")[0] for table in shown] == ["scores", "weights", "output", "lse"]
    assert said == words if words is None else words in said


def test_a_table_ends_at_the_row_that_differs_and_marks_it():
    _, shown = told(hidden=-2.0)
    _, header, right, yours = trying.lines(shown[0], (0, 0, 0))
    assert header.split() == ["key", *map(str, range(10))] and right.split()[:3] == ["query", "0", "right"]
    assert yours.split()[0] == "yours" and "!" in yours and "!" not in right
    assert right.split()[4:] == ["-inf"] * 9


def run(folder, source, id="p6", typed="", sizes=()):
    (folder / EVERY[id].module).write_text(source, "utf-8")
    command = [sys.executable, "-m", "grader", "try", "--problems", id.removeprefix("p"), "--submission", str(folder)]
    command += ["--device", "cpu"] + [f"--size={size}" for size in sizes]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, input=typed, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_open_gap_is_one_line(tmp_path):
    said = run(tmp_path, (ROOT / "problems" / PROBLEMS["p6"].module).read_text("utf-8"))
    assert said.splitlines()[1:] == ["TODO 1: who reads which head: this gap of p6_sliding_window.py is open"]


def test_tiles_are_chosen_where_the_module_has_some(tmp_path, capsys):
    source = solution("p6").replace("    grid = (", "    print('tiles', BLOCK_Q, BLOCK_K)\n    grid = (")
    said = run(tmp_path, source, sizes=("Hq=4", "Hkv=2", "N=20", "BLOCK_K=16", "BLOCK_Q=32"))
    assert "Hq=4 Hkv=2" in said and "tiles 32 16" in said and "no difference" in said
    asked = ["try", "--problems", "1", "--submission", str(ROOT / "solutions"), "--device", "cpu"]
    assert main([*asked, "--size=BLOCK_K=20"]) == 2 and "BLOCK_K must be" in capsys.readouterr().err
    assert main([*asked, "--size=BLOCK_K=16"]) == 2 and "TILES_INTERPRETER" in capsys.readouterr().err


def test_a_kernel_is_shown_and_prints_and_a_debugger_stops_in_the_wrapper_once(tmp_path):
    source = solution("p6").replace("age < window_size", "age <= window_size")
    source = source.replace("        k_pos = k_start", "        print('from', k_start)\n        k_pos = k_start", 1)
    source = source.replace("    grid = (", "    breakpoint()\n    grid = (")
    said = run(tmp_path, source, typed="p 1000 + BLOCK_K\nc\n")
    assert said.count("(Pdb)") == 2 == 1 + said.count("1032") and " from: 0\n" in said
    assert re.search(r"first difference: batch 0, head 0, scores of query 3, key 0: yours -?\d\S+, right -inf", said)
    assert "query   2  both" in said and "query   4" not in said


def test_variables_are_shown_tile_by_tile_beside_the_references(tmp_path, monkeypatch, capsys):
    module = tmp_path / PROBLEMS["p6"].module
    text = solution("p6").replace("age < window_size", "age <= window_size").replace("alpha", "shrink")
    asked = ["try", "--problems", "6", "--submission", str(tmp_path), "--device", "cpu", "--show"]

    def show(source, *more):
        module.write_text(source, "utf-8")
        assert main([*asked, *more, "--size=N=100", "--size=window=3"]) == 0
        return capsys.readouterr().out

    said = show(text, "scores,shrink", "--program", "1")
    assert "tile; row 0 is the program's first\nscores (64, 32)\n  tile 0, k_start 0, row 3  " in said
    assert re.search(r"the reference +-inf .*\n  tile 1, k_start 32, row 3", said) and "tile 2" not in said
    assert "shrink (64,) (not compared)\n  tile 0, k_start 0   " in said and said.count("the reference  ") == 2
    assert said.endswith("first difference from the reference: scores at 3, 0, tile 0, k_start 0\n")
    far = solution("p6").replace("first = tl.maximum(0, q_start", "first = tl.maximum(0, BLOCK_K + q_start")
    said = show(far, "row_max")
    assert "your tiles begin at 64, 96; the reference's at 32, 64, 96" in said
    assert said.endswith("no difference from the reference in row_max, where both set them\n")
    assert show(far, "first").endswith("first difference from the reference: first, before the loops\n")
    module.write_text(solution("p6").replace("q_start + BLOCK_Q - window_size", "q_start - window_size + 1"), "utf-8")
    main([*asked, "age"])
    assert "\n  tile 1, k_start 96: not set here, where the reference sets it\n" in capsys.readouterr().out
    assert main([*asked, "alhpa"]) == 2
    assert "no variable of the kernel is called alhpa; did you mean alpha? there are " in capsys.readouterr().err
    monkeypatch.setattr(course, "current", lambda: replace(HERE, folder=tmp_path))
    assert "reference" not in show(text, "scores")


@pytest.mark.thorough
def test_a_right_kernel_has_no_difference(tmp_path):
    assert run(tmp_path, solution("p6")).endswith(
        "no difference here; make grade also tries larger tensors of several tiles, and other numbers and masks\n"
    )


def test_sizes_that_a_problem_does_not_have_are_refused(capsys):
    asked = ["try", "--problems", "w2", "--submission", str(ROOT / "solutions"), "--device", "cpu"]
    assert main([*asked, "--size=N=300"]) == 2
    assert "make try P=w2 takes ROWS and COLUMNS, not N" in capsys.readouterr().err


def test_the_mask_of_x1_is_chosen(tmp_path):
    said = run(tmp_path, solution("x1"), "x1", sizes=("N=40", "mask=causal 4 1"))
    assert "window 4, 1 sink" in said and said.endswith("masks\n")


def test_a_crash_is_the_sentence_of_make_grade(tmp_path):
    source = solution("p2").replace("min(k_start + BLOCK_K, Nk)", "k_start + BLOCK_K")
    said = run(tmp_path, source, "p2", sizes=("N=70", "causal=yes"))
    assert len(said.splitlines()) == 2 and " at p2_online_softmax.py:" in said and "Traceback" not in said


def test_what_cannot_be_compared_says_so(tmp_path):
    source = "def naive_attention(q, k, v, is_causal=False):\n    return q\n"
    words = "returned [(1, 1, 8, 16)]; it must be [(1, 1, 8, 16), (1, 1, 8)]: nothing to compare"
    assert words in run(tmp_path, source, "p1")
