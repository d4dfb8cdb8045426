"""What Slurm says of its partitions and of the jobs of a batch; asked by its own commands, without accounting."""

import shutil
import subprocess
from dataclasses import dataclass

ANSWER_SECONDS = 60.0  # a busy controller is slow, not gone
ENDED = {
    "COMPLETED": "ended without a result",
    "FAILED": "ended without a result",
    "CANCELLED": "was cancelled",
    "TIMEOUT": "reached its time limit in Slurm",
    "DEADLINE": "reached its deadline in Slurm",
    "OUT_OF_MEMORY": "took more memory than Slurm gave it",
    "NODE_FAIL": "was lost with its node",
    "BOOT_FAIL": "was lost with its node, which did not start",
    "PREEMPTED": "had to make room for another (preempted)",
    "REVOKED": "was taken back by Slurm",
    "GONE": "is no longer known to Slurm, and left no result",
}
SILENT = ("COMPLETED", "FAILED", "GONE")  # states that do not say why
LEAVING = "COMPLETING"  # it has ended, and its node tidies up
# Reasons why a job waits that no waiting mends.
HOPELESS = {
    "PartitionTimeLimit": "the partition lets no job run that long",
    "PartitionNodeLimit": "the partition has no such node",
    "BadConstraints": "no node has what they ask for",
    "InvalidAccount": "the account is not valid",
    "InvalidQOS": "the quality of service is not valid",
    "AccountNotAllowed": "the account may not use the partition",
    "QOSNotAllowed": "the quality of service may not be used there",
}


class NoAnswer(Exception):
    """A command of Slurm failed; the text is its last line."""


@dataclass(frozen=True)
class Task:
    """One job of an array as Slurm sees it. state: PENDING, RUNNING ...; reason: why it waits or how it ended."""

    state: str
    reason: str = ""
    id: str = ""

    @property
    def ended(self):
        return self.state in ENDED

    @property
    def alive(self):
        return not self.ended and self.state != LEAVING


GONE = Task("GONE")


def ask(*command):
    """What a command of Slurm prints; raises NoAnswer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoAnswer(f"{command[0]}: {error}") from None
    if done.returncode:
        raise NoAnswer(last_line(done.stderr) or f"{command[0]} ended with exit status {done.returncode}")
    return done.stdout


def last_line(text):
    """The last line that is not blank, or an empty string."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def installed():
    return shutil.which("sbatch") is not None


def partitions():
    """The names of all partitions, the default one first; raises NoAnswer."""
    names = [line.strip() for line in ask("sinfo", "--noheader", "--all", "--format=%P").splitlines() if line.strip()]
    ordered = sorted(dict.fromkeys(names), key=lambda name: not name.endswith("*"))
    return [name.removesuffix("*") for name in ordered]


def tasks(names):
    """{name of a batch: {index: Task}} of what Slurm still knows; index None stands for all that are not named.

    A job that is no array has index None too. Raises NoAnswer.
    """
    found = {name: {} for name in names}
    wanted = f"--name={','.join(names)}"
    for line in ask("squeue", "--array", "--noheader", "--states=all", wanted, "--format=%j|%K|%T|%i|%r").splitlines():
        name, index, state, id, reason = line.strip().split("|", 4)
        found[name][int(index) if index.isdigit() else None] = Task(state, reason, id)
    return found


def cancel(name, id=None):
    """Cancel all jobs of a batch, or the one with this id; raises NoAnswer."""
    ask("scancel", *((id,) if id else (f"--name={name}",)))
