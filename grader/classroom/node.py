"""What Slurm runs on a node of the cluster: one submission, graded by a process of its own as on one machine.

It imports nothing of ours, so that torch is loaded once a submission: by the process that grades.
"""

import json
import os
import resource
import signal
import subprocess
import tempfile
from pathlib import Path

from grader.processes import files

ROOT = Path(__file__).resolve().parents[2]
# A batch's folder holds these of each of its jobs, by the job's number. A result or a failure is there whole or not.
JOB, MADE, USED, RECORDS, FAILURE = "job.json", "made.json", "used.json", "records.json", "failure.txt"


def file_of(folder, index, kind):
    return Path(folder) / f"{index}.{kind}"


def attend(folder, index, command):
    """Grade job `index` of the batch in `folder` with `command`; leaves its records, or why there are none."""
    job, made = file_of(folder, index, JOB), file_of(folder, index, MADE)
    with tempfile.TemporaryFile() as log:
        done = subprocess.run([*command, str(job), str(made)], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        if done.returncode == -signal.SIGTERM:  # Slurm ends the whole job, and says itself why
            raise SystemExit(128 + signal.SIGTERM)
        if code := done.returncode:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
            leave(folder, index, FAILURE, f"the process that graded this {how}{last_words(log)}")
            return
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    leave(folder, index, USED, json.dumps(used.ru_utime + used.ru_stime))
    made.replace(file_of(folder, index, RECORDS))  # last: the parent looks for it


def last_words(log):
    """` (its last line)` of what a process wrote, or nothing."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - 10_000))
    said = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    return f" ({said[-1][:200]})" if said else ""


def leave(folder, index, kind, text):
    files.write(file_of(folder, index, kind), text)
