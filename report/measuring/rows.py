"""Rows of a study: which columns they have, and how its CSV is read, appended to and mended. No torch."""

import csv
import io
import os
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar

from grader.core.sandbox import files
from report.places import Refused

STATUSES = ("ok", "oom", "failed", "not run")
FINISHED = ("ok", "oom", "failed")  # such a row is not measured again
YES_NO = {"yes": True, "no": False}


class BadTable(Refused):
    """A CSV or a machine's file that cannot be used; the text is one sentence."""


@dataclass(frozen=True)
class Ratio:
    """One time over another, with the ends of its 95 % interval."""

    middle: float
    low: float
    high: float

    @property
    def inverse(self):
        return Ratio(1 / self.middle, 1 / self.high, 1 / self.low)


class Row:
    """One arm at one point of a study: a dataclass that `schema` makes.

    None is a blank field: a number that was not measured is never 0. status: one of STATUSES; reason: a sentence
    unless it is ok. study: its name; keys: the columns that say what the row is about, `kernel` among them;
    measured: those that are blank where nothing was measured.
    """

    study: ClassVar[str]
    keys: ClassVar[tuple]
    measured: ClassVar[tuple]

    @property
    def key(self):
        """What no two rows of a table share."""
        return tuple(getattr(self, name) for name in self.keys)

    def ratio(self, column):
        """The Ratio in the columns of that name, or None."""
        values = [getattr(self, name) for name in interval(column)]
        return None if values[0] is None else Ratio(*(values[0] if value is None else value for value in values))


def interval(column):
    """The columns of a ratio and of the ends of its 95 % interval."""
    return column, f"{column}_low", f"{column}_high"


def schema(study, keys, measured, facts=()):
    """The class of a study's rows: {key column: its type}, then facts of the point, then what is measured."""
    numbers = [(name, int | None if name == "samples" else float | None, None) for name in (*facts, *measured)]
    said = [("status", str, "ok"), ("reason", str, "")]
    made = make_dataclass(f"Row of {study}", [*keys.items(), *numbers, *said], bases=(Row,), frozen=True)
    made.study, made.keys, made.measured = study, tuple(keys), tuple(measured)
    return made


def not_measured(row, status, reason):
    """The row with every measured number blank, and why."""
    return replace(row, **dict.fromkeys(row.measured), status=status, reason=reason)


@cache
def types(kind):
    """{column: its type} of a class of rows."""
    return {field.name: field.type for field in fields(kind)}


def header(kind):
    return ",".join(types(kind))


def show(value):
    """The text of one field."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(str(value).split())  # a reason is one line: a torn line is then the last one, always


def parse(kind, text):
    """The value of a field of that type; raises ValueError."""
    if kind is str:
        return text
    if kind is bool:
        if text not in YES_NO:
            raise ValueError(text)
        return YES_NO[text]
    if text == "" and kind in (int | None, float | None):
        return None
    return int(text) if kind in (int, int | None) else float(text)


def line(row):
    """The row as a line of the CSV, its end included."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow([show(getattr(row, name)) for name in types(type(row))])
    return out.getvalue()


def read(path, kind):
    """The rows of that class in the CSV at `path`, in its order; of two rows with the same key the later one counts.

    Raises BadTable where there is no such file, its header is not ours, or a line cannot be read. A last line that was
    torn is left out, see `Writer.mend`.
    """
    text = read_text(path, kind)
    text = text[: text.rstrip("\0").rfind("\n") + 1]
    if text.partition("\n")[0] != header(kind):
        raise BadTable(
            f"{path} was written by another version or is no {kind.study}: its header is not the one that this version "
            "writes; choose another folder with --out, or move it away"
        )
    rows = {}
    for number, values in enumerate(csv.reader(text.splitlines()[1:]), start=2):
        try:
            named = zip(types(kind).items(), values, strict=True)
            row = kind(**{name: parse(of, value) for (name, of), value in named})
            if row.status not in STATUSES:
                raise ValueError(row.status)
        except ValueError as error:
            raise BadTable(f"line {number} of {path} cannot be read ({error}); mend or delete that line") from None
        rows.pop(row.key, None)
        rows[row.key] = row
    return list(rows.values())


def read_text(path, kind):
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise BadTable(f"there is no {path}; `python -m report {kind.study}` writes one") from None
    except OSError as error:
        raise BadTable(f"{path} cannot be read: {error.strerror}") from None


class Writer:
    """Appends rows of one class to the CSV at `path`, each safe on the disk before `add` returns.

    Rows that are there already are in `rows`, by key. `mended`: a sentence if a torn last line was dropped, else "".
    Raises BadTable for a file that is not ours, which is left as it is; OSError where the disk is full.
    """

    def __init__(self, path, kind):
        self.path, self.kind, self.rows, self.mended = Path(path), kind, {}, ""
        text = read_text(path, kind) if self.path.exists() else ""
        if text.rstrip("\0\n") and not header(kind).startswith(text):
            self.rows = {row.key: row for row in read(path, kind)}
            self.mend()
        else:
            write_whole(self.path, [], kind)

    def mend(self):
        """Drop a line at the end that was never finished (the power failed, the disk was full).

        Every line is written with its end; NULs are what some file systems leave after a power failure.
        """
        content = self.path.read_bytes()
        whole = content.rstrip(b"\0").rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self.path, whole)
            self.mended = f"the last line of {self.path} was never finished: it was dropped, and is measured again"

    def add(self, row):
        """Append the row; where the disk is full, what is there of it is taken away again before OSError is raised."""
        size = self.path.stat().st_size
        try:
            with self.path.open("ab") as file:
                file.write(line(row).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            os.truncate(self.path, size)
            raise
        self.rows[row.key] = row

    def tidy(self):
        """Write the file anew where rows were measured again, so that each key stands there once."""
        lines = sum(1 for _ in self.path.open()) - 1
        if lines != len(self.rows):
            write_whole(self.path, self.rows.values(), self.kind)


def write_whole(path, rows, kind):
    """The CSV with these rows and no others."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    files.write(path, "".join([header(kind) + "\n", *map(line, rows)]), durable=True)
