"""The written half of a class, `python -m classroom.marks OUT`: a sheet for levels, a page, and the points."""

import re
import sys
from collections import defaultdict
from collections.abc import Container, Sequence
from fractions import Fraction
from pathlib import Path

from msgspec import Struct

from classroom import sheet
from classroom.data import Class, Row, read_class
from classroom.names import list_some, shortened
from grader.commands.arguments import BadArguments, Parser
from grader.core.sandbox import files, texts
from grader.course import course
from grader.render import html
from grader.render.drawing import KINDS

SHEET, PAGE, ANSWER = "marks.csv", "marks.html", 20_000  # characters of one answer that the page shows
HEADING = re.compile(r" {0,3}#{1,6}[\s*_]*(Q[0-9]{1,3})\b", re.I)


class Question(Struct, frozen=True):
    """A question of the rubric. most: points of the highest level; body: Markdown, what to look for and the levels."""

    id: str
    title: str
    weight: int
    most: int
    body: str


class Marks(Struct):
    """What marks.csv says. The keys of each dict are the ids of all rows of the class."""

    most: Fraction  # points of all questions
    points: dict[str, Fraction | None] = {}  # None where a level is missing
    levels: dict[str, dict[str, int]] = {}  # {question: level}
    missing: dict[str, list[str]] = {}  # questions without a level
    doubts: dict[str, list[str]] = {}  # questions whose level is written as `2?`
    notes: list[str] = []  # sentences on what does not count, or should be looked at again

    def combined(self, row: str, code: Fraction | None, most_code: Fraction, share: float) -> Fraction | None:
        """Percent of the whole, of which the written half is `share`, 0 to 1; None where a half is unknown."""
        marks, part = self.points.get(row), Fraction(str(share))
        if code is None or marks is None or not most_code:
            return None
        return 100 * ((1 - part) * code / most_code + part * marks / self.most)


def read_course_marks(out: Path, whole: Class) -> tuple[Marks | None, list[str]]:
    """(Marks, their notes), or (None, []) where no marks.csv was made; raises BadArguments and OSError."""
    there = course.current().said.written and (out / SHEET).exists()
    marks = read_marks(whole, out, questions_of_course()) if there else None
    return marks, marks.notes if marks else []


def questions_of_course() -> list[Question]:
    folder, written = course.current().folder, course.current().said.written
    if written is None:
        raise BadArguments(f"{folder / 'course.toml'} has no [written]: this course has no written half")
    return read_rubric((folder / written.rubric).read_text("utf-8", "replace"))


def read_rubric(text: str) -> list[Question]:
    """The questions in the order of the rubric's table; raises BadArguments where its sections do not agree with it."""
    sections, found = divide(text), list[Question]()
    for id, weight, points in re.findall(r"^\| *(Q[0-9]{1,3}) *\|.*\| *([0-9]+) *\| *([0-9]+) *\| *$", text, re.M):
        if id not in sections:
            raise BadArguments(f"rubric: {id} stands in the table, and no section `### {id}. ...` is left for it")
        head, *lines = sections.pop(id)
        title = re.sub(r"^.*?Q[0-9]+[.:]? *| \([0-9]+ points?\)$", "", head.strip(), flags=re.I)
        if not 0 < int(points) == 3 * int(weight) or ("points)" in head and f"({points} points)" not in head):
            raise BadArguments(f"rubric: {id}: points, in table and section, are 3 times its weight, {weight}")
        body = re.split("^#{1,3} ", "\n".join(lines), flags=re.M)[0].strip()
        found.append(Question(id, title, int(weight), int(points), body))
    if (left := next(filter(None, sections), "")) or not found:
        raise BadArguments(f"rubric: its table has no row for {left or 'a question'}, like `| Q1 | ... | 2 | 6 |`")
    return found


def divide(text: str, ids: Container[str] | None = None) -> dict[str, list[str]]:
    """{question: lines from its heading to the next one's}; "" has those before. ids: only these count (None: all)."""
    parts, now = defaultdict[str, list[str]](list), ""
    for line in text.splitlines():
        head = HEADING.match(line)
        now = head[1].upper() if head and (ids is None or head[1].upper() in ids) else now
        parts[now].append(line)
    return parts


def link(row: Row) -> str:
    return row.report or "not handed in"  # relative to the class's folder


def read_table(path: Path, questions: Sequence[Question]) -> tuple[list[list[str]], dict[str, int]]:
    """(the rows of marks.csv, its header first, with all columns of ours, {column: its place}); raises BadArguments."""
    columns = ["student", "name", "report", *(question.id for question in questions), "remark"]
    table = sheet.read(path) if path.exists() else [columns]
    header = [sheet.plain(name) for name in table[0]]
    if (twice := [name for name in columns if header.count(sheet.plain(name)) > 1]) or "student" not in header:
        raise BadArguments(f"{path} needs one column {(twice or columns)[0]!r}: mend its header, or move the file away")
    new, width = [name for name in columns if sheet.plain(name) not in header], max(map(len, table))
    table = [[*row, *[""] * (width - len(row)), *(new if row is table[0] else [""] * len(new))] for row in table]
    return table, {sheet.plain(name): place for place, name in enumerate(table[0])}


def write_sheet(whole: Class, out: Path, questions: Sequence[Question]) -> str:
    """Make or complete marks.csv; what stands there stays, but a row without levels gets the report that counts now."""
    (table, place), rows = read_table(out / SHEET, questions), {row.id: row for row in whole.rows}
    for cells in table[1:]:
        row = rows.pop(sheet.own_text(cells[place["student"]]), None)
        if row and not any(cells[place[question.id.lower()]] for question in questions):
            cells[place["report"]] = link(row)
    ours = [{"student": row.id, "name": row.name, "report": link(row)} for row in rows.values()]
    table += [[cells.get(sheet.plain(name), "") for name in table[0]] for cells in ours]
    if not (out / SHEET).exists() or table != sheet.read(out / SHEET):
        files.write(out / SHEET, sheet.to_csv(table))
    return f"sheet: {out / SHEET}: write a level, 0 to 3, for each question; `2?` is a 2 in doubt"


def read_marks(whole: Class, out: Path, questions: Sequence[Question]) -> Marks:
    """The levels in marks.csv; what is no level is in the notes, and is missing. Raises BadArguments."""
    marks, lines = Marks(Fraction(sum(question.most for question in questions))), defaultdict[str, list](list)
    table, place = read_table(out / SHEET, questions)
    for number, cells in enumerate(table[1:], 2):
        lines[sheet.own_text(cells[place["student"]])].append((number, cells))
    for row in whole.rows:
        given = lines.pop(row.id, [])
        if len(given) > 1:
            marks.notes.append(f"{SHEET}: lines {', '.join(str(n) for n, _ in given)} are all {row.id}'s: none counts")
        line, cells = given[0] if len(given) == 1 else (0, [""] * len(table[0]))
        said = {question.id: sheet.own_text(cells[place[question.id.lower()]]) for question in questions}
        found = {id: level for id, text in said.items() if (level := re.fullmatch(r"([0-3])\s*(\??)", text))}
        levels = marks.levels[row.id] = {id: int(level[1]) for id, level in found.items()}
        doubts = marks.doubts[row.id] = [id for id, level in found.items() if level[2]]
        missing = marks.missing[row.id] = [id for id in said if id not in found]
        points = Fraction(sum(question.weight * levels.get(question.id, 0) for question in questions))
        marks.points[row.id] = None if missing else points
        wrong = {id: f"a level is 0, 1, 2 or 3; not {shortened(said[id])!r}" for id in missing if said[id]}
        marks.notes += [f"{SHEET}, line {line}, {id}: {what} ({row.id})" for id, what in wrong.items()]
        marks.notes += [f"{SHEET}, line {line}: {', '.join(doubts)} in doubt ({row.id})"] if doubts else []
        if levels and (was := cells[place["report"]]) not in ("", link(row)):
            marks.notes.append(f"{SHEET}, line {line}: {shortened(was)} was marked, {link(row)} counts now ({row.id})")
    marks.notes += [f"{SHEET}, line {of[0][0]}: the class has no student {shortened(id)!r}" for id, of in lines.items()]
    return marks


def answers(out: Path, row: Row, questions: Sequence[Question]) -> dict[str, str]:
    """{question: what the report says, to be shown}; "" has what comes before, or all where no heading divides it."""
    parts = divide(sheet.decode((out / link(row)).read_bytes()), {question.id for question in questions})
    most, found = ANSWER * (1 if any(parts) else len(questions)), {"": ""}
    for id, lines in parts.items():
        text = "\n".join(lines).strip()
        letters = (c if c.isprintable() or c in "\n\t" else " " if c.isspace() else "\ufffd" for c in text[:most])
        found[id] = "".join(letters) + (f"\n[cut: {len(text) - most:,} characters more]" if len(text) > most else "")
    return found


def write_page(whole: Class, out: Path, questions: Sequence[Question], marks: Marks) -> str:
    """Write marks.html, to mark one question of all students in a row; returns the line to print. Raises OSError."""
    shown = {row.id: answers(out, row, questions) for row in whole.rows if row.report.endswith(".md")}
    page = html.templates(Path(__file__).parent / "templates").get_template("marks.html")
    files.write(out / PAGE, page.render(rows=whole.rows, questions=questions, marks=marks, answers=shown, kinds=KINDS))
    return f"page: {out / PAGE}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m classroom.marks", allow_abbrev=False, description="Mark the written half.")
    parser.add_argument("out", type=Path, help="the folder of a class: OUT of make class")
    try:
        out = parser.parse_args(argv).out
        whole, questions = read_class(out), questions_of_course()
        said, marks = write_sheet(whole, out, questions), read_marks(whole, out, questions)
        lines = [said, write_page(whole, out, questions, marks)]
    except (BadArguments, OSError) as error:
        print(texts.clean(f"marks: {error}"), file=sys.stderr)
        return 2
    waiting = [row for row in whole.rows if marks.missing[row.id] and (row.report or marks.levels[row.id])]
    names = [f"{row.name} ({list_some(marks.missing[row.id])})" for row in waiting]
    reports = [row for row in whole.rows if row.report]
    marked = sum(marks.points[row.id] is not None for row in reports)
    lines += [f"reports marked: {marked} of {len(reports)}; levels missing: {list_some(names) or 'none'}"]
    lines += (
        [f"then: make class OUT={texts.quoted(out)} puts them into the gradebook and on the pages"] if marked else []
    )
    print("\n".join(map(texts.clean, [*lines, *(f"note: {note}" for note in marks.notes)])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
