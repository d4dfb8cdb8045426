"""Files that pages link to and that are no pages: each text becomes a page of the site, with its code highlighted.

Sphinx would offer them as downloads, which a browser may not show. What is no text is still copied as it is.
"""

import os
from html import escape
from pathlib import Path

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes


def relink(app, doctree):
    """Point each link to a text file of the repository at the page that `pages` will make of it."""
    here = Path(app.env.docname)
    for link in list(doctree.findall(addnodes.download_reference)):
        path = Path(os.path.normpath(here.parent / link["reftarget"]))
        if read(app.srcdir / path) is None:
            continue
        app.linked_sources.add(path.as_posix())
        target = os.path.relpath(Path("source") / f"{path}.html", here.parent)
        link.replace_self(nodes.reference("", "", *link.children, refuri=target, internal=True))


def read(path):
    """The text of a file, or None if it has none."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def pages(app):
    """A page for each file that was linked to: (name, context, template), as Sphinx asks for them."""
    for path in sorted(app.linked_sources):
        body = f"<h1>{escape(path)}</h1>\n{highlighted(path, read(app.srcdir / path))}"
        yield f"source/{path}", {"title": path, "body": body}, "page.html"


def highlighted(path, text):
    try:
        lexer = get_lexer_for_filename(path)
    except ClassNotFound:
        lexer = TextLexer()
    return highlight(text, lexer, HtmlFormatter(cssclass="highlight", linenos="inline"))


def setup(app):
    app.linked_sources = set()
    app.connect("doctree-read", relink, priority=400)  # before Sphinx copies what is to be downloaded
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": False}
