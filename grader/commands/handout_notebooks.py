"""A notebook as a handout has it: cells that need solutions/ are gone, and what they gave stands in their place.

Such a cell has the tag "solution", as has every cell that uses what it made. A notebook whose first cell has it is left
out.
"""

import json
from collections.abc import Callable

TAG = "solution"
SAID = "*From the course's own solution, which a handout does not have:*"


def without_solutions(text: str) -> dict:
    """The notebook, its tagged cells as Markdown: their outputs, without their code."""
    notebook = json.loads(text)
    notebook["cells"] = [shown(cell) if TAG in cell["metadata"].get("tags", ()) else cell for cell in notebook["cells"]]
    return notebook


def starts_from_solutions(text: str) -> bool:
    """True for a notebook of which nothing runs without solutions/."""
    first: dict = next((cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"), {"metadata": {}})
    return TAG in first["metadata"].get("tags", ())


def shown(cell: dict) -> dict:
    """What a cell gave, as a cell of Markdown."""
    parts, attachments = [SAID], {}
    for number, output in enumerate(cell.get("outputs", ())):
        data = output.get("data", {})
        if "image/png" in data:
            attachments[f"{number}.png"] = {"image/png": data["image/png"]}
            parts.append(f"![what the cell drew](attachment:{number}.png)")
        elif "text/html" in data:
            parts.append("".join(data["text/html"]))
        else:
            parts.append(f"```text\n{''.join(output.get('text', data.get('text/plain', ''))).rstrip()}\n```")
    made = {"cell_type": "markdown", "id": cell["id"], "metadata": {}, "source": "\n\n".join(parts)}
    return made | ({"attachments": attachments} if attachments else {})


def code_of(notebook: dict) -> str:
    """The code of all its cells."""
    return "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")


def rewrite(notebook: dict, change: Callable[[str], str]) -> None:
    """Change the words of a notebook."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = change("".join(cell["source"]))
