"""Where processes write. In the sandbox: a tmpfs of bounded size that is gone with it, reached by a descriptor.

Where there is no sandbox it is a folder of the disk.
"""

import contextlib
import itertools
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

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

    def __init__(self, descriptor: int | None, place: str | Path, uid: int | None) -> None:
        self.descriptor, self.place, self.uid = descriptor, str(place), uid

    def new_folder(self, name: str | None = None) -> "Folder":
        """A new Folder for one child; raises OSError."""
        if self.descriptor is None:  # mkdir would make it in the current folder
            raise OSError("the sandbox is closed")
        name = name or f"case-{secrets.token_hex(8)}"
        os.mkdir(name, 0o700, dir_fd=self.descriptor)
        if self.uid is not None:
            os.chown(name, self.uid, self.uid, dir_fd=self.descriptor, follow_symlinks=False)
        return Folder(self, name)

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
        self.descriptor = None


class Folder:
    """One child's current folder. It is held by a descriptor: what the child puts in its place leads nowhere."""

    def __init__(self, scratch: Scratch, name: str) -> None:
        self.scratch, self.name, self.path = scratch, name, f"{scratch.place}/{name}"
        self.descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | FLAGS, dir_fd=scratch.descriptor)

    def put(self, name: str, data: bytes) -> None:
        """A new file of ours; raises OSError where there is no room, or something that is no file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)
        made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS, 0o644, dir_fd=self.descriptor)
        with os.fdopen(made, "wb") as file:
            file.write(data)

    def take(self, name: str, most: int, size: int | None = None) -> bytes:
        """The bytes of a plain file, and the file is gone; raises OSError without one of that size."""
        found = os.open(name, os.O_RDONLY | os.O_NONBLOCK | FLAGS, dir_fd=self.descriptor)
        with os.fdopen(found, "rb") as file:
            about = os.fstat(found)
            if not stat.S_ISREG(about.st_mode) or about.st_size > most or size not in (None, about.st_size):
                raise OSError("another file")
            data = file.read(about.st_size)
        os.unlink(name, dir_fd=self.descriptor)
        return data

    def remove(self) -> None:
        """What can be removed in the time that one case may cost: the rest goes with the sandbox or its folder."""
        os.close(self.descriptor)
        if self.scratch.descriptor is not None:
            remove(self.name, self.scratch.descriptor, REMOVE_SECONDS)


def remove(name: str, above: int | str | Path, seconds: float) -> bool:
    """Remove the folder `name` in the folder `above`, a descriptor or a path; True where nothing of it is left.

    Each folder below is moved to the top before it is emptied, so that no path is long, however deep they lie.
    """
    until = time.monotonic() + seconds
    place = above if isinstance(above, int) else os.open(above, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with open_folder(name, place) as top:
            folders, fresh = remove_files(top, until), (f"{secrets.token_hex(8)}-{n}" for n in itertools.count())
            while folders:
                folder = folders.pop()
                with open_folder(folder, top) as here:
                    for inner in remove_files(here, until):
                        with open_folder(inner, here):  # a folder is moved by who may write to it
                            folders.append(next(fresh))
                        os.rename(inner, folders[-1], src_dir_fd=here, dst_dir_fd=top)
                os.rmdir(folder, dir_fd=top)
        os.rmdir(name, dir_fd=place)
        return True
    except OSError:  # TimeoutError among them
        return False
    finally:
        if not isinstance(above, int):
            os.close(place)


@contextlib.contextmanager
def open_folder(name: str, above: int) -> Iterator[int]:
    """The descriptor of a folder, whatever its mode was; a link is not followed."""
    found = os.open(name, os.O_PATH | os.O_DIRECTORY | FLAGS, dir_fd=above)
    try:
        os.chmod(f"/proc/self/fd/{found}", 0o700)
        descriptor = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(found)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def remove_files(descriptor: int, until: float) -> list[str]:
    """Remove all files of a folder; the names of its folders. Raises TimeoutError."""
    folders = []
    with os.scandir(descriptor) as entries:
        for entry in entries:
            if time.monotonic() > until:
                raise TimeoutError
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=descriptor)
    return folders
