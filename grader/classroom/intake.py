"""A folder of submissions -> clean copies of the known modules, and remarks in plain words on all that was odd."""

import ast
import contextlib
import os
import re
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from grader.classroom import entries, harvest, ids
from grader.classroom.fingerprint import digest
from grader.classroom.harvest import Harvest
from grader.classroom.names import Owner, shortened
from grader.classroom.texts import as_text
from grader.commands import hint_record
from grader.core.sandbox import files
from grader.core.sandbox.child import ChildFailed
from grader.core.sandbox.limited import Limited
from grader.kinds.registry import EVERY

NOT_THEIRS = {"solutions", "grader", "tests"}  # folders of a whole repository that hold no student's work
# No more than that is read again for each `def` of a text: one that has thousands stops nobody.
ENTRY = re.compile(r"^def (\w{1,99})[ \t]{0,20}\([^)]{0,2000}\)", re.M)
COPY = re.compile(r"( ?\(\d+\)|-\d+| - Copy| copy)(?=\.py$)")  # what browsers and Canvas add to a second file
LOOK_SECONDS = 2 * harvest.SECONDS  # at one submission; harvest itself stops at half of that
LONGEST_NAME = 255  # of a file
NAMED = {problem.module: problem for problem in EVERY.values()}
ENTRY_POINTS = {problem.entry_point for problem in EVERY.values()}


@dataclass(frozen=True)
class Submission:
    """One student's submission. folder: a clean copy of its modules and of nothing else.

    time: when its latest entry was written, as the disk says; no date that stands in an archive counts.
    """

    id: str
    title: str
    folder: Path
    owner: Owner
    remarks: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    time: float = 0.0


@dataclass
class Module:
    """A module as it is copied. rank: what is better is smaller."""

    data: bytes
    place: str
    rank: tuple
    remarks: list[str] = field(default_factory=list)


def take_in(folder, out, problems, numbers=frozenset()):
    """([Submission], [notes]) of a folder; the clean copies lie in `out`. Raises BadFolder and BadIds.

    numbers: of the roster's students on their platform.
    """
    folder, out = Path(folder), Path(out).resolve()  # a process of its own, elsewhere, grades what lies there
    out.mkdir(parents=True, exist_ok=True)
    groups, notes = entries.group(folder, out, numbers)
    given, submissions = ids.give([group[0][1] for group in groups], out), []
    times, said = written(folder, groups, now(out))

    def take(number):
        return take_one(folder, out, given[number], groups[number], problems)

    with Limited(take, LOOK_SECONDS) as looked_at:
        for number, group in enumerate(groups):
            try:
                found = looked_at(number)
            except ChildFailed as lost:
                why = f"It could not be looked at ({shortened(str(lost))}): hand in the modules or a plain zip of them."
                owner = group[0][1]
                found = Submission(given[number], owner.title, copy({}, out), owner, (why,))
            submissions.append(replace(found, time=times[number]))
    return submissions, [*notes, *said]


def now(out):
    """The time as the disk has it, which the entries' times are compared with."""
    with tempfile.TemporaryFile(dir=out) as file:
        return os.fstat(file.fileno()).st_mtime


def written(folder, groups, latest):
    """(when the latest entry of each group was written, notes): a time after `latest` is no time at all."""
    times, notes = [], []
    for group in groups:
        found = [os.lstat(folder / name).st_mtime for name, _ in group]
        times.append(max((time for time in found if time <= latest), default=0.0))
        if max(found) > latest:
            notes.append(f"{shortened(group[0][0])} has a date in the future, which does not count.")
    return times, notes


# One submission ------------------------------------------------------------------------------------------------------


def take_one(folder, out, id, group, problems):
    """The Submission of all entries of one owner."""
    owner, found = group[0][1], Harvest()
    for name, entry_owner in group:
        shown = entry_owner.file if len(group) > 1 or not entry_owner.alone else ""
        path = folder / name
        before = len(found.found)
        harvest.look(path, shown if path.is_dir() and not path.is_symlink() and not shown else shown or name, found)
        if shown and [other.file for _, other in group].count(shown) > 1:  # the entry's own name tells them apart
            found.found[before:] = [replace(file, place=f"{file.place} of {name}") for file in found.found[before:]]
    modules, remarks = choose(found)
    remarks = [*(["Handed in late, says Canvas."] if any(o.late for _, o in group) else []), *found.remarks, *remarks]
    remarks += what_to_hand_in(found, modules, problems)
    remarks += filter(None, (hint_record.remark(file.data.decode("utf-8", "replace")) for file in found.hints))
    given = tuple(problem.module for problem in problems if problem.module in modules)
    return Submission(id, owner.title, copy(modules, out), owner, tuple(dict.fromkeys(remarks)), given)


def choose(found):
    """({module name: Module}, remarks): of several copies the shallowest; another name only where it is sure."""
    candidates, unnamed = {}, []
    for file in found.found:
        theirs = not NOT_THEIRS & set(file.place.split("/")[:-1])
        data, remarks = as_text(file)
        if data is None:
            found.remarks += remarks
            continue
        name, said = known_name(file.name)
        module = Module(data, file.place, (not theirs, said is not None, file.depth, -file.time, file.place))
        module.remarks = remarks + ([f"{shortened(file.place)} was taken for {name}{said}."] if said else [])
        if name is not None:
            candidates.setdefault(name, []).append(module)
        elif theirs:
            unnamed.append(module)
    guessed, remarks = guess(unnamed, set(NAMED) - set(candidates))
    chosen = {}
    for name in NAMED:
        copies = sorted(candidates.get(name, guessed.get(name, [])), key=lambda m: m.rank)
        if not copies:
            continue
        first = chosen[name] = copies[0]
        remarks += first.remarks
        others = [copy for copy in copies[1:] if copy.data != first.data]
        if others:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            remarks.append(
                f"{name} is there several times; {shortened(first.place)} was graded, "
                f"not {shortened(others[0].place)}{more}."
            )
        if not first.data.strip():
            remarks.append(f"{name} is empty.")
    return chosen, remarks


def known_name(name):
    """(the module that a file's name means, what was odd about the name) or (None, None)."""
    if name in NAMED:
        return name, None
    if len(name) > LONGEST_NAME:
        return None, None
    plain = COPY.sub("", name).lower()
    if plain in NAMED:
        return plain, ", in spite of its name"
    ends = [module for module in NAMED if re.search(rf"(^|[^a-z0-9]){re.escape(module)}$", plain)]
    return (ends[0], ", in spite of its name") if len(ends) == 1 else (None, None)


def guess(modules, missing):
    """({module: [Module]}, remarks) of files with other names, where the entry point can be only one problem's."""
    meant, remarks = {}, []
    for module in modules:
        names = meaning(module.data.decode("utf-8", "replace"))
        if len(names) == 1 and names[0] in missing:
            meant.setdefault(names[0], []).append(module)
        elif len(names) > 1:
            remarks.append(
                f"{shortened(module.place)} defines an entry point of several problems: name it as the problem's file."
            )
    for name, several in list(meant.items()):
        if len({module.data for module in several}) > 1:
            places = " and ".join(shortened(module.place) for module in several[:3])
            remarks.append(f"{places} could each be {name}: rename the one that is meant.")
            del meant[name]
        else:
            several[0].remarks.append(f"{shortened(several[0].place)} was taken for {name}, by its entry point.")
    return meant, remarks


def meaning(text):
    """[module] of the problems whose entry point a text defines, with the same parameters and as well with Triton."""
    entries = [found for found in ENTRY.finditer(text) if found[1] in ENTRY_POINTS]
    if len(entries) != 1:
        return []
    (entry,), uses_triton = entries, "triton" in text
    meant = [p for p in EVERY.values() if p.entry_point == entry[1] and p.uses_triton == uses_triton]
    given = parameters(entry[0])
    meant = [p for p in meant if parameters(f"def {p.signature}").keys() == given.keys()]
    return [p.module for p in meant if parameters(f"def {p.signature}") == given] or [p.module for p in meant]


def parameters(head):
    """{parameter: its default as text} of `def name(...)`."""
    with contextlib.suppress(SyntaxError, ValueError):
        arguments = ast.parse(f"{head}: pass").body[0].args
        defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + arguments.defaults
        return {a.arg: d and ast.unparse(d) for a, d in zip(arguments.args, defaults, strict=True)}
    return {}


def what_to_hand_in(found, modules, problems):
    """Remarks that say what a notebook, or nothing at all, should have been."""
    missing = [problem.module for problem in problems if problem.module not in modules]
    remarks = []
    if found.notebooks and missing:
        remarks.append(
            f"{found.notebooks[0]} is a notebook, and none is graded: hand in the modules ({missing[0]}, ...)."
        )
    if len(missing) == len(problems):
        kinds = ", ".join(ending for ending, _ in found.others.most_common(3))
        remarks.append(f"No module was found{f', only files with the endings {kinds}' if kinds else ''}.")
    elif missing:
        remarks.append(f"Missing: {', '.join(missing)}.")
    return remarks


def copy(modules, out):
    """The folder with a clean copy of these modules, named by what they hold; it is made once and stays as it is."""
    name = digest(*(part for name in sorted(modules) for part in (name, modules[name].data)))[:32]
    folder = out / "work" / name
    if folder.is_dir() and all(same(folder / name, module.data) for name, module in modules.items()):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, module in modules.items():
        files.write(folder / name, module.data)
    for extra in set(os.listdir(folder)) - set(modules):
        if (folder / extra).is_file():
            (folder / extra).unlink()
    return folder


def same(path, data):
    try:
        return path.read_bytes() == data
    except OSError:
        return False
