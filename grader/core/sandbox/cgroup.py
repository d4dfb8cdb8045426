"""A control group (version 2) for one sandbox process, where this machine lets us make one. It limits the memory and
the processes of all that is inside together, and gives them one share of the cores, however many they are.

It lies below the group that the grader is in, or beside it, so that what holds for the grader holds for it too.
"""

import contextlib
import itertools
import os
import time
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
SHARE = 100  # of the cores: the kernel's own for a process without a group
_numbers = itertools.count()


class Group:
    """held: the controllers that limit it, which may be none. Close it once it is empty."""

    def __init__(self, memory: int, processes: int) -> None:
        self.folder, self.held = Path(), set[str]()
        limits = {"memory.max": memory, "pids.max": processes, "cpu.weight": SHARE}
        # A group that has processes gives those below it no controllers: then one beside ours.
        for place in find_places():
            remove_stale(place)
            self.folder = place / f"grade-{os.getpid()}-{next(_numbers)}"
            with contextlib.suppress(OSError):
                self.folder.mkdir()
            self.held = {name.split(".")[0] for name, value in limits.items() if self.write(name, value)}
            if self.held:
                self.write("memory.swap.max", 0)
                break
            self.close()

    def write(self, name: str, value: int) -> bool:
        """True where the kernel took the value."""
        try:
            with open(self.folder / name, "r+", encoding="utf-8") as file:
                file.write(str(value))
            return True
        except OSError:
            return False

    def enter(self) -> list[str]:
        """The beginning of a command that is run within the group."""
        script = 'echo 0 > "$1" || exit 1; shift; exec "$@"'
        return ["/bin/sh", "-c", script, "sh", str(self.folder / "cgroup.procs")] if self.held else []

    def kill(self) -> None:
        """End all that is in the group, at once (Linux 5.14)."""
        if self.held:
            self.write("cgroup.kill", 1)

    def memory_kills(self) -> int:
        """How often the kernel ended a process here because the group had all of its memory.

        Where the whole machine is short of memory, a process here may be ended too: that does not count.
        """
        with contextlib.suppress(OSError, ValueError):
            lines = (self.folder / "memory.events").read_text(encoding="utf-8").splitlines()
            events = {name: int(number) for name, number in map(str.split, lines)}
            return events["oom_kill"] if events.get("oom") else 0
        return 0

    def close(self) -> None:
        for _ in range(100):  # its last process may still be on its way out
            with contextlib.suppress(OSError):
                if self.folder.name and self.folder.exists():
                    self.folder.rmdir()
                return
            time.sleep(0.01)


def find_places() -> list[Path]:
    """The grader's own group and the one above, if any: what "0::" names is of version 2."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            if line.startswith("0::") and (MOUNT / "cgroup.procs").exists():
                own = MOUNT / line[3:].strip("/")
                return [own, own.parent] if own != MOUNT else [own]
    return []


def remove_stale(place: Path) -> None:
    """Groups of graders that were killed: the kernel lets go of those that are empty."""
    for folder in place.glob("grade-*-*"):
        with contextlib.suppress(OSError):
            if not Path("/proc", folder.name.split("-")[1]).exists():
                folder.rmdir()
