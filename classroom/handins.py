"""What was handed in, and whose it is: by the documented names of Canvas, Moodle and Gradescope.

submissions.csv counts before any name. Nothing is guessed: what does not fit stays on a list, with its reason, and is
blank in the gradebook.
Sources: Canvas Instructor Guide, "How do I download all student submissions for an assignment?"; MoodleDocs,
"Assignment activity", section "Downloading all submissions"; Gradescope, "Exporting submissions".
"""

import os
import re
import shutil
import stat
import zipfile
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from classroom import modules, sheet
from classroom.data import Row, Student, digest, find_student
from classroom.names import list_some, readable, shortened, slug
from grader.commands.arguments import BadArguments
from grader.core.sandbox import files
from grader.core.sandbox.child import ChildFailed
from grader.core.sandbox.limited_call import Limited
from grader.core.sandbox.texts import quoted
from grader.course.problem import Problem

LIST, METADATA = "submissions.csv", "submission_metadata.yml"
IGNORED = {"__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini", LIST, METADATA}
BESIDE = (".csv", ".txt", ".md", ".yml", ".xlsx")  # lie beside submissions, and nobody misses them
# How a name goes on after the person's, by the platform; Canvas writes "_late" between the two.
FORMS = {
    "moodle": re.compile(r"_(?P<lms>[0-9]+)_assignsubmission_(?:file|onlinetext)(?:_(?P<file>.*))?", re.S),
    "canvas": re.compile(r"_(?P<lms>[0-9]+)_[0-9]+_(?P<file>.+)", re.S),
}
LATE = "_late"
LONGEST = 200  # characters of a name
ARCHIVE_BYTES, ARCHIVE_FILES = 2 << 30, 50_000  # of the class's own archive, unpacked
SAY = f"say whose it is in {LIST}"


class BadFolder(BadArguments):
    """The folder of submissions cannot be used; the text is one sentence."""


@dataclass
class HandIn:
    """What one person handed in, as far as names say. parts: [(path, the name that the student gave it)].

    platform: what the platform says of the person, by the fields of Student. stem: how its name of the first entry
    begins, to which feedback goes back.
    listed: submissions.csv says whose it is. why: why it counts for nobody.
    """

    name: str
    parts: list[tuple[Path, str]] = field(default_factory=list)
    platform: dict[str, str] = field(default_factory=dict)
    stem: str = ""
    submitted: str = ""
    late: bool = False
    listed: bool = False
    remarks: list[str] = field(default_factory=list)
    why: str = ""

    @property
    def id(self) -> str:
        """What names it where no roster does."""
        said = self.platform
        return slug(said.get("id") or said.get("email") or f"{self.name} {said.get('lms', '')}".strip())

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
    found, notes = find(folder, out, {student.lms for student in students or () if student.lms})
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
            except ChildFailed as failed:
                taken, handed_in.why = modules.Taken(), f"It could not be looked at ({shortened(str(failed))})."
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
    code = {name: data for name, data in taken.files.items() if name not in modules.REPORTS}
    report = next((name for name in modules.REPORTS if name in taken.files), "")
    # It lies elsewhere than the modules: these alone may decide a result, and its sandbox shows their folder.
    report = f"{copy({report: taken.files[report]}, out)}/{report}" if report else ""
    name = shortened((student and student.name) or handed_in.name, LONGEST)
    return Row(
        slug(student.key) if student else handed_in.id, name, student,
        handed_in.entries, handed_in.stem, copy(code, out), report,
        tuple(problem.module for problem in problems if problem.module in code), {},
        {problem.id: taken.unread[problem.module] for problem in problems if problem.module in taken.unread},
        handed_in.why, handed_in.submitted or (student.submitted if student else ""), handed_in.late,
        tuple(said for said in (*handed_in.remarks, *taken.remarks) if said != handed_in.why),
    )  # fmt: skip


def in_order(rows: list[Row], students: list[Student] | None) -> list[Row]:
    """The roster's order, then what is no student's; of two with one id, nobody's is the one that gets another.

    A student's id must not depend on who else hands in: decisions are bound to it.
    """
    of_students = Counter(row.id for row in rows if row.student)
    every = Counter(row.id for row in rows)
    rows = [
        # slug never gives a "_": nobody can be called like a new id.
        structs.replace(
            row, id=f"{row.id}_{digest(*((row.student.key,) if row.student else (row.name, *row.entries)))[:12]}"
        )
        if (of_students if row.student else every)[row.id] > 1
        else row
        for row in rows
    ]
    place = {student.key: number for number, student in enumerate(students or ())}
    return sorted(rows, key=lambda row: place[row.student.key] if row.student else len(place))


def copy(given: dict[str, bytes], out: Path) -> str:
    """The folder in `out` with a clean copy of these files, named by what they hold; it stays as it is."""
    folder = out.resolve() / "work" / digest(*(part for name in sorted(given) for part in (name, given[name])))[:32]
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in given.items():
        if not (folder / name).is_file() or (folder / name).read_bytes() != data:
            files.write(folder / name, data)
    for extra in set(os.listdir(folder)) - set(given):
        if (folder / extra).is_file():
            (folder / extra).unlink()
    return folder.relative_to(out.resolve()).as_posix()


# The entries ----------------------------------------------------------------------------------------------------------


def find(folder: Path, out: Path, numbers: Collection[str] = ()) -> tuple[list[HandIn], list[str]]:
    """What was handed in, by one of the documented ways, and by submissions.csv, which decides; raises BadFolder.

    numbers: the platform's, of the students of the roster.
    """
    listed, own = sorted(os.listdir(folder)), os.path.realpath(out)
    entries = [n for n in listed if n not in IGNORED and os.path.realpath(folder / n) != own]
    beside = [n for n in entries if not forms_of(n) and (n.startswith(".") or is_beside(folder / n))]
    entries = [name for name in entries if name not in beside]
    if METADATA in listed:
        found, what = by_metadata(folder, entries), "Gradescope"
    else:
        # Each form that a name fits counts: a file that fits two makes nobody else's odd.
        forms = Counter(form for name in entries for form in forms_of(name) or ("",))
        what = forms.most_common(1)[0][0] if forms else ""
        found = [hand_in(folder / name, what, numbers) for name in entries]
    named, notes = by_list(folder, found) if LIST in listed else ([], [])
    said = {part for one in named for part, _ in one.parts}
    found = named + grouped([one for one in found if not any(inside(path, said) for path, _ in one.parts)])
    if not found:
        raise BadFolder(f"{readable(str(folder))} holds no submissions: each is a folder, a zip or a .py file in it")
    modules_here = sum(re.fullmatch(r"[a-z][0-9]_\w+\.py", name) is not None for name in entries)
    if not what and not named and modules_here * 2 > len(entries):
        raise BadFolder(
            f"{readable(str(folder))} looks like one submission: name the folder that holds all of them, or grade this "
            f"one with make grade SUBMISSION={quoted(folder.absolute())}"
        )
    notes += [f"Read as {what.capitalize()} names what it gives."] if what else []
    notes += [f"Left out, as no submissions: {list_some(list(map(shortened, beside)))}."] if beside else []
    return found, notes


def inside(entry: Path, said: set[Path]) -> bool:
    """True where a line of submissions.csv names this entry, or something in it."""
    return any(path == entry or entry in path.parents for path in said)


def forms_of(name: str) -> list[str]:
    """The platforms whose way of naming a name follows; none for a name alone."""
    return [form for form in FORMS if readings(name, form)]


def readings(name: str, form: str) -> list[re.Match]:
    """Every place where the person's name may end and the platform's number begin."""
    places = (FORMS[form].fullmatch(name, at) for at in range(1, len(name)) if name[at] == "_")
    return [place for place in places if place]


def is_beside(path: Path) -> bool:
    return path.name.lower().endswith(BESIDE) and not path.is_dir()


def hand_in(path: Path, form: str, numbers: Collection[str]) -> HandIn:
    """The HandIn of one entry, where most of the folder has the form `form`.

    numbers: of the roster's students. Students choose a display name and a file's name, and may write a number there:
    where a name can be read with two of these numbers, or with two of any where there is no roster, it is nobody's. A
    file's name may have other numbers, but none that touches.
    """
    name = path.name
    if form not in (forms_of(name) or ("",)):
        return HandIn(readable(name), [(path, name)], why=f"Its name is not as most are here: {SAY}.")
    if not form:
        base = name[: -len(path.suffix)] if path.suffix.lower() in (".zip", ".py") and path.is_file() else name
        return HandIn(base, [(path, "" if path.is_dir() else name)])
    every = readings(name, form)
    found = [place for place in every if place["lms"] in numbers] or every
    in_a_row = {place.end("lms") for place in every} & {place.start() for place in every}
    if len(found) > 1 or in_a_row or (form == "moodle" and len(every) > 1):
        why, late = f"Its name can be read in two ways: {SAY}.", LATE in name.lower()
        return HandIn(readable(name), [(path, name)], late=late, why=why)
    (said,) = found
    called, file = name[: said.start()], said["file"] or ""
    stem = name[: said.start("file")] if file else f"{name.rstrip('_')}_/"
    stem = readable(stem).replace("\\", "_")  # it is a name in feedback.zip
    late = form == "canvas" and called.lower().endswith(LATE)
    called = called[: -len(LATE)] if late else called
    return HandIn(called or name, [(path, "" if path.is_dir() else file)], {"lms": said["lms"]}, stem, late=late)


def grouped(found: list[HandIn]) -> list[HandIn]:
    """Entries of one number and name, as Canvas gives several files, are one hand-in."""
    groups: dict[tuple[str, ...], HandIn] = {}
    for one in found:
        key = (*one.platform.values(), one.name) if one.platform else ("", one.name, *one.entries)
        if key in groups:
            groups[key].parts += one.parts
            groups[key].late |= one.late
        else:
            groups[key] = one
    return list(groups.values())


def by_metadata(folder: Path, entries: list[str]) -> list[HandIn]:
    """Gradescope's export: who is who stands in submission_metadata.yml. Raises BadFolder."""
    import yaml  # type: ignore[import-untyped]

    try:
        known = yaml.load((folder / METADATA).read_bytes(), Loader=yaml.CBaseLoader)  # a name is a text, never a date
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
            called, sid, email = (text(one.get(key)) for key in (":name", ":sid", ":email"))
            who = {"email": email, "id": sid}  # the address first: it is verified, and people choose an id
            found.append(HandIn(called or name, [(folder / name, "")], who, submitted=text(of.get(":created_at"))))
    return found


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def by_list(folder: Path, read: list[HandIn]) -> tuple[list[HandIn], list[str]]:
    """submissions.csv: student, path in the folder, and perhaps submitted. Raises BadFolder.

    read: what the platform's names say: of the file, when and how late it came, and where its feedback goes.
    """
    found: dict[str, HandIn] = {}
    for number, row in enumerate(sheet.read_rows(folder / LIST), 2):
        if not {"student", "path"} <= row.keys():
            raise BadFolder(f"{LIST} needs the columns student and path")
        path = folder / row["path"]
        one = found.setdefault(sheet.plain(row["student"]), HandIn(row["student"], listed=True))
        same = next((each for each in read if inside(each.parts[0][0], {path})), HandIn(""))
        one.submitted = max(one.submitted, row.get("submitted", "") or same.submitted)
        one.late, one.stem = one.late or same.late, one.stem or same.stem
        if (
            not row["student"]
            or not row["path"]
            or not os.path.lexists(path)
            or not path.resolve().is_relative_to(folder.resolve())
        ):
            one.why = f"Line {number} of {LIST} names nobody, or nothing in this folder: {shortened(row['path'])}."
        else:
            one.parts.append((path, "" if path.is_dir() else given_name(path.name)))
    return list(found.values()), [f"{LIST} names {len(found)} {'student' if len(found) == 1 else 'students'}."]


def given_name(name: str) -> str:
    """The name that a student gave a file, without what a platform put before it."""
    found = [place for form in forms_of(name) for place in readings(name, form)]
    return (found[0]["file"] or "") if found else name


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
                    lost.append(f"{shortened(member.filename)} could not be unpacked ({modules.reason(error)})")
    except modules.BROKEN as error:
        raise BadFolder(f"{path} is no folder and no zip that can be read ({modules.reason(error)})") from None
    inner = os.listdir(target)
    one = len(inner) == 1 and not forms_of(inner[0]) and (target / inner[0]).is_dir()
    return target / inner[0] if one else target, [f"{list_some(lost)}."] if lost else []


# Whose it is ----------------------------------------------------------------------------------------------------------


def join(
    found: list[HandIn], students: list[Student] | None
) -> tuple[list[tuple[HandIn, Student | None]], list[Student]]:
    """([(hand-in, its student)], students without one): two hand-ins for one student are one that cannot be used.

    What submissions.csv says of a student counts in place of all else of this student.
    """
    claims: dict[tuple[str, ...], list[tuple[HandIn, Student | None]]] = {}
    for one in found:
        owner = owner_of(one, students) if students and (one.listed or not one.why) else None
        if students is not None and owner is None and not one.why:
            one.why = f"No one student of the roster is called so: {SAY}."
        alone = "", one.id, *one.platform.values(), *(one.entries if one.why and not one.listed else ())
        person = (owner.key,) if owner else alone
        claims.setdefault(person, []).append((one, owner))
    pairs = []
    for same in claims.values():
        named = [each for each, _ in same if each.listed]
        one, owner = same[0]
        parts = [part for each in named or [each for each, _ in same] for part in each.parts]
        if named:
            one = replace(named[0], parts=parts, why=next((each.why for each in named if each.why), ""))
            if others := [readable(path.name) for each, _ in same if not each.listed for path, _ in each.parts]:
                one.remarks.append(f"{list_some(others)} was not graded: {LIST} says what counts.")
        elif len(same) > 1:
            why = f"Handed in several times for one student ({list_some([readable(p.name) for p, _ in parts])}): {SAY}."
            one = replace(one, parts=parts, stem="", submitted="", late=False, why=why)
        pairs.append((one, owner))
    known = {owner.key for _, owner in pairs if owner}
    return pairs, [student for student in students or () if student.key not in known]


def owner_of(one: HandIn, students: list[Student]) -> Student | None:
    """The one student whom a hand-in names: by a platform's number or id where the roster has these, else by name."""
    decisive = [of for of in one.platform if any(getattr(student, of) for student in students)]
    for of in decisive:
        if said := one.platform[of].strip():  # as it is: what looks alike may be another's
            return next((student for student in students if getattr(student, of).lower() == said.lower()), None)
    return None if decisive else find_student(students, one.name)
