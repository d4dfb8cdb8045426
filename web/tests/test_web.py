"""Pages are found in their order, figures keep their words, formulas become MathML, and what is wrong is said."""

import json
import re

import pytest

from notebooks import source
from web import build, links, mathml, pages, static_notebook
from web.tests.support import needs_builder, small

FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<!\\)\$([^$\n]+)\$", re.S)


# Pages ---------------------------------------------------------------------------------------------------------------


def test_the_navigation_is_in_reading_order_and_grows_with_the_files(tmp_path):
    small(tmp_path)
    for name in ("02_b.ipynb", "01_a.ipynb", "01_a.py", "notes.md"):
        (tmp_path / "notebooks" / name).touch()
    for name in ("STEPS", "rubric", "AFTERWORD", "template"):
        (tmp_path / f"report/{name}.md").touch()
    assert pages.chapters(tmp_path) == {
        "Notebooks": ["notebooks/00_two.ipynb", "notebooks/01_a.ipynb", "notebooks/02_b.ipynb"],
        "Report": [f"report/{name}.md" for name in ("REPORT", "template", "rubric", "STEPS", "AFTERWORD")],
    }
    assert ":caption: Report\n\n/report/REPORT\n/report/template\n" in pages.navigation(tmp_path)


def test_every_page_is_in_the_site():
    found = pages.files()
    assert found[0] == "README.md" and found[-1] == "CONTRIBUTING.md" and len(found) == len({*found})
    assert {f"notebooks/{name}.ipynb" for name in source.names()} <= {*found}
    for folder in ("report", "docs"):
        assert {f"{folder}/{path.name}" for path in (pages.ROOT / folder).glob("*.md")} <= {*found}


# Notebooks -----------------------------------------------------------------------------------------------------------

FIGURE = {"output_type": "display_data", "data": {"image/png": "AA", "text/plain": "<Figure>"},
          "metadata": {"image/png": {"alt": "A line", "width": 640}}}  # fmt: skip
SLIDERS = {"output_type": "display_data", "metadata": {},
           "data": {static_notebook.WIDGET: {}, "text/plain": "interactive(children=())"}}  # fmt: skip


def test_a_figure_keeps_its_words_and_a_widget_leaves_its_picture():
    both = SLIDERS | {"data": SLIDERS["data"] | {"image/png": "BB"}}
    bars = FIGURE | {"metadata": {"image/png": {"alt": "Bars", "width": 320}}}
    cell = {"cell_type": "code", "source": "draw()", "metadata": {}, "outputs": [SLIDERS, both, FIGURE, bars]}
    text = json.dumps({"cells": [cell], "metadata": {"widgets": {"state": {}}}})
    assert "interactive" in text
    prepared = static_notebook.prepared(text)
    assert "interactive" not in prepared and "widget" not in prepared
    (cell,) = json.loads(prepared)["cells"]
    assert [output["data"] for output in cell["outputs"]] == [{"image/png": "BB"}, FIGURE["data"], bars["data"]]
    assert cell["metadata"]["mystnb"] == {"image": {"alt": "A line; Bars", "width": "640px"}}


def test_a_notebook_without_figures_stays_as_it_is(tmp_path):
    text = (small(tmp_path) / "notebooks/00_two.ipynb").read_text(encoding="utf-8")
    assert json.loads(static_notebook.prepared(text)) == json.loads(text)


# Formulas ------------------------------------------------------------------------------------------------------------


def formulas():
    for name in source.names():
        for kind, text in source.cells((source.FOLDER / f"{name}.py").read_text(encoding="utf-8")):
            for block, inline in FORMULA.findall(text) if kind == "markdown" else ():
                yield block or inline


def test_every_formula_of_the_notebooks_becomes_mathml():
    pytest.importorskip("latex2mathml", reason="needs latex2mathml: make site installs it")
    found = [*formulas()]
    assert len(found) > 20
    for formula in found:
        for display in ("inline", "block"):
            made = mathml.mathml(formula, display)
            assert made.startswith("<math ") and not re.search(r"\\[a-z]|&amp;#", made), made


def test_limits_primes_and_signs():
    pytest.importorskip("latex2mathml", reason="needs latex2mathml: make site installs it")
    made = mathml.mathml(r"m' = \max_{j < n} s_j", "block")
    assert "<munder><mo>max</mo>" in made and "<msub><mi>s</mi>" in made and "<mo>&lt;</mo>" in made
    assert '<mi>m</mi><mo class="prime"' in made
    assert "<msub><mo>max</mo>" in mathml.mathml(r"\max_j s_j")


# Links ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('<a href="b/c.html#here">', None),
        ('<a href="https://arxiv.org/abs/2205.14135">', None),
        ('<img src="data:image/png;base64,AA">', None),
        ('<h2 id="a b"></h2><a href="#a%20b">', None),
        ('<a href="c.html">', "a.html leads to c.html, which is not in the site"),
        ('<a href="b">', "a.html leads to b, which is not in the site"),
        ('<a href="b/c.html#there">', "a.html leads to b/c.html#there, a place that the page does not have"),
        ('<img src="b/none.svg">', "a.html leads to b/none.svg, which is not in the site"),
        ('<script src="//cdn.org/x.js"></script>', "//cdn.org/x.js, which is fetched from the network when"),
        ('<link rel="stylesheet" href="https://a.org/x">', "https://a.org/x, which is fetched from the network"),
    ],
)  # fmt: skip
def test_what_leads_nowhere_is_named(tmp_path, body, said):
    (tmp_path / "b").mkdir()
    (tmp_path / "b/c.html").write_text('<p id="here"><a href="../a.html">', "utf-8")
    (tmp_path / "a.html").write_text(body, "utf-8")
    found = links.faults(tmp_path)
    assert found == [] if said is None else said in found[0] and len(found) == 1


# The build -----------------------------------------------------------------------------------------------------------


def test_what_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "LOADED", ("json", "no_such_builder"))
    (said,) = build.build(tmp_path / "site", small(tmp_path / "small"))
    assert said == "no_such_builder missing: `make site` without PYTHON= installs what it needs"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "README.md:3: WARNING: 'myst' cross-reference target not found: 'nothing.md' [myst.xref_missing]",
            "README.md, line 3: a link leads to nothing.md, which is not there",
        ),
        (
            "notebooks/02_b.ipynb:50002: WARNING: image file not readable: notebooks/x.png [image.not_readable]",
            "notebooks/02_b.ipynb: a picture, notebooks/x.png, is not there",
        ),
        ("report/X.md: WARNING: something new [new.kind]", "report/X.md: something new"),
        ("Extension error!", "Extension error!"),
    ],
)
def test_a_warning_becomes_a_sentence(line, said):
    assert build.sentence(line) == said


@pytest.mark.thorough
def test_a_small_site(tmp_path):
    needs_builder()
    assert build.build(tmp_path / "site", small(tmp_path / "small")) == []
    home = (tmp_path / "site/README.html").read_text(encoding="utf-8")
    assert "README.html" in (tmp_path / "site/index.html").read_text(encoding="utf-8")
    assert 'href="source/solve.py.html"' in home and "<math " in home and "<strong>Two.</strong>" in home
    assert home.index("notebooks/00_two.html") < home.index("report/REPORT.html")
    assert "Copy from here" not in home and "<h2>Copy from here" in (tmp_path / "site/report/REPORT.html").read_text(
        encoding="utf-8"
    )
    code = (tmp_path / "site/source/solve.py.html").read_text(encoding="utf-8")
    assert "&lt;= 2" in code and '<span class="k">def</span>' in code
    assert 'href="../source/solve.py.html"' in (tmp_path / "site/report/REPORT.html").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_a_broken_link_fails_the_build_and_leaves_the_site(tmp_path):
    needs_builder()
    root, out = small(tmp_path / "small"), tmp_path / "site"
    out.mkdir()
    (out / "index.html").write_text("earlier", "utf-8")
    with open(root / "report/REPORT.md", "a", encoding="utf-8") as file:
        file.write("\n[a](NOTHING.md) ![b](figures/none.svg) [c](../README.md#nowhere)\n")
    assert sorted(build.build(out, root)) == [
        "report/REPORT.md, line 11: a link leads to #nowhere, a place that README does not have",
        "report/REPORT.md, line 11: a link leads to NOTHING.md, which is not there",
        "report/REPORT.md, line 11: a picture, report/figures/none.svg, is not there",
    ]
    assert (out / "index.html").read_text(encoding="utf-8") == "earlier"
