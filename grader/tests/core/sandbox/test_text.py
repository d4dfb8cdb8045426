"""What a submission prints, raises or writes can do nothing to a terminal or a page."""

import io

import pytest
from rich.console import Console

from grader.core.sandbox.handed_in import quote_line
from grader.core.sandbox.texts import clean, cleaned
from grader.engine.request import Request
from grader.registry import PROBLEMS
from grader.render import gradescope, terminal
from grader.tests.support import grade_text, solution

CLEARS, TITLE, BACK, TURNED = "\x1b[2J\x1b[H", "\x1b]0;mine\x07", "\b\r\x9b1A", "\u202e"
ENTRY = "def naive_attention(q, k, v, is_causal=False):\n    {}\n"


def test_what_is_readable_stays():
    assert clean("N = 129, größer als 64:\n\t0.5 ≤ x") == "N = 129, größer als 64:\n\t0.5 ≤ x"


@pytest.mark.parametrize("hostile", [CLEARS, TITLE, BACK, TURNED, "\ud800", "\x00", "\x1b" * 50, "\x1b[" * 50])
def test_nothing_that_a_terminal_obeys_is_left(hostile):
    left = clean(f"a{hostile}b and")
    assert (
        left[0] == "a" and left.endswith("and") and left.encode() and not set(left) & set("\x1b\x07\x00\x9b\u202e\b\r")
    )
    assert cleaned({hostile: [hostile]}) == {clean(hostile): [clean(hostile)]}


@pytest.mark.parametrize(
    "statement", ["print({0!r}); raise ValueError({0!r})", "raise type({0!r}, (Exception,), {{}})({0!r})"]
)
def test_no_face_shows_what_was_sent_to_the_terminal(statement, tmp_path):
    sent = CLEARS + TITLE + BACK + TURNED + "\ud800"
    statement = statement.format(sent).replace("\\x00", "")
    results = grade_text(tmp_path, "p1", ENTRY.format(statement), names=["whole tiles"])
    shown = io.StringIO()
    request = Request(tmp_path, (PROBLEMS["p1"],), frozenset(["whole tiles"]), "cpu", 0)
    terminal.show(Console(file=shown, width=120), results, request, 1.0)
    said = shown.getvalue() + str(gradescope.render(results))
    assert said.encode() and not set(said) & set("\x1b\x07\x9b\u202e\b\r") and results[0].outcome.value == "crashed"


def test_a_line_is_quoted_harmlessly_and_not_at_length(tmp_path):
    file = tmp_path / "p3.py"
    file.write_bytes(b"x = '\x1b[2J'" + b"y" * 1000 + b"\n\xff")
    assert quote_line(file, 1).startswith("x = ''") and len(quote_line(file, 1)) <= 160
    nowhere = ((file, 99), (tmp_path / "none.py", 1), (file, None), (file, -5))
    assert all(quote_line(path, line) == "" for path, line in nowhere)


def test_results_are_written_before_anything_is_shown(tmp_path, monkeypatch):
    from grader import __main__ as command

    (tmp_path / PROBLEMS["p1"].module).write_text(solution("p1"), "utf-8")

    def fail(*_):
        raise OSError("the terminal is gone")

    monkeypatch.setattr(terminal, "show", fail)
    with pytest.raises(OSError):
        command.main(["grade", "--submission", str(tmp_path), "--problems", "1", "--out", str(tmp_path)])
    assert (tmp_path / "results.json").exists()
