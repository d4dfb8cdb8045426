"""Which hints a student asked for: a small file beside the modules, that may be damaged, old or somebody's joke."""

import json
from dataclasses import asdict, dataclass

from grader.kinds.registry import EVERY
from grader.processes import files, handed_in

NAME = "hints.json"
MOST = 10_000  # hints asked for, that are believed


@dataclass(frozen=True)
class HintRecord:
    """Of one problem. failure: a hash of what went wrong; step: hints given on it; total: asked for in all."""

    failure: str = ""
    step: int = 0
    total: int = 0


def read(text):
    """{problem id: HintRecord} as far as the text of such a file tells it."""
    try:
        known = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    found = {}
    for id, entry in known.items() if isinstance(known, dict) else ():
        entry = entry if isinstance(entry, dict) else {}
        step, total = (entry.get(name) for name in ("step", "total"))
        if id in EVERY and all(type(n) is int and 0 <= n <= MOST for n in (step, total)):
            found[id] = HintRecord(str(entry.get("failure"))[:64], step, total)
    return found


def load(folder):
    try:
        return read(handed_in.read(folder / NAME))
    except OSError:
        return {}


def next_step(folder, id, failure):
    """The HintRecord of a problem with one hint more; it begins anew where the failure is another.

    Raises OSError where it cannot be kept.
    """
    known = load(folder)
    before = known.get(id, HintRecord())
    now = HintRecord(failure, before.step + 1 if before.failure == failure else 1, min(before.total + 1, MOST))
    plain = {name: asdict(each) for name, each in sorted((known | {id: now}).items())}
    files.write(folder / NAME, json.dumps(plain, indent=1) + "\n")
    return now


def remark(text):
    """`Hints asked for, as its hints.json says: p3 4, p6 2.` for the instructor, or None."""
    counts = ", ".join(f"{id} {each.total}" for id, each in sorted(read(text).items()) if each.total)
    return f"Hints asked for, as its {NAME} says: {counts}." if counts else None
