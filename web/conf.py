"""Sphinx's settings: the source is the repository itself, and the site opens from disk without a network."""

from docutils import nodes

from web import pages, static_notebook

project = pages.NAME
author = "the course's authors"
html_title = pages.NAME
html_theme = "furo"
root_doc = pages.SUFFIX.sub("", pages.HOME)
extensions = ["myst_nb", "web.mathml", "web.sources"]
exclude_patterns = [
    ".*",
    "site",
    "grader",
    "classroom",
    "problems",
    "solutions",
    "kernels/tests",
    "web",
    "report/results",
]  # never looked into

nb_execution_mode = "off"  # what is committed is shown
nb_merge_streams = True
nb_code_prompt_show = nb_code_prompt_hide = "What came out"  # of a cell tagged "hide-output"
nb_ipywidgets_js = {}  # a static page has no live widgets, and their scripts would come from the network
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # README.md#without-linux, as on the web
highlight_language = "none"  # of a fence that names none
pygments_dark_style = "github-dark"
suppress_warnings = ["myst.header"]  # a notebook may go from its title to an exercise of the third level
html_math_renderer = "mathml"

html_static_path = ["style.css", "page.js"]
html_css_files, html_js_files = ["style.css"], ["page.js"]
templates_path = ["templates"]
html_additional_pages = {"index": "redirect.html"}
html_use_index = False
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_show_search_summary = False  # it fetches pages, which a browser forbids from disk


def choose_pages(app, config):
    config.include_patterns = pages.files(app.srcdir)


def adapt(app, docname, source):
    """What a page's text needs before it is parsed: the navigation at home, figures' words in a notebook."""
    if docname == app.config.root_doc:
        source[0] += f"\n\n{pages.navigation(app.srcdir)}"
    elif app.env.doc2path(docname).suffix == ".ipynb":
        source[0] = static_notebook.prepared(source[0])


def keep_one_title(app, doctree):
    """A second heading of the first level goes below the first: the navigation takes each for a page."""
    first, *others = [part for part in doctree.children if isinstance(part, nodes.section)] or [None]
    for section in others:
        doctree.remove(section)
        first += section


def setup(app):
    app.connect("config-inited", choose_pages)
    app.connect("source-read", adapt)
    app.connect("doctree-read", keep_one_title, priority=400)  # before Sphinx collects the titles
