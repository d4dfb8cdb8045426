"""The quick check: is each committed notebook the run of its source, and fit to be read on the web?

Runs nothing and needs the standard library alone. What only a fresh run can tell, `build.py` does.
"""

import itertools
import json
import re

from notebooks.source import FOLDER, cells, names

MOST_BYTES = 1_000_000
MOST_LINES = 15  # of a code cell
MOST_COLUMNS = 95  # of its lines: longer ones are cut off on the web
PATH = re.compile(r"(?<![\w.:/])/(?:home|root|Users|tmp|work|usr|opt|mnt|private|content)/\w|\b[A-Z]:\\\\?\w")
ANEW = "run `make notebooks` and commit the result"


def faults(name, folder=FOLDER):
    """What is wrong with a notebook, a sentence each; empty if nothing is."""
    source, executed = folder / f"{name}.py", folder / f"{name}.ipynb"
    if not source.exists():
        return [f"{executed.name} has no source {source.name}: write it, or remove the notebook"]
    if not executed.exists():
        return [f"{source.name} was never executed: {ANEW}"]
    text = executed.read_text(encoding="utf-8")
    notebook = json.loads(text)
    found = [f"it has {len(text.encode()):,} bytes, over {MOST_BYTES:,}: draw less"] * (len(text.encode()) > MOST_BYTES)
    found += pairing(cells(source.read_text(encoding="utf-8")), notebook["cells"])
    found += counts(notebook["cells"]) + headings(notebook["cells"])
    for number, cell in enumerate(notebook["cells"], 1):
        found += [f"cell {number} {fault}" for fault in check_cell(cell)]
    return [f"{executed.name}: {fault}" for fault in found]


def pairing(wanted, have):
    """[the first cell in which source and notebook differ], or []."""
    have = [(cell["cell_type"], joined(cell["source"])) for cell in have]
    if wanted == have:
        return []
    at = next((i for i, (a, b) in enumerate(zip(wanted, have, strict=False)) if a != b), min(len(wanted), len(have)))
    return [f"cell {at + 1} is not the source's: {ANEW}"]


def counts(have):
    """[that the cells were not run once each from top to bottom], or []."""
    code = [cell for cell in have if cell["cell_type"] == "code"]
    if [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)):
        return []
    return [f"its cells were not run once each from top to bottom: {ANEW}"]


def headings(have):
    """[a heading two levels below the one before it, which a site would put elsewhere], or []."""
    prose = "\n".join(joined(cell["source"]) for cell in have if cell["cell_type"] == "markdown")
    levels = [(len(marks), words) for marks, words in re.findall(r"^(#+) (.*)$", prose, re.MULTILINE)]
    deep = [words for (above, _), (level, words) in itertools.pairwise([(0, ""), *levels]) if level > above + 1]
    return [f"heading {words!r} skips a level" for words in deep[:1]]


def check_cell(cell):
    """What is wrong with one cell and its outputs; each completes "cell 3 ..."."""
    source = joined(cell["source"])
    if PATH.search(source):
        yield "names a path of somebody's machine"
    if cell["cell_type"] == "code" and len(source.splitlines()) > MOST_LINES:
        yield f"has {len(source.splitlines())} lines, over {MOST_LINES}: split it, or move code to pictures/"
    if cell["cell_type"] == "code" and max(map(len, source.splitlines()), default=0) > MOST_COLUMNS:
        yield f"has a line of more than {MOST_COLUMNS} characters, which a page cuts off: break it"
    for output in cell.get("outputs", ()):
        if output["output_type"] == "error":
            yield f"ended in {output['ename']}"
            continue
        shown = words(output)
        if output.get("name") == "stderr":
            yield f"wrote to stderr (a warning?): {shown.strip()[:80]!r}"
        if PATH.search(shown):
            yield f"shows a path of somebody's machine: {PATH.search(shown)[0]!r}..."
        if "\r" in shown:
            yield "shows a progress bar's debris"


def words(output):
    """All text that an output shows; pictures of bits have none."""
    texts = [joined(output["text"])] if "text" in output else []
    data = output.get("data", {})
    texts += [joined(data[kind]) for kind in data if kind.startswith("text/") or kind == "image/svg+xml"]
    return "\n".join(texts)


def joined(text):
    return text if isinstance(text, str) else "".join(text)


def check(chosen=None, folder=FOLDER):
    """All faults of the notebooks named, or of every one."""
    return [fault for name in chosen or names(folder) for fault in faults(name, folder)]
