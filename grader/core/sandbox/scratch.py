"""Where processes write. In the sandbox: a tmpfs of bounded size that is gone with it, reached by a descriptor.

Where there is no sandbox it is a folder of the disk.
"""

import contextlib
import os
import secrets
import stat
import subprocess
import tempfile
from pathlib import Path

from grader.core.sandbox.child import Died

PLACE = "/scratch"  # inside
REMOVE_SECONDS = 2.0  # after one child
FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


def choose_own_folder() -> None:
    """The grader's own temporary files lie in one folder, TMPDIR or /tmp: tempfile alone goes on to others when one is
    full, down to the current folder.
    """
    tempfile.tempdir = os.environ.get("TMPDIR") or "/tmp"


class Scratch:
    """The folder behind `descriptor`, which children see as `place`. uid: the user that they become, or None."""

    def __init__(self, descriptor: int, place: str | Path, uid: int | None) -> None:
        self.descriptor, self.place, self.uid = descriptor, str(place), uid

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1  # of no folder


class Folder:
    """One child's current folder, new in a Scratch. It is held by a descriptor: what the child puts in its place leads
    nowhere. Raises OSError.
    """

    def __init__(self, scratch: Scratch, name: str | None = None) -> None:
        self.scratch, self.name = scratch, name or f"case-{secrets.token_hex(8)}"
        self.path, above, uid = f"{scratch.place}/{self.name}", scratch.descriptor, scratch.uid
        os.mkdir(self.name, 0o700, dir_fd=above)
        if uid is not None:
            os.chown(self.name, uid, uid, dir_fd=above, follow_symlinks=False)
        self.descriptor = os.open(self.name, os.O_RDONLY | os.O_DIRECTORY | FLAGS, dir_fd=above)

    def put(self, files: dict[str, bytes]) -> None:
        """New files of ours, {name: bytes}; raises Died where the child has left no room for them."""
        try:
            for name, data in files.items():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self.descriptor)
                made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS, 0o644, dir_fd=self.descriptor)
                with os.fdopen(made, "wb") as file:
                    file.write(data)
        except OSError as error:
            raise Died(f"it left no room for a file of the grader's: {error.strerror}") from None

    def take(self, name: str, most: int, size: int | None = None) -> bytes:
        """The bytes of the file that the child wrote, and the file is gone; raises Died without one.

        most: bytes; size: exactly so many. A link or a device there would have us read what the child may not.
        """
        try:
            found = os.open(name, os.O_RDONLY | os.O_NONBLOCK | FLAGS, dir_fd=self.descriptor)
            with os.fdopen(found, "rb") as file:
                about = os.fstat(found)
                if not stat.S_ISREG(about.st_mode) or about.st_size > most or size not in (None, about.st_size):
                    raise OSError("another file")
                data = file.read(about.st_size)
            os.unlink(name, dir_fd=self.descriptor)
            return data
        except OSError:
            raise Died(f"its process left no file {name}, or another one") from None

    def remove(self) -> None:
        """What can be removed in the time that one case may cost: the rest goes with the sandbox or its folder."""
        clear(self.descriptor, REMOVE_SECONDS)
        os.close(self.descriptor)
        if self.scratch.descriptor >= 0:
            with contextlib.suppress(OSError):
                os.rmdir(self.name, dir_fd=self.scratch.descriptor)


def clear(folder: int, seconds: float) -> None:
    """Remove all that is in the folder of this descriptor, whatever its mode and however deep; no link is followed."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        os.fchmod(folder, 0o700)
        for tool in (["chmod", "-R", "u+rwx", "."], ["find", ".", "-mindepth", "1", "-delete"]):
            subprocess.run(
                tool, cwd=f"/proc/{os.getpid()}/fd/{folder}", timeout=seconds, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
