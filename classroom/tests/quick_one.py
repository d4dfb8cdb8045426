"""Stands in for classroom.one, and lane with --lane, where a test is about all that is around the grading.

It takes milliseconds a job: a problem's verdict follows from the bytes of its module. Lines in a module ask for
trouble: "die" ends the process, "fault" is a fault of the grader, "eat" takes 2 GB of memory, "never" never ends, each
with " once" in the first attempt alone; "wait 0.3" takes its time; "review" needs the instructor, "hang" timed out.
"""

import hashlib
import os
import re
import signal
import sys
import time
from pathlib import Path

import msgspec

from classroom import lane
from classroom.data import Record, read_record, write_record
from classroom.jobs import Job
from grader.result import Aspect, Outcome, Result

CASES = 5
LINE = re.compile(r"(die|fault|eat|never)( once)?|wait [\d.]+")  # no line of a kernel reads so
MODULES = {"p1": "p1_naive_attention.py", "p2": "p2_online_softmax.py", "p3": "p3_flash_attention.py"}


def trouble(text, attempt):
    """Do what the text asks for; whether it asks for a fault."""
    lines = [line for line in text.splitlines() if LINE.fullmatch(line)]
    asked = {line.removesuffix(" once") for line in lines if attempt == 1 or not line.endswith(" once")}
    if "die" in asked:
        os.kill(os.getpid(), signal.SIGKILL)
    for line in lines:
        if line.startswith("wait "):
            time.sleep(float(line.removeprefix("wait ")))
    eaten = bytearray(b"x") * (2 << 30) if "eat" in asked else None
    while eaten or "never" in asked:
        time.sleep(1)
    return "fault" in asked


def results_of(id, data):
    bits, lines = hashlib.sha256(data).digest(), data.decode(errors="replace").splitlines()
    special = {"review": Outcome.NEEDS_REVIEW, "hang": Outcome.TIMED_OUT}
    first = next((special[line] for line in lines if line in special), None)
    outcomes = [Outcome.PASSED if bits[n] % 3 else Outcome.WRONG for n in range(CASES)]
    outcomes[0] = first or outcomes[0]
    return [
        Result(id, f"case {n}", Aspect.CORRECT, of, "" if of is Outcome.PASSED else f"off by {bits[n]}", seconds=0.1)
        for n, of in enumerate(outcomes)
    ]


def grade(files):
    job = msgspec.json.decode(Path(files[0]).read_bytes(), type=Job)
    if log := os.environ.get("QUICK_LOG"):
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{job.row} {','.join(job.keys)}\n")
    faults = 0
    for id, key in job.keys.items():
        path = Path(job.folder) / MODULES[id]
        data = path.read_bytes() if path.exists() else b""
        if trouble(data.decode(errors="replace"), job.attempt):
            print("The disk was on fire.", file=sys.stderr)
            faults += 1
        elif not read_record(job.out, key):
            write_record(job.out, key, Record(id, results_of(id, data), 0.1))
    return 1 if faults else 0


if __name__ == "__main__":
    if sys.argv[1] == "--lane":
        lane.serve(grade, lambda job: None)
        status = 0
    else:
        status = grade(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)
