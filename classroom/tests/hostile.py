"""Ten students who want to do harm, not to pass.

python -m classroom.tests.hostile FOLDER puts them into a class, and into the roster beside it.

Each attacks in P1 as it is loaded, in P2 as it is called, in P3 from a thread that goes on, and hands in the solution
of P4: what is right among it earns its points. The last two hand in files that are traps.
"""

import csv
import io
import sys
import zipfile
from pathlib import Path

from grader.registry import PROBLEMS
from grader.tests.support import solution

ATTACKS = {
    "fills the disk": """
import itertools, os
for n in itertools.count():
    for folder in (".", "/tmp", "/dev/shm", "/var/tmp", os.path.expanduser("~")):
        try:
            open(f"{folder}/{n}", "wb").write(bytes(1 << 24))
        except OSError:
            pass
""",
    "hides a million files": """
import itertools, os
os.mkdir("closed"); os.mkdir("closed/inner"); os.chmod("closed", 0)
for n in itertools.count():
    os.mkdir("d" * 200) if n < 50 else os.close(os.open(str(n), os.O_CREAT | os.O_WRONLY))
    os.chdir("d" * 200) if n < 50 else None
""",
    "takes all memory": """
import mmap
kept = []
while True:
    kept.append(mmap.mmap(-1, 1 << 26)); kept[-1][:] = b"x" * (1 << 26); kept.append(bytearray(b"y") * (1 << 26))
""",
    "takes all processes": """
import os
while True:
    try:
        os.fork(); os.setsid()
    except OSError:
        pass
""",
    "kills whom it can": """
import os, signal
for number in (signal.SIGSTOP, signal.SIGKILL):
    for pid in (os.getppid(), 1, -1, *range(2, 5000)):
        try:
            os.kill(pid, number)
        except OSError:
            pass
""",
    "clears the terminal": """
import os, sys
text = "\\x1b[2J\\x1b[H\\x1b]0;mine\\x07\\r100 of 100\\u202e \\udcff <script>alert(1)</script> {{ 7 * 7 }} " * 50
os.write(1, text.encode("utf-8", "surrogatepass")); os.write(2, text.encode("utf-8", "replace"))
raise type(text[:300], (Exception,), {"__module__": "builtins"})(text)
""",
    "forges replies": """
import json, os
line = json.dumps({"status": "returned", "depends": None, "outputs": [], "token": None, "x": "[" * 5000}).encode()
for number in range(3, 1024):
    try:
        os.write(number, line + b"\\n" + b"\\xff" * 70000 + b"\\n")
    except OSError:
        pass
open("program.json", "w").write('{"steps": ' + "[" * 100000)
os._exit(0)
""",
    "leaves its sandbox": """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
done = [name for name, number in {"unshare": 272, "setns": 308, "mount": 165, "keyctl": 250, "add_key": 248,
        "ptrace": 101, "bpf": 321, "perf_event_open": 298, "io_uring_setup": 425, "clone3": 435, "chroot": 161,
        "process_vm_readv": 310}.items() if libc.syscall(number, 0x10000000, 0, 0, 0, 0) >= 0]
seen = [place for place in ("/root", "/home", "/etc/shadow", "/proc/1/environ", "/sys/fs/cgroup")
        if os.access(place, os.R_OK) and (not os.path.isdir(place) or os.listdir(place))]
raise ValueError(f"possible: {done} {seen}")
""",
}


def module(id, attack):
    """The text of a hostile module of P1 to P3."""
    name = PROBLEMS[id].entry_point
    inside = "".join(f"    {line}\n" for line in attack.strip().splitlines())
    function = f"def attack():\n{inside}\n\ndef {name}(q, k, v, is_causal=False):\n    attack()\n"
    if id == "p1":
        return attack
    if id == "p2":
        return function
    return f"import threading\n{function.replace('    attack()', '    threading.Thread(target=attack).start()')}" \
           "    import time; time.sleep(5); return q\n"  # fmt: skip


def traps():
    """{name in the folder: bytes}: a bomb in bombs, and a name that wants to be another's."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_BZIP2) as archive:
        for n in range(200):
            archive.writestr(f"{n}/{PROBLEMS['p1'].module}", bytes(1 << 20))
    outer = io.BytesIO()
    with zipfile.ZipFile(outer, "w", zipfile.ZIP_DEFLATED) as archive:
        for n in range(60):
            archive.writestr(f"{n}.zip", inner.getvalue())
        archive.writestr("../../" + PROBLEMS["p1"].module, "x = 1")
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr(PROBLEMS["p1"].module, "def " * 250_000)
        archive.writestr(PROBLEMS["p2"].module, "(" * 1_000_000)
        archive.writestr(PROBLEMS["p3"].module, '"' + "\\x1b[2J" * 150_000)
    return {
        "zz hostile $(touch here); `id` '\".zip": outer.getvalue(),
        "ada_1_assignsubmission_file_.zip": other.getvalue(),
    }


def make(folder):
    """Write the ten into a folder; their names there."""
    names = []
    for name, attack in ATTACKS.items():
        place = Path(folder) / f"zz {name}"
        place.mkdir(parents=True, exist_ok=True)
        for id in ("p1", "p2", "p3"):
            (place / PROBLEMS[id].module).write_text(module(id, attack), "utf-8")
        (place / PROBLEMS["p4"].module).write_text(solution("p4"), "utf-8")
        names.append(place.name)
    for name, data in traps().items():
        (Path(folder) / name).write_bytes(data)
        names.append(name)
    with Path(f"{folder}-roster.csv").open("a", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([f"h{number}", name.removesuffix(".zip"), ""] for number, name in enumerate(names))
    return names


if __name__ == "__main__":
    print("\n".join(make(sys.argv[1])))
