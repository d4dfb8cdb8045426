"""What a class is made of, as types: who is in it, what was handed in, and the results on the disk.

A result is a file named by what it answers (`key`): it is there, whole, or not. class.json says whose it is.
"""

import difflib
import gzip
import hashlib
import zlib
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import msgspec
from msgspec import Struct, field

from classroom.names import shortened, squashed
from grader import score
from grader.commands.arguments import BadArguments
from grader.core.sandbox import files
from grader.result import Outcome, Result

CLASS = "class.json"


class BadClass(BadArguments):
    """The folder of a class cannot be used; the text is one sentence."""


class Student(Struct, frozen=True):
    """A line of the roster; what it does not have is empty. lms: the platform's number of the student.

    line: the place of the line in the roster's file, from 0.
    """

    id: str = ""
    name: str = ""
    email: str = ""
    login: str = ""
    lms: str = ""
    submitted: str = ""
    line: int = 0

    @property
    def name_turned(self) -> str:
        """`Lovelace Ada`, as Canvas writes names."""
        *first, last = self.name.split() or [""]
        return f"{last} {' '.join(first)}"

    @property
    def key(self) -> str:
        return self.id or self.email or self.login or self.lms or self.name


class Row(Struct, frozen=True):
    """One student, or a submission that is no student's of the roster.

    id: names files and pages, and stands in decisions.csv and marks.csv. entries: what was handed in, as it is called
    in the folder of submissions. stem: how the platform's name of an entry begins, for feedback. folder: the clean copy
    of the modules, and report that of the written half, or "", both relative to the class's folder. keys: {problem: key
    of its result}. unread: {problem: why its module could not be understood}. why: the same of the whole. submitted:
    when it was handed in, ISO 8601; late: the platform says that it came late.
    """

    id: str
    name: str
    student: Student | None = None
    entries: tuple[str, ...] = ()
    stem: str = ""
    folder: str = ""
    report: str = ""
    modules: tuple[str, ...] = ()
    keys: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    why: str = ""
    submitted: str = ""
    late: bool = False
    remarks: tuple[str, ...] = ()


class Record(Struct, frozen=True):
    """What became of one problem of a submission. seconds: wall clock.

    remarks: sentences of ours beside the results.
    """

    problem: str
    results: list[Result]
    seconds: float = 0.0
    remarks: tuple[str, ...] = ()

    @property
    def points(self) -> Fraction | None:
        """What was earned; None where an instructor has to look."""
        return None if self.to_review else sum(score.earned(self.results), Fraction(0))

    @property
    def to_review(self) -> list[Result]:
        return [result for result in self.results if result.outcome is Outcome.NEEDS_REVIEW]


class Class(Struct, frozen=True):
    """class.json: problems: {id: points}, in the order of the columns. faults: {row: {problem: why it has no result}}.

    platform: whose file the roster is, "" where it is a plain CSV; column: the assignment's in Canvas. seed, device,
    targets: what was asked of all.
    """

    problems: dict[str, int]
    rows: tuple[Row, ...]
    faults: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    roster: str = ""
    platform: str = ""
    column: str = ""
    seed: int = 0
    device: str = "cpu"
    targets: tuple[str, ...] = ()


def find_row(whole: Class, called: str) -> Row:
    """The one row that a person calls so: by its id, or an id, a number, a login, an address, a name of its student.

    Raises BadClass.
    """
    of_students = {row.student.key: row for row in whole.rows if row.student}
    student = find_student([row.student for row in of_students.values() if row.student], called)
    found = [row for row in whole.rows if row.id == called.strip() and (row.student or not student)]
    found = found or [row for row in whole.rows if student and row is of_students[student.key]]
    found = found or [row for row in whole.rows if squashed(row.name) == squashed(called)]
    if len(found) == 1:
        return found[0]
    near = difflib.get_close_matches(called, [name for row in whole.rows for name in (row.id, row.name)], 1)
    hint = f"did you mean {near[0]}?" if near and not found else "say it as the first column of gradebook.csv does"
    many = f"{len(found)} students are" if found else "nobody in the class is"
    raise BadClass(f"{many} called {shortened(called)!r}; {hint}")


def find_student(students: Sequence[Student], called: str) -> Student | None:
    """The one student whom people call so: an id counts before a number, a login, an address and, last, a name.

    A student may choose a name: it takes away nobody's id.
    """
    said = squashed(called)
    for ways in ("id",), ("lms",), ("login",), ("email",), ("name", "name_turned"):
        found = [student for student in students if said and said in {squashed(getattr(student, way)) for way in ways}]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def digest(*parts: str | bytes) -> str:
    """A hash of texts and bytes that no other division of them shares."""
    hashed = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        hashed.update(b"%d:" % len(data) + data)
    return hashed.hexdigest()


def path_of(out: Path, key: str) -> Path:
    return Path(out) / "results" / f"{key}.msgpack.gz"


def write_record(out: Path, key: str, record: Record) -> None:
    """Write a result so that it is there whole, or not; raises OSError."""
    path = path_of(out, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = msgspec.to_builtins(record, str_keys=True, enc_hook=str)
    # Not JSON, which has neither NaN nor infinity: an output may hold both.
    files.write(path, gzip.compress(msgspec.msgpack.encode(plain), 5, mtime=0), durable=True)


def read_record(out: Path, key: str) -> Record | None:
    """The result with this key, or None where it is missing or damaged."""
    try:
        return msgspec.msgpack.decode(gzip.decompress(path_of(out, key).read_bytes()), type=Record)
    except (OSError, EOFError, ValueError, zlib.error):
        return None


def records_of(out: Path, row: Row) -> dict[str, Record]:
    """{problem: Record} of a row, those that are there."""
    found = {problem: read_record(out, key) for problem, key in row.keys.items()}
    return {problem: record for problem, record in found.items() if record is not None}


def write_class(out: Path, whole: Class) -> None:
    files.write(Path(out) / CLASS, msgspec.json.format(msgspec.json.encode(whole), indent=1), durable=True)


def read_class(out: Path) -> Class:
    """The Class of a folder that `make class` wrote; raises BadClass."""
    path = Path(out) / CLASS
    try:
        return msgspec.json.decode(path.read_bytes(), type=Class)
    except FileNotFoundError:
        raise BadClass(f"{out} has no {CLASS}: no class was graded there") from None
    except (OSError, ValueError) as error:
        raise BadClass(f"{path} cannot be read ({error}); run make class again") from None
