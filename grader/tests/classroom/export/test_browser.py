"""class.html in a browser: no wider than a phone, names run no script, the table is searched and sorted."""

import json
import shutil
import subprocess

import pytest

from grader.classroom.export import pages
from grader.tests.classroom.class_sample import make

pytestmark = pytest.mark.thorough
WIDTH = """<script>
const frame = document.createElement("iframe");
frame.style.width = "{width}px";
frame.srcdoc = {page};
frame.onload = () => {{
  const page = frame.contentDocument;
  {ask}
  document.title = JSON.stringify(answer);
}};
document.body.append(frame);
</script>"""
SEARCH = """
  const field = page.querySelector("input"), body = page.getElementById("table").tBodies[0];
  const shown = () => [...body.rows].filter((row) => !row.hidden);
  const names = (column) => shown().map((row) => row.cells[column].textContent.trim());
  field.value = "ada LOVE"; field.dispatchEvent(new Event("input"));
  const found = names(1), said = page.querySelector("[role=status]").textContent;
  field.value = ""; field.dispatchEvent(new Event("input"));
  const total = page.querySelectorAll("#table th button")[9];
  total.click(); const up = names(9);
  total.click(); const down = names(9);
  const answer = {found, said, up, down, all: names(1).length};
"""


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """A function: (page, width, JavaScript that sets `answer`) -> that answer."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    folder = tmp_path_factory.mktemp("browser")

    def run(page, width, script):
        text = json.dumps(page).replace("</", "<\\/").replace("<!--", "<\\!--")
        (folder / "ask.html").write_text("<body>" + WIDTH.format(width=width, page=text, ask=script), encoding="utf-8")
        quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-gpu")
        done = subprocess.run(
            [browser, "--headless", "--no-sandbox", *quiet, f"--user-data-dir={folder / 'profile'}",
             "--virtual-time-budget=3000", "--dump-dom", f"file://{folder / 'ask.html'}"],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return json.loads(done.stdout.partition("<title>")[2].partition("</title>")[0])

    return run


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return pages.render(make(), tmp_path_factory.mktemp("class"))


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_does_not_scroll_sideways_and_names_run_nothing(ask, page, width):
    measure = "const answer = [page.documentElement.scrollWidth, page.scripts.length];"
    wide, scripts = ask(page, width, measure)
    assert wide <= width and scripts == 1


def test_the_table_is_searched_and_sorted_and_blanks_stand_last(ask, page):
    answer = ask(page, 1280, SEARCH)
    assert answer["found"] == ["s0000", "s0012"] and answer["said"] == "2 of 40" and answer["all"] == 40
    up, down = ([float(text) for text in answer[way] if text] for way in ("up", "down"))
    assert up == sorted(up) and down == sorted(down, reverse=True) and len(up) == 36
    assert answer["up"][-4:] == answer["down"][-4:] == [""] * 4
