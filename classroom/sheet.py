"""CSV files: read as people and platforms write them, and written so that no spreadsheet takes a name for a formula."""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from grader.commands.arguments import BadArguments

ENCODINGS = ("utf-8-sig", "utf-16", "cp1252", "latin-1")  # the last reads every byte
DELIMITERS = ",;\t"
SIGNS = frozenset("=+-@")  # with which a formula begins
NUMBER = re.compile(r"[-+]?[0-9]*([.,][0-9]+)?")  # and a sign alone, which Moodle writes for nothing
SEPARATORS = frozenset(",;|\t\r\n")  # of cells, for one spreadsheet or another


csv.field_size_limit(1 << 30)  # a reason may be long


class BadSheet(BadArguments):
    """A CSV that cannot be used; the text is one sentence."""


def read(path: Path) -> list[list[str]]:
    """The rows of a CSV as texts, the header first; lines without any text are left out. Raises BadSheet."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadSheet(f"{path} cannot be read: {error.strerror}") from None
    text = decode(data)
    first = text.lstrip().split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=first.count)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise BadSheet(f"{path} is no CSV that can be read ({error}): look for a quote that is not closed") from None
    rows = [[cell.strip() for cell in row] for row in rows]
    rows = [row for row in rows if any(row)]
    if not rows:
        raise BadSheet(f"{path} is empty")
    return rows


def decode(data: bytes) -> str:
    for encoding in ENCODINGS:
        if encoding == "utf-16" and data[:2] not in (b"\xff\xfe", b"\xfe\xff"):
            continue
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            pass
    return ""


def read_rows(path: Path) -> list[dict[str, str]]:
    """Each row below the header as {column in small letters: text}; a cell of ours is as it was. Raises BadSheet."""
    header, *rows = read(path)
    names = [plain(name) for name in header]
    return [dict(zip(names, (own_text(cell) for cell in row), strict=False)) for row in rows]


def own_text(cell: str) -> str:
    """A cell without the apostrophes that text_cell put in front of signs."""
    return "".join(c for i, c in enumerate(cell) if not (c == "'" and cell[i + 1 : i + 2] in SIGNS))


def plain(text: str) -> str:
    """A name as it is compared: one spelling of each accent, one space between words, no case."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def text_cell(text: str) -> str:
    """A text of which no spreadsheet takes a part for a formula: an apostrophe stands before each that would be one.

    A file with commas is split at semicolons where those are usual, so a cell may begin within a text. Signs count in
    each spelling that NFKC makes plain; quotes and what cannot be seen count as blanks. Source: OWASP, "CSV Injection".
    """
    if NUMBER.fullmatch(text):
        return text
    written, begins = [], True
    for letter in text:
        normal = unicodedata.normalize("NFKC", letter)
        written += ["'"] if begins and normal[0] in SIGNS else []
        written.append(letter)
        blank = letter in ' "' or not letter.isprintable()
        begins = (begins and blank) or not SEPARATORS.isdisjoint(normal)
    return "".join(written)


def to_csv(rows: Iterable[Sequence[str]]) -> str:
    """Rows of texts as a CSV with a mark of its order, so that spreadsheets read names as they are written."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows([text_cell(cell) for cell in row] for row in rows)
    return f"\ufeff{out.getvalue()}"
