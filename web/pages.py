"""The pages of the site and their order: whatever of them the folder of the course holds."""

import re

from grader.course import course

ROOT = course.current().folder
NAME = course.current().said.title
HOME = "README.md"
REPORT = ("OVERVIEW", "REPORT", "template", "rubric", "BENCHMARKS", "STEPS", "STEPS_ROWS", "BACKWARD", "DECODE",
          "BLOCK_SPARSE", "BLOCK_SPARSE_ROWS", "PACKED", "PACKED_ROWS", "ORDERS", "TILE_SHAPES", "TRAINING",
          "SINKS")  # fmt: skip
GUIDES = ("students", "hosted-notebooks", "instructors", "points", "security", "a-kind-of-your-own", "benchmarks")
SUFFIX = re.compile(r"\.(md|ipynb)$")


def chapters(root=ROOT):
    """{heading of the navigation: [files in reading order]}, relative to `root`; without headings that have no files.

    Notebooks come in the order of their numbers; a page that REPORT or GUIDES does not name comes last.
    """
    notebooks = sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    report = in_order(root / "report", REPORT)
    inside = (root / "docs" / "architecture.md", root / "kernels" / "README.md", root / "CONTRIBUTING.md")
    guides = [path for path in in_order(root / "docs", GUIDES) if path not in inside]
    maintainers = [path for path in inside if path.exists()]
    found = {"Guides": guides, "Notebooks": notebooks, "Report": report, "For maintainers": maintainers}
    return {name: [path.relative_to(root).as_posix() for path in paths] for name, paths in found.items() if paths}


def in_order(folder, names):
    """The pages of a folder: those named first, in their order."""
    known = [folder / f"{name}.md" for name in names]
    return [path for path in known if path.exists()] + sorted({*folder.glob("*.md")} - {*known})


def files(root=ROOT):
    """Every file that becomes a page, home first."""
    return [HOME, *(path for paths in chapters(root).values() for path in paths)]


def navigation(root=ROOT):
    """The chapters as hidden tables of contents, in MyST's markdown; titles are the pages' own first headings."""
    blocks = []
    for heading, paths in chapters(root).items():
        names = "\n".join(f"/{SUFFIX.sub('', path)}" for path in paths)
        blocks.append(f"```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{names}\n```\n")
    return "\n".join(blocks)
