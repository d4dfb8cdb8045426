"""Which hints a student asked for: a small file beside the modules, that may be damaged, old or somebody's joke."""

import contextlib
from pathlib import Path
from typing import Annotated

import msgspec

from grader.core.sandbox import files, handed_in
from grader.registry import EVERY

NAME = "hints.json"
MOST = 10_000  # hints on one failure, that are believed
Record = dict[str, dict[str, Annotated[int, msgspec.Meta(ge=0, le=MOST)]]]  # {problem id: {failure: hints given}}


def read(text: str) -> Record:
    """The Record of such a file's text; empty where it is damaged."""
    with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
        return {id: given for id, given in msgspec.json.decode(text, type=Record).items() if id in EVERY}
    return {}


def count_one(folder: Path, id: str, failure: str) -> int:
    """How many hints on this failure are given, this one among them; raises OSError where that cannot be kept."""
    known: Record = {}
    with contextlib.suppress(OSError):
        known = read(handed_in.read(folder / NAME))
    given = known.setdefault(id, {})
    given[failure] = min(given.get(failure, 0) + 1, MOST)
    files.write(folder / NAME, msgspec.json.format(msgspec.json.encode(known), indent=1) + b"\n")
    return given[failure]


def remark(text: str) -> str | None:
    """`Hints asked for, as its hints.json says: p3 4, p6 2.` for the instructor, or None."""
    totals = {id: sum(given.values()) for id, given in sorted(read(text).items())}
    counts = ", ".join(f"{id} {total}" for id, total in totals.items() if total)
    return f"Hints asked for, as its {NAME} says: {counts}." if counts else None
