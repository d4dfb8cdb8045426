"""A submission's files as the grader itself reads them: regular, of a module's size, and no links to elsewhere."""

import contextlib
import io
import os
import stat
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path

from grader.core.sandbox.bubblewrap import open_to_all
from grader.core.sandbox.texts import clean

LARGEST, FILES = 1 << 20, 50  # bytes of a file, files of a folder
LINE = 160  # characters of a line that is quoted
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read(path: str | Path) -> str:
    """The text of a file; raises OSError where it is a link, a device, a pipe or too large."""
    data = read_plain(path)
    if len(data) > LARGEST:
        raise OSError(0, "no plain file of a module's size")
    return decode(data)


def read_plain(path: str | Path) -> bytes:
    """The bytes of a plain file, or the first that are too many for a module; raises OSError."""
    with os.fdopen(os.open(path, FLAGS), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "no plain file of a module's size")
        return file.read(LARGEST + 1)


def decode(data: bytes) -> str:
    """The text of a Python file, in the encoding that its first lines name."""
    try:
        coding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(coding, "replace")
    except (SyntaxError, LookupError, ValueError):
        return data.decode("utf-8", "replace")


def quote_line(path: str | Path, line: int | None) -> str:
    """A line of a submission's file as it is quoted, or an empty string."""
    try:
        lines = io.StringIO(read(path), newline=None).readlines()
        return clean(lines[line - 1].strip()[:LINE]) if line and 0 < line < sys.maxsize else ""
    except (OSError, IndexError):
        return ""


def read_texts(folder: str | Path) -> dict[str, str]:
    """{name: text} of the Python files in a folder that can be read."""
    found = {}
    for path in sorted(Path(folder).glob("*.py"))[:FILES]:
        with contextlib.suppress(OSError):
            found[path.name] = read(path)
    return found


@contextlib.contextmanager
def readable(folder: str | Path) -> Iterator[Path]:
    """The folder, or a copy of its Python files where the grader is root and another user could not read them all.

    A child must be another user than root, whatever modes and links the submission has.
    """
    if os.geteuid() != 0 or open_to_all(Path(os.path.realpath(folder)), True):
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory(prefix="handed-in-") as copy:
        os.chmod(copy, 0o755)
        for name in sorted(path.name for path in Path(folder).glob("*.py"))[:FILES]:
            with contextlib.suppress(OSError):
                (Path(copy) / name).write_bytes(read_plain(Path(folder) / name))
                (Path(copy) / name).chmod(0o644)
        yield Path(copy)
