"""A page for each pair of modules that are suspiciously alike: both side by side, what they share marked."""

from itertools import groupby

from grader.classroom.export.everything import texts
from grader.classroom.export.pages import TEMPLATES
from grader.render import html
from grader.render.drawing import KINDS

AROUND = 4  # lines about a marked one that are not folded up
WORDS = {
    "wording": "names, remarks and code as they are written",
    "structure": "the code with all names made one: names may differ",
}


def write(graded, out, pairs):
    """Write `out`/copies/*.html, and take away those of an earlier run; returns the line to print."""
    folder = out / "copies"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*--*--*.html"):
        old.unlink()
    sources = texts(graded, out)
    names = {row.id: (row.roster or {}).get("name") or row.title for row in graded.submissions}
    for pair in pairs:
        (out / pair.page).write_text(render(pair, sources[pair.module], names), encoding="utf-8")
    many = "no pair" if not pairs else "1 pair" if len(pairs) == 1 else f"{len(pairs)} pairs"
    return f"suspected copies: {many} of modules" + (f", side by side in {folder}" if pairs else "")


def render(pair, sources, names):
    """The page of one pair as text."""
    sides = [
        {"id": id, "name": names[id], "parts": parts(sources[id], lines)}
        for id, lines in zip((pair.one, pair.other), pair.lines, strict=True)
    ]
    template = html.templates(TEMPLATES).get_template("copies.html")
    return template.render(pair=pair, sides=sides, what=WORDS[pair.look], kinds=KINDS)


def parts(text, marked):
    """[(folded up or not, [(number from 1, line, whether it is alike)])]: far from marked lines it is folded."""
    lines = [(i + 1, line, i in marked) for i, line in enumerate(text.splitlines())]
    near = {i for at in marked for i in range(at - AROUND, at + AROUND + 1)}
    return [(folded, list(run)) for folded, run in groupby(lines, key=lambda line: line[0] - 1 not in near)]
