"""The entries of a folder of submissions: whose each is, and notes on what is left out or stands out."""

import os

from grader.classroom import harvest, names, submitters
from grader.classroom.names import readable, shortened
from grader.commands.arguments import BadArguments
from grader.core.sandbox.texts import quoted
from grader.diagnosis import failures
from grader.kinds.registry import EVERY

IGNORED = {"__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini", names.METADATA}
LISTS = (".csv", ".txt", ".md", ".yml", ".json", ".xlsx")  # lie beside submissions, and nobody misses them
STRAY_MODULES = 3  # among the submissions of a class: so many may lie there by themselves
NAMED = {problem.module for problem in EVERY.values()}
WAYS = {
    "canvas": "as Canvas names them", "moodle": "as Moodle names them", "gradescope": "as Gradescope names them",
    names.FILES: "as modules that begin with their student's name",
}  # fmt: skip
METADATA_BYTES = 16 << 20


class BadFolder(BadArguments):
    """The folder of submissions cannot be used; the text is one sentence."""


def group(folder, out, numbers=frozenset()):
    """([[(entry, Owner)]], notes): entries of one owner, as Canvas gives several files, are one submission.

    numbers: of the roster's students on their platform. Raises BadFolder.
    """
    kept, notes = visible(folder, out)
    metadata = read_metadata(folder / names.METADATA)
    platform = names.platform_of([n for n in kept if not n.lower().endswith(LISTS)], metadata)
    groups, odd = {}, []
    for name in kept:
        owner, said = find_owner(name, metadata, platform, numbers)
        if owner.alone and (why := no_submission(folder / name)) is not None:
            notes += [why] if why else []
            continue
        notes += said
        odd += [name] if said or names.form_of(name, metadata) != platform else []
        groups.setdefault(owner.whole, []).append((name, owner))
    taken = [name for entries in groups.values() for name, _ in entries]
    if not taken:
        raise BadFolder(f"{readable(str(folder))} holds no submissions: each is a folder, a zip or a .py file in it")
    modules = [name for name in taken if name in NAMED]
    if len(modules) > STRAY_MODULES or 2 * len(modules) > len(taken):  # one student may call a file so, but not most
        raise BadFolder(
            f"{readable(str(folder))} holds {modules[0]} itself, so it looks like one submission: name the folder that "
            f"holds all submissions, or grade this one with make grade SUBMISSION={quoted(folder.absolute())}"
        )
    if platform in WAYS:
        fit = f"{len(odd)} of {len(taken)} do not fit" if odd else f"all {len(taken)} fit"
        notes.insert(0, f"The entries were read {WAYS[platform]}; {fit}.")
    return list(groups.values()), notes


def visible(folder, out):
    """(entries that may be submissions, [a note on those that are hidden])."""
    try:
        listed = sorted(os.listdir(folder))
    except OSError as error:
        raise BadFolder(f"the folder of submissions {folder} cannot be read: {error.strerror}") from None
    own = os.path.realpath(out)
    listed = [n for n in listed if n not in IGNORED and os.path.realpath(folder / n) != own]
    hidden = [n for n in listed if harvest.is_skipped(n) or (n.startswith(".") and not (folder / n).is_dir())]
    if not hidden:
        return listed, []
    which = names.list_some([shortened(name) for name in hidden])
    said = f"Left out, as hidden files and the folders of tools are: {which}; rename what a student handed in."
    return [name for name in listed if name not in hidden], [said]


def find_owner(name, metadata, platform, numbers):
    """(the Owner of an entry, notes): what names nobody for certain is taken by itself."""
    try:
        owner, why = names.find_owner(name, metadata, platform, numbers)
        why = why or ("names no student" if owner.alone and name in NAMED else "")
        return owner, [f"{shortened(name)} {why}: it is taken by itself."] if why else []
    except Exception as error:  # one name stops nobody else's
        failures.log(f"the owner of {name!r}", error)
        why = f"that is the grader's fault ({type(error).__name__}: {shortened(str(error))})"
        return names.alone(name), [
            f"It could not be told whose {shortened(name)} is, and {why}: it is taken by itself."
        ]


def no_submission(path):
    """Why an entry that stands by itself is no submission, "" where nobody need know; None where it is one."""
    shown = shortened(path.name)
    if path.is_dir() or path.name.lower().endswith(names.ENDINGS):
        return None
    if path.is_symlink() or not path.is_file():
        return f"{shown} is no folder and no regular file; it was left out."
    listed = path.name.lower().endswith(LISTS)
    return "" if listed else f"{shown} is neither a folder nor a zip nor a module; it was left out."


def read_metadata(path):
    try:
        with path.open("rb") as file:
            return submitters.read(file.read(METADATA_BYTES).decode("utf-8", "replace"))
    except OSError:
        return {}
