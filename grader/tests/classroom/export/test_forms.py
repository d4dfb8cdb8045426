"""JUnit, Gradescope, the class page and the command: what others read of a class."""

import json
import re
import xml.etree.ElementTree as xml
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser

import pytest

from grader.classroom import page as shown
from grader.classroom.export import __main__ as command
from grader.classroom.export import everything, gradescope, junit, pages, similar
from grader.classroom.export.standing import standings
from grader.classroom.export.tallies import Tallies
from grader.tests.classroom.class_sample import make, write_class

# JUnit ---------------------------------------------------------------------------------------------------------------

CHILDREN = {"testsuites": {"testsuite"}, "testsuite": {"testcase", "system-out"}, "failure": set(),
            "error": set(), "testcase": {"skipped", "error", "failure", "system-out"}, "system-out": set(),
            "skipped": set()}  # fmt: skip
ATTRIBUTES = {"testsuites": {"name"}, "testcase": {"name", "classname", "time"}, "system-out": set(),
              "testsuite": {"name", "id", "tests", "failures", "errors", "skipped", "time"},
              "failure": {"message", "type"}, "error": {"message", "type"}, "skipped": {"message"}}  # fmt: skip


def test_junit_is_what_the_schema_allows_and_its_counts_are_true(tmp_path):
    junit.write(make(), tmp_path / "junit.xml")
    root = xml.parse(tmp_path / "junit.xml").getroot()
    for element in root.iter():
        assert {child.tag for child in element} <= CHILDREN[element.tag], element.tag
        assert set(element.attrib) == ATTRIBUTES[element.tag], element.tag
    assert len(root) == 38
    for suite in root:
        assert len(suite.findall("testcase")) == int(suite.get("tests"))
        for kind, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert len(suite.findall(f"testcase/{kind}")) == int(suite.get(count))
    assert [e.get("type") for e in root.iter("error")] == ["machine fault"]
    assert [e.get("type") for e in root.iter("failure")].count("needs review") == 1


def test_junit_is_read_by_a_reader_of_junit(tmp_path):
    reader = pytest.importorskip("junitparser", reason="junitparser is not installed")
    junit.write(make(), tmp_path / "junit.xml")
    suites = list(reader.JUnitXml.fromfile(str(tmp_path / "junit.xml")))
    assert len(suites) == 38 and suites[5].name == "<script>alert(1)</script>"


# Gradescope ----------------------------------------------------------------------------------------------------------


def test_gradescope_scores_add_up_and_name_no_folder_of_ours():
    graded = make()
    for student in standings(graded)[:5]:
        document = gradescope.render(graded, student.row)
        assert abs(sum(test["score"] for test in document["tests"]) - document["score"]) < 0.01
        assert abs(sum(test["max_score"] for test in document["tests"]) - 100) < 0.01
        assert "/somewhere" not in json.dumps(document)
        assert any("again: make grade P=" in test["output"] for test in document["tests"])


@pytest.mark.parametrize(("id", "words"), [("sub-0006", "fault of the grader's machine"), ("sub-0005", "wait for the")])
def test_gradescope_has_no_score_where_none_is_known(id, words):
    graded = make()
    document = gradescope.render(graded, next(row for row in graded.submissions if row.id == id))
    assert "score" not in document and not any("score" in test for test in document["tests"])
    assert words in document["output"] and document["tests"]


# The class page ------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Tags that are open at the end, links, what is fetched, and the rows of the students' table."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.fetched, self.ids, self.scripts = [], [], [], set(), 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.open += [tag] if tag not in self.VOID else []
        self.links += [named["href"]] if tag == "a" else []
        self.fetched += [value for name, value in attributes if name in ("src", "srcset", "action")]
        self.ids |= {named["id"]} if "id" in named else set()
        self.scripts += tag == "script"

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert tag in self.VOID or self.open.pop() == tag


def test_the_page_is_whole_fetches_nothing_and_escapes_names(tmp_path):
    graded = make()
    keys = {id: graded.records["sub-0005", id].key for id in graded.problems}
    shown.write(tmp_path, "sub-0005", keys, "x")
    text = pages.render(graded, tmp_path)
    page = Page(text)
    assert not page.open and not page.fetched and page.scripts == 1
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)&lt;/script&gt;" in text and "<b>not</b>" not in text
    assert not re.search(r"https?://|@import url|url\((?!#)", text)
    assert "pages/sub-0005.html" in page.links and "pages/sub-0004.html" not in page.links  # only those that are there
    assert all(link[1:] in page.ids for link in page.links if link.startswith("#"))


@pytest.mark.parametrize("hidden", ["\x1b[2J", "\x9b2J\x85", "\u202e\u2066", "\u200f\x08"])
def test_names_and_remarks_turn_no_line_round_and_steer_no_terminal(hidden, tmp_path):
    graded, name = make(4), f"An{hidden}n"
    rows = tuple(
        replace(row, title=name, remarks=(name,), roster={"id": str(i), "name": name} if i else None)
        for i, row in enumerate(graded.submissions)
    )
    graded = replace(graded, submissions=rows, notes=(name,))
    junit.write(graded, tmp_path / "junit.xml")
    for text in (pages.render(graded, tmp_path), (tmp_path / "junit.xml").read_text()):
        assert "An" in text and not set(hidden) - set("[2J") & set(text)


def test_the_page_says_what_the_records_say(tmp_path):
    graded = make()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", pages.render(graded, tmp_path)))
    wrong = sum(graded.records[row.id, "p7"].results[0]["outcome"] != "passed" for row in graded.submissions[:-2])
    assert f"p7 whole tiles {wrong} of 38" in text
    assert "36 graded · 1 machine fault · 1 needs review · 2 not handed in" in text
    assert "dots of the kernel: 0" in text and "the node was lost three times; given up after 3 attempts" in text
    who = {
        row for (row, _), record in graded.records.items() for r in record.results if "no scale at all" in r["causes"]
    }
    assert f"no scale at all {len(who)} " in text


def test_the_distribution_counts_everybody_once():
    totals = [Fraction(text) for text in ("100", "99", "85", "4", "85.5")]
    ranges = pages.count_totals(totals, Fraction(100))
    assert ranges[0] == ("95 to 100", 2) and ranges[2] == ("85 to 90", 2) and ranges[-1] == ("0 to 5", 1)
    assert sum(count for _, count in ranges) == 5 and len(ranges) == pages.RANGES
    assert pages.count_totals([], Fraction(100)) == []


@pytest.mark.parametrize(("causes", "said"), [
    ([{"a window of #": "a window of 33"}] * 2, "a window of 33"),
    ([{"a window of #": "a window of 33"}, {"a window of #": "a window of 8"}],
     "a window of 33, or with other numbers"),
    ([["a window of #"]], "a window of some number"),  # as journals of before have it
])  # fmt: skip
def test_a_misconception_is_said_with_its_number(causes, said):
    graded = make(3, review=False)
    one = graded.records["sub-0000", "p3"]
    results = tuple(result | {"causes": of} for result, of in zip(one.results, causes, strict=False))
    (cause,) = Tallies(replace(graded, records={("sub-0000", "p3"): replace(one, results=results)})).causes()
    assert (cause.words, *cause.ids, *cause.problems) == (said, "sub-0000", "p3")


def test_a_class_without_anything_graded_has_a_page(tmp_path):
    graded = make(3)
    text = pages.render(replace(graded, records={}), tmp_path, similar.Found(skipped="Nobody looked."))
    assert "No case failed" in text and "Nobody looked" in text and not Page(text).open


# The command ---------------------------------------------------------------------------------------------------------


def test_the_command_writes_every_form_from_the_journal(tmp_path, capsys):
    out = write_class(tmp_path / "class", make())
    assert command.main([str(out)]) == 0
    said = capsys.readouterr().out
    for name in ("gradebook.csv", "junit.xml", "class.html", "gradescope/sub-0001.json"):
        assert (out / name).stat().st_size > 100, said
    before = (out / "gradebook.csv").read_bytes(), (out / "junit.xml").read_bytes(), (out / "class.html").read_bytes()
    list(everything.write(out))
    assert before == tuple((out / name).read_bytes() for name in ("gradebook.csv", "junit.xml", "class.html"))


def test_a_form_that_fails_does_not_stop_the_next(tmp_path, monkeypatch):
    out = write_class(tmp_path / "class", make())
    monkeypatch.setattr(junit, "write", lambda *_: 1 / 0)
    said = list(everything.write(out))
    assert any("junit.xml was not written, and that is the grader's fault: ZeroDivisionError" in line for line in said)
    assert (out / "class.html").exists()


def test_the_command_fills_an_export_and_never_overwrites_it(tmp_path, capsys):
    out = write_class(tmp_path / "class", make())
    sheet = tmp_path / "export.csv"
    sheet.write_text("Student,ID,SIS User ID,P (1)\nx,1,s0001,\n")
    assert command.main([str(out), "--canvas", str(sheet), "--column", "P"]) == 0
    assert "1 of 1 rows filled" in capsys.readouterr().out and (out / "canvas.csv").read_text().endswith("s0001,87.5\n")
    inside = out / "canvas.csv"
    assert command.main([str(out), "--canvas", str(inside), "--column", "P"]) == 2
    assert "would be overwritten" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["nowhere"], "no class was graded there"), (["x", "--canvas", "y"], "--canvas needs --column"),
     (["x", "--column", "y"], "--canvas FILE"), (["x", "--feedback"], "--moodle FILE"), ([], "required: out")],
)  # fmt: skip
def test_wrong_arguments_are_one_sentence(arguments, words, capsys):
    assert command.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
