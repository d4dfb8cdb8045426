"""What Slurm runs on a node of the cluster: one submission, graded by a process of its own as on one machine.

It imports no part of the grading, so that torch is loaded once a submission: by the process that grades.
"""

import signal
from pathlib import Path

from grader.core.sandbox import files
from grader.core.sandbox.child import TrustedChild

ROOT = Path(__file__).resolve().parents[2]
# A batch's folder holds these of each of its jobs, by the job's number. A result or a failure is there whole or not.
JOB, MADE, RECORDS, FAILURE = "job.json", "made.json", "records.json", "failure.txt"


def file_of(folder, index, kind):
    return Path(folder) / f"{index}.{kind}"


def attend(folder, index, command):
    """Grade job `index` of the batch in `folder` with `command`; leaves its records, or why there are none."""
    job, made = file_of(folder, index, JOB), file_of(folder, index, MADE)
    with TrustedChild([*command, str(job), str(made)], ROOT, replies=False) as child:
        code = child.wait()
        if code == -signal.SIGTERM:  # Slurm ends the whole job, and says itself why
            raise SystemExit(128 + signal.SIGTERM)
        if code:
            files.write(file_of(folder, index, FAILURE), f"the process that graded this {child.describe_end()}")
            return
    made.replace(file_of(folder, index, RECORDS))  # last: the parent looks for it
