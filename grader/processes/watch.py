"""What a submission writes where no tmpfs bounds it: in its folder, and in files that it holds open without a name."""

import contextlib
import os
import stat

from grader.processes.inside import process_tree

BYTES = 4 << 30  # of all files together
ENTRIES = 100_000  # files and folders


def too_much(folder, pids):
    """What was written too much in `folder`, or is held open by these processes, as a clause; else None."""
    try:
        written, entries = named(folder)
    except OSError as error:  # too deep for a path, or closed to us: who hides what is written is not believed
        return f"it made folders that cannot be looked into ({error.strerror})"
    if entries > ENTRIES:
        return f"it wrote more than {ENTRIES:,} files"
    if written + unnamed(pids) > BYTES:
        return f"it wrote more than {BYTES >> 30} GiB of files"
    return None


def named(folder):
    """(bytes, entries) of all below a folder, counted no further than the limits; raises OSError."""
    total, count, folders = 0, 0, [folder]
    while folders:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    total, count = total + entry.stat(follow_symlinks=False).st_blocks * 512, count + 1
                if total > BYTES or count > ENTRIES:
                    return total, count
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return total, count


def unnamed(pids):
    """Bytes of the files without a name that these processes have open or mapped, each file once."""
    sizes = {}
    for folder in (f"/proc/{pid}/{kind}" for pid in pids for kind in ("fd", "map_files")):
        with contextlib.suppress(OSError):  # it has ended; only root may follow what is mapped
            for name in os.listdir(folder):
                with contextlib.suppress(OSError):
                    about = os.stat(f"{folder}/{name}")
                    if stat.S_ISREG(about.st_mode) and not about.st_nlink:
                        sizes[about.st_dev, about.st_ino] = about.st_blocks * 512
    return sum(sizes.values())


def below(pid):
    """Numbers of the processes that came of this one, itself among them."""
    processes, found = process_tree.table(), {pid}
    while more := {p for p, (parent, _, _) in processes.items() if parent in found} - found:
        found |= more
    return found
