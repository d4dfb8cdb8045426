"""Every page of the real site, opened from disk in Chromium: on a desk and on a phone."""

import pytest

from web import build, pages
from web.tests.support import chromium, needs_builder

pytestmark = pytest.mark.thorough
WIDE, DESK, PHONE = 1200, 1280, 390
SCROLLING = """() => {
  document.querySelectorAll("details").forEach((d) => { d.open = true; });
  const scrolls = (e) => e.tagName == "ARTICLE" || /auto|scroll/.test(getComputedStyle(e).overflowX);
  const apart = (e) => scrolls(e) ? e : apart(e.parentElement);
  return [...document.querySelectorAll("article table")].filter((t) => t.scrollWidth > apart(t).clientWidth + 1)
    .map((t) => t.innerText.slice(0, 80));
}"""
LOOK = """() => {
  document.querySelectorAll("details").forEach((d) => { d.open = true; });
  const apart = (e) => /auto|scroll/.test(getComputedStyle(e).overflowX);
  const scrolls = (e) => apart(e) || (e.tagName != "ARTICLE" && scrolls(e.parentElement));
  const beyond = (e) => e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e);
  return {
    width: document.documentElement.scrollWidth,
    cut: [...document.querySelectorAll("article *")].filter(beyond).map((e) => e.outerHTML.slice(0, 80)),
    hidden: [...document.images].filter((i) => !i.naturalWidth || i.clientWidth < 100).map((i) => i.src),
    silent: [...document.images].filter((i) => !i.alt.trim() || /[.](png|svg)$/.test(i.alt)).map((i) => i.src),
    low: [...document.querySelectorAll(".math-wrapper")].filter((w) => w.scrollHeight > w.clientHeight).length,
    formulas: [...document.querySelectorAll("math")].map((m) => m.getBoundingClientRect().height),
    text: document.body.innerText,
    paper: [...document.querySelectorAll("article img")].map((i) => getComputedStyle(i).backgroundColor),
  };
}"""


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    needs_builder()
    chromium()
    out = tmp_path_factory.mktemp("web") / "site"
    assert build.build(out) == []
    return out


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium())
        yield started
        started.close()


@pytest.fixture
def page(site, browser, request):
    """An empty page; its test fails where the console speaks, or something is fetched in vain or from elsewhere."""
    width, scheme = getattr(request, "param", (WIDE, "light"))
    page, wrong = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme), []
    page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("requestfailed", lambda asked: wrong.append(f"failed: {asked.url}"))
    page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or wrong.append(f"asked: {asked.url}"))
    yield page
    page.close()
    assert wrong == []


def names():
    return [f"{pages.SUFFIX.sub('', path)}.html" for path in pages.files()]


@pytest.mark.parametrize("page", [(WIDE, "light"), (PHONE, "dark")], indirect=True, ids=["desk", "phone, dark"])
def test_every_page_can_be_read(site, page):
    found = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    assert {*names(), "search.html", "index.html"} <= {*found}
    figures, formulas = 0, 0
    for name in found:
        if name == "index.html":  # leads on at once; a test of its own
            continue
        page.goto((site / name).as_uri())
        looked = page.evaluate(LOOK)
        assert looked["width"] <= page.viewport_size["width"], f"{name} scrolls sideways"
        assert looked["cut"] == [], f"{name}: what is too wide neither fits nor scrolls"
        assert looked["hidden"] == [] and looked["silent"] == [], name
        assert all(height > 5 for height in looked["formulas"]), f"{name}: a formula does not show"
        assert looked["low"] == 0, f"{name}: a formula is cut off above or below"
        assert len(looked["text"]) > 100 and "interactive(children" not in looked["text"], name
        assert {*looked["paper"]} <= {"rgb(255, 255, 255)"}, f"{name}: figures need white paper"
        figures, formulas = figures + len(looked["paper"]), formulas + len(looked["formulas"])
    assert figures > 25 and formulas > 20


@pytest.mark.parametrize("page", [(DESK, "light")], indirect=True, ids=["desk"])
def test_no_column_of_a_table_is_out_of_sight_on_a_desk(site, page):
    for path in sorted((site / "report").glob("*.html")):
        page.goto(path.as_uri())
        assert page.evaluate(SCROLLING) == [], path.name


def test_the_first_page_leads_home(site, page):
    page.goto((site / "index.html").as_uri())
    page.wait_for_url("**/README.html")
    assert page.title() == pages.NAME


def test_a_word_of_a_notebook_is_found_from_disk(site, page):
    page.goto((site / "README.html").as_uri())
    page.fill(".sidebar-search", "rescale")
    page.press(".sidebar-search", "Enter")
    page.click("#search-results li a >> text=2. The online softmax")
    page.wait_for_url("**/notebooks/02_online_softmax.html*")
    assert "rescale" in page.inner_text("article").lower()


def test_an_answer_unfolds(site, page):
    page.goto((site / "notebooks/02_online_softmax.html").as_uri())
    answer = page.locator("article details").first
    assert not answer.locator("p").first.is_visible()
    answer.locator("summary").click()
    assert answer.locator("p").first.is_visible()


@pytest.mark.parametrize("page", [(PHONE, "light")], indirect=True, ids=["phone"])
def test_a_phone_finds_its_way(site, page):
    page.goto((site / "README.html").as_uri())
    page.click(".mobile-header label[for=__navigation]")
    page.click(".sidebar-tree >> text=4. Masks and phases")
    page.wait_for_url("**/notebooks/04_masks_and_phases.html")
    figure = page.locator("article img").first
    assert figure.bounding_box()["width"] > PHONE  # it scrolls in itself rather than shrink


def test_a_long_table_has_a_search_field_and_a_picture_opens_alone(site, page):
    page.goto((site / "report/STEPS_ROWS.html").as_uri())
    field = page.locator("input.rows").first
    rows = page.locator("article table").first.locator("tbody tr:visible")
    every = rows.count()
    field.fill("full cudnn")
    assert 0 < rows.count() < every and all("cuDNN" in text for text in rows.all_inner_texts())
    field.fill("")
    assert rows.count() == every
    page.goto((site / "report/STEPS.html").as_uri())
    page.locator("article img").first.click()
    assert page.url.endswith(".svg")
