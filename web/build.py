"""make site: a course's README.md, notebooks, docs and report as one folder of pages that opens from disk.

Nothing is run: a notebook is shown as it is committed. A link that leads nowhere fails the build, and the folder of an
earlier one stays as it was.
"""

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from grader.course import course
from web import links, pages

OUT = pages.ROOT / "site"
LOADED = ("sphinx", "myst_nb", "furo", "latex2mathml")
WARNING = re.compile(r"^(?P<page>[^\n:]+?)(?::(?P<line>\d+))?: (?:WARNING|ERROR): (?P<what>.*?)(?: \[[\w.]+\])?$")
SAID = (
    (re.compile(r"'myst' cross-reference target not found: '(.*?)'.*"), r"a link leads to \1, which is not there"),
    (
        re.compile(r"local id not found in doc '(.*?)': '(.*?)'.*"),
        r"a link leads to #\2, a place that \1 does not have",
    ),
    (re.compile(r"image file not readable: (.*)"), r"a picture, \1, is not there"),
)


def build(out, root=pages.ROOT):
    """Make the site of a course in the folder `out`, if nothing is wrong; what is, a sentence each, else []."""
    if not (root / pages.HOME).is_file():
        return [f"{root / pages.HOME} is missing: write it, it is the first page"]
    missing = [name for name in LOADED if not importlib.util.find_spec(name)]
    if missing:
        return [f"{', '.join(missing)} missing: `make site` without PYTHON= installs what it needs"]
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "site"
        found = make(made, root, Path(scratch) / "doctrees") or links.faults(made)
        if not found:
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(made, out, ignore=shutil.ignore_patterns(".buildinfo", "objects.inv"))
    return found


def make(out, root, doctrees):
    """Run Sphinx in a process of its own; its warnings and errors as sentences."""
    settings = ["-q", "--no-color", "-b", "html", "-c", Path(__file__).parent, "-d", doctrees]
    done = subprocess.run([sys.executable, "-m", "sphinx", *settings, root, out], cwd=course.THIS,
                          capture_output=True, text=True)  # fmt: skip
    lines = [line for line in done.stderr.replace(f"{root}/", "").splitlines() if line.strip()]
    return [sentence(line) for line in lines] or [f"Sphinx ended with {done.returncode}"] * (done.returncode != 0)


def sentence(line):
    """A warning of Sphinx's as `page, line 3: what is wrong`; one of an unknown form as it is."""
    warning = WARNING.match(line)
    if not warning:
        return line
    what = warning["what"]
    for pattern, words in SAID:
        what = pattern.sub(words, what)
    numbered = warning["line"] and not warning["page"].endswith(".ipynb")  # a notebook has no lines, but cells
    return f"{warning['page']}{', line ' + warning['line'] if numbered else ''}: {what}"


def main():
    started = time.perf_counter()
    found = build(OUT)
    if found:
        sys.exit("\n".join([*found, "nothing was written"]))
    print(f"{len(pages.files())} pages in {time.perf_counter() - started:.0f} s: open {OUT / 'index.html'}", flush=True)


if __name__ == "__main__":
    main()
