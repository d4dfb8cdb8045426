"""CSV: another program's, of which single cells are read and filled while every other byte stays, and our own."""

import codecs
import csv
import io
import re
import unicodedata
from dataclasses import dataclass

from grader.commands.arguments import BadArguments

DELIMITERS = ",;\t"
LINE_END = re.compile(r"\r\n|\n|\r")
SIGNS = frozenset("=+-@")  # with which a formula begins
SEPARATORS = frozenset(",;|\t\r\n")  # of cells, for one spreadsheet or another


class BadSheet(BadArguments):
    """An export that cannot be filled; the text is one sentence for the instructor."""


@dataclass
class Cell:
    """A cell as it stands in the file, quotes included."""

    raw: str

    @property
    def quoted(self):
        return len(self.raw) > 1 and self.raw[0] == self.raw[-1] == '"'

    @property
    def is_open(self):
        """True for a cell that begins with a quote which nothing closes."""
        return self.raw.startswith('"') and self.raw.count('"') % 2 == 1

    @property
    def text(self):
        return (self.raw[1:-1].replace('""', '"') if self.quoted else self.raw).strip()


class Sheet:
    """The rows of a CSV as the instructor's program wrote it.

    rows: lists of Cells; header: the texts of the first. mark: what stands before decimals. Raises BadSheet.
    """

    def __init__(self, data, name):
        self.name = name
        self.encoding = encoding_of(data)
        text = data.decode(self.encoding)
        self.start = "\ufeff" if text.startswith("\ufeff") else ""
        text = text.removeprefix("\ufeff")
        self.delimiter = delimiter_of(text)
        self.rows, self.ends = split(text, self.delimiter)
        if not text.strip():
            raise BadSheet(f"{name} is empty: export it again, as CSV")
        self.header = [cell.text for cell in self.rows[0]]

    @classmethod
    def read(cls, path):
        try:
            return cls(path.read_bytes(), path.name)
        except OSError as error:
            raise BadSheet(f"{path} cannot be read: {error.strerror}") from None

    def column(self, *names):
        """The number of the first column with one of these names, whatever their case; None where there is none."""
        header = [plain(title) for title in self.header]
        return next((header.index(plain(name)) for name in names if plain(name) in header), None)

    def needs(self, *names):
        """`column`; raises BadSheet where there is none."""
        if (found := self.column(*names)) is None:
            has = ", ".join(title for title in self.header if title)
            raise BadSheet(f"{self.name} has no column {names[0]!r}; its columns are: {has}")
        return found

    def text(self, row, column):
        """The text of a cell; "" where the row is too short or there is no such column."""
        cells = self.rows[row]
        return cells[column].text if column is not None and column < len(cells) else ""

    def fill(self, row, column, text, is_number=False):
        """Put a text in a cell, quoted where the cell was quoted or has to be."""
        cells = self.rows[row]
        cells += [Cell("") for _ in range(column + 1 - len(cells))]
        text = text if is_number else text_cell(text)
        must = cells[column].quoted or any(sign in text for sign in (self.delimiter, '"', "\r", "\n"))
        cells[column].raw = '"' + text.replace('"', '""') + '"' if must else text

    def mark(self, *columns):
        """The decimal mark of the numbers in these columns: a comma only where they have one, and no point."""
        texts = [self.text(row, column) for row in range(1, len(self.rows)) for column in columns]
        commas, points = (any(re.fullmatch(rf"\d+{mark}\d+", text) for text in texts) for mark in (",", r"\."))
        return "," if commas and not points else "."

    def to_bytes(self):
        lines = (
            self.delimiter.join(cell.raw for cell in row) + end for row, end in zip(self.rows, self.ends, strict=True)
        )
        return (self.start + "".join(lines)).encode(self.encoding)


def encoding_of(data):
    """UTF-8 or UTF-16 where the bytes are, else Windows' or Latin-1, which every byte is: none is lost on the way."""
    wide = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}.get(data[:2])
    for name in (*filter(None, [wide]), "utf-8", "cp1252"):
        try:
            data.decode(name)
            return name
        except UnicodeDecodeError:
            pass
    return "latin-1"


def delimiter_of(text):
    """The one of DELIMITERS that the first line has most often outside quotes."""
    first = re.sub(r'"(?:[^"]|"")*"', "", text).lstrip("\r\n")
    first = LINE_END.split(first, maxsplit=1)[0]
    return max(DELIMITERS, key=first.count)


def split(text, delimiter):
    """(rows of Cells, the line end of each): joined again they are the text."""
    cell = re.compile(rf'(?:"(?:[^"]|"")*")?[^{re.escape(delimiter)}\r\n]*')
    rows, ends, row, at = [], [], [], 0
    while at < len(text) or row:
        found = cell.match(text, at)
        row.append(Cell(found[0]))
        at = found.end()
        if text.startswith(delimiter, at):
            at += len(delimiter)
            continue
        end = LINE_END.match(text, at)
        ends.append(end[0] if end else "")
        rows.append(row)
        row, at = [], end.end() if end else at
    return rows, ends


def plain(text):
    """A name as it is compared: one spelling of each accent, one space between words, no case."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def turned(name):
    """`Lovelace, Ada` and `Ada Lovelace` compared alike: the sorted form is turned round."""
    last, comma, first = name.partition(",")
    return plain(f"{first} {last}") if comma else plain(name)


# Our own --------------------------------------------------------------------------------------------------------------


def text_cell(text):
    """A text of which no spreadsheet takes a part for a formula: an apostrophe stands before each that would be one.

    A file with commas is split at semicolons where those are usual, so a cell may begin within a text. Signs count in
    each spelling that NFKC makes plain; quotes and what cannot be seen count as blanks. Source: OWASP, "CSV Injection".
    """
    written, begins = [], True
    for letter in str(text):
        plain = unicodedata.normalize("NFKC", letter)
        written += ["'"] if begins and plain[0] in SIGNS else []
        written.append(letter)
        blank = letter in ' "' or not letter.isprintable()
        begins = (begins and blank) or not SEPARATORS.isdisjoint(plain)
    return "".join(written)


def to_csv(rows):
    """Rows of texts as a CSV with a mark of its order, so that spreadsheets read names as they are written."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(map(text_cell, row) for row in rows)
    return f"\ufeff{out.getvalue()}"
