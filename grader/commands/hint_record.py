"""Which hints a student asked for: a small file beside the modules, that may be damaged, old or somebody's joke."""

from pathlib import Path
from typing import Annotated

import msgspec

from grader.core.sandbox import files, handed_in
from grader.kinds.registry import EVERY

NAME = "hints.json"
MOST = 10_000  # hints asked for, that are believed
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]


class HintRecord(msgspec.Struct, frozen=True):
    """Of one problem. failure: a hash of what went wrong; step: hints given on it; total: asked for in all."""

    failure: Annotated[str, msgspec.Meta(max_length=64)] = ""
    step: Count = 0
    total: Count = 0


def read(text: str) -> dict[str, HintRecord]:
    """{problem id: HintRecord} of such a file's text; nothing where it is damaged."""
    try:
        known = msgspec.json.decode(text, type=dict[str, HintRecord])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return {id: record for id, record in known.items() if id in EVERY}


def load(folder: Path) -> dict[str, HintRecord]:
    try:
        return read(handed_in.read(folder / NAME))
    except OSError:
        return {}


def next_step(folder: Path, id: str, failure: str) -> HintRecord:
    """The HintRecord of a problem with one hint more; it begins anew where the failure is another.

    Raises OSError where it cannot be kept.
    """
    known = load(folder)
    before = known.get(id, HintRecord())
    now = HintRecord(failure, before.step + 1 if before.failure == failure else 1, min(before.total + 1, MOST))
    text = msgspec.json.encode(dict(sorted((known | {id: now}).items())))
    files.write(folder / NAME, msgspec.json.format(text, indent=1) + b"\n")
    return now


def remark(text: str) -> str | None:
    """`Hints asked for, as its hints.json says: p3 4, p6 2.` for the instructor, or None."""
    counts = ", ".join(f"{id} {each.total}" for id, each in sorted(read(text).items()) if each.total)
    return f"Hints asked for, as its {NAME} says: {counts}." if counts else None
