"""The report: one file, whole without network and JavaScript, that lets no submission write into it."""

import json
import re
import shutil
import subprocess
import sys
from html import escape
from html.parser import HTMLParser

import pytest
import torch
from msgspec.structs import replace

from grader.commands import grade as command
from grader.core.protocol.reports import Costs, KernelCosts, TraceReport
from grader.engine.request import Request
from grader.kinds.attention import picture
from grader.registry import PROBLEMS
from grader.render import gradescope, html, terminal
from grader.result import Aspect, Cause, CompileRow, Facts, Outcome, Result
from grader.tests.kinds.test_picture import WINDOW, record, tensors

EVIL = '<script>alert(1)</script> "quoted" & <img src=http://evil.example/x onerror=alert(2)>'
CAUSE = Cause("a window of 33", "how old may a key be?", "notebooks/04_masks_and_phases.ipynb: From the mask to a loop")
COMPILED = [
    CompileRow("sm_80", "kernel", None, 49152, 166912, 4, 2, 168, 0, "mma f16", 1.25),
    CompileRow("sm_90", "kernel", "no shape for tl.arange(0, 100)"),
]


def result(problem="p6", case="window", outcome=Outcome.PASSED, aspect=Aspect.CORRECT, sentence="", **rest):
    again = f'make grade P={problem[1:]} CASE="{case}"'
    return Result(problem, case, aspect, outcome, sentence, description="N=128", again=again, **rest)


def drawn(wrong=True):
    """A picture with something of every kind in it."""
    records = [
        record([0, 31], [[0, 31], [96, 127]]),
        record([32, 63], [[0, 31], [32, 63], [32, 63]]),
        record([64, 95], [[64, 95]]),
    ]
    kernel = KernelCosts({"Q": 100, "K": 700}, {"O": 4096}, {"Q": 4, "K": 7}, {"O": 4}, 1, 4, 999, 77)
    trace = TraceReport([], [], [], {}, {"kernel": kernel}, Costs([], [], 0, 0, 0, {}, 0, 0))
    got, expected, allowed = tensors()
    got[0, 0, 40] += 0.1
    got[0, 0, 41], got[0, 0, 42] = float("nan"), float("inf")
    compared = ("o", got, expected, allowed) if wrong else ()
    return picture.draw(WINDOW, records, trace, compared)


def many_results():
    right = Facts(picture=drawn(wrong=False))
    asked = Facts(question="Which tile holds the oldest key?", section="Where a window begins", picture=drawn())
    return [
        result("p1", outcome=Outcome.UNFINISHED, sentence="TODO 1: the scores"),
        result("p1", "other", Outcome.UNFINISHED, sentence="TODO 1: the scores"),
        result("p2", outcome=Outcome.GRADER_FAULT, sentence="The grader failed."),
        result("p3", outcome=Outcome.NOT_RUN, sentence="Triton is not installed."),
        result(outcome=Outcome.WRONG, sentence=f"off: {EVIL}", facts=asked, printed=f"hello {EVIL}"),
        result(case="passes", facts=right, printed="\n".join(map(str, range(20)))),
        result(case="no picture", outcome=Outcome.WRONG, sentence="lost", facts=Facts(picture={"fault": "ours"})),
        result(case="compiled", facts=Facts(compiled=tuple(COMPILED)), sentence="compiles for sm_80"),
        result("p6", "speed", Outcome.NOT_RUN, Aspect.SPEED, "not run: needs a GPU"),
        result("p4", "work", Outcome.NOT_RUN, Aspect.WORK, 'not judged: "long row" must be right first'),
        result("p5", "work", Outcome.PASSED, Aspect.WORK),
        result("p7", "work", Outcome.WASTEFUL, Aspect.WORK, '"long row": loads', facts=right),
    ]


def page_of(results, tmp_path, name="submission"):
    folder = tmp_path / name
    return html.render(results, Request(folder, tuple(PROBLEMS.values()), None, "cpu", 0), 12.0)


def test_what_has_a_cause_stands_before_what_has_a_place_alone(tmp_path):
    bare = Facts(where="First wrong row 3.")
    measured, caused = replace(bare, measured=("Weights.",)), replace(bare, causes=(CAUSE,))
    given = [
        result(case="bare", outcome=Outcome.WRONG, sentence="First wrong row 3.", facts=bare),
        result(case="measured", outcome=Outcome.WRONG, sentence="Weights.", facts=measured),
        result(case="cause", outcome=Outcome.WRONG, sentence="A window of 33.", facts=caused),
        result(case="crash", outcome=Outcome.CRASHED, sentence="KeyError"),
        result("p6", "work", Outcome.WASTEFUL, Aspect.WORK, "loads too much"),
    ]
    expected = ["cause", "crash", "measured", "bare", "work"]
    assert [r.case for r in terminal.explained_first(given)] == expected
    page = page_of(given, tmp_path)
    places = [page.index(f"<strong>{name}</strong>") for name in expected]
    assert places == sorted(places) and "A window of 33." in page.partition("<section>")[0]


class Page(HTMLParser):
    """What is in the page: every tag with its attributes, in order; the text; and tags that are not closed in turn."""

    VOID = ("meta", "br", "img", "link", "input")

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open, self.crossed = [], "", [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if self.open.pop() != tag:
            self.crossed.append(tag)

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return page_of(many_results(), tmp_path_factory.mktemp("page"), EVIL.replace("/", ""))


def test_nothing_is_fetched_and_nothing_is_run(text):
    page = Page(text)
    assert not page.open and not page.crossed
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") or name == "src" for name in attributes)
        assert attributes.get("href", "#").startswith("#")
    style = re.search("<style>(.*?)</style>", text, re.S).group(1)
    assert "@import" not in style and set(re.findall(r"url\((.)", style)) == {"#"}


def test_what_a_submission_prints_is_text(text):
    page = Page(text)
    assert page.text.count(EVIL) == 2 + 1  # its sentence, also in the summary; and what it printed
    assert EVIL.replace("/", "") in page.text


def test_every_picture_has_its_words(text):
    drawings = [a for a in Page(text).all("svg") if "aria-hidden" not in a]
    assert len(drawings) == 3 + 1 + 1
    assert all(a["role"] == "img" and len(a["aria-label"]) > 40 for a in drawings)
    assert "1 NaN" in text and "needed, NOT visited: 3" in text and "visited more than once: 1" in text


def test_links_lead_to_what_is_there(text):
    page = Page(text)
    ids = {a["id"] for _, a in page.tags if "id" in a}
    assert {a["href"][1:] for a in page.all("a")} <= ids
    assert set(re.findall(r"url\(#([\w-]+)\)", text)) <= ids


def test_dark_pages_and_small_ones_are_thought_of(text):
    assert "prefers-color-scheme: dark" in text and "@media print" in text and "max-width: 480px" in text
    assert any(a.get("name") == "viewport" for a in Page(text).all("meta"))
    for name, kind in html.KINDS.items():
        assert f"--{name}: {kind.light};" in text and f"--{name}: {kind.dark};" in text


def test_it_says_what_the_results_say(text):
    said = re.sub(r"\s+", " ", Page(text).text)
    for words in (
        "TODO 1: the scores", "The same in 1 more case", "The grader failed.", "Triton is not installed.",
        "Ask yourself: Which tile holds the oldest key?", "Read: Where a window begins",
        "no shape for tl.arange(0, 100)",
        "49,152 of 166,912", "tiles of keys visited", "Loads and stores (kernel: 1 x 4 programs)", "Speed: not run",
        'make grade P=6 CASE="window"', "kernels run by the grader", "seed 0",
        "that is the grader's fault: ours", 'Work: not judged: "long row" must be right first', "Work: passed",
        'work: wasteful "long row": loads N=128',
    ):  # fmt: skip
        assert words in said, words
    assert said.index("off: ") < said.index("Ask yourself") < said.index("Error of o")  # the sentence first


def test_what_is_not_known_is_blank():
    row = html.compile_table(COMPILED)["rows"][1]
    assert row == ["kernel for sm_90", "no shape for tl.arange(0, 100)", "", "", "", "", "", "", ""]


def test_a_submission_that_fails_everywhere_stays_under_two_megabytes(tmp_path):
    expected, allowed = torch.randn(4, 4, 397, 128).double(), torch.full((4, 4, 397, 128), 1e-3).double()
    got = (expected + 10 ** (4 * torch.rand_like(expected) - 4)).float()
    tiles = [[a, min(a + 15, 396)] for a in range(0, 397, 16)]
    records = [record(q, tiles) for q in tiles]
    worst = picture.draw(WINDOW, records, compared=("o", got, expected, allowed))
    good = picture.draw(WINDOW, records)
    facts = Facts(picture=worst, where="rows")
    results = [
        result(id, f"case {i}", Outcome.WRONG, sentence=f"{i}", facts=facts, printed="x" * 4000)
        for id in PROBLEMS for i in range(15)
    ]  # fmt: skip
    results += [result(id, f"good {i}", facts=Facts(picture=good)) for id in PROBLEMS for i in range(15)]
    text = page_of(results, tmp_path)
    assert len(text.encode()) < 2_000_000
    assert 'make show P=3 CASE="case 7"' in Page(text).text  # the way to a picture that was left out
    assert "Pictures of 11 cases are left out" in text


def test_gradescope_gets_no_pictures(tmp_path):
    gradescope.write(many_results(), tmp_path / "results.json")
    document = (tmp_path / "results.json").read_text("utf-8")
    assert len(document) < 10_000 and "picture" not in document.replace("no picture", "") and json.loads(document)


def test_without_jinja2_one_line_says_so(tmp_path, monkeypatch):
    import grader.render

    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "grader.render.html")
    monkeypatch.delattr(grader.render, "html")
    line = command.write_report([], None, 0.0, tmp_path / "report.html")
    assert line == "report.html was not written: jinja2 is missing (pip install jinja2)"
    assert not list(tmp_path.iterdir())


def test_a_report_that_fails_costs_no_verdict(tmp_path):
    line = command.write_report([None], None, 0.0, tmp_path / "report.html")
    assert line.startswith("report.html was not written, and that is the grader's fault: ")


# In a browser --------------------------------------------------------------------------------------------------------

MEASURE = """<iframe id="f" srcdoc="{page}" style="width:{width}px;height:900px;border:0"></iframe><script>
onload = () => {{
  const page = document.getElementById("f").contentDocument;
  page.querySelectorAll("details").forEach((d) => {{ d.open = true; }});
  const colour = getComputedStyle(page.body).backgroundColor, run = page.defaultView.ran;
  document.title = [page.documentElement.scrollWidth, colour, page.querySelectorAll("script").length, run].join("|");
}};
</script>"""


def measured(text, tmp_path, width, *options):
    """[scroll width of the page, its background, script elements, what a script of the page would have set]"""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    (tmp_path / "measure.html").write_text(MEASURE.format(page=escape(text), width=width), "utf-8")
    quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-gpu")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", *quiet, f"--user-data-dir={tmp_path / 'profile'}", *options,
         "--virtual-time-budget=3000", "--dump-dom", f"file://{tmp_path / 'measure.html'}"],
        capture_output=True, encoding="utf-8", timeout=60,
    )  # fmt: skip
    return re.search("<title>(.*?)</title>", done.stdout).group(1).split("|")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_does_not_scroll_sideways(text, tmp_path, width):
    scroll, _, scripts, ran = measured(text, tmp_path, width)
    assert int(scroll) <= width and scripts == "0" and ran == ""


def test_a_dark_desktop_gets_a_dark_page(text, tmp_path):
    light = measured(text, tmp_path, 390)[1]
    dark = measured(text, tmp_path / "..", 390, "--blink-settings=preferredColorScheme=0")[1]
    assert light == "rgb(255, 255, 255)" and dark == "rgb(21, 24, 28)"
