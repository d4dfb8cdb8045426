"""The text of a notebook: which notebooks there are, and the cells of one in jupytext's percent format."""

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
NAME = "[0-9][0-9]_*"
MARKER = re.compile(r"^# %%(?: +\[(?P<kind>\w+)\])?.*$")
MAGIC = re.compile(r"^# (?=%[a-z])", re.MULTILINE)


def names(folder=FOLDER):
    """The notebooks of a folder, in order: whatever has a source or an executed form."""
    return sorted({path.stem for ending in ("py", "ipynb") for path in folder.glob(f"{NAME}.{ending}")})


def cells(text):
    """[(kind, lines as one text)] of a source; kind: "code" or "markdown".

    What stands before the first `# %%` is no cell. Written here so that the quick check needs no Jupyter;
    a test compares it with jupytext.
    """
    found = []
    for line in text.splitlines():
        marker = MARKER.match(line)
        if marker:
            found.append((marker["kind"] or "code", []))
        elif found:
            found[-1][1].append(line)
    return [(kind, plain(kind, "\n".join(lines).strip("\n"))) for kind, lines in found]


def plain(kind, text):
    """A cell as Jupyter shows it: markdown without its `# `, code with its %magics."""
    return re.sub(r"^# ?", "", text, flags=re.MULTILINE) if kind == "markdown" else MAGIC.sub("", text)
