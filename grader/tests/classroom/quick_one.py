"""Stands in for grader.classroom.one, and lane with --lane, where a test is about all that is around the grading.

It takes milliseconds a job: a problem's verdict follows from the bytes of its module. Lines in a module ask for
trouble: "die" ends the process, "fault" is a fault of the grader, "eat" takes 2 GB of memory, "never" never ends, each
with " once" in the first attempt alone; "wait 0.3" takes its time.
"""

import hashlib
import json
import os
import re
import signal
import sys
import time
from fractions import Fraction
from pathlib import Path

from grader.classroom import lane
from grader.classroom.record import GRADED, MACHINE_FAULT, Record

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


def graded(job, id):
    path = Path(job["folder"]) / MODULES[id]
    data = path.read_bytes() if path.exists() else b""
    fault = trouble(data.decode(errors="replace"), job["attempt"])
    most, bits = Fraction(15, CASES), hashlib.sha256(data).digest()
    results = tuple(
        {
            "case": f"case {n}", "aspect": "correct", "outcome": "passed" if bits[n] % 3 else "wrong",
            "sentence": "" if bits[n] % 3 else f"off by {bits[n]}", "description": "", "again": "", "printed": "",
            "seconds": time.time() % 1, "earned": str(most if bits[n] % 3 else 0), "possible": str(most),
            "causes": [], "evidence": None,
        }
        for n in range(CASES)
    )  # fmt: skip
    earned = None if fault else str(sum(Fraction(r["earned"]) for r in results))
    status, why = (MACHINE_FAULT, ("The disk was on fire.",)) if fault else (GRADED, ())
    return Record(
        job["keys"][id], job["submission"], id, status, earned, "15", results, 0.1, 0.0, job["attempt"], "", why
    )


def grade(files):
    job = json.loads(Path(files[0]).read_text())
    if log := os.environ.get("QUICK_LOG"):
        with open(log, "a") as file:
            file.write(f"{job['submission']} {','.join(job['problems'])}\n")
    records = [graded(job, id) for id in job["problems"]]
    part = Path(f"{files[1]}.part")
    part.write_text("".join(record.to_json() + "\n" for record in records))
    part.replace(files[1])


if __name__ == "__main__":
    if sys.argv[1] == "--lane":
        lane.serve(sys.argv[2], grade, lambda job: None)
    else:
        grade(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)
