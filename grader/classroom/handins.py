"""What was handed in, and whose it is: by the documented names of Canvas, Moodle and Gradescope, or by submissions.csv.

Nothing is guessed. What does not fit stays on a list, with its reason, and blank in the gradebook.
Sources: Canvas Instructor Guide, "How do I download all student submissions for an assignment?"; MoodleDocs,
"Assignment activity", section "Downloading all submissions"; Gradescope, "Exporting submissions".
"""

import os
import re
import shutil
import stat
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from grader.classroom import modules, sheet
from grader.classroom.data import Row, Student, digest
from grader.classroom.names import list_some, readable, shortened, slug, squashed
from grader.commands.arguments import BadArguments
from grader.core.sandbox import files
from grader.core.sandbox.child import ChildFailed
from grader.core.sandbox.limited import Limited
from grader.core.sandbox.texts import quoted
from grader.course.problem import Problem

LIST, METADATA = "submissions.csv", "submission_metadata.yml"
IGNORED = {"__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini", LIST, METADATA}
BESIDE = (".csv", ".txt", ".md", ".yml", ".xlsx")  # lie beside submissions, and nobody misses them
MOODLE = re.compile(r"(?P<name>.+?)_(?P<lms>\d+)_assignsubmission_(?:file|onlinetext)(?:_(?P<file>.*))?", re.S)
CANVAS = re.compile(r"(?P<name>.+?)(?P<late>_late)?_(?P<lms>\d+)_\d+_(?P<file>.+)", re.S | re.I)
FORMS = {"moodle": MOODLE, "canvas": CANVAS}
ARCHIVE_BYTES, ARCHIVE_FILES = 2 << 30, 50_000  # of the class's own archive, unpacked
SAY = f"say whose it is in {LIST}"


class BadFolder(BadArguments):
    """The folder of submissions cannot be used; the text is one sentence."""


@dataclass
class HandIn:
    """What one person handed in, as far as names say. parts: [(path, the name that the student gave it)].

    stem: how the platform's name of its first entry begins, to which feedback goes back. why: why it counts for nobody.
    """

    name: str
    parts: list[tuple[Path, str]] = field(default_factory=list)
    lms: str = ""
    sid: str = ""
    email: str = ""
    stem: str = ""
    submitted: str = ""
    late: bool = False
    why: str = ""

    @property
    def entries(self) -> tuple[str, ...]:
        return tuple(readable(path.name) for path, _ in self.parts)


def take_in(
    folder: Path, out: Path, problems: Sequence[Problem], students: list[Student] | None
) -> tuple[list[Row], list[str]]:
    """([Row] without keys, notes): of each student, and of what is nobody's. Clean copies lie in `out`/work.

    students: of the roster, or None. Raises BadFolder and sheet.BadSheet.
    """
    folder, lost = unpacked(folder, out)
    found, notes = find(folder, out)
    pairs, absent = join(found, students)
    rows = [Row(slug(student.key), student.name or student.key, student) for student in absent]
    names = [problem.module for problem in problems]

    def take(parts):
        return modules.take(parts, names)

    with Limited(take, 2 * modules.SECONDS) as read:
        for handed_in, student in pairs:
            name_alone(handed_in, names)
            try:
                taken = modules.Taken() if handed_in.why else read(handed_in.parts)
            except ChildFailed as lost:
                taken, handed_in.why = modules.Taken(), f"It could not be looked at ({shortened(str(lost))})."
            if not handed_in.why and taken.unread and not taken.files.keys() & set(names):
                handed_in.why = next(iter(taken.unread.values()))
            rows.append(row_of(handed_in, student, taken, problems, out))
    return in_order(rows, students), [*lost, *notes]


def name_alone(handed_in: HandIn, names: list[str]) -> None:
    """A file that is all that was handed in, under its student's name, is the module where only one is asked for."""
    (path, name), *others = handed_in.parts or [(Path(), "")]
    if others or not name.endswith(".py") or modules.COPY.sub("", name) in names:
        return
    if len(names) == 1:
        handed_in.parts = [(path, names[0])]
    else:
        handed_in.why = handed_in.why or f"{shortened(name)} is no name of a module: one of {list_some(names, 2)}."


def row_of(handed_in: HandIn, student: Student | None, taken: modules.Taken, problems, out: Path) -> Row:
    base = f"{handed_in.name} {handed_in.lms}".strip()
    submitted = handed_in.submitted or (student.submitted if student else "")
    return Row(
        slug(student.key if student else base), (student and student.name) or readable(handed_in.name), student,
        handed_in.entries, handed_in.stem, copy(taken.files, out).relative_to(out.resolve()).as_posix(),
        next((name for name in modules.REPORTS if name in taken.files), ""),
        tuple(problem.module for problem in problems if problem.module in taken.files), {},
        {problem.id: taken.unread[problem.module] for problem in problems if problem.module in taken.unread},
        handed_in.why, submitted, handed_in.late, tuple(said for said in taken.remarks if said != handed_in.why),
    )  # fmt: skip


def in_order(rows: list[Row], students: list[Student] | None) -> list[Row]:
    """The roster's order, then what is no student's; of two with one id, nobody's is the one that gets another.

    A student's id must not depend on who else hands in: decisions are bound to it.
    """
    of_students = Counter(row.id for row in rows if row.student)
    every = Counter(row.id for row in rows)
    rows = [
        replace_id(row, f"{row.id}-{digest(row.name, row.student.key if row.student else '', *row.entries)[:8]}")
        if (of_students if row.student else every)[row.id] > 1
        else row
        for row in rows
    ]
    place = {student.key: number for number, student in enumerate(students or ())}
    return sorted(rows, key=lambda row: place[row.student.key] if row.student else len(place))


def replace_id(row: Row, id: str) -> Row:
    return Row(**{name: getattr(row, name) for name in row.__struct_fields__} | {"id": id})


def copy(given: dict[str, bytes], out: Path) -> Path:
    """The folder with a clean copy of these files, named by what they hold; it is made once and stays as it is."""
    folder = out.resolve() / "work" / digest(*(part for name in sorted(given) for part in (name, given[name])))[:32]
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in given.items():
        if not (folder / name).is_file() or (folder / name).read_bytes() != data:
            files.write(folder / name, data)
    for extra in set(os.listdir(folder)) - set(given):
        if (folder / extra).is_file():
            (folder / extra).unlink()
    return folder


# The entries ----------------------------------------------------------------------------------------------------------


def find(folder: Path, out: Path) -> tuple[list[HandIn], list[str]]:
    """What was handed in, by one of the documented ways; raises BadFolder."""
    listed = sorted(os.listdir(folder))
    if LIST in listed:
        return by_list(folder), [f"Read by {LIST}."]
    own = os.path.realpath(out)
    entries = [n for n in listed if n not in IGNORED and os.path.realpath(folder / n) != own]
    hidden = [name for name in entries if name.startswith(".") and not form_of(name)]
    entries = [name for name in entries if name not in hidden]
    entries = [n for n in entries if (folder / n).is_dir() or not n.lower().endswith(BESIDE)]
    if METADATA in listed:
        found, what = by_metadata(folder, entries), "Gradescope"
    else:
        forms = {name: form_of(name) for name in entries}
        form = Counter(forms.values()).most_common(1)[0][0] if forms else ""
        found = grouped([hand_in(folder / name, form, forms[name]) for name in entries])
        what = form.capitalize()
    if not found:
        raise BadFolder(f"{readable(str(folder))} holds no submissions: each is a folder, a zip or a .py file in it")
    if sum(re.fullmatch(r"[a-z]\d_\w+\.py", name) is not None for name in entries) * 2 > len(entries):
        raise BadFolder(
            f"{readable(str(folder))} looks like one submission: name the folder that holds all of them, or grade this "
            f"one with make grade SUBMISSION={quoted(folder.absolute())}"
        )
    notes = [f"Read as {what} names what it gives."] if what else []
    return found, notes + (
        [f"Left out, as hidden files are: {list_some(list(map(shortened, hidden)))}."] if hidden else []
    )


def form_of(name: str) -> str:
    """Whose way of naming a name follows: "moodle", "canvas", or "" for a name alone."""
    return next((form for form, pattern in FORMS.items() if pattern.fullmatch(name)), "")


def hand_in(path: Path, form: str, own_form: str) -> HandIn:
    """The HandIn of one entry, where most of the folder has the form `form`."""
    name = path.name
    if own_form != form:
        return HandIn(readable(name), [(path, name)], why=f"Its name is not as most are here: {SAY}.")
    if not form:
        base = name[: -len(path.suffix)] if path.suffix.lower() in (".zip", ".py") and path.is_file() else name
        return HandIn(base, [(path, "" if path.is_dir() else name)])
    said = FORMS[form].fullmatch(name)
    assert said is not None
    if form == "moodle" and name.count("_assignsubmission_") > 1:
        return HandIn(readable(name), [(path, name)], why=f"Its name can be read in two ways: {SAY}.")
    file = said["file"] or ""
    stem = name[: said.start("file")] if file else f"{name.rstrip('_')}_/"
    stem = readable(stem).replace("\\", "_")  # it is a name in feedback.zip
    late = form == "canvas" and bool(said["late"])
    return HandIn(said["name"], [(path, "" if path.is_dir() else file)], said["lms"], stem=stem, late=late)


def grouped(found: list[HandIn]) -> list[HandIn]:
    """Entries of one number and name, as Canvas gives several files, are one hand-in."""
    groups: dict[tuple[str, ...], HandIn] = {}
    for one in found:
        key = (one.lms, one.name) if one.lms and not one.why else (one.lms, one.name, *one.entries)
        if key in groups:
            groups[key].parts += one.parts
            groups[key].late |= one.late
        else:
            groups[key] = one
    return list(groups.values())


def by_metadata(folder: Path, entries: list[str]) -> list[HandIn]:
    """Gradescope's export: who is who stands in submission_metadata.yml. Raises BadFolder."""
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise BadFolder(f"{METADATA} needs pyyaml: pip install pyyaml, and try again") from None

    try:
        known = yaml.load((folder / METADATA).read_bytes(), Loader=yaml.CSafeLoader)
        assert isinstance(known, dict)
    except (OSError, yaml.YAMLError, AssertionError, ValueError, RecursionError) as error:
        raise BadFolder(f"{METADATA} cannot be read ({shortened(str(error))}): export the submissions again") from None
    found = []
    for name in entries:
        of = known.get(name) or known.get(name.removesuffix(".zip"))
        people = of.get(":submitters") if isinstance(of, dict) else None
        if not isinstance(of, dict) or not isinstance(people, list) or not all(isinstance(one, dict) for one in people):
            found.append(HandIn(readable(name), [(folder / name, "")], why=f"{METADATA} does not have it: {SAY}."))
            continue
        for one in people:
            said = {key: str(one.get(f":{key}") or "") for key in ("name", "sid", "email")}
            handed_in = HandIn(said["name"] or name, [(folder / name, "")], sid=said["sid"], email=said["email"])
            found.append(replace(handed_in, submitted=str(of.get(":created_at") or "")))
    return found


def by_list(folder: Path) -> list[HandIn]:
    """submissions.csv: student, path in the folder, and perhaps submitted. Raises BadFolder."""
    found: dict[str, HandIn] = {}
    for number, row in enumerate(sheet.read_rows(folder / LIST), 2):
        if not {"student", "path"} <= row.keys():
            raise BadFolder(f"{LIST} needs the columns student and path")
        path = folder / row["path"]
        one = found.setdefault(row["student"], HandIn(row["student"], submitted=row.get("submitted", "")))
        if (
            not row["student"]
            or not row["path"]
            or not os.path.lexists(path)
            or not path.resolve().is_relative_to(folder.resolve())
        ):
            one.why = f"Line {number} of {LIST} names nobody, or nothing in this folder: {shortened(row['path'])}."
        else:
            one.parts.append((path, "" if path.is_dir() else path.name))
    return list(found.values())


def unpacked(path: Path, out: Path) -> tuple[Path, list[str]]:
    """(the folder itself, or one into which a platform's archive was unpacked, notes); raises BadFolder."""
    lost: list[str] = []
    if path.is_dir():
        return path, lost
    target = out.resolve() / "work" / "handed-in"
    shutil.rmtree(target, ignore_errors=True)
    try:
        with zipfile.ZipFile(path) as archive:
            members = [
                member for member in archive.infolist() if stat.S_IFMT(member.external_attr >> 16) in (0, stat.S_IFREG)
            ]
            if len(members) > ARCHIVE_FILES or sum(member.file_size for member in members) > ARCHIVE_BYTES:
                raise BadFolder(f"{path} unpacks to too much: unpack it yourself, and name the folder")
            for member in members:
                try:
                    archive.extract(member, target)  # it keeps every name inside of the folder
                except modules.BROKEN as error:  # one student's file stops nobody else's
                    lost.append(f"{shortened(member.filename)} could not be unpacked ({modules.reason(error)}).")
    except modules.BROKEN as error:
        raise BadFolder(f"{path} is no folder and no zip that can be read ({modules.reason(error)})") from None
    inner = os.listdir(target)
    one = len(inner) == 1 and not form_of(inner[0]) and (target / inner[0]).is_dir()
    return target / inner[0] if one else target, lost


# Whose it is ----------------------------------------------------------------------------------------------------------


def join(
    found: list[HandIn], students: list[Student] | None
) -> tuple[list[tuple[HandIn, Student | None]], list[Student]]:
    """([(hand-in, its student)], students without one): two hand-ins for one student are one that cannot be used."""
    claims: dict[str, list[tuple[HandIn, Student | None]]] = {}
    for one in found:
        owner = owner_of(one, students) if students and not one.why else None
        if students is not None and owner is None and not one.why:
            one.why = f"No one student of the roster is called so: {SAY}."
        person = f"student {owner.key}" if owner else squashed(f"{one.name} {one.lms} {one.sid} {one.email}")
        claims.setdefault(f"{person} {one.entries}" if one.why else person, []).append((one, owner))
    pairs = []
    for same in claims.values():
        (one, owner), *others = same
        if others:
            parts = [part for each, _ in same for part in each.parts]
            why = f"Handed in several times for one student ({list_some([readable(p.name) for p, _ in parts])}): {SAY}."
            one = HandIn(one.name, parts, one.lms, one.sid, one.email, why=why)
        pairs.append((one, owner))
    known = {owner.key for _, owner in pairs if owner}
    return pairs, [student for student in students or () if student.key not in known]


def owner_of(one: HandIn, students: list[Student]) -> Student | None:
    """The one student whom a hand-in names: by a platform's number or id where the roster has these, else by name."""
    for value, of in ((one.lms, "lms"), (one.sid, "id"), (one.email, "email")):
        known = {sheet.plain(getattr(student, of)): student for student in students if getattr(student, of)}
        if value and known:
            return known.get(sheet.plain(value))
    said = squashed(one.name)
    meant = [student for student in students if said and said in ways_to_say(student)]
    return meant[0] if len(meant) == 1 else None


def ways_to_say(student: Student) -> set[str]:
    """What a hand-in of this student may be called: an id, a login, an address, a name."""
    *first, last = student.name.split() or [""]
    ways = (student.id, student.login, student.email, student.name, f"{last} {' '.join(first)}")
    return {squashed(way) for way in ways} - {""}
