"""What is left to grade: a Job for each submission with problems that no record answers yet, and who tries it again."""

import json
import os
import platform
from dataclasses import asdict, dataclass, replace
from fractions import Fraction

from grader.classroom import fingerprint
from grader.classroom.record import GRADED, MACHINE_FAULT, Record
from grader.core.sandbox.sandbox_process import SLOWEST
from grader.course import course
from grader.course.problem import SECONDS_PER_CASE, SECONDS_PER_PROBLEM
from grader.kinds.registry import EVERY

ATTEMPTS = 3  # of a problem that the machine failed, the first included
START_SECONDS = 240.0  # of a job, beside its cases: Python, torch and triton on a busy disk, and the pages
COMPILE_SECONDS = 90.0  # of a problem: compiling.SECONDS, the canary's and the starts of their children
SPEED_SECONDS = 600.0  # of a problem that is timed on a GPU, twice where it is close


@dataclass(frozen=True)
class Job:
    """Some problems of one submission, graded by one process; plain data.

    folder: the clean copy of its modules. out: the class's folder. keys: {problem id: key of its record}, also of the
    problems that are not graded now and stand on the same page. attempt: from 1.
    """

    submission: str
    title: str
    problems: tuple[str, ...]
    folder: str
    out: str
    keys: dict[str, str]
    device: str = "cpu"
    seed: int = 0
    targets: tuple[str, ...] = ()
    needs_gpu: bool = False
    attempt: int = 1

    @property
    def limit(self):
        """Seconds that nothing of it can exceed where every part keeps its own limit: past it, the machine is stuck."""
        return START_SECONDS + sum(map(self.limit_of, self.problems))

    def limit_of(self, id):
        problem = EVERY[id]
        cases = [c for c in (*problem.cases, *problem.memory_cases) if self.device == "cuda" or not c.gpu]
        slowness = SLOWEST if self.device == "cpu" else 1.0
        each, whole = SECONDS_PER_CASE[self.device] * slowness, SECONDS_PER_PROBLEM[self.device] * slowness
        # One to load and two that are asked again; the last may begin just before the end. 2 s to judge each.
        seconds = min((len(cases) + 3) * each, whole + 4 * each) + 2 * len(cases)
        seconds += COMPILE_SECONDS if self.targets and problem.uses_triton else 0
        return seconds + (SPEED_SECONDS if self.device == "cuda" and problem.speed_case else 0)

    def to_json(self):
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text):
        plain = json.loads(text)
        return cls(**{**plain, "problems": tuple(plain["problems"]), "targets": tuple(plain["targets"])})


def make_keys(submissions, problems, device, device_name, targets, seed):
    """{submission id: {problem id: key}} of all that is asked; the bytes are those of the clean copies."""
    environment = fingerprint.hash_environment(device_name)
    hashes = {problem.id: fingerprint.hash_problem(problem, device, targets) for problem in problems}

    def key_of(submission, problem):
        path = submission.folder / problem.module
        module = path.read_bytes() if path.is_file() else None
        return fingerprint.make_key(module, hashes[problem.id], environment, seed)

    return {s.id: {problem.id: key_of(s, problem) for problem in problems} for s in submissions}


def make_jobs(submissions, problems, keys, index, **rest):
    """A Job for each submission with problems that have no grade; those that only the machine failed are tried anew.

    index: journal.Index. rest: out, device, seed and targets of the Jobs.
    """
    jobs = []
    for submission in submissions:
        of = keys[submission.id]
        left = tuple(p.id for p in problems if index.status(submission.id, p.id, of[p.id]) != GRADED)
        if not left:
            continue
        runs = any(EVERY[id].module in submission.modules for id in left)
        gpu = rest.get("device") == "cuda" and runs
        jobs.append(Job(submission.id, submission.title, left, str(submission.folder), keys=of, needs_gpu=gpu, **rest))
    return jobs


def whole_jobs(submissions, keys, **rest):
    """A Job for each submission with all that is asked of it, graded or not."""
    return [Job(s.id, s.title, tuple(keys[s.id]), str(s.folder), keys=keys[s.id], **rest) for s in submissions]


def points_of(problems):
    """{problem id: its points as text}, the columns of a gradebook."""
    return {p.id: str(Fraction(p.points)) for p in problems}


def fault_records(job, sentence):
    """What stands in the journal where a job gave nothing: no grade, and why."""
    return [
        Record(job.keys[id], job.submission, id, MACHINE_FAULT, None, str(Fraction(course.current().points(id))),
               attempts=job.attempt, machine=machine_name(), remarks=(sentence,))
        for id in job.problems
    ]  # fmt: skip


def sort_out(job, records):
    """(records that stand, a Job for what the machine failed and that is worth another attempt, or None)."""
    failed = tuple(r.problem for r in records if r.status == MACHINE_FAULT)
    if not failed or job.attempt >= ATTEMPTS:
        return records, None
    return [r for r in records if r.status == GRADED], replace(job, problems=failed, attempt=job.attempt + 1)


def machine_name():
    """This machine in a few words, without its name."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
