"""In the sandbox process: the processes that come of its children, found and ended, whatever group they moved to."""

import contextlib
import os
import signal
import time

LOOKS = 3  # one look misses a process that forked after /proc was listed and ended before its own entry was read
ROUNDS = 200  # of killing; a bomb is stopped by the limit on processes, so that each round leaves fewer


def read_table() -> dict[int, tuple[int, int, str]]:
    """{process number: (parent, group, name)} of all that live; zombies are dead."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    said, _, rest = file.read().rpartition(")")
            except OSError:
                continue
            state, parent, group = rest.split()[:3]
            if state not in "ZX":
                found[int(name)] = int(parent), int(group), said.partition("(")[2]
    return found


def find_programs(pid: int, children: set[int]) -> dict[int, str]:
    """Names by number of the processes that came of the child `pid`: below it, in its group, or orphans.

    children: the other children, which live on; an orphan is a child of this process that it never made.
    """
    processes = read_table()
    roots = {p for p, (_, group, _) in processes.items() if p == pid or group == pid}
    roots |= {p for p, (parent, _, _) in processes.items() if parent == os.getpid() and p not in children}
    while below := {p for p, (parent, _, _) in processes.items() if parent in roots} - roots:
        roots |= below
    return {p: processes[p][2] for p in roots}


def end(pid: int, children: set[int]) -> dict[int, str]:
    """Kill the child and all that came of it; returns what is left of it, as find_programs does."""
    clear, left = 0, dict[int, str]()  # looks one after the other that found nothing
    for _ in range(ROUNDS):
        left = find_programs(pid, children)
        clear = 0 if left else clear + 1
        if clear == LOOKS:
            break
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.002)
    return left
