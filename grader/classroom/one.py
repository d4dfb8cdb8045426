"""Grades one submission of a class in a process of its own: python -m grader.classroom.one JOB RECORDS.

JOB: a file with a plan.Job. RECORDS: where its records go, one to a line, written when all are known. The exit status
is 0 whatever the student's code did; any other means that the machine failed. On a cluster this is the command; on one
machine a lane's process imports it once and forks (lane.py).
"""

import contextlib
import functools
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from grader import score
from grader.classroom import details, page, plan
from grader.classroom.plan import Job
from grader.classroom.record import GRADED, MACHINE_FAULT, Record
from grader.core.sandbox import bubblewrap, files, sandboxes, scratch
from grader.core.sandbox.child import CannotStart
from grader.diagnosis import failures
from grader.engine.grade import grade
from grader.engine.request import Request
from grader.kinds.registry import EVERY, kind_of
from grader.result import Outcome

PRINTED = 1000  # characters of a case's output that its record keeps; the page has more


def main(argv=None):
    arguments = sys.argv[1:] if argv is None else argv
    scratch.choose_own_folder()
    job = Job.from_json(Path(arguments[0]).read_text(encoding="utf-8"))
    records = with_cost(run(job))
    files.write(arguments[1], "".join(f"{record.to_json()}\n" for record in records), durable=True)
    return 0


def get_ready(job_file):
    """What grading the job and its like needs, before a process forks for each of them."""
    with contextlib.suppress(ImportError):  # a page that cannot be written is a remark
        from grader.render import html

        for name in ("report.html", "drawing.svg"):
            html.templates().get_template(name)
    job = Job.from_json(Path(job_file).read_text(encoding="utf-8"))
    bubblewrap.hide(job.out)
    bubblewrap.find_obstacle(job.device)
    if job.device == "cpu":  # on a GPU they are worked out there, and no process that uses CUDA may fork
        work_out(tuple(job.keys), job.seed)
        with contextlib.suppress(CannotStart, OSError):  # where runners cannot start, each submission says so
            sandboxes.share(("cpu", "compile") if job.targets else ("cpu",))


@functools.cache
def work_out(problems, seed):
    """What the cases have in common for all submissions: the right answers, and the outlines of their masks."""
    torch.set_num_threads(1)  # a fork has no threads of another's pool
    for problem in (EVERY[id] for id in problems):
        kind_of(problem).warm(problem, seed)


def with_cost(records):
    """The records with the core-seconds of this process and of all that it started, divided as their seconds are."""
    sandboxes.close_all()
    spent = time.process_time() + sandboxes.core_seconds()
    whole = sum(record.seconds for record in records) or 1.0
    return [replace(record, core_seconds=round(spent * record.seconds / whole, 3)) for record in records]


def run(job, grade=None):
    """The records of a job; its page is written too. grade: problem, job -> Results, in place of the grader's."""
    grade = grade or grade_problem
    if job.needs_gpu and not torch.cuda.is_available():
        return plan.fault_records(job, "PyTorch sees no GPU on the machine that was to grade this.")
    failures.begin(Path(job.out))
    records, results = [], {}
    for id in job.problems:
        started = time.perf_counter()
        found = [tidy(result, job) for result in grade(EVERY[id], job)]
        record = make_record(job, id, found, time.perf_counter() - started)
        if record.status == GRADED:
            details.write(job, id, found)
        records.append(record)
        results[id] = found
    remarks = [*records[-1].remarks, *write_page(job, results, records)]
    # A remark names no folder of this machine: the log lies beside the gradebook.
    remarks += filter(None, [failures.in_words(failures.counted(), Path())])
    return [*records[:-1], replace(records[-1], remarks=tuple(remarks))]


def grade_problem(problem, job):
    return grade(make_request(job, (problem,)), lanes=1)


def make_request(job, problems):
    # A student runs a case again in a folder of their own, so the command names none. Points need one target: a class
    # pays for no other.
    rest = {"targets": tuple(job.targets), "all_targets": False, "private_seed": bool(job.seed)}
    return Request(Path(job.folder), tuple(problems), None, job.device, job.seed, **rest)


def tidy(result, job):
    """`result` without this machine's folders in its words: the student knows the file by its name."""
    for name in ("sentence", "printed", "again"):
        text = getattr(result, name)
        if job.folder in text:
            text = text.replace(f" in {job.folder}.", ".").replace(f"{job.folder}/", "").replace(job.folder, "here")
            setattr(result, name, text)
    return result


def make_record(job, id, results, seconds):
    """The record of one problem; no grade where the grader failed in any of its cases."""
    broken = next((r for r in results if r.outcome is Outcome.GRADER_FAULT), None)
    most, got = score.max_points(results), score.earned(results)
    return Record(
        job.keys[id], job.submission, id,
        MACHINE_FAULT if broken else GRADED,
        None if broken else str(sum(got)), str(sum(most)),
        tuple(plain(*each) for each in zip(results, got, most, strict=True)),
        round(seconds, 3), 0.0, job.attempt, plan.machine_name(), (broken.sentence,) if broken else (),
    )  # fmt: skip


def plain(result, got, most):
    """What a record keeps of a Result; the pictures stay on the page."""
    printed = result.printed
    return {
        "case": result.case, "aspect": result.aspect.value, "outcome": result.outcome.value,
        "sentence": result.sentence, "description": result.description, "again": result.again,
        "printed": printed if len(printed) <= PRINTED else f"{printed[:PRINTED]}\n[...]",
        "seconds": round(result.seconds, 3), "earned": str(got), "possible": str(most),
        "causes": {cause.kind: cause.equals for cause in result.facts.causes},
        "evidence": list(result.facts.evidence) or None,
    }  # fmt: skip


def write_page(job, results, records):
    """Write the student's page, with the problems that were graded before; returns remarks, of what is missing."""
    every = [r for id in job.keys for r in (results.get(id) or details.read(job, id))]
    request = make_request(job, (EVERY[id] for id in job.keys))
    try:
        from grader.render import html

        text = html.render(every, request, sum(record.seconds for record in records), job.title)
        page.write(job.out, job.submission, job.keys, text)
    except ModuleNotFoundError as error:
        return (f"The page was not written: {error.name} is missing (pip install {error.name}).",)
    except OSError:
        raise  # a full disk is a fault of the machine: what it cost is done again
    except Exception as error:
        failures.log("the page", error)
        return (f"The page was not written, and that is the grader's fault: {type(error).__name__}: {error}.",)
    return ()


def write_missing_pages(jobs, index):
    """Write the pages of graded submissions that lack theirs, from what details/ has kept of their results."""
    for job in jobs:
        records = [index.get((job.submission, id, key)) for id, key in job.keys.items()]
        if page.shows(job.out, job.submission, job.keys) or None in records:
            continue
        if all(details.read(job, id) for id in job.keys):
            write_page(job, {}, records)


if __name__ == "__main__":
    sys.exit(main())
