"""Where processes write. In the sandbox: a tmpfs of bounded size that is gone with it, reached by a descriptor.

Where there is no sandbox it is a folder of the disk, and what is written is watched (sandbox.py).
"""

import contextlib
import os
import secrets
import shutil
import stat
import tempfile

PLACE = "/scratch"  # inside
FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


def choose_own_folder():
    """The grader's own temporary files lie in one folder, TMPDIR or /tmp: tempfile alone goes on to others when one is
    full, down to the current folder.
    """
    tempfile.tempdir = os.environ.get("TMPDIR") or "/tmp"


class Scratch:
    """The folder behind `descriptor`, which children see as `place`. uid: the user that they become, or None."""

    def __init__(self, descriptor, place, uid):
        self.descriptor, self.place, self.uid = descriptor, str(place), uid

    def folder(self, name=None):
        """A new Folder for one child; raises OSError."""
        name = name or f"case-{secrets.token_hex(8)}"
        os.mkdir(name, 0o700, dir_fd=self.descriptor)
        if self.uid is not None:
            os.chown(name, self.uid, self.uid, dir_fd=self.descriptor, follow_symlinks=False)
        return Folder(self, name)

    def close(self):
        if self.descriptor is not None:
            os.close(self.descriptor)
        self.descriptor = None


class Folder:
    """One child's current folder. It is held by a descriptor: what the child puts in its place leads nowhere."""

    def __init__(self, scratch, name):
        self.scratch, self.name, self.path = scratch, name, f"{scratch.place}/{name}"
        self.descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | FLAGS, dir_fd=scratch.descriptor)

    def put(self, name, data):
        """A new file of ours; raises OSError where there is no room, or something that is no file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)
        made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS, 0o644, dir_fd=self.descriptor)
        with os.fdopen(made, "wb") as file:
            file.write(data)

    def take(self, name, most, size=None):
        """The bytes of a plain file, and the file is gone; raises OSError without one of that size."""
        found = os.open(name, os.O_RDONLY | os.O_NONBLOCK | FLAGS, dir_fd=self.descriptor)
        with os.fdopen(found, "rb") as file:
            about = os.fstat(found)
            if not stat.S_ISREG(about.st_mode) or about.st_size > most or size not in (None, about.st_size):
                raise OSError("another file")
            data = file.read(about.st_size)
        os.unlink(name, dir_fd=self.descriptor)
        return data

    def remove(self):
        """All of it, as far as that is possible: what is left goes with the sandbox, or with the scratch folder."""
        os.close(self.descriptor)
        if self.scratch.descriptor is not None:
            with contextlib.suppress(RecursionError):
                shutil.rmtree(f"/proc/self/fd/{self.scratch.descriptor}/{self.name}", ignore_errors=True)
