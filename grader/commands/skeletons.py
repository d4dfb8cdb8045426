"""solutions/ -> problems/: the gaps are cut out, each fails by its name; a file that a student edited is kept.

Beside the skeletons stand the examples of their gaps, for `make hint`.
"""

import argparse
import hashlib
import json
from pathlib import Path

from grader.commands import gap_examples
from grader.commands.arguments import BadArguments
from grader.course import course
from grader.course.gaps import BadGap, skeleton
from grader.kinds.registry import EVERY

MANIFEST = "generated.json"  # {module: hash of what was generated}: how an edited file is known


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def generate() -> dict[str, str]:
    """{module: the text of its skeleton} for every problem and lab."""
    solutions = course.current().solutions
    return {p.module: skeleton((solutions / p.module).read_text(encoding="utf-8"), p.module) for p in EVERY.values()}


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
    return [
        m for m, text in texts.items() if not (folder / m).exists() or (folder / m).read_text(encoding="utf-8") != text
    ]


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
    examples, path = gap_examples.make(), folder / gap_examples.FILE
    if not arguments.check:
        for module in write(texts, folder):
            print(f"kept problems/{module}: it has been edited; move it away to get a fresh skeleton")
        path.write_bytes(examples)
        return 0
    drifted = check(texts, folder)
    drifted += [path.name] if not path.is_file() or path.read_bytes() != examples else []
    for name in drifted:
        print(f"problems/{name} is not what solutions/ gives: `make skeletons` writes it anew")
    return 1 if drifted else 0
