"""solutions/ -> problems/: the gaps are cut out, each fails by its name; a file that a student edited is kept.

python -m grader.commands.skeletons           write the skeletons
python -m grader.commands.skeletons --check   exit 1 where problems/ is not what solutions/ gives
"""

import hashlib
import json
import sys
from pathlib import Path

from grader.course.gaps import SOLUTIONS, BadGap, skeleton
from grader.kinds.registry import EVERY

SKELETONS = Path(__file__).resolve().parents[2] / "problems"
MANIFEST = "generated.json"  # {module: hash of what was generated}: how an edited file is known


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def generate():
    """{module: the text of its skeleton} for every problem and lab."""
    return {p.module: skeleton((SOLUTIONS / p.module).read_text(), p.module) for p in EVERY.values()}


def write(texts, folder):
    """Write what has not been edited since it was generated; returns the modules that were kept."""
    folder.mkdir(exist_ok=True)
    manifest = folder / MANIFEST
    known = json.loads(manifest.read_text()) if manifest.exists() else {}
    kept = []
    for module, text in texts.items():
        path = folder / module
        if path.exists() and digest(path.read_text()) not in (known.get(module), digest(text)):
            kept.append(module)
            continue
        path.write_text(text)
        known[module] = digest(text)
    manifest.write_text(json.dumps(known, indent=1) + "\n")
    return kept


def check(texts, folder):
    """The modules in `folder` that are not what the solutions give."""
    return [m for m, text in texts.items() if not (folder / m).exists() or (folder / m).read_text() != text]


def main(argv):
    try:
        texts = generate()
    except BadGap as error:
        print(f"skeletons: {error}", file=sys.stderr)
        return 2
    if argv == ["--check"]:
        drifted = check(texts, SKELETONS)
        for module in drifted:
            print(f"problems/{module} is not what solutions/{module} gives: `make skeletons` writes it anew")
        return 1 if drifted else 0
    for module in write(texts, SKELETONS):
        print(f"kept problems/{module}: it has been edited; move it away to get a fresh skeleton")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
