"""The modules and the report in what a student handed in: read where nobody vouches for it, and never guessed.

Only files of known names count. Nothing is unpacked: of an archive the known files alone are read, into memory, up to a
limit. What cannot be understood is said, and its problem stays blank: a 0 is for what was not handed in.
"""

import os
import re
import stat
import time
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from classroom.names import shortened
from grader.commands import hint_record

FILE_BYTES = 1 << 20  # of one module; a solution has some ten thousand
REPORT_BYTES = 12 << 20
DIRECTORY_BYTES = 8 << 20  # of an archive's table of contents
ENTRIES, DEPTH, SECONDS = 20_000, 12, 20.0  # looked at in one submission
READ_BYTES = 64 << 20  # of all files together
REMARKS = 20
SKIPPED = {"__MACOSX", "__pycache__", ".git", ".venv", "venv", "node_modules", "site-packages", ".ipynb_checkpoints"}
NOT_THEIRS = {
    "solutions",
    "kernels",
    "grader",
    "classroom",
    "tests",
}  # folders of a whole repository that hold no student's work
REPORTS = ("report.md", "report.pdf")
COPY = re.compile(r"( ?\(\d+\)|-\d+)(?=\.\w+$)")  # what browsers and Canvas add to the name of a second file
STRANGE = (".ipynb", ".tar", ".gz", ".tgz", ".xz", ".bz2", ".7z", ".rar")
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, OSError, RuntimeError)


@dataclass
class Found:
    """What one submission holds. files: {known name: [(depth, place, bytes)]}; odd: what could not be understood."""

    known: frozenset[str]
    files: dict[str, list[tuple[int, str, bytes]]] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)
    seen: int = 0
    read: int = 0
    until: float = field(default_factory=lambda: time.monotonic() + SECONDS)

    def say(self, text: str) -> None:
        """One more thing that could not be understood; a page is read, whatever was handed in."""
        self.odd += [text] if len(self.odd) < REMARKS and text not in self.odd else []

    def room(self) -> bool:
        """False, and said once, where more is there than anybody reads."""
        self.seen += 1
        full = self.seen > ENTRIES or self.read > READ_BYTES or time.monotonic() > self.until
        if full and not any(text.startswith("It holds more") for text in self.odd):
            self.odd.insert(
                0, f"It holds more than {ENTRIES:,} files, or too much to read; the rest was not looked at."
            )
        return not full

    def take(self, place: str, size: int, read: Callable[[int], bytes]) -> None:
        """Keep a file of a known name."""
        *folders, last = place.split("/")
        name = last if last in self.known else COPY.sub("", last)
        if name not in self.known:
            if last.lower().endswith(STRANGE):
                self.say(f"{shortened(place)} is a notebook or an archive other than zip: hand in the modules.")
            return
        if NOT_THEIRS & set(folders):
            return
        most = REPORT_BYTES if name in REPORTS else FILE_BYTES
        data = read(most + 1) if size <= most else b""
        self.read += len(data)
        if size > most or len(data) > most:
            self.say(f"{shortened(place)} is larger than {most >> 20} MB and was not read.")
        else:
            self.files.setdefault(name, []).append((len(folders), place, data))


@dataclass
class Taken:
    """What counts of a submission. files: {name: bytes}; unread: {module: why}; remarks: sentences."""

    files: dict[str, bytes] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def take(paths: Iterable[tuple[Path, str]], modules: Iterable[str]) -> Taken:
    """Read what was handed in. paths: files, folders and zips, each with the name that its student gave it."""
    modules = list(modules)
    found = Found(frozenset([*modules, *REPORTS, hint_record.NAME]))
    for path, name in paths:
        look(path, name, found)
    taken = Taken(remarks=list(found.odd))
    for name, copies in sorted(found.files.items()):
        copies.sort()
        depth, place, data = copies[0]
        others = [copy for copy in copies[1:] if copy[2] != data]
        if any(other[0] == depth for other in others):
            taken.unread[name] = f"{name} is there several times ({shortened(place)}, {shortened(others[0][1])})."
            continue
        if others:
            taken.remarks.append(f"{shortened(place)} was graded, not {shortened(others[0][1])}.")
        if name == hint_record.NAME:
            taken.remarks += filter(None, [hint_record.remark(data.decode("utf-8", "replace"))])
        elif name in REPORTS:
            taken.files[name] = data
        elif why := no_python(data):
            taken.unread[name] = f"{shortened(place)} {why}"
        else:
            taken.files[name] = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    missing = [name for name in modules if name not in taken.files and name not in taken.unread]
    if found.odd:
        taken.unread |= dict.fromkeys(missing, found.odd[0])
    elif missing:
        taken.remarks.append(f"Not handed in: {', '.join(missing)}.")
    taken.remarks += [why for why in taken.unread.values() if why not in taken.remarks]
    taken.remarks = list(dict.fromkeys(taken.remarks))
    return taken


def no_python(data: bytes) -> str:
    """Why these bytes are no text of a module, or ""; one encoding, so that all who read it read the same."""
    try:
        encoding, _ = tokenize.detect_encoding(iter(data[:4096].splitlines(keepends=True)).__next__)
        text = data.decode("utf-8")
    except (SyntaxError, UnicodeDecodeError):
        encoding, text = "", ""
    if encoding not in ("utf-8", "utf-8-sig"):
        return "is not in UTF-8: save it as UTF-8."
    if "\0" in text:
        return "is no text but binary data."
    return "is a notebook under a module's name." if re.match(r'\s*\{\s*"(cells|metadata|nbformat)"', text) else ""


# Folders and archives -------------------------------------------------------------------------------------------------


def look(path: Path, name: str, found: Found, depth: int = 0) -> None:
    """Look at a file or a folder of the disk; nothing that it holds can lead elsewhere."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            if depth >= DEPTH:
                found.say(f"Folders lie more than {DEPTH} deep in it; what is deeper was not looked at.")
                return
            for inner in inside(path, found):
                look(path / inner, f"{name}/{inner}" if name else inner, found, depth + 1)
        elif stat.S_ISREG(mode):
            look_at_file(path, name, found)
        else:
            found.say(f"{shortened(name)} is a link, a pipe or a device, and was not followed.")
    except OSError as error:
        found.say(f"{shortened(name)} cannot be read: {error.strerror}.")


def inside(folder: Path, found: Found) -> list[str]:
    names = []
    with os.scandir(folder) as listed:
        for entry in listed:  # counted while it is listed: a folder may hold millions
            if not found.room():
                break
            names += [] if is_skipped(entry.name) else [entry.name]
    return sorted(names)


def is_skipped(name: str) -> bool:
    return name in SKIPPED or name.startswith("._")


def look_at_file(path: Path, name: str, found: Found) -> None:
    # Never waits and never follows: what was a file a moment ago may be a pipe or a link by now.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        known = os.fstat(descriptor)
        if not stat.S_ISREG(known.st_mode):
            found.say(f"{shortened(name)} is no regular file and was not read.")
        elif file.peek(4)[:4] in (b"PK\3\4", b"PK\5\6") or name.lower().endswith(".zip"):
            look_into_zip(file, name, found)
        else:
            found.take(name, known.st_size, file.read)


def look_into_zip(file, name: str, found: Found) -> None:
    """Read the known files of a zip; one that is broken, or a trap, is said."""
    try:
        end = zipfile._EndRecData(file)  # type: ignore[attr-defined]  # exactly what ZipFile is about to believe
        if end is not None and end[zipfile._ECD_SIZE] > DIRECTORY_BYTES:  # type: ignore[attr-defined]
            raise ValueError("it lists far too many files")
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if not found.room():
                    return
                try:
                    look_at_member(archive, member, name, found)
                except BROKEN as error:
                    found.say(f"{shortened(member.filename)} in {shortened(name)} was left out ({reason(error)}).")
    except BROKEN as error:
        found.say(f"The archive {shortened(name)} cannot be read ({reason(error)}): make a new zip of the files.")


def reason(error: Exception) -> str:
    return shortened(str(error).splitlines()[0] if str(error) else type(error).__name__)


def look_at_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, found: Found) -> None:
    place = member.filename.replace("\\", "/")
    parts = [part for part in place.split("/") if part not in ("", ".")]
    if member.is_dir() or not parts or any(map(is_skipped, parts)):
        return
    kind = stat.S_IFMT(member.external_attr >> 16)
    if place.startswith("/") or ".." in parts or ":" in parts[0]:
        raise ValueError("it wants to lie outside of its archive")
    if kind not in (0, stat.S_IFREG):
        raise ValueError("it is a link or a device")
    if member.flag_bits & 1:
        raise ValueError("it is encrypted: hand in an archive without a password")
    if parts[-1].lower().endswith(".zip"):
        raise ValueError("it is an archive in an archive")

    def read(most: int) -> bytes:
        with archive.open(member) as file:
            return file.read(most)

    found.take("/".join(parts), member.file_size, read)
