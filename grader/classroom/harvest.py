"""Looks for modules in a folder or an archive that nobody vouches for: what is not a small regular text is left alone.

Nothing is unpacked: of an archive only the members that may be modules are read, into memory and up to a limit.
"""

import io
import os
import stat
import time
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, field

from grader.classroom.names import shortened
from grader.commands import hint_record

MODULE_BYTES = 1 << 20  # of one module; a solution has some ten thousand
ARCHIVE_BYTES = 64 << 20  # of an archive inside another one
DIRECTORY_BYTES = 8 << 20  # of an archive's table of contents
ENTRIES = 20_000  # looked at in one submission
MODULES = 200  # read in one submission
UNPACKED = 256 << 20  # bytes read out of the archives of one submission
SECONDS = 20.0  # to look at one submission
REMARKS = 40
DEPTH, NESTED = 12, 2  # folders in folders; archives in archives
SKIPPED = {
    "__MACOSX", "__pycache__", ".git", ".svn", ".venv", "venv", "node_modules", "site-packages", ".ipynb_checkpoints",
    ".idea", ".vscode",
}  # fmt: skip
BROKEN = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, OSError, RuntimeError, OverflowError,
)  # fmt: skip
OTHER_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".7z", ".rar", ".gz", ".xz")
PLAIN_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)


@dataclass(frozen=True)
class Found:
    """A file that may be a module. name: the last part of its place; depth: how many folders lie above it; time: when
    it was last changed, in seconds, or as a sortable guess."""

    name: str
    place: str
    depth: int
    data: bytes
    time: float


@dataclass
class Harvest:
    """What one submission holds: files that may be modules, those that tell of hints, and remarks, each once."""

    found: list[Found] = field(default_factory=list)
    hints: list[Found] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    seen: int = 0
    others: Counter = field(default_factory=Counter)  # endings of files that are no modules
    notebooks: list[str] = field(default_factory=list)
    unpacked: int = 0
    full: bool = False
    began: float = field(default_factory=time.monotonic)

    def remark(self, text):
        if len(self.remarks) == REMARKS:
            self.remarks.append("More was odd than is said here.")
        elif len(self.remarks) < REMARKS and text not in self.remarks:
            self.remarks.append(text)

    def over(self, text):
        """A limit was met: said before all else, and no room is left."""
        self.remarks[:0] = [] if self.full else [text]
        self.full = True

    def room(self):
        """False, with a remark, where more was found than anybody reads."""
        self.seen += 1
        if self.seen > ENTRIES:
            self.over(f"It holds more than {ENTRIES:,} files; the rest was not looked at.")
        elif len(self.found) + len(self.hints) >= MODULES:
            self.over(f"It holds more than {MODULES} Python files; the rest was not looked at.")
        elif self.unpacked > UNPACKED:
            self.over(f"It unpacks to more than {UNPACKED >> 20} MB; the rest was not looked at.")
        elif time.monotonic() - self.began > SECONDS:
            self.over(f"It takes more than {SECONDS:.0f} s to look at; the rest was not looked at.")
        return not self.full


def look(path, name, harvest, depth=0):
    """Look at a file or a folder of the disk; nothing that it holds can lead elsewhere."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            harvest.remark(f"{shortened(name)} is a symbolic link and was not followed: hand in the file itself.")
        elif stat.S_ISDIR(mode):
            look_into(path, name, harvest, depth)
        elif stat.S_ISREG(mode):
            look_at_file(path, name, harvest, depth)
        else:
            harvest.remark(f"{shortened(name)} is no regular file (a pipe, socket or device) and was not opened.")
    except OSError as error:
        harvest.remark(f"{shortened(name)} cannot be read: {error.strerror}.")


def look_into(folder, name, harvest, depth):
    if depth >= DEPTH:
        return harvest.remark(f"Folders lie more than {DEPTH} deep in it; what is deeper was not looked at.")
    with os.scandir(folder) as listed:
        entries = []
        for entry in listed:  # counted while it is listed: a folder may hold millions
            if not harvest.room():
                break
            entries.append(entry.name)
    for entry in sorted(entries):
        if not is_skipped(entry):
            look(os.path.join(folder, entry), f"{name}/{entry}" if name else entry, harvest, depth + 1)


def is_skipped(name):
    return name in SKIPPED or name.startswith("._")


def look_at_file(path, name, harvest, depth):
    # Never waits and never follows: what was a file a moment ago may be a pipe or a link by now.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        known = os.fstat(descriptor)
        if not stat.S_ISREG(known.st_mode):
            return harvest.remark(f"{shortened(name)} is no regular file and was not read.")
        if is_archive(name, file):
            return look_into_archive(file, name, harvest, depth, 1)
        take(name, depth, known.st_size, known.st_mtime, lambda: file.read(MODULE_BYTES + 1), harvest)


def is_archive(name, file):
    start = file.read(4)
    file.seek(0)
    return start in (b"PK\3\4", b"PK\5\6") or name.lower().endswith(".zip")


def take(name, depth, size, time, read, harvest):
    """Keep a file that may be a module; say what is wrong with one that may not."""
    last, lower = name.rsplit("/", 1)[-1], name.lower()
    if lower.endswith(".ipynb"):
        harvest.notebooks.append(shortened(name))
    elif lower.endswith(OTHER_ARCHIVES):
        harvest.remark(f"{shortened(name)} is an archive other than zip and was not opened: hand in a zip or a folder.")
    elif not lower.endswith(".py") and last != hint_record.NAME:
        harvest.others[os.path.splitext(lower)[1] or "no ending"] += 1
    elif size > MODULE_BYTES:
        harvest.remark(f"{shortened(name)} is larger than {MODULE_BYTES >> 20} MB, as no module is; it was not read.")
    else:
        data = read()
        if len(data) > MODULE_BYTES:  # an archive's table of contents may lie
            harvest.remark(f"{shortened(name)} unpacks to more than {MODULE_BYTES >> 20} MB; it was not read.")
        else:
            kept = harvest.hints if last == hint_record.NAME else harvest.found
            kept.append(Found(last, name, depth, data, time))


# Archives ------------------------------------------------------------------------------------------------------------


def look_into_archive(file, name, harvest, depth, nested):
    """Read the modules of a zip; one that is broken, or a trap, is a remark."""
    try:
        end = zipfile._EndRecData(file)  # exactly what ZipFile is about to believe
        if end is not None and end[zipfile._ECD_SIZE] > DIRECTORY_BYTES:
            return harvest.remark(f"The archive {shortened(name)} lists far too many files; it was not opened.")
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if not harvest.room():
                    break
                try:
                    look_at_member(archive, member, name, harvest, depth, nested)
                except BROKEN as error:
                    place = f"{name}/{member.filename}"
                    harvest.remark(f"{shortened(place)} is damaged ({reason(error)}) and was left out.")
    except BROKEN as error:
        harvest.remark(f"The archive {shortened(name)} cannot be read ({reason(error)}): make a new zip of the files.")
    return None


def reason(error):
    return shortened(str(error).splitlines()[0] if str(error) else type(error).__name__)


def look_at_member(archive, member, archive_name, harvest, depth, nested):
    place = member.filename.replace("\\", "/")
    parts = [part for part in place.split("/") if part not in ("", ".")]
    if member.is_dir() or not parts or any(map(is_skipped, parts)):
        return
    name = f"{archive_name}/{place}"
    if not place.lower().endswith((".py", ".zip")) and parts[-1] != hint_record.NAME:
        return take(name, 0, 0, 0.0, bytes, harvest)
    if place.startswith("/") or ".." in parts or ":" in parts[0]:
        return harvest.remark(f"{shortened(place)} wants to lie outside of its archive; it was left out.")
    kind = member.external_attr >> 16
    if kind and stat.S_IFMT(kind) and not stat.S_ISREG(kind):
        return harvest.remark(f"{shortened(place)} is a link or a device in its archive; it was left out.")
    if member.flag_bits & 1:
        return harvest.remark(f"{shortened(place)} is encrypted: hand in an archive without a password.")
    if member.compress_type not in PLAIN_METHODS:
        return harvest.remark(f"{shortened(place)} is packed in an unusual way: make a new zip of the files.")
    depth += len(parts)
    if place.lower().endswith(".zip"):
        return look_into_nested(archive, member, name, harvest, depth, nested)

    def read(limit=MODULE_BYTES + 1):
        with archive.open(member) as file:
            data = file.read(limit)
        harvest.unpacked += len(data)
        return data

    return take(name, depth, member.file_size, seconds_of(member), read, harvest)


def look_into_nested(archive, member, name, harvest, depth, nested):
    if nested >= NESTED:
        return harvest.remark(f"{shortened(name)} is an archive in an archive in an archive; it was not opened.")
    if member.file_size > ARCHIVE_BYTES:
        return harvest.remark(f"{shortened(name)} is larger than {ARCHIVE_BYTES >> 20} MB; it was not opened.")
    with archive.open(member) as file:
        data = file.read(ARCHIVE_BYTES + 1)
    harvest.unpacked += len(data)
    if len(data) > ARCHIVE_BYTES:
        return harvest.remark(f"{shortened(name)} unpacks to more than {ARCHIVE_BYTES >> 20} MB; it was not opened.")
    return look_into_archive(io.BytesIO(data), name, harvest, depth, nested + 1)


def seconds_of(member):
    """A member's date as seconds that sort; archives know no time zone."""
    year, month, day, hour, minute, second = member.date_time
    return ((((year - 1970) * 372 + month * 31 + day) * 24 + hour) * 60 + minute) * 60.0 + second
