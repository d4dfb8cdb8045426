"""The course that is graded: a folder with course.toml, problems/, solutions/, and kinds/ and notebooks/ of its own.

This repository is one. The environment's GRADER_COURSE names another: make's COURSE sets it.
"""

import datetime
import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from grader.core.sandbox import bubblewrap

VARIABLE = "GRADER_COURSE"
THIS = Path(__file__).resolve().parents[2]


class BadCourse(Exception):
    """A course that cannot be used; the text is one sentence that names the file and what to change."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One problem of a course. points: 0 for a lab, which is graded where it is named. week: when it is set, or None.

    timed: False leaves its speed out, on a GPU too. notebook: the name, without .ipynb, of the one that belongs to it
    alone: a handout has it only with the problem. None where there is none.
    """

    id: str
    points: int = 0
    week: int | None = None
    timed: bool = True
    notebook: str | None = None


class Late(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a late hand-in costs: points for each day begun after `due` and the hours of grace, at most `most`."""

    due: datetime.datetime
    points_a_day: float
    grace_hours: float = 0.0
    most: float | None = None


class Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The written half: its rubric, a file of the course, and its share of the whole, from 0 to 1."""

    rubric: str = "report/rubric.md"
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.4


class Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names in the modules of a course. gap: the word of an open gap, as in "TODO 2: ...".

    tiles: the variable that has the sizes of a module's tiles without a GPU.
    """

    gap: str = "TODO"
    tiles: str = "TILES_INTERPRETER"


class Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What course.toml says. kinds: names of folders in its kinds/ or in grader/kinds. problem: in their order."""

    title: str
    kinds: tuple[str, ...]
    problem: tuple[Entry, ...]
    late: Late | None = None
    written: Written | None = None
    names: Names = Names()


@dataclass(frozen=True)
class Course:
    """A course and the folder that it lies in."""

    folder: Path
    said: Said

    @property
    def students(self) -> Path:
        """The folder of the modules that a student fills in."""
        return self.folder / "problems"

    @property
    def solutions(self) -> Path:
        return self.folder / "solutions"

    @property
    def notebooks(self) -> Path:
        return self.folder / "notebooks"

    def points(self, id: str) -> int:
        """What a problem gives; a lab gives none."""
        return next((entry.points for entry in self.said.problem if entry.id == id), 0)


def read(folder: Path) -> Course:
    """The course in a folder; raises BadCourse."""
    path = folder / "course.toml"
    try:
        said = msgspec.toml.decode(path.read_bytes(), type=Said)
    except OSError as error:
        raise BadCourse(f"{folder} is no course: {path} cannot be read ({error.strerror})") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadCourse(f"{path}: {error}") from None
    ids = [entry.id for entry in said.problem]
    if twice := next((id for id in ids if ids.count(id) > 1), None):
        raise BadCourse(f"{path}: the problem {twice!r} is there twice")
    return Course(folder.resolve(), said)


def write(given: Course, ids: list[str]) -> str:
    """course.toml of the same course with these problems alone."""
    rows = []
    for entry in (entry for entry in given.said.problem if entry.id in ids):
        row = {name: value for name, value in msgspec.structs.asdict(entry).items() if value is not None}
        rows.append(f"    {{ {', '.join(f'{name} = {json.dumps(value)}' for name, value in row.items())} }},")
    head = [f"title = {json.dumps(given.said.title)}", f"kinds = {json.dumps(given.said.kinds)}"]
    names = (f"{name} = {json.dumps(word)}" for name, word in msgspec.structs.asdict(given.said.names).items())
    head += [f"names = {{ {', '.join(names)} }}", "problem = ["]
    return "\n".join([*head, *rows, "]", ""])


@functools.cache
def current() -> Course:
    """The course of this process, which no submission sees; raises BadCourse."""
    found = read(Path(os.environ.get(VARIABLE) or THIS))
    bubblewrap.hide(found.folder)
    return found
