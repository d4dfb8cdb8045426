"""Grades one submission of a class in a process of its own: python -m classroom.one JOB.

JOB: a file with a jobs.Job. Each problem's result is written as soon as it is known. The exit status is 0 whatever the
student's code did; any other means that the machine failed, and the last line says how. On a cluster this is the
command; on one machine a lane's process imports it once and forks (lane.py).
"""

import contextlib
import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

from classroom.data import Record, read_record, write_record
from classroom.jobs import Job
from grader import failures
from grader.core.sandbox import bubblewrap, pool, scratch
from grader.core.sandbox.child import CannotStart
from grader.core.sandbox.texts import clean
from grader.course.problem import Problem
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.registry import EVERY
from grader.result import Outcome, Result

Grade = Callable[[Problem, Job], list[Result]]


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    scratch.choose_own_folder()
    try:
        faults = run(read_job(arguments[0]))
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        faults = [f"{error.strerror}{where}"]
    pool.close_all()
    for sentence in faults:
        print(clean(sentence), file=sys.stderr)
    return 1 if faults else 0


def read_job(path: str) -> Job:
    return msgspec.json.decode(Path(path).read_bytes(), type=Job)


def get_ready(job_file: str) -> None:
    """What grading the job and its like needs, before a process forks for each of them."""
    job = read_job(job_file)
    bubblewrap.hide(job.out)
    bubblewrap.find_obstacle(job.device)
    if job.device == "cpu":  # on a GPU they are worked out there, and no process that uses CUDA may fork
        work_out(tuple(job.keys), job.seed)
        with contextlib.suppress(CannotStart, OSError):  # where runners cannot start, each submission says so
            pool.serving("cpu")


@functools.cache
def work_out(problems: tuple[str, ...], seed: int) -> None:
    """What the cases have in common for all submissions: the right answers, and the outlines of their masks."""
    torch.set_num_threads(1)  # a fork has no threads of another's pool
    for problem in (EVERY[id] for id in problems):
        problem.kind.warm(problem, seed)


def run(job: Job, grade: Grade | None = None) -> list[str]:
    """Write a result for each problem of the job; returns the faults of the machine, a sentence each.

    grade: in place of the grader's.
    """
    if job.needs_gpu and not torch.cuda.is_available():
        return ["PyTorch sees no GPU on the machine that was to grade this"]
    out, faults = Path(job.out), []
    failures.begin(out)
    for id, key in job.keys.items():
        if read_record(out, key):
            continue
        started, before = time.perf_counter(), failures.counted()
        results = [tidy(result, job) for result in (grade or grade_problem)(EVERY[id], job)]
        if broken := next((r for r in results if r.outcome is Outcome.GRADER_FAULT), None):
            faults.append(broken.sentence)
            continue
        # A remark names no folder of this machine: the log lies beside the gradebook.
        said = failures.in_words(failures.counted() - before, Path())
        seconds = round(time.perf_counter() - started, 3)
        write_record(out, key, Record(id, results, seconds, (said,) if said else ()))
    return faults


def grade_problem(problem: Problem, job: Job) -> list[Result]:
    return grade(make_request(job, (problem,)), lanes=1)


def make_request(job: Job, problems: tuple[Problem, ...]) -> Request:
    # A student runs a case again in a folder of their own, so the command names none. Points need one target: a class
    # pays for no other.
    return Request(
        Path(job.folder), problems, None, job.device, job.seed,
        targets=tuple(job.targets), all_targets=False, private_seed=bool(job.seed),
    )  # fmt: skip


def tidy(result: Result, job: Job) -> Result:
    """`result` without this machine's folders in its words: the student knows the file by its name."""
    for name in ("sentence", "printed", "again"):
        text = getattr(result, name)
        if job.folder in text:
            text = text.replace(f" in {job.folder}.", ".").replace(f"{job.folder}/", "").replace(job.folder, "here")
            setattr(result, name, text)
    result.diagnosis = None  # its sentence is written
    return result


if __name__ == "__main__":
    sys.exit(main())
