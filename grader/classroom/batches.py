"""An array job of Slurm as a folder: a file for each of its jobs, written before Slurm knows of it."""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom import node
from grader.classroom.plan import Job


@dataclass
class Batch:
    """One array job; its folder has a file for each job, before and after. jobs: {number: Job}, those not done."""

    folder: Path
    jobs: dict
    started: set = field(default_factory=set)
    ended: dict = field(default_factory=dict)  # number -> when Slurm was first heard to say so

    @property
    def name(self):
        return self.folder.name

    def path(self, index, kind):
        return node.file_of(self.folder, index, kind)

    def log(self, index):
        """What Slurm and submitit wrote about a job, or None where the node left no file."""
        logs = self.folder / "logs"
        for path in (*logs.glob(f"*_{index}_0_log.out"), *logs.glob("*_0_log.out")):
            if path.name.count("_") == 3 and f"_{index}_0_" not in path.name:
                continue
            with contextlib.suppress(OSError):
                return path.read_text(errors="replace")
        return None

    def done(self, index):
        """Nothing is left to do for this job: its record is on the disk."""
        del self.jobs[index]
        for kind in (node.JOB, node.RECORDS, node.FAILURE):
            self.path(index, kind).unlink(missing_ok=True)


def read(folder):
    """The Batch of a folder that an earlier run left: the jobs whose records it did not take."""
    jobs = {}
    for path in folder.glob(f"*.{node.JOB}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            jobs[int(path.name.partition(".")[0])] = Job.from_json(path.read_text(encoding="utf-8"))
    return Batch(folder, dict(sorted(jobs.items())))
