"""The journal of a class: a checked line for each record, only added to, on the disk before anybody counts on it."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import socket
from pathlib import Path

from grader.classroom.record import GRADED, Class, Lazy, Record, Row
from grader.commands.arguments import BadArguments
from grader.core.sandbox import files

JOURNAL, SUBMISSIONS, LOCK = "journal.jsonl", "submissions.json", "journal.lock"
LONGEST_LINE = 64 << 20  # bytes; what is longer was written by nobody here
LINE = re.compile(rb'\{"sum":"([0-9a-f]{16})","record":(\{.*\})\}')
AGAIN = "what it graded is graded again"


class JournalBusy(BadArguments):
    """Another run holds this class; the text is one sentence."""


class JournalBroken(BadArguments):
    """The journal can be neither read nor written; the text is one sentence."""


def line_of(record):
    """The line of a record, with its end; the checksum is of the record's text."""
    text = record.to_json().encode()
    return b'{"sum":"%s","record":%s}\n' % (checksum(text), text)


def checksum(text):
    return hashlib.sha256(text).hexdigest()[:16].encode()


def parse(line):
    """The Record of a line without its end, or None where the line is damaged."""
    found = LINE.fullmatch(line)
    if found is None or checksum(found[2]) != found[1]:
        return None
    with contextlib.suppress(ValueError):
        return Record.from_json(found[2].decode())
    return None


class Index(Lazy):
    """(submission, problem, key) -> Record, read from the file when it is asked for: memory does not grow with it.

    Of several records with one key a graded one stands before a machine fault, and otherwise the last. notes: what was
    wrong with the file, in words. end: where the last whole line ends.
    """

    def __init__(self, path):
        super().__init__({}, self.read)
        self.path, self.notes, self.end = Path(path), [], 0
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for number, (start, line) in enumerate(lines(file), 1):
                record = parse(line[:-1] if line.endswith(b"\n") else line)
                if record is not None:
                    self.add(record, start, len(line))
                elif not line.endswith(b"\n"):
                    self.notes.append(f"the last line of {self.path.name} was cut off and is dropped; {AGAIN}")
                    continue
                else:
                    self.notes.append(f"line {number} of {self.path.name} is damaged and does not count; {AGAIN}")
                self.end = start + len(line)

    def add(self, record, start, length):
        name = record.submission, record.problem, record.key
        before = self.places.get(name)
        if before is None or record.status == GRADED or before[2] != GRADED:
            self.places[name] = start, length, record.status

    def status(self, submission, problem, key):
        """ "graded", "machine fault", or None where nothing is known."""
        return self.places.get((submission, problem, key), (0, 0, None))[2]

    def read(self, place):
        start, length, _ = place
        with self.path.open("rb") as file:
            file.seek(start)
            record = parse(file.read(length).removesuffix(b"\n"))
        if record is None:
            raise JournalBroken(f"{self.path} was changed while it was read; run the command again")
        return record


def lines(file):
    """(where it starts, the line with its end) for each line; of one that is absurdly long only the beginning."""
    start = 0
    while line := file.readline(LONGEST_LINE):
        length = len(line)
        while not line.endswith(b"\n") and length % LONGEST_LINE == 0 and (more := file.readline(LONGEST_LINE)):
            length += len(more)
            if more.endswith(b"\n"):
                line = b"\n"
        yield start, line
        start += length


class Journal:
    """The journal of a class's folder, open for one run at a time; use it with the `with` statement.

    Raises JournalBusy where another run has it, JournalBroken where it cannot be written. `notes` says what was mended.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self.path = self.folder / JOURNAL
        self.lock = take_lock(self.folder / LOCK)
        try:
            self.index = Index(self.path)
            self.notes = self.index.notes
            self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            self.mend()
            sync_folder(self.folder)
        except OSError as error:
            os.close(self.lock)
            raise JournalBroken(f"{self.path} cannot be written: {error.strerror}") from None

    def mend(self):
        """Cut off a torn last line, and end one that lacks nothing but its end."""
        size = os.fstat(self.file).st_size
        if size > self.index.end:
            os.ftruncate(self.file, self.index.end)
        elif size and os.pread(self.file, 1, size - 1) != b"\n":
            os.write(self.file, b"\n")

    def append(self, records):
        """Write records so that all of them are on the disk, or none; raises OSError where there is no room."""
        before = os.fstat(self.file).st_size
        texts = [line_of(record) for record in records]
        data = memoryview(b"".join(texts))
        try:
            while data:
                data = data[os.write(self.file, data) :]
            os.fsync(self.file)
        except OSError:
            os.ftruncate(self.file, before)
            raise
        for record, text in zip(records, texts, strict=True):
            self.index.add(record, before, len(text))
            before += len(text)

    def close(self):
        os.close(self.file)
        os.close(self.lock)  # which unlocks it

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def take_lock(path):
    """A descriptor that holds the lock: the kernel lets go of it when the process ends, however it ends."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise JournalBroken(f"{path} cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(lock, 200, 0).decode(errors="replace").strip() or "another process"
        os.close(lock)
        raise JournalBusy(f"{path.parent} is being graded by {holder}; wait for it, or stop it first") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return lock


def sync_folder(folder):
    """Make a new name in the folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# The class as a whole -------------------------------------------------------------------------------------------------


def write_class(folder, rows, problems, keys, notes=()):
    """submissions.json: who is in the class, what is asked, and which record of the journal answers it now.

    problems: {id: points as text}. keys: {row id: {problem id: key}}.
    """
    plain = {
        "problems": problems,
        "notes": list(notes),
        "submissions": [{**vars(row), "keys": keys.get(row.id, {})} for row in rows],
    }
    files.write(folder / SUBMISSIONS, json.dumps(plain, indent=1, ensure_ascii=True) + "\n", durable=True)


def read(folder):
    """The Class of a folder that `make class` wrote; raises JournalBroken with a sentence where it is none.

    Its records are read from the disk one by one as they are asked for.
    """
    folder = Path(folder)
    folder = folder.parent if folder.name == JOURNAL else folder
    try:
        plain = json.loads((folder / SUBMISSIONS).read_text(encoding="utf-8"))
        rows, keys = [], {}
        for entry in plain["submissions"]:
            keys[entry["id"]] = entry.pop("keys")
            rows.append(Row(**{**entry, "remarks": tuple(entry["remarks"]), "modules": tuple(entry["modules"])}))
        index = Index(folder / JOURNAL)
    except FileNotFoundError:
        raise JournalBroken(f"{folder} has no {SUBMISSIONS}: no class was graded there") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise JournalBroken(f"{folder / SUBMISSIONS} cannot be read ({error}); run make class again") from None
    names = ((row, problem, key) for row, of in keys.items() for problem, key in of.items())
    current = Lazy({name[:2]: name for name in names if name in index}, index.__getitem__)
    return Class(tuple(rows), plain["problems"], current, (*plain["notes"], *index.notes))
