"""Does every link, picture and script of a folder of HTML lead somewhere inside it? Standard library alone."""

import os
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LEADS = {"a": "href", "area": "href"}  # a reader may follow these to other sites
LOADS = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}  # read with the page


class Page(HTMLParser):
    """A page's anchors (`ids`), and its targets: (tag, address) in the order of the text."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.targets = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}
        address = found.get(LEADS.get(tag) or LOADS.get(tag))
        if address:
            self.targets.append((tag, address))


def faults(folder):
    """What leads nowhere, or is fetched from elsewhere, a sentence each that names page and target."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).rglob("*.html"))}
    found = []
    for path, page in pages.items():
        wrong = ((address, fault(tag, address, path, pages)) for tag, address in page.targets)
        name = path.relative_to(folder).as_posix()
        found += [f"{name} leads to {address}, {why}" for address, why in wrong if why]
    return sorted(set(found))


def fault(tag, address, path, pages):
    """Why an address on the page at `path` is wrong, or None."""
    parts = urlsplit(address)
    if parts.scheme == "data":
        return None
    if parts.scheme or parts.netloc:
        return "which is fetched from the network when the page is read" if tag in LOADS else None
    target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
    if not target.is_file():
        return "which is not in the site"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
        return "a place that the page does not have"
    return None
