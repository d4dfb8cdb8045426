"""make show: one case in a picture and in words."""

import struct
import sys

import pytest

from grader import __main__ as command
from grader.commands import show
from grader.engine.request import Request
from grader.registry import PROBLEMS
from grader.result import Facts, Outcome
from grader.tests.engine.test_command import run
from grader.tests.render.test_html import EVIL, drawn, result
from grader.tests.support import SOLUTIONS


def size_of(path):
    """(width, height) of a PNG in pixels; raises AssertionError for another file."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "a picture is of one problem and one case: give both, like make show P=6 CASE="),
        (["--problems", "6"], "give both"),
        (["--case", "ragged tail"], "this takes one problem: name it, like make show P=6 CASE="),
        (["--problems", "3,6-7", "--case", "ragged tail"], "choose one of P=3, P=6, P=7, like"),
        (["--problems", "6", "--case", "raged tail"], "did you mean 'ragged tail'?"),
    ],
)
def test_bad_input(arguments, words, capsys):
    assert command.main(["show", *arguments, "--submission", str(SOLUTIONS)]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_a_passing_kernel(tmp_path):
    done = run("show", "--problems", 6, "--case", "head dim 128", "--submission", SOLUTIONS, "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'p6 "head dim 128" (B=1 Hq=2 Hkv=1 N=100 D=128 window=32, float16, seed 0): passed' in done.stdout
    assert f"picture: {tmp_path / 'show-p6-head-dim-128.png'}" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["show-p6-head-dim-128.png"]
    width, height = size_of(tmp_path / "show-p6-head-dim-128.png")
    assert 700 <= width <= 4000 and 700 <= height <= 4000


@pytest.fixture
def shown(tmp_path, monkeypatch, capsys):
    """Shows a given Result as if a case had just been graded: (exit status, what was printed, files written)."""

    def showing(given):
        monkeypatch.setattr(show, "grade", lambda request, lanes: [given])
        status = show.run(Request(tmp_path, (PROBLEMS["p6"],), None, "cpu", 0), tmp_path)
        return status, capsys.readouterr().out, list(tmp_path.iterdir())

    return showing


def test_a_failing_kernel_has_both_maps(shown):
    status, said, files = shown(
        result(outcome=Outcome.WRONG, sentence=f"$x^$ {EVIL}", facts=Facts(question="why?", picture=drawn()))
    )
    assert (
        status == 0
        and "ask yourself: why?" in said
        and "! missing" in said
        and "N NaN" in said
        and said.index("$x^$") < said.index("N NaN")
    )
    assert size_of(files[0])[0] > 2000  # the mask, the errors and the heads side by side


def test_a_case_that_returned_nothing_has_no_picture(shown):
    status, said, files = shown(result(outcome=Outcome.CRASHED, sentence="KeyError"))
    assert status == 1 and "KeyError" in said and "no picture: " in said and not files
    assert shown(result(outcome=Outcome.GRADER_FAULT, sentence="ours"))[0] == 2


def test_without_matplotlib_the_words_remain(shown, monkeypatch):
    import grader.render

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "grader.render.png", raising=False)
    monkeypatch.delattr(grader.render, "png", raising=False)
    status, said, files = shown(result(facts=Facts(picture=drawn())))
    assert status == 1 and "no picture: matplotlib is missing (pip install matplotlib)" in said and not files
    assert "! missing" in said
