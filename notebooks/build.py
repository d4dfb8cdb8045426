"""make notebooks: every notebook is run from top to bottom, and what is committed must be what comes out.

python -m notebooks.build [02 ...] [--check]

A notebook that comes out otherwise is written anew, named, and the exit status is 1: commit it. One that comes out the
same is left as it is, byte for byte. --check runs nothing (check.py).
"""

import argparse
import importlib.metadata
import importlib.util
import json
import math
import re
import sys
import tempfile
import time

from notebooks.check import check, joined
from notebooks.source import FOLDER, ROOT, names

SECONDS = 300  # for one cell; the promise is 60 s for a notebook on two cores
CLOSE, TINY = 1e-3, 1e-5  # numbers differ between machines by rounding, and rounding errors themselves by more
NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LOADED = ("jupytext", "nbformat", "nbclient", "ipykernel", "ipywidgets")


def execute(name, folder=FOLDER):
    """The notebook of a source, executed in a fresh kernel with the repository as its folder.

    Returns a NotebookNode without times, random ids or facts of this machine. Raises CellExecutionError.
    """
    import jupytext
    from nbclient import NotebookClient
    from nbformat.v4 import upgrade
    from traitlets.config import Config

    notebook = upgrade(jupytext.read(folder / f"{name}.py", fmt="py:percent"))
    notebook.metadata = {"kernelspec": KERNEL}
    client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", record_timing=False,
                            coalesce_streams=True,  # else a line that is flushed in parts is shown in parts
                            resources={"metadata": {"path": str(ROOT)}})  # fmt: skip
    with tempfile.TemporaryDirectory() as sockets:  # no open ports; a folder apart for each of several builds at once
        client.config = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
        client.execute()
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"
        if cell.cell_type == "code":
            cell.metadata.pop("execution", None)
    notebook.metadata["language_info"] = {"name": "python", "file_extension": ".py"}
    notebook.metadata["matplotlib"] = importlib.metadata.version("matplotlib")
    return notebook


def difference(old, new):
    """Why the committed notebook is stale, in a few words, or None; both as plain data.

    Numbers may differ by rounding; pictures are compared where one matplotlib drew both; a cell tagged "varies", and
    the state of widgets, may differ.
    """
    if [cell["source"] for cell in old["cells"]] != [cell["source"] for cell in new["cells"]]:
        return "its cells were not the source's"
    if [tags(cell) for cell in old["cells"]] != [tags(cell) for cell in new["cells"]]:
        return "its cells' tags were not the source's"
    pictures = old["metadata"].get("matplotlib") == new["metadata"].get("matplotlib")
    for number, (one, other) in enumerate(zip(old["cells"], new["cells"], strict=True), 1):
        if "varies" in tags(other):
            continue
        shown = [facts(cell.get("outputs", ()), pictures) for cell in (one, other)]
        if len(shown[0]) != len(shown[1]) or not all(map(same, *shown)):
            return f"cell {number} shows something else"
    return None


def tags(cell):
    return cell["metadata"].get("tags", [])


def facts(outputs, pictures):
    """What outputs show, as texts: the kinds of data, their text, and their pictures if asked; streams in one piece."""
    found, stream = [], ""
    for output in outputs:
        stream += joined(output.get("text", ""))
        data = output.get("data", {})
        found += sorted(data)
        if any("widget" in kind for kind in data):
            continue
        for kind in sorted(data):
            if kind.startswith("text/") or (pictures and kind.startswith("image/")):
                found.append(joined(data[kind]))
    return [stream, *found]


def same(one, other):
    """Whether two texts are equal but for the rounding of their numbers."""
    if one == other:
        return True
    if NUMBER.sub("#", one).split() != NUMBER.sub("#", other).split():
        return False
    pairs = zip(*([float(n.replace(",", "")) for n in NUMBER.findall(text)] for text in (one, other)), strict=True)
    return all(math.isclose(a, b, rel_tol=CLOSE, abs_tol=TINY) for a, b in pairs)


def build(name, folder=FOLDER):
    """Run one notebook and write it where it came out otherwise; why it was stale, or None."""
    import nbformat

    path = folder / f"{name}.ipynb"
    text = nbformat.writes(execute(name, folder)) + "\n"
    why = difference(json.loads(path.read_text(encoding="utf-8")), json.loads(text)) if path.exists() else "it is new"
    if why:
        path.write_text(text, encoding="utf-8", newline="\n")
    return why


def main():
    parser = argparse.ArgumentParser(prog="python -m notebooks.build", description="run the notebooks")
    parser.add_argument("chosen", nargs="*", metavar="NN", help="the first figures of a name; all if none is given")
    parser.add_argument("--check", action="store_true", help="run nothing: look at what is committed")
    arguments = parser.parse_args()
    chosen = [name for name in names() if not arguments.chosen or name.startswith(tuple(arguments.chosen))]
    if not chosen:
        sys.exit(f"no notebook begins with {' or '.join(arguments.chosen)}; there are {', '.join(names())}")
    status = 0 if arguments.check else run(chosen)
    found = check(chosen)
    print("\n".join(found) or f"notebooks as they should be: {len(chosen)}", flush=True)
    sys.exit(1 if found else status)


def run(chosen):
    """Build each notebook, saying how long it took; 1 if one failed or was stale, else 0."""
    missing = [name for name in LOADED if not importlib.util.find_spec(name)]
    if missing:
        sys.exit(f"{', '.join(missing)} missing: `make notebooks` without PYTHON= installs what it needs")
    from nbclient.exceptions import CellExecutionError

    status = 0
    for name in chosen:
        started = time.perf_counter()
        try:
            why = build(name) if (FOLDER / f"{name}.py").exists() else None
        except CellExecutionError as error:
            why = f"failed, and nothing was written:\n{error}"
        else:
            why = why and f"{why}; written anew: commit it"
        print(f"{name}: {time.perf_counter() - started:.0f} s{', ' + why if why else ''}", flush=True)
        status = 1 if why else status
    return status


if __name__ == "__main__":
    main()
