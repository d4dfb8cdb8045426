"""A control group of the kernel's for one submission, where this machine lets us make one. It limits memory and
processes, and gives the submission one share of the cores, however many processes it starts.

Made below the group that the grader is in, so that what holds for the grader holds for it too. Both versions: in v1
each controller has a tree of its own, in v2 all share one.
"""

import contextlib
import itertools
import os
import time
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
FILES = {  # (version, controller): files to write; the first must be there, the others where they are
    (1, "memory"): ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    (1, "pids"): ("pids.max",),
    (2, "memory"): ("memory.max",),
    (2, "pids"): ("pids.max",),
    (1, "cpu"): ("cpu.shares",),
    (2, "cpu"): ("cpu.weight",),
}
SHARE = {1: 1024, 2: 100}  # {version: share of the cores}: the kernel's own for a process without a group
_numbers = itertools.count()


def own() -> dict[str, Path]:
    """{controller: folder of the grader's own group}; "" is the controller of v2."""
    found: dict[str, Path] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers:
                found |= {name: MOUNT / name / path.strip("/") for name in controllers.split(",")}
            else:
                found[""] = MOUNT / path.strip("/")
    return found


class Group:
    """The group of one submission; `held` names what it limits, which may be nothing. Closed once it is empty."""

    def __init__(self, memory: int, processes: int) -> None:
        self.folders, self.held = list[Path](), dict[str, Path]()
        mine, name = own(), f"grade-{os.getpid()}-{next(_numbers)}"
        for controller, value in (("memory", memory), ("pids", processes), ("cpu", None)):
            places = [(1, mine[controller])] if controller in mine else []
            # v2 gives a group no controllers below one that has processes: then one beside ours.
            places += [(2, place) for place in (mine[""], mine[""].parent)] if "" in mine else []
            for version, place in places:
                remove_stale(place)
                if self.make(place / name, FILES[version, controller], value or SHARE[version]):
                    self.held[controller] = place / name
                    break

    def make(self, folder: Path, files: tuple[str, ...], value: int) -> bool:
        made = folder not in self.folders
        try:
            folder.mkdir(exist_ok=not made)
            if made:
                self.folders.append(folder)
            (folder / files[0]).write_text(str(value), "utf-8")
        except OSError:
            if made:
                self.remove(folder)
            return False
        for other in files[1:]:
            with contextlib.suppress(OSError):
                (folder / other).write_text(str(value), "utf-8")
        swap = folder / "memory.swap.max"
        if "memory.max" in files and swap.exists():
            with contextlib.suppress(OSError):
                swap.write_text("0", "utf-8")
        return True

    def enter(self) -> list[str]:
        """The beginning of a command that is run within the group."""
        if not self.folders:
            return []
        script = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 1; shift; done; shift; exec "$@"'
        return ["/bin/sh", "-c", script, "sh", *(str(folder / "cgroup.procs") for folder in self.folders), "--"]

    def processes(self) -> set[int]:
        """Numbers of all that is in the group, as the grader sees them."""
        found: set[int] = set()
        for folder in self.folders:
            with contextlib.suppress(OSError):
                found |= set(map(int, (folder / "cgroup.procs").read_text("utf-8").split()))
        return found

    def memory_kills(self) -> int:
        """How often the kernel ended a process here because the group had all of its memory.

        Where the whole machine is short of memory, a process here may be ended too: that does not count.
        """
        with contextlib.suppress(OSError, KeyError, ValueError):
            most = int((self.held["memory"] / "memory.max_usage_in_bytes").read_text("utf-8"))
            full = most >= int((self.held["memory"] / "memory.limit_in_bytes").read_text("utf-8"))
            return numbers(self.held["memory"] / "memory.oom_control")["oom_kill"] if full else 0
        with contextlib.suppress(OSError, KeyError, ValueError):
            events = numbers(self.held["memory"] / "memory.events")
            return events["oom_kill"] if events["oom"] else 0
        return 0

    def remove(self, folder: Path) -> None:
        for _ in range(100):  # its last process may still be on its way out
            try:
                folder.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.01)
        if folder in self.folders:
            self.folders.remove(folder)

    def close(self) -> None:
        for folder in list(self.folders):
            self.remove(folder)


def numbers(file: Path) -> dict[str, int]:
    """{name: number} of a file of the kernel's with one of each on a line."""
    words = file.read_text(encoding="utf-8").split()
    return {name: int(number) for name, number in zip(words[::2], words[1::2], strict=True)}


def remove_stale(place: Path) -> None:
    """Groups of graders that were killed: the kernel lets go of those that are empty."""
    for folder in place.glob("grade-*-*"):
        with contextlib.suppress(OSError):
            if not Path("/proc", folder.name.split("-")[1]).exists():
                folder.rmdir()
