"""The engine of a cluster: array jobs of Slurm through submitit, one job a submission, whose results come as files.

The jobs outlive this process if it is killed; the next run finds their files, and those that are still in the queue.
"""

import logging
import math
import os
import secrets
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import submitit

from grader.classroom import batches, cluster, node, plan
from grader.classroom.local import ROOT, read_records
from grader.commands.arguments import BadArguments
from grader.core.sandbox import files

CHUNK = 500  # submissions of one array job; Slurm's own limit is 1001 where nobody changed it
AT_A_TIME = 16
COMMAND = (sys.executable, "-m", "grader.classroom.one")
MARGIN_SECONDS = 300  # beyond a job's own limits: submitit's start, and its signal before Slurm's limit
GRADER_GB = 2  # beside what a submission may take, in GB as sandbox_process.MEMORY has it
MEMORY_GB = {"cpu": 16, "cuda": 56}  # of a recorder and of a runner, which live at the same time
CPUS = {"cpu": 1, "cuda": 2}
UNREACHED = 3  # jobs that could not even start, before the cluster is believed to be unfit
SAY_SECONDS = 60.0
SHARED = "it must lie on a disk that this machine and all nodes share"


def from_options(options):
    """The engine that the options ask for; raises BadArguments where this cluster cannot be it."""
    if not cluster.installed():
        raise BadArguments("ENGINE=slurm needs a machine that submits to Slurm, and there is no sbatch here")
    try:
        known = cluster.partitions()
    except cluster.NoAnswer as error:
        raise BadArguments(f"Slurm does not answer: {error}") from None
    if options.partition and options.partition not in known:
        raise BadArguments(f"the cluster has no partition {options.partition!r}; it has {', '.join(known)}")
    return Slurm(options.out, options.partition, options.gpus, options.array or AT_A_TIME)


class Slurm:
    """Runs jobs on a cluster, at most `array` at a time. gpus: for each job that needs one.

    command: what grades one job, given its file and that of its records. poll, grace: seconds between looks, and for a
    file to reach this machine after its job ended.
    """

    def __init__(self, out, partition, gpus, array, command=COMMAND, poll=2.0, grace=20.0):
        self.home = Path(out).resolve() / "work" / "slurm"
        self.partition, self.gpus, self.array, self.command = partition, gpus or 1, array, tuple(command)
        self.pause, self.grace = poll, grace
        self.waiting, self.batches, self.total, self.unreached, self.reached = [], [], 0, 0, False
        self.said, self.said_at = "", 0.0

    def run(self, jobs, on_done, on_start=lambda job: None):
        """As Local.run. One array at a time, so that no more than `array` jobs run; what failed comes last."""
        self.total, self.waiting = len(jobs), self.adopt(jobs)
        try:
            while self.waiting or self.batches:
                if not self.batches:
                    self.submit()
                if not self.look(on_done, on_start):
                    time.sleep(self.pause)
        except BaseException:
            self.cancel()
            raise

    # What an earlier run left ------------------------------------------------------------------------------------

    def adopt(self, jobs):
        """Take over what an earlier run queued or what has finished since; returns the jobs that are left."""
        wanted = {identity(job): job for job in jobs}
        left = [batches.read(folder) for folder in sorted(self.home.glob("class-*"))]
        tasks = self.ask_tasks(left, "Slurm does not answer")
        for batch in left:
            for index, job in list(batch.jobs.items()):
                task = task_of(tasks[batch.name], index)
                ready = batch.path(index, node.RECORDS).exists()
                if (task.alive or ready) and wanted.pop(identity(job), None):
                    continue
                if task.alive:  # what it grades was changed, or nobody asks for it now
                    self.quietly_cancel(batch.name, task.id)
                batch.done(index)
            self.keep(batch)
        if self.batches:
            print(f"slurm: {sum(len(b.jobs) for b in self.batches)} jobs of an earlier run go on", file=sys.stderr)
        return list(wanted.values())

    def keep(self, batch):
        """Remember a batch as long as any of its jobs is left; then its folder goes."""
        self.batches = [b for b in self.batches if b is not batch] + ([batch] if batch.jobs else [])
        if not batch.jobs:
            shutil.rmtree(batch.folder, ignore_errors=True)

    # Into the queue ----------------------------------------------------------------------------------------------

    def submit(self):
        """Queue the next array: waiting jobs that ask for the same, a file of each written before Slurm knows it."""
        gpu = self.waiting[0].needs_gpu
        chosen = [job for job in self.waiting if job.needs_gpu == gpu][:CHUNK]
        self.waiting = [job for job in self.waiting if job not in chosen]
        batch = batches.Batch(self.home / f"class-{secrets.token_hex(4)}", dict(enumerate(chosen)))
        self.keep(batch)
        batch.folder.mkdir(parents=True)
        for index, job in batch.jobs.items():
            files.write(batch.path(index, node.JOB), job.to_json())
        asked = self.choose_resources(chosen)
        try:
            self.queue(batch, asked)
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
            said = [line.strip() for line in str(error).splitlines() if "error:" in line]
            why = said[-1].partition("error: ")[2] if said else str(error).strip()
            raise BadArguments(f"Slurm does not take the jobs ({why}); each asks for {describe(asked)}") from None
        said = f"{len(chosen)} jobs, {min(self.array, len(chosen))} at a time" if len(chosen) > 1 else "1 job"
        print(f"slurm: queued {said}, each with {describe(asked)}", file=sys.stderr)

    def choose_resources(self, jobs):
        """What each job asks Slurm for: as much as its own limits let it take, so that Slurm ends none of them."""
        first = jobs[0]
        kind = "cuda" if first.needs_gpu else "cpu"
        asked = {
            "time": math.ceil((max(job.limit for job in jobs) + MARGIN_SECONDS) / 60),  # minutes
            "mem": MEMORY_GB[kind] + GRADER_GB,  # GB
            "cpus_per_task": CPUS[kind],
        }
        return asked | ({"gpus_per_node": self.gpus} if first.needs_gpu else {})

    def queue(self, batch, asked):
        """Hand a batch to Slurm through submitit."""
        logging.getLogger("submitit").setLevel(logging.ERROR)
        executor = submitit.SlurmExecutor(batch.folder / "logs", max_num_timeout=0)
        rest = asked | {"mem": f"{asked['mem']}G"}  # a bare number would be of MB
        rest |= {"partition": self.partition} if self.partition else {}
        executor.update_parameters(
            job_name=batch.name, array_parallelism=self.array, stderr_to_stdout=True, use_srun=False, **rest,
            # Who tries again, and how often, is for the journal to say; and the node imports the grader from its root.
            additional_parameters={"no-requeue": True, "chdir": str(ROOT)},
        )  # fmt: skip
        with executor.batch():
            for index in batch.jobs:
                executor.submit(node.attend, str(batch.folder), index, self.command)

    # Out of it ---------------------------------------------------------------------------------------------------

    def look(self, on_done, on_start):
        """One look at all that is under way; whether anything was done."""
        tasks = self.ask_tasks(self.batches)
        count = 0
        for batch in list(self.batches):
            os.listdir(batch.folder)  # which makes a network disk look again
            for index, job in list(batch.jobs.items()):
                task = tasks and task_of(tasks[batch.name], index)
                if task and task.state == "RUNNING" and index not in batch.started:
                    batch.started.add(index)
                    on_start(job)
                records = self.outcome(batch, index, job, task)
                if records is None:
                    continue
                if again := on_done(job, records):
                    self.waiting.append(again)
                batch.done(index)
                count += 1
            self.keep(batch)
        self.show_queue(tasks)
        return count

    def ask_tasks(self, batches, sentence=None):
        """cluster.tasks of these batches; None where Slurm does not answer now, or BadArguments with `sentence`."""
        try:
            return cluster.tasks([batch.name for batch in batches]) if batches else {}
        except cluster.NoAnswer as error:
            if sentence:
                raise BadArguments(f"{sentence}: {error}") from None
            return None

    def outcome(self, batch, index, job, task):
        """The records of a job, those of the machine's fault that ended it, or None as long as it may still come."""
        if batch.path(index, node.RECORDS).exists():
            self.reached = True
            return read_records(job, batch.path(index, node.RECORDS))
        if task is None or not task.ended:
            batch.ended.pop(index, None)
            if task and task.reason in cluster.HOPELESS:
                asked = describe(self.choose_resources(list(batch.jobs.values())))
                why = f"{cluster.HOPELESS[task.reason]} ({task.reason})"
                raise BadArguments(f"Slurm will never start these jobs, since {why}: each asks for {asked}")
            return None
        failure = batch.path(index, node.FAILURE)
        since = batch.ended.setdefault(index, time.monotonic())
        if not failure.exists() and time.monotonic() - since < self.grace:
            return None
        # What was killed does not know why, and Slurm may.
        if failure.exists() and task.state in cluster.SILENT:
            self.reached = True
            return plan.fault_records(job, f"The machine failed: {failure.read_text()}.")
        self.check_nodes(batch, index, task)
        id = f" {task.id}" if task.id else ""
        return plan.fault_records(job, f"The machine failed: Slurm's job{id} {cluster.ENDED[task.state]}.")

    def check_nodes(self, batch, index, task):
        """Raise BadArguments when job after job ends before the grader is reached: the nodes lack what they need."""
        log = batch.log(index)
        if self.reached or task.state not in ("FAILED", "COMPLETED") or (log and "submitit INFO" in log):
            return
        self.unreached += 1
        if self.unreached < min(UNREACHED, self.total):
            return
        if log is None:
            raise BadArguments(f"the nodes of the cluster do not see OUT={self.home.parents[1]}: {SHARED}")
        why = f" ({last[:200]})" if (last := cluster.last_line(log)) else ""
        raise BadArguments(f"the nodes cannot start the grader{why}: they need {sys.executable} and {ROOT} as they are")

    def show_queue(self, tasks):
        """A line when the queue has moved, at most one a minute."""
        known = [(t, i, b) for b in self.batches for i in b.jobs for t in [task_of((tasks or {}).get(b.name, {}), i)]]
        runs = sum(task.state == "RUNNING" for task, _, _ in known)
        queued = [task.reason for task, _, _ in known if task.state == "PENDING"]
        why = f" ({max(set(queued), key=queued.count)})" if queued else ""
        said = f"slurm: {runs} running, {len(queued)} queued{why}" if tasks is not None else "slurm: it does not answer"
        if known and said != self.said and time.monotonic() - self.said_at >= SAY_SECONDS:
            self.said, self.said_at = said, time.monotonic()
            print(said, file=sys.stderr)

    def cancel(self):
        """Cancel all that is queued or running; its files stay for the next run."""
        for batch in self.batches:
            self.quietly_cancel(batch.name)
        if count := sum(len(batch.jobs) for batch in self.batches):
            print(f"slurm: {count} {'job was' if count == 1 else 'jobs were'} cancelled", file=sys.stderr)

    def quietly_cancel(self, name, id=None):
        try:
            cluster.cancel(name, id)
        except cluster.NoAnswer as error:
            print(f"slurm: not cancelled ({error}); cancel with: scancel {id or f'--name={name}'}", file=sys.stderr)


def identity(job):
    """What makes two jobs the same work, whichever attempt it is."""
    return replace(job, attempt=1).to_json()


def task_of(tasks, index):
    return tasks.get(index, tasks.get(None, cluster.GONE))


def describe(asked):
    hours, minutes = divmod(asked["time"], 60)
    said = [f"{asked['cpus_per_task']} CPU", f"{asked['mem']} GB", f"{hours}:{minutes:02d} h"]
    gpus = asked.get("gpus_per_node")
    return ", ".join([*said, *([f"{gpus} GPU"] if gpus else [])])
