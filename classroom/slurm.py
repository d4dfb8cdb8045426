"""The engine of a cluster: array jobs of Slurm through submitit, one job a submission, whose results come as files.

All arrays of a class have one name, made of its folder's. By that name a run finds what a killed run left in the queue,
cancels it, and queues what has no results. Nodes import this file, so it imports no torch: only `one` does.
"""

import math
import secrets
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import submitit

from classroom.data import digest, path_of
from grader.commands.arguments import BadArguments
from grader.core.sandbox.child import TrustedChild

if TYPE_CHECKING:
    from classroom.jobs import Job

ROOT = Path(__file__).resolve().parents[1]
COMMAND = (sys.executable, "-m", "classroom.one")
CHUNK, AT_A_TIME = 500, 16  # submissions of one array (Slurm's own limit is 1001), and of those that run
MARGIN_SECONDS = 300  # beyond a job's own limits: submitit's start, and its signal before Slurm's limit
# GB: of a recorder and a runner, which live at the same time (`KINDS` of server.py), and 2 for the grader.
RESOURCES = {"cpu": {"cpus_per_task": 1, "mem": "18GB"}, "cuda": {"cpus_per_task": 2, "mem": "58GB"}}
UNREACHED = 3  # jobs that could not even start, before the cluster is believed to be unfit
SAY_SECONDS, ANSWER_SECONDS = 60.0, 60.0  # between lines about the queue; for an answer, since Slurm may be busy
ENDED = {
    "COMPLETED": "ended without a result", "FAILED": "ended without a result", "CANCELLED": "was cancelled",
    "GONE": "is no longer known to Slurm, and left no result", "OUT_OF_MEMORY": "took more memory than Slurm gave it",
    "NODE_FAIL": "was lost with its node", "BOOT_FAIL": "was lost with its node, which did not start",
    "TIMEOUT": "reached its time limit in Slurm", "PREEMPTED": "had to make room for another (preempted)",
    "DEADLINE": "reached its deadline in Slurm", "REVOKED": "was taken back by Slurm",
}  # fmt: skip
SILENT, OVER = ("COMPLETED", "FAILED", "GONE"), (*ENDED, "COMPLETING")  # they do not say why; nothing more can come
HOPELESS = {  # reasons why a job waits that no waiting mends
    "PartitionTimeLimit": "the partition lets no job run that long", "BadConstraints": "no node has what they ask for",
    "PartitionNodeLimit": "the partition has no such node", "InvalidAccount": "the account is not valid",
    "InvalidQOS": "the quality of service is not valid", "AccountNotAllowed": "the account may not use the partition",
    "QOSNotAllowed": "the quality of service may not be used there",
}  # fmt: skip


def from_options(options: Namespace) -> "Slurm":
    """The engine that the options ask for; raises BadArguments where this cluster cannot be it."""
    if not shutil.which("sbatch"):
        raise BadArguments("ENGINE=slurm needs a machine that submits to Slurm, and there is no sbatch here")
    known = [name.removesuffix("*") for name in ask("sinfo", "--noheader", "--all", "--format=%P").split()]
    if options.partition and options.partition not in known:
        raise BadArguments(f"the cluster has no partition {options.partition!r}; it has {', '.join(known)}")
    return Slurm(options.out, options.partition, options.gpus or 1, options.array or AT_A_TIME)


class Slurm:
    """Runs at most `array` jobs at a time. grace: seconds for a file to reach this machine after its job ended."""

    def __init__(
        self, out: str | Path, partition: str | None = None, gpus: int = 1, array: int = AT_A_TIME,
        command: Sequence[str] = COMMAND, poll: float = 2.0, grace: float = 20.0,
    ) -> None:  # fmt: skip
        self.out, self.partition, self.gpus, self.array = Path(out).resolve(), partition, gpus, array
        self.command, self.poll, self.grace = tuple(command), poll, grace
        self.home, self.name = self.out / "work" / "slurm", f"class-{digest(str(self.out))[:12]}"
        self.tasks, self.started, self.ended = dict[str, "Job"](), set[str](), dict[str, float]()  # by Slurm's ids
        self.lost, self.said_at = 0, -math.inf

    def run(
        self, jobs: Sequence["Job"], on_end: Callable[["Job", str], "Job | None"], on_start: Callable[["Job"], None]
    ) -> None:
        """As Local.run, one array after another. A job whose results are all there ends at once."""
        while left := sum(state not in OVER for state, _ in self.ask_states().values()):
            self.say(f"cancels {left} jobs of an earlier run")
            ask("scancel", f"--name={self.name}")
            time.sleep(self.poll)
        shutil.rmtree(self.home, ignore_errors=True)
        waiting = [job for job in jobs if not self.has_results(job) or on_end(job, "")]
        try:
            while waiting:
                chosen = [job for job in waiting if job.needs_gpu == waiting[0].needs_gpu][:CHUNK]
                waiting = [job for job in waiting if job not in chosen]
                self.queue(chosen)
                while self.tasks:
                    time.sleep(self.poll)
                    waiting += [again for job, why in self.look(on_start) if (again := on_end(job, why))]
            shutil.rmtree(self.home, ignore_errors=True)
        finally:
            self.close()

    def close(self) -> None:
        """Cancel what is queued or running."""
        if self.tasks:
            print(f"slurm: cancels {len(self.tasks)} jobs: scancel --name={self.name}", file=sys.stderr)
            self.tasks = {}
            ask("scancel", f"--name={self.name}")

    def queue(self, jobs: list["Job"]) -> None:
        """Hand an array to Slurm. Its jobs ask for as much as their own limits let them take: Slurm ends none."""
        gpus, rest = (self.gpus, RESOURCES["cuda"]) if jobs[0].needs_gpu else (None, RESOURCES["cpu"])
        minutes = math.ceil((max(job.limit for job in jobs) + MARGIN_SECONDS) / 60)
        self.asked = f"{rest['cpus_per_task']} CPU, {gpus or 0} GPU, {rest['mem']}, {minutes} min"
        self.folder = self.home / secrets.token_hex(8)
        executor = submitit.SlurmExecutor(self.folder, max_num_timeout=0)
        executor.update_parameters(
            job_name=self.name, array_parallelism=self.array, partition=self.partition, time=minutes, **rest,
            gpus_per_node=gpus, stderr_to_stdout=True, use_srun=False,
            additional_parameters={"no-requeue": True, "chdir": str(ROOT)},  # on_end says what is tried again
        )  # fmt: skip
        self.tasks = {str(place): job for place, job in enumerate(jobs)}  # a stop while sbatch runs cancels them too
        try:
            queued = executor.map_array(attend, map(msgspec.json.encode, jobs), [self.command] * len(jobs))
        except RuntimeError as error:  # of submitit
            self.tasks, why = {}, str(error).rpartition("error: ")[2].strip().partition("\n")[0]
            raise BadArguments(f"Slurm does not take the jobs ({why}); each asks for {self.asked}") from None
        self.tasks = {known.job_id: job for known, job in zip(queued, jobs, strict=True)}
        print(f"slurm: queued {len(jobs)} jobs, {self.array} at a time, each with {self.asked}", file=sys.stderr)

    def look(self, on_start: Callable[["Job"], None]) -> Iterator[tuple["Job", str]]:
        """Look once at all that is under way: each job that ended, and why it has no result."""
        try:
            states = self.ask_states()
        except BadArguments as error:
            self.say(str(error))
            return
        counted = Counter(f"{states[id][0].lower()} ({states[id][1]})" for id in self.tasks.keys() & states.keys())
        self.say(", ".join(f"{count} {words}" for words, count in counted.items()).replace(" (None)", ""))
        list(self.out.glob("results/*")), list(self.folder.glob("*"))  # a network disk that is listed looks again
        for id, job in list(self.tasks.items()):
            state, reason = states.get(id, ("GONE", ""))
            if state == "RUNNING" and id not in self.started:
                self.started.add(id)
                on_start(job)
            if (why := self.find_end(id, state, reason)) is not None:
                del self.tasks[id]
                yield job, why

    def find_end(self, id: str, state: str, reason: str) -> str | None:
        """What on_end hears of a job, or None as long as it may still come to its results."""
        if state in OVER and self.has_results(self.tasks[id]):
            return ""
        if reason in HOPELESS:
            raise BadArguments(f"Slurm will start no job of {self.asked}: {HOPELESS[reason]} ({reason})")
        since = self.ended.setdefault(id, time.monotonic()) if state in ENDED else math.inf
        failure = self.folder / f"{id}_submitted.why"  # beside submitit's own
        if state in SILENT and failure.exists():  # what was killed does not know why, and Slurm may
            return failure.read_text(encoding="utf-8")
        if time.monotonic() < since + self.grace:
            return None
        if state in SILENT:
            self.check_nodes()
        return f"Slurm's job {id} {ENDED[state]}"

    def check_nodes(self) -> None:
        """A job is lost, and nobody says why: raises BadArguments where the nodes lack what the grader needs."""
        logs, self.lost = [path.read_text("utf-8", "replace") for path in self.home.glob("*/*_log.out")], self.lost + 1
        if any("submitit INFO" in log for log in logs) or (self.lost < UNREACHED and len(self.tasks) > 1):
            return
        see = f"see OUT={self.out}: it must lie on a disk that this machine and all nodes share"
        last = "".join(logs).strip().rpartition("\n")[2]
        start = f"start the grader ({last}): they need {sys.executable} and {ROOT} as they are"
        raise BadArguments(f"the nodes of the cluster cannot {start if logs else see}")

    def has_results(self, job: "Job") -> bool:
        return all(path_of(self.out, key).exists() for key in job.keys.values())

    def ask_states(self) -> dict[str, tuple[str, str]]:
        """{id: (state, why it waits)} of all jobs of the class that Slurm still knows; raises BadArguments."""
        said = ask("squeue", "--array", "--noheader", "--states=all", f"--name={self.name}", "--format=%i|%T|%r")
        return {id: (state, reason) for id, state, reason in (line.split("|", 2) for line in said.splitlines())}

    def say(self, words: str) -> None:
        """A line about the queue, at most one a minute."""
        if words and time.monotonic() >= self.said_at + SAY_SECONDS:
            self.said_at = time.monotonic()
            print(f"slurm: {words}", file=sys.stderr)


def attend(job: bytes, command: Sequence[str]) -> None:
    """On a node: grade a job, given as JSON, with `command`. Where that fails, a file says why."""
    file = submitit.JobEnvironment().paths.submitted_pickle.with_suffix(".json")
    file.write_bytes(job)
    with TrustedChild([*command, str(file)], ROOT, replies=False) as child:
        if child.wait() not in (0, -signal.SIGTERM):  # with SIGTERM Slurm ends the whole job, and says itself why
            file.with_suffix(".why").write_bytes(f"the process that graded this {child.how_it_ended()}".encode())


def ask(*command: str) -> str:
    """What a command of Slurm prints; raises BadArguments."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise BadArguments(f"Slurm does not answer: {getattr(error, 'stderr', '') or error}".strip()) from None
