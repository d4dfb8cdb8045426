"""Suspected copies: copies are found, with their lines; what the task makes alike is not."""

import ast
import keyword
import random
import re
import time
from dataclasses import replace

import pytest

from grader.classroom.export import copies, everything, live, pages, similar
from grader.classroom.export.own import MARKED
from grader.classroom.harvest import MODULE_BYTES
from grader.classroom.record import Class, Row
from grader.kinds.registry import PROBLEMS
from grader.tests.classroom.class_sample import make, write_class
from grader.tests.classroom.export.filled_gaps import filled
from grader.tests.support import SUBMISSIONS, thorough_but

P3 = "p3_flash_attention.py"
GIVEN = copies.given(Class((), {id: "15" for id in PROBLEMS}, {}))
HONEST = {path.stem: path for path in sorted((SUBMISSIONS / "honest").glob("p*.py"))}
SHORT = """def naive_attention(q, k):
    energies = Q.matmul(k.mT)  # the peculiar way of putting it
    return energies.cumsum(3)
"""
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
    (pair,) = look({f"s{i:02}": filled(i) for i in range(60)} | {"t": filled(17)})
    assert (pair.one, pair.other, pair.look, pair.equal) == ("s17", "t", "wording", True)


@needs_copydetect
def test_equal_parts_are_named_however_short():
    (pair,) = look({"a": SHORT, "b": SHORT.replace("    ", "  "), "c": SHORT.replace("Q", "L")})
    assert (pair.one, pair.other, pair.equal) == ("a", "b", True) and pair.signs < 120


DEAD = "".join(f"def unused_{i}(alpha):\n    beta_{i} = alpha * {i}\n    return beta_{i} - {i}\n\n" for i in range(50))
RUNS = "TABLE = {}\n" + "".join(f"TABLE[{i}] = [x - {i} for x in range({i}) if x > {i // 2}]\n" for i in range(99))
HIDDEN = {
    "dead code behind": lambda text: f"{text}\n{DEAD}",
    "live code behind": lambda text: f"{text}\n{RUNS}",
    "renamed, and both behind": lambda text: f"{renamed(text)}\n{DEAD}{RUNS}",
    "200,000 characters of remarks in front": lambda text: "# A remark.\n" * 17_000 + text,
    "renamed, a useless statement after each": lambda text: useless(renamed(text)),
    "nothing else, of a padded one": lambda text: "\n".join(line for line in text.splitlines() if "#" not in line),
}


def useless(text):
    """The text with a statement put after each that changes nothing, and all of it written anew."""
    dice, out = random.Random(0), []
    for i, line in enumerate(ast.unparse(ast.parse(text)).split("\n")):
        out.append(line)
        if line.startswith(" ") and not line.endswith(":"):
            indent = line[: len(line) - len(line.lstrip())]
            out.append(indent + dice.choice(["pass", f"waste_{i} = {i} * 7", f"'text {i}'", "if False: print(1 + 2)"]))
    return "\n".join(out)


@needs_copydetect
@pytest.mark.parametrize("way", HIDDEN)
@pytest.mark.parametrize("name", ["p3_running_lse", "p6_while_loop"])
def test_a_hidden_copy_is_found(way, name):
    text, module = HONEST[name].read_text(), PROBLEMS[name[:2]].module
    (pair,) = look({"a": text, "b": HIDDEN[way](text)}, module)
    assert pair.share >= similar.SHARE and min(map(len, pair.lines)) > 10
    assert max(pair.lines[1]) < len(HIDDEN[way](text).split("\n"))


def test_what_cannot_run_is_not_live():
    text = """import os
def entry(q):
    "Words."
    waste = q + 1
    q = q
    if 0:
        q = 2
    for i in range(3):
        also = i
    return helper(
        q)
    q = 3
def helper(q): return q
def unused(q): return entry(q)
if __name__ == "__main__":
    unused(1)
"""
    lines = live.lines(text, ("entry",))
    assert [line.text for line in lines if line.live] == [
        "def entry(q):", "return helper(q)", "def helper(q):", "return q",
    ]  # fmt: skip
    assert [(line.first, line.last) for line in lines if line.text == "return helper(q)"] == [(9, 10)]
    assert not any("3" in line.text and "range" not in line.text for line in lines)


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
@pytest.mark.parametrize("id", thorough_but(["p3"], PROBLEMS))
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


@pytest.mark.thorough
@needs_copydetect
def test_500_modules_and_one_of_a_megabyte_are_looked_at_within_the_limit():
    texts = {f"s{i:03}": filled(i) for i in range(499)}
    huge = "".join(f"x{i} = [{', '.join(map(str, range(i, i + 40)))}]\n" for i in range(4500))
    assert look(texts | {"t": huge}) == []
    assert len(huge) > MODULE_BYTES


def short_lines(size, who=None):
    """Many short lines; of `who` one in 50 is their own."""
    lines = (f"a{i}={i}\n" if who is None or i % 50 else f"b{who}x{i}={i}\n" for i in range(size // 9))
    return "".join(lines)


@pytest.mark.thorough
@needs_copydetect
@pytest.mark.parametrize("own", [False, True])
def test_colluders_with_many_short_lines_cost_little(own, tmp_path):
    texts = {f"s{i}": short_lines(20_000, i if own else None) for i in range(10)}
    pairs = look(texts)
    assert len(pairs) == 45
    assert max(len(side) for pair in pairs for side in pair.lines) <= MARKED
    assert len(copies.render(pairs[0], texts, {id: id for id in texts})) < 4_000_000


@pytest.mark.thorough
@needs_copydetect
@pytest.mark.parametrize("seconds", [3.0, 6.0])
def test_large_texts_blind_the_search_for_nobody_else(seconds, monkeypatch):
    monkeypatch.setattr(similar, "SECONDS", seconds)
    texts = {f"s{i}": short_lines(MODULE_BYTES, i) for i in range(4)}
    found = similar.look({P3: texts | {"a": SHORT, "b": SHORT}}, GIVEN)
    assert [(pair.one, pair.other) for pair in found.pairs] == [("a", "b")]
    assert (
        len(found.missed) == 1 and f"Nobody looked at {P3} of s0, s1, s2, s3, of more than 100,000" in found.missed[0]
    )


@pytest.mark.parametrize("module", [P3, PROBLEMS["p1"].module])
def test_a_search_that_does_not_end_is_said_on_the_page(module, monkeypatch, tmp_path):
    pytest.importorskip("copydetect")
    monkeypatch.setattr(similar, "SECONDS", 0.2)
    monkeypatch.setattr(similar, "pairs_of", lambda *_: time.sleep(60))
    found = similar.look({module: {"a": SHORT, "b": SHORT}}, GIVEN)
    assert found.missed == [f"Nobody looked at {module}: it took more than 0.2 s."]
    assert found.missed[0] in pages.render(make(4), tmp_path, found)


@pytest.mark.parametrize("hidden", ["\x1b[2J", "\x9b2J", "\u202e", "\u200b", "\x08"])
def test_the_page_of_a_pair_marks_what_cannot_be_seen(hidden):
    texts = {"a": f"x = 1{hidden} + 2", "b": "x = 1 + 2"}
    pair = similar.Pair("a", "b", P3, "wording", 1.0, 99, True, (frozenset([0]), frozenset([0])))
    page = copies.render(pair, texts, {"a": f"Ann{hidden}", "b": "Bob"})
    assert hidden not in page and "x = 1\N{REPLACEMENT CHARACTER}" in page and "x = 1 + 2" in page


def test_a_page_is_cut():
    shown = copies.parts("\n" * 60_000, frozenset(range(0, 60_000, 30)))
    assert sum(len(lines) for _, lines in shown) == copies.SHOWN


ODD = {
    "nulls": "\x00 def (((\n'''\nключ = \"\ud800\"\n" * 30,
    "one line": "x" * MODULE_BYTES,
    "sum": "x = " + "1 + " * 50_000 + "1",
    "minus": "x = " + "-" * 50_000 + "1",
    "attributes": "x = a" + ".b" * 9_000,
    "brackets": "(" * 50_000,
    "escaped quotes": '"\\' * 30_000,
    "number": "x = 0x" + "f" * 9_000,
    "elif": "if a:\n  b()\n" + "elif a:\n  b()\n" * 2_000,
}


@needs_copydetect
def test_odd_texts_are_looked_at():
    copies = {f"{name}, again": text for name, text in ODD.items()}
    named = {(pair.one, pair.other) for pair in look(ODD | copies)}
    assert {(name, f"{name}, again") for name in ODD} - named <= {("sum", "sum, again")}


@needs_copydetect
def test_students_read_nothing_of_copies(tmp_path):
    out, graded = tmp_path / "class", make(4)
    rows = tuple(replace(row, folder=f"work/{row.id}", modules=(P3,)) for row in graded.submissions)
    write_class(out, replace(graded, submissions=rows))
    for row in rows[:2]:
        (out / "work" / row.id).mkdir(parents=True, exist_ok=True)
        (out / "work" / row.id / P3).write_text(filled(17))
    said = list(everything.write(out))
    assert any("1 pair of modules" in line for line in said), said
    assert "Not for students" in (out / "class.html").read_text()
    given = [path for path in out.rglob("*") if path.is_file() and path.parts[-2] in ("gradescope", "pages")]
    given += [out / "gradebook.csv", out / "junit.xml"]
    assert len(given) >= 4
    for path in given:
        text = path.read_text().lower()
        assert not any(word in text for word in ("copies", "suspected", "similar", "copydetect", "signs"))
        assert not (path.parent.name == "gradescope" and any(row.id in text for row in rows))


@needs_copydetect
def test_the_page_of_a_pair_shows_both_and_escapes(tmp_path):
    rows = tuple(Row(id, f"<b>{id}", modules=(P3,), folder=f"work/{id}") for id in ("a", "b"))
    for id in ("a", "b"):
        (tmp_path / "work" / id).mkdir(parents=True)
        (tmp_path / "work" / id / P3).write_text(filled(17) + "# <script>alert(1)</script> and so on\n")
    graded = Class(rows, {"p3": "15"}, {})
    (tmp_path / "copies").mkdir()
    (tmp_path / "copies" / "old--pair--p1.html").write_text("")
    found = similar.look(copies.texts(graded, tmp_path), GIVEN)
    assert copies.write(graded, tmp_path, found.pairs).startswith("suspected copies: 1 pair of modules, side by side")
    (page,) = (tmp_path / "copies").iterdir()
    text = page.read_text()
    assert page == tmp_path / found.pairs[0].page and "<script>" not in text and "<b>a" not in text
    assert text.count('class="line alike"') == 2 * len(found.pairs[0].lines[0]) > 20


def test_without_copydetect_one_line_says_so(monkeypatch):
    monkeypatch.setattr(similar, "installed", lambda: False)
    found = similar.look({P3: {"a": "x", "b": "x"}}, GIVEN)
    assert found.pairs == [] and "copydetect is not installed" in found.skipped
