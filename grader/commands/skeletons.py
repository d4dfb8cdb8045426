"""solutions/ -> problems/: the gaps are cut out, each fails by its name; a file that a student edited is kept.

Beside the skeletons lie the hints on their gaps, for `make hint`.
"""

import argparse
import hashlib
import json
import re
from pathlib import Path

from grader.commands.arguments import BadArguments
from grader.course import course
from grader.course.gaps import BadGap, skeleton
from grader.registry import EVERY

MANIFEST = "generated.json"  # {module: hash of what was generated}: how an edited file is known
HINTS = "gap_examples.json"
NUMBER, LAST_DIGIT = re.compile(r"-?\d+\.\d+"), 1.5e-4  # numbers have four digits behind the point


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def generate() -> dict[str, str]:
    """{name: text} of the skeleton of every problem and lab, and of the hints on their gaps."""
    from grader.commands.gap_examples import make_hints  # it runs kernels, and imports all that they need

    solutions = course.current().solutions
    texts = {p.module: skeleton((solutions / p.module).read_text(encoding="utf-8"), p.module) for p in EVERY.values()}
    return texts | {HINTS: write_hints({problem.module: make_hints(problem) for problem in EVERY.values()})}


def load_hints() -> dict[str, dict[str, list[list[str]]]]:
    """{module: {number of a gap: the lines of each hint}} of the skeletons; empty where it was never written."""
    path = course.current().students / HINTS
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write_hints(hints: dict[str, dict[str, list[list[str]]]]) -> str:
    """The text of such a file."""
    return json.dumps(hints, indent=1) + "\n"


def write(texts: dict[str, str], folder: Path) -> list[str]:
    """Write what has not been edited since it was generated; returns the modules that were kept."""
    folder.mkdir(exist_ok=True)
    manifest = folder / MANIFEST
    known = json.loads(manifest.read_text(encoding="utf-8")) if manifest.exists() else {}
    kept = []
    for module, text in texts.items():
        path = folder / module
        if path.exists() and digest(path.read_text(encoding="utf-8")) not in (known.get(module), digest(text)):
            kept.append(module)
            continue
        path.write_text(text, "utf-8")
        known[module] = digest(text)
    manifest.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    return kept


def check(texts: dict[str, str], folder: Path) -> list[str]:
    """The modules in `folder` that are not what the solutions give."""
    there = {path.name: path.read_text(encoding="utf-8") for name in texts if (path := folder / name).exists()}
    there |= {HINTS: texts[HINTS]} if HINTS in there and same(there[HINTS], texts[HINTS]) else {}
    return [name for name, text in texts.items() if there.get(name) != text]


def same(one: str, other: str) -> bool:
    """Whether two texts are the same but for the last digit of a number, which differs between processors."""
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=False)
    close = all(abs(float(a) - float(b)) <= LAST_DIGIT for a, b in pairs)
    return close and NUMBER.sub("", one) == NUMBER.sub("", other)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="write nothing: exit status 1 where problems/ differs")


def main(arguments: argparse.Namespace) -> int:
    try:
        texts = generate()
    except BadGap as error:
        raise BadArguments(str(error)) from None
    except OSError as error:
        raise BadArguments(f"skeletons are made of solutions, and {error.filename} is not here") from None
    folder = course.current().students
    if not arguments.check:
        for name in write(texts, folder):
            print(f"kept problems/{name}: it has been edited; move it away to get a fresh one")
        return 0
    drifted = check(texts, folder)
    for name in drifted:
        print(f"problems/{name} is not what solutions/ gives: `make skeletons` writes it anew")
    return 1 if drifted else 0
