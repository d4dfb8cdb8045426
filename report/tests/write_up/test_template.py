"""The written half: questions and criteria belong together, points add up, and what the pages say of code is true."""

import contextlib
import io
import re

import pytest

from grader.registry import PROBLEMS
from grader.tests.support import grade_text, solution
from report.places import ROOT
from report.tests.write_up import written_facts
from report.tests.write_up.written_facts import case_of
from report.write_up.runs import AFTER_PHASES, SINK_PHASE

PAGES = {name: (ROOT / "report" / f"{name}.md").read_text(encoding="utf-8") for name in ("template", "rubric")}
TEMPLATE, RUBRIC = PAGES["template"], PAGES["rubric"]
COPIED = TEMPLATE[TEMPLATE.index("# Report of") :]  # what a student keeps
QUESTION = re.compile(r"^### (Q\d+)\. (.+) \((\d+) points\)$", re.M)
SNIPPET = re.compile(r"^```\n\.venv/bin/python - <<'END'\n(.*?)^END\n```\n+```\n(.*?)^```$", re.S | re.M)
FENCE = re.compile(r"^```.*?^```$", re.S | re.M)


def flat(text):
    """The words of a page, without line breaks and quotation marks at the left."""
    return " ".join(re.sub(r"^> ?", "", text, flags=re.M).split())


def criteria():
    """{"Q1": (title, points, text)} of the rubric."""
    parts = QUESTION.split(RUBRIC.partition("\n## Wrong statements")[0])[1:]
    return {parts[i]: (parts[i + 1], int(parts[i + 2]), parts[i + 3]) for i in range(0, len(parts), 4)}


# Form ----------------------------------------------------------------------------------------------------------------


def test_every_question_has_its_criterion_and_the_reverse():
    asked = [(name, title, int(points)) for name, title, points in QUESTION.findall(COPIED)]
    assert [name for name, *_ in asked] == [f"Q{i}" for i in range(1, 15)]
    assert asked == [(name, title, points) for name, (title, points, _) in criteria().items()]
    parts = QUESTION.split(COPIED)[1:]
    for name, text in zip(parts[::4], parts[3::4], strict=True):
        assert re.match(r"\n\n\*[^*]", text) and "\nA good answer" in text, f"{name}: no question, or no good answer"


def test_every_criterion_has_a_key_and_four_levels():
    for name, (_, _, text) in criteria().items():
        assert text.strip().startswith("Look for"), name
        assert re.findall(r"^- \*\*(\d)\*\*: \S", text, re.M) == list("0123"), name


def test_the_points_add_up():
    table = re.findall(r"^\| (Q\d+|all) \| ?(.*?) ?\|.*\| (\d+) \| (\d+) \|$", RUBRIC, re.M)
    *rows, (_, _, weights, total) = table
    assert [row[0] for row in rows] == list(criteria())
    for name, section, weight, points in rows:
        assert int(points) == 3 * int(weight) == criteria()[name][1], name
        heading = re.findall(r"^## (.*)$", COPIED.partition(f"### {name}.")[0], re.M)[-1]
        assert heading.replace(".", "").startswith(section), name
    assert (sum(int(row[2]) for row in rows), sum(int(row[3]) for row in rows)) == (int(weights), int(total))
    assert f"{total} points" in TEMPLATE and f"{total} in all" in flat(RUBRIC)
    assert f"throughout is a good report: {2 * int(weights)} points" in flat(RUBRIC)


def test_the_procedure_takes_the_minutes_that_it_names():
    (title, text), *_ = re.findall(r"^## A report in (\d+) minutes\n(.*?)\n###? ", RUBRIC, re.S | re.M)
    assert sum(map(int, re.findall(r"\*\*(\d+) minutes?:\*\*", text))) == int(title)


def test_the_marked_answers_are_added_up_rightly():
    marks = re.findall(r"\*\*(Q\d+): level (\d) x weight (\d) = (\d+)\.\*\*", RUBRIC)
    assert len(marks) == 5
    for name, level, weight, points in marks:
        assert int(level) * int(weight) == int(points) and 3 * int(weight) == criteria()[name][1], name


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_read_as_plain_text(name):
    text = PAGES[name]
    assert max(map(len, text.splitlines())) <= 120
    assert set(re.findall(r"</?(\w+)>", FENCE.sub("", text))) <= {"details", "summary"}
    assert not re.findall(r"^ +[-+*] ", FENCE.sub("", text), re.M), "a line that wraps into a list"


# What the pages name exists ------------------------------------------------------------------------------------------


def test_what_is_copied_has_no_links():
    assert "](" not in COPIED, "a link would not resolve where a student keeps the copy"


def test_every_file_and_case_that_is_named_exists():
    made = {"report/results/quick/", "report/results/quick"}  # by the command beside it
    pages = [*PAGES.values(), (ROOT / "report" / "REPORT.md").read_text(encoding="utf-8")]
    paths = {p for text in pages for p in re.findall(r"`([\w.]+/[\w./]+\w)`", text)} - made
    assert paths and all((ROOT / path).exists() for path in paths), paths
    names = {case.name for problem in PROBLEMS.values() for case in problem.cases}
    keys = " ".join(text.partition("- **0**")[0] for _, _, text in criteria().values())
    quoted = {quote.lower() for quote in re.findall(r'"([^"]+)"', flat(keys))}
    assert len(quoted) > 5 and quoted <= names


# What the pages say is true ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_the_snippets_print_what_is_shown(name):
    ((code, shown),) = SNIPPET.findall(PAGES[name])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue() == shown


@pytest.mark.parametrize("facts", written_facts.FACTS, ids=lambda facts: facts.__name__)
def test_the_numbers_are_what_code_gives(facts):
    missing = [fact for fact in facts() if fact not in flat(RUBRIC)]
    assert not missing, "report/rubric.md does not say what code gives now"


def test_sinks_may_come_last(tmp_path):
    source = solution("p7")
    moved = source.replace(SINK_PHASE, "").replace(AFTER_PHASES, SINK_PHASE + AFTER_PHASES)
    assert moved.index(SINK_PHASE) > moved.index("keys, diagonal, k_end")
    names = frozenset({"sinks overlapping the window", "sinks larger than the window", "one sink", "no sinks"})
    results = grade_text(tmp_path, "p7", moved, names)
    assert {r.case: r.outcome.value for r in results if r.aspect.concerns_case} == dict.fromkeys(names, "passed")


@pytest.mark.parametrize(
    ("problem", "right", "wrong", "show", "hide", "said"),
    [
        (
            "p6", "tl.maximum(0, q_start - window_size + 1) //",
            "tl.maximum(0, q_start // BLOCK_K - window_size // BLOCK_K) * BLOCK_K //",
            written_facts.SHOW_Q4, written_facts.HIDE_Q4, "whose first tile is counted in tiles",
        ),
        (
            "p5", "\n    kv_head = head // group", "\n    kv_head = head % (tl.num_programs(1) // group)",
            ("groups of four",), ("one kv head", "no sharing"), "attention with kv head = head % Hkv",
        ),
        (
            "p3", "row_sum = row_sum * alpha + tl.sum(p, 1)", "row_sum = row_sum + tl.sum(p, 1)", ("ragged tail",),
            ("scores falling along the keys",), "whose row_sum is not rescaled",
        ),
    ],
    ids=["Q4", "Q5 and Q12", "Q1"],
)  # fmt: skip
def test_the_grader_says_what_the_rubric_quotes(tmp_path, problem, right, wrong, show, hide, said):
    source = solution(problem)
    assert source.count(right) == 1
    cases = [case_of(problem, name) for name in (*show, *hide)]
    results = grade_text(tmp_path, problem, source.replace(right, wrong), cases=cases)
    by_case = {r.case: r for r in results if r.aspect.concerns_case}
    assert {name: by_case[name].outcome.value for name in show} == dict.fromkeys(show, "wrong")
    assert all(said in by_case[name].sentence for name in show)
    assert {name: by_case[name].outcome.value for name in hide} == dict.fromkeys(hide, "passed")
