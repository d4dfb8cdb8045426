"""The command behind `make class`: python -m grader.classroom SUBMISSIONS.

Exit status 0 all graded, 1 a fault of the machine left some without a grade, 2 bad arguments or a class that cannot be
graded, 130 stopped.
"""

import os
import secrets
import signal
import sys
import time
import traceback
from pathlib import Path

from grader.classroom import claims, intake, journal, names, one, plan, progress, roster
from grader.classroom.local import Local
from grader.classroom.record import MACHINE_FAULT
from grader.commands import versions
from grader.commands.arguments import (
    BadArguments,
    Parser,
    check_sandbox,
    choose_device,
    choose_problems,
    choose_targets,
)
from grader.core.sandbox import bubblewrap, files, scratch
from grader.core.sandbox.texts import clean, quoted
from grader.diagnosis import failures
from grader.kinds.registry import LABS, PROBLEMS

KEPT = "what is graded is kept, and the same command goes on from there"
TARGETS = "sm_90,sm_80"  # a class stops at the first that a kernel compiles for; Hopper's takes a sixth less
SEED_FILE, SEEDS = "seed.txt", 1 << 31


def parse(argv):
    parser = Parser(prog="python -m grader.classroom", description="Grade a class.", allow_abbrev=False)
    parser.add_argument(
        "submissions", type=Path, nargs="?", help="the folder that has each submission as a folder or zip"
    )
    parser.add_argument("--out", type=Path, default=Path("class"), help="where the journal and the results go")
    parser.add_argument("--roster", type=Path, help="a CSV with the students: id, name, email, or a platform's export")
    parser.add_argument("--lanes", type=int, help="submissions at a time (default: one more than cores)")
    parser.add_argument("--problems", default="", metavar="LIST", help="like 3 or 3,5-7 (default: all with points)")
    parser.add_argument("--seed", type=int, help="of the inputs and the drawn shapes (default: the class's own)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="where to run (default: a GPU if there is one)")
    parser.add_argument("--targets", metavar="LIST", help="GPUs to compile for (default: sm_90,sm_80)")
    parser.add_argument("--no-compile", action="store_true", help="do not ask whether kernels compile for a GPU")
    parser.add_argument("--engine", choices=("local", "slurm"), default="local", help="this machine, or a cluster")
    parser.add_argument("--partition", help="of the cluster (default: its own default)")
    parser.add_argument("--gpus", type=int, help="of each job on the cluster (default: 1 where the device is cuda)")
    parser.add_argument("--array", type=int, help="jobs at a time on the cluster (default: 16)")
    return parser.parse_args(parser.take_from_make(sys.argv[1:] if argv is None else argv))


def main(argv=None, make_engine=None):
    """The exit status. make_engine: options -> an engine, in place of the one that the options name."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it is heard where Ctrl-C is
    scratch.choose_own_folder()
    try:
        options = parse(argv)
        check(options)
        return grade_class(options, choose(options), make_engine or choose_engine)
    except BadArguments as error:
        sentence = str(error)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        sentence = f"a file could not be written: {error.strerror}{where}; {KEPT}"
    except KeyboardInterrupt:
        print(f"\nclass: stopped; {KEPT}", file=sys.stderr)
        return 130
    print(clean(f"class: {sentence}"), file=sys.stderr)
    return 2


def grade_class(options, problems, make_engine):
    """Take in, plan, grade what is left, export; the exit status."""
    options.out.mkdir(parents=True, exist_ok=True)
    failures.begin(options.out)
    with journal.Journal(options.out) as book:
        seed = choose_seed(options)
        rows, submissions, notes = take_in(options, problems)
        asked = (options.device, name_device(options), options.targets, seed)
        keys = plan.make_keys(submissions, problems, *asked)
        journal.write_class(options.out, rows, plan.points_of(problems), keys, notes)
        rest = {"out": str(options.out.resolve()), "device": options.device, "seed": seed, "targets": options.targets}
        jobs = plan.make_jobs(submissions, problems, keys, book.index, **rest)
        for note in filter(None, (versions.warning(), *notes, *book.notes)):
            print(clean(f"note: {note}"), file=sys.stderr)
        say_what_is_left(jobs, submissions, rows)
        if jobs:
            run(make_engine(options), jobs, book)
        one.write_missing_pages(plan.whole_jobs(submissions, keys, **rest), book.index)
        statuses = [book.index.status(s.id, p.id, keys[s.id][p.id]) for s in submissions for p in problems]
    for line in export(options.out):
        print(clean(line))
    return report(statuses, options, len(submissions))


# Options --------------------------------------------------------------------------------------------------------------


def check(options):
    """Raise BadArguments for what cannot be used."""
    check_sandbox()
    if options.submissions is None:
        raise BadArguments("name the folder of submissions: make class SUBMISSIONS=folder")
    if not options.submissions.is_dir():
        what = "is a file, not a folder" if options.submissions.exists() else "does not exist"
        raise BadArguments(f"the folder of submissions {options.submissions} {what}")
    of_cluster = {name: getattr(options, name) for name in ("partition", "gpus", "array")}
    for name, value in {"lanes": options.lanes, **of_cluster}.items():
        if name in of_cluster and value is not None and options.engine != "slurm":
            raise BadArguments(f"{name.upper()} says something of a cluster, and needs ENGINE=slurm")
        if isinstance(value, int) and value < 1:
            raise BadArguments(f"{name.upper()} must be 1 or more; got {value}")
    if options.out.exists() and not options.out.is_dir():
        raise BadArguments(f"{options.out} is a file, and the results need a folder: choose another OUT")
    if options.out.resolve() == options.submissions.resolve():
        raise BadArguments("OUT must be another folder than SUBMISSIONS: what students handed in is never changed")
    obstacle = bubblewrap.find_obstacle(options.device or "cpu") if options.engine == "local" else None
    if obstacle and not bubblewrap.is_switched_off():
        raise BadArguments(
            f"submissions would not be in a sandbox ({obstacle}), and one could read the others and your files: "
            "install bubblewrap, or say SANDBOX=none to grade them all the same"
        )


def choose(options):
    """The problems that the options name, after the rest of the options is filled in; raises BadArguments."""
    problems = choose_problems(options.problems, PROBLEMS, LABS) if options.problems else tuple(PROBLEMS.values())
    # A cluster's machines are not this one: whether they have a GPU is theirs to say.
    asked = options.device or ("cuda" if options.gpus else "cpu")
    options.device = asked if options.engine == "slurm" else choose_device(options.device)
    if options.device == "cpu" and options.targets is None:
        options.targets = TARGETS
    options.targets = choose_targets(options, options.device)
    options.lanes = options.lanes or 1 + (os.cpu_count() or 1)  # now and then one waits: for a process, for the disk
    return problems


def choose_seed(options):
    """The seed that was asked for, or the class's own: drawn once and kept in its folder."""
    kept = options.out / SEED_FILE
    if options.seed is not None:
        return options.seed
    if not kept.exists():
        files.write(kept, f"{1 + secrets.randbelow(SEEDS)}\n", durable=True)
    try:
        return int(kept.read_text(encoding="utf-8"))
    except ValueError:
        raise BadArguments(f"{kept} holds no number: put the class's seed there, or remove it for a new one") from None


def name_device(options):
    """What a grade's key calls the device: a GPU by its model, which is not known of a cluster's machines."""
    if options.device == "cpu" or options.engine == "slurm":
        return options.device
    import torch

    return torch.cuda.get_device_name(0)


def choose_engine(options):
    if options.engine == "local":
        return Local(options.lanes)
    try:
        from grader.classroom import slurm
    except ImportError as error:
        raise BadArguments(f"ENGINE=slurm needs {error.name}: pip install {error.name}, and try again") from None
    return slurm.from_options(options)


# The class ------------------------------------------------------------------------------------------------------------


def take_in(options, problems):
    """(rows, submissions to grade, notes); remarks stand in the rows."""
    try:
        students, notes = roster.read(options.roster) if options.roster else (None, [])
        numbers = claims.numbers_of(students)
        submissions, more = intake.take_in(options.submissions, options.out, problems, numbers=numbers)
        rows, graded, said = claims.join(submissions, students)
        return rows, graded, [*notes, *more, *said]
    except (BadArguments, OSError):
        raise
    except Exception as error:
        raise BadArguments(
            "the submissions could not be taken in, and that is the grader's fault, not a student's "
            f"({where(error)}): nothing was graded or lost; report this, and to go on without the entry that it "
            "trips over, take out the newest ones and run the command again"
        ) from error


def where(error):
    """An unexpected error in a few words, with the line of ours that it came from."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    said = names.shortened(f"{type(error).__name__}: {error}")
    return f"{said}, {Path(last.filename).name} line {last.lineno}"


def say_what_is_left(jobs, submissions, rows):
    absent = sum(not row.handed_in for row in rows)
    said = [f"{len(submissions)} submissions"] + ([f"{absent} students without one"] if absent else [])
    odd = sum(bool(row.remarks) for row in rows if row.handed_in)
    said += [f"{odd} with remarks"] if odd else []
    left = f"{len(jobs)} left to grade" if jobs else "nothing is left to grade"
    print(f"{', '.join(said)}; {left}", file=sys.stderr)


def run(engine, jobs, book):
    """Grade the jobs; each record is in the journal before it is counted."""
    tally = progress.Tally(len(jobs))
    with progress.shown(tally) as show:

        def on_start(job):
            tally.start(job)
            show()

        def on_done(job, records):
            stand, again = plan.sort_out(job, records)
            book.append(stand)
            show(tally.finish(job, records, again))
            return again

        engine.run(jobs, on_done, on_start)
    print(f"{tally.words()}, {progress.clock(time.monotonic() - tally.started)}", file=sys.stderr)


def export(out):
    """Write gradebooks and pages; lines that say so. What fails here costs no grade: the journal has them all."""
    try:
        from grader.classroom.export.everything import write
    except ImportError as error:
        missing = error.name or error
        return [f"gradebooks were not written: {missing} is missing; the grades are in {out / journal.JOURNAL}"]
    try:
        return list(write(out))
    except Exception as error:
        failures.log("writing the gradebooks", error)
        again = f"python -m grader.classroom.export {quoted(out)}"
        return [f"gradebooks were not written ({type(error).__name__}: {error}); the grades stand, try {again}"]


def report(statuses, options, count):
    """The last lines; 0 where all is graded, 1 where the machine failed in some."""
    faults = statuses.count(MACHINE_FAULT)
    left = statuses.count(None)
    print(f"results: {clean(str(options.out))} ({count} submissions, {len(statuses) - faults - left} problems graded)")
    if faults or left:
        problems = "1 problem has" if faults + left == 1 else f"{faults + left} problems have"
        what = f"{problems} no grade, because the machine failed, not the students"
        print(f"class: {what}; the same command tries them again", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # lanes that were stopped have nothing more to say
