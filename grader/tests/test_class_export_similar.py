"""Suspected copies: copies are found, with their lines; what the task makes alike is not."""

import keyword
import random
import re
import time

import pytest

from grader.assignment import PROBLEMS
from grader.classroom.export import copies, everything, similar
from grader.classroom.record import Class, Row
from grader.tests.filled_gaps import filled
from grader.tests.support import ROOT

P3 = "p3_flash_attention.py"
GIVEN = everything.given(Class((), {id: "15" for id in PROBLEMS}, {}))
HONEST = {path.stem: path for path in sorted((ROOT / "grader" / "tests" / "honest").glob("p*.py"))}
needs_copydetect = pytest.mark.skipif(not similar.installed(), reason="copydetect is not installed (the extra `class`)")


def look(texts, module=P3):
    return similar.look({module: texts}, GIVEN).pairs


def renamed(text, seed=0):
    """The text with every local name of two letters or more changed, as far as letters tell."""
    kept = """for in def return import from as not and or else elif while is range torch triton math jit float int raise
        with lambda program_id arange dot load store where zeros full max sum exp2 exp trans mask other dtype shape
        stride size dim empty_like maximum num_warps num_stages element_ty is_causal window_size sink_size constexpr
        cdiv flash_attention_forward naive_attention"""
    dice = random.Random(seed)
    for name in sorted(set(re.findall(r"\b[a-z_]{2,}\b", text)) - set(kept.split()) - set(keyword.kwlist)):
        text = re.sub(rf"\b{name}\b", f"{name}_{dice.randrange(9)}", text)
    return text


@needs_copydetect
def test_a_copy_of_filled_gaps_is_found_among_60_and_nobody_else_is():
    texts = {f"s{i:02}": filled(i) for i in range(60)}
    assert look(texts) == []
    (pair,) = look(texts | {"t": filled(17)})
    assert (pair.one, pair.other, pair.look, pair.share) == ("s17", "t", "wording", 1.0)


@needs_copydetect
def test_of_a_copy_the_lines_that_are_its_own_are_marked():
    text = filled(17)
    (pair,) = look({"a": text, "b": "# Mine.\n" + text})
    known = {line.strip() for given in GIVEN[P3] for line in given.splitlines()}
    own = {i for i, line in enumerate(text.splitlines()) if line.strip() not in known}
    assert pair.lines[0] == own and pair.lines[1] == {i + 1 for i in own}


@needs_copydetect
def test_a_kernel_with_all_names_changed_is_found_by_its_structure():
    text = HONEST["p3_running_lse"].read_text()
    (pair,) = look({"a": text, "b": renamed(text)})
    assert pair.look == "structure" and pair.share > similar.SHARE


@needs_copydetect
@pytest.mark.parametrize("id", PROBLEMS)
def test_honest_kernels_of_one_author_are_no_copies(id):
    texts = {name: path.read_text() for name, path in HONEST.items() if name.startswith(id)}
    assert len(texts) > 2 and look(texts, PROBLEMS[id].module) == []


@needs_copydetect
def test_skeletons_and_solutions_have_nothing_of_their_own():
    skeleton, solution = GIVEN[P3]
    assert look({"a": skeleton, "b": skeleton, "c": solution, "d": solution, "e": "", "f": ""}) == []


@needs_copydetect
def test_what_many_have_is_taken_as_the_lecture_s():
    own = "\n".join(f"def helper_{i}(value, other):\n    return value ** {i} // other + {i * 7}" for i in range(20))
    few = {f"s{i}": f"{own}\nx = {i}" for i in range(similar.COMMON)}
    assert len(look(few)) == similar.COMMON * (similar.COMMON - 1) / 2
    assert look(few | {"one more": own}) == []


@needs_copydetect
def test_500_modules_take_seconds():
    texts, started = {f"s{i:03}": filled(i) for i in range(500)}, time.perf_counter()
    assert look(texts) == [] and time.perf_counter() - started < 60


@needs_copydetect
def test_odd_texts_are_looked_at():
    odd = "\x00 def (((\n'''\nключ = \"\ud800\"\n" * 30
    assert all(pair.one == "a" for pair in look({"a": odd, "b": odd, "c": "x" * 300_000}))


@needs_copydetect
def test_the_page_of_a_pair_shows_both_and_escapes(tmp_path):
    rows = tuple(Row(id, f"<b>{id}", modules=(P3,), folder=f"work/{id}") for id in ("a", "b"))
    for id in ("a", "b"):
        (tmp_path / "work" / id).mkdir(parents=True)
        (tmp_path / "work" / id / P3).write_text(filled(17) + "# <script>alert(1)</script> and so on\n")
    graded = Class(rows, {"p3": "15"}, {})
    (tmp_path / "copies").mkdir()
    (tmp_path / "copies" / "old--pair--p1.html").write_text("")
    found = similar.look(everything.texts(graded, tmp_path), GIVEN)
    assert copies.write(graded, tmp_path, found.pairs).startswith("suspected copies: 1 pair of modules, side by side")
    (page,) = (tmp_path / "copies").iterdir()
    text = page.read_text()
    assert page == tmp_path / found.pairs[0].page and "<script>" not in text and "<b>a" not in text
    assert text.count('class="line alike"') == 2 * len(found.pairs[0].lines[0]) > 20


def test_without_copydetect_one_line_says_so(monkeypatch):
    monkeypatch.setattr(similar, "installed", lambda: False)
    found = similar.look({P3: {"a": "x", "b": "x"}}, GIVEN)
    assert found.pairs == [] and "copydetect is not installed" in found.skipped
