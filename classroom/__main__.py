"""The command behind `make class`: python -m classroom SUBMISSIONS.

It takes in what was handed in, grades what has no result yet, and writes every form; without SUBMISSIONS only the
forms. Exit status 0 all graded, 1 a fault of the machine left some without a grade, 2 bad arguments or a class that
cannot be graded, 130 stopped.
"""

import fcntl
import os
import secrets
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import structs

from classroom import data, decisions, handins, jobs, marks, progress, roster, standing
from classroom.data import Class, Record, Row
from classroom.jobs import Job
from classroom.local import Local
from grader import failures
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
from grader.core.sandbox.texts import clean
from grader.course import course
from grader.course.problem import Problem
from grader.registry import LABS, PROBLEMS
from grader.result import NO_FACTS

KEPT = "what is graded is kept, and the same command goes on from there"
TARGETS = "sm_90,sm_80"  # a class stops at the first that a kernel compiles for; Hopper's takes a sixth less
SEED_FILE, LOCK, SEEDS = "seed.txt", "class.lock", 1 << 31


def parse(argv: list[str] | None) -> Namespace:
    parser = Parser(prog="python -m classroom", description="Grade a class.", allow_abbrev=False)
    parser.add_argument("submissions", type=Path, nargs="?", help="a folder or a platform's zip of all submissions")
    parser.add_argument("--out", type=Path, default=Path("class"), help="where results, pages and gradebooks go")
    parser.add_argument(
        "--roster", type=Path, help="a CSV of students, or the platform's own file; - for none (default: last time's)"
    )
    parser.add_argument("--column", default="", help="the assignment's column in a roster of Canvas'")
    parser.add_argument(
        "--only", default="", metavar="STUDENTS", help="grade these again: ids, names, logins or addresses"
    )
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


def main(argv: list[str] | None = None, make_engine: Callable[[Namespace], Any] | None = None) -> int:
    """The exit status. make_engine: options -> an engine, in place of the one that the options name."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it is heard where Ctrl-C is
    scratch.choose_own_folder()
    try:
        options = parse(argv)
        check(options)
        with locked(options.out):
            failures.begin(options.out)
            if options.submissions is None:
                whole = data.read_class(options.out)
                if options.column and whole.platform == roster.CANVAS:
                    column = roster.find_column(Path(whole.roster), options.column, options.out)
                    data.write_class(options.out, whole := structs.replace(whole, column=column))
                return write_forms(options, whole)
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


def grade_class(options: Namespace, problems: tuple[Problem, ...], make_engine: Callable[[Namespace], Any]) -> int:
    """Take in, grade what is left, write every form; the exit status."""
    out, seed = options.out.resolve(), choose_seed(options)
    chosen_roster, said = choose_roster(options)
    students, platform, notes = roster.read(chosen_roster) if chosen_roster else (None, "", [])
    column = (
        roster.find_column(chosen_roster, options.column, out) if chosen_roster and platform == roster.CANVAS else ""
    )
    rows, more = handins.take_in(options.submissions, out, problems, students)
    keys = jobs.Keys(problems, options.device, name_device(options), options.targets, seed)
    rows = [structs.replace(row, keys=keys_of(row, keys, out)) for row in rows]
    asked = {"device": options.device, "seed": seed, "targets": options.targets}
    points = {problem.id: course.current().points(problem.id) for problem in problems}
    path = str(chosen_roster.resolve()) if chosen_roster else ""
    whole = Class(points, tuple(rows), {}, (*said, *notes, *more), path, platform, column, **asked)
    data.write_class(out, whole)
    for note in filter(None, (versions.warning(), *whole.notes)):
        print(clean(f"note: {note}"), file=sys.stderr)
    chosen = choose_rows(options, whole)
    left = jobs.make_jobs(chosen, out, **asked)
    say_what_is_left(left, rows)
    if left:
        whole = structs.replace(whole, faults=run(make_engine(options), left, rows))
        data.write_class(out, whole)
    return write_forms(options, whole)


def choose_roster(options: Namespace) -> tuple[Path | None, list[str]]:
    """(the roster that was named, or last time's, notes); `-` is none. Raises BadArguments if that is gone."""
    if options.roster:
        return (None if str(options.roster) == "-" else options.roster), []
    kept = ""
    with suppress(data.BadClass):
        kept = data.read_class(options.out).roster
    if kept and not Path(kept).is_file():
        raise BadArguments(f"the roster of last time, {kept}, is gone: name one with ROSTER, or say ROSTER=- for none")
    return (Path(kept), [f"The roster is last time's: {kept}."]) if kept else (None, [])


def keys_of(row: Row, keys: jobs.Keys, out: Path) -> dict[str, str]:
    """The keys of what can be graded of a row: nothing of what is not understood."""
    if not row.entries or row.why:
        return {}
    return {problem: key for problem, key in keys.of(out / row.folder).items() if problem not in row.unread}


def choose_rows(options: Namespace, whole: Class) -> list[Row]:
    """All rows, or those that are to be graded again, whose results are taken away."""
    if not options.only:
        return list(whole.rows)
    rows = [data.find_row(whole, name) for name in options.only.split(",")]
    for key in {key for row in rows for key in row.keys.values()}:
        data.path_of(options.out, key).unlink(missing_ok=True)
    return rows


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Nobody else grades this class meanwhile; the lock ends with this process, however that ends."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadArguments(f"{out} is being graded by another process: wait for it, or stop it first") from None
        yield


# Options --------------------------------------------------------------------------------------------------------------


def check(options: Namespace) -> None:
    """Raise BadArguments for what cannot be used."""
    check_sandbox()
    given = options.submissions
    if given is None and not (options.out / data.CLASS).exists():
        raise BadArguments("name the folder of submissions: make class SUBMISSIONS=folder")
    if given is not None and not given.exists():
        raise BadArguments(f"the folder of submissions {given} does not exist")
    of_cluster = {name: getattr(options, name) for name in ("partition", "gpus", "array")}
    for name, value in {"lanes": options.lanes, **of_cluster}.items():
        if name in of_cluster and value is not None and options.engine != "slurm":
            raise BadArguments(f"{name.upper()} says something of a cluster, and needs ENGINE=slurm")
        if isinstance(value, int) and value < 1:
            raise BadArguments(f"{name.upper()} must be 1 or more; got {value}")
    if options.out.exists() and not options.out.is_dir():
        raise BadArguments(f"{options.out} is a file, and the results need a folder: choose another OUT")
    if given is not None and options.out.resolve() == given.resolve():
        raise BadArguments("OUT must be another folder than SUBMISSIONS: what students handed in is never changed")
    obstacle = bubblewrap.find_obstacle(options.device or "cpu") if given and options.engine == "local" else None
    if obstacle and not bubblewrap.is_switched_off():
        raise BadArguments(
            f"submissions would not be in a sandbox ({obstacle}), and one could read the others and your files: "
            "install bubblewrap, or say SANDBOX=none to grade them all the same"
        )


def choose(options: Namespace) -> tuple[Problem, ...]:
    """The problems that the options name, after the rest of the options is filled in; raises BadArguments."""
    problems = choose_problems(options.problems, PROBLEMS, LABS) if options.problems else tuple(PROBLEMS.values())
    # A cluster's machines are not this one: whether they have a GPU is theirs to say.
    asked = options.device or ("cuda" if options.gpus else "cpu")
    options.device = asked if options.engine == "slurm" else choose_device(options.device)
    if options.device == "cpu" and options.targets is None:
        options.targets = TARGETS
    options.targets = tuple(choose_targets(options, options.device))
    options.lanes = options.lanes or 1 + (os.cpu_count() or 1)  # now and then one waits: for a process, for the disk
    return problems


def choose_seed(options: Namespace) -> int:
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


def name_device(options: Namespace) -> str:
    """What a result's key calls the device: a GPU by its model, which is not known of a cluster's machines."""
    if options.device == "cpu" or options.engine == "slurm":
        return options.device
    import torch

    return torch.cuda.get_device_name(0)


def choose_engine(options: Namespace) -> Any:
    if options.engine == "local":
        return Local(options.lanes)
    try:
        from classroom import slurm
    except ImportError as error:
        raise BadArguments(f"ENGINE=slurm needs {error.name}: pip install {error.name}, and try again") from None
    return slurm.from_options(options)


# The class ------------------------------------------------------------------------------------------------------------


def say_what_is_left(left: list[Job], rows: list[Row]) -> None:
    handed_in = [row for row in rows if row.entries]
    said = [f"{len(handed_in)} submissions"]
    said += [f"without one: {len(rows) - len(handed_in)}"] if len(rows) > len(handed_in) else []
    odd = sum(bool(row.why or row.unread) for row in handed_in)
    said += [f"not understood: {odd}"] if odd else []
    print(f"{', '.join(said)}; {f'{len(left)} left' if left else 'nothing is left'} to grade", file=sys.stderr)


def run(engine: Any, left: list[Job], rows: list[Row]) -> dict[str, dict[str, str]]:
    """Grade the jobs; {row: {problem: why it has no result}} of what the machine failed."""
    tally, whys = progress.Tally(len(left)), dict[str, str]()
    with progress.shown(tally) as show:

        def on_start(job: Job) -> None:
            tally.start(job)
            show()

        def on_end(job: Job, why: str) -> Job | None:
            found = {problem: data.read_record(Path(job.out), key) for problem, key in job.keys.items()}
            missing = {problem: job.keys[problem] for problem, record in found.items() if record is None}
            why = (why or "the process that graded this left no result") if missing else ""
            again = bool(missing) and job.attempt < jobs.ATTEMPTS
            show(clean(tally.finish(job, [record for record in found.values() if record], why, again)))
            whys.update(dict.fromkeys(missing.values(), f"The machine failed: {why}."))
            # In the other order: what ends the process takes nothing with it that others handed in as well.
            turned = dict(reversed(missing.items()))
            return structs.replace(job, keys=turned, attempt=job.attempt + 1) if again else None

        try:
            engine.run(left, on_end, on_start)
        finally:
            engine.close()
    print(f"{tally.words()}, {progress.clock(time.monotonic() - tally.started)}", file=sys.stderr)
    out = Path(left[0].out)
    lost = {key: why for key, why in whys.items() if not data.path_of(out, key).exists()}
    faults = {row.id: {problem: lost[key] for problem, key in row.keys.items() if key in lost} for row in rows}
    return {row: of for row, of in faults.items() if of}


def write_forms(options: Namespace, whole: Class) -> int:
    """Write every form, and say so; the exit status. A form that fails costs no grade, and not the next form."""
    from classroom import copies, exports, pages

    out, rule = options.out.resolve(), course.current().said.late
    decided, notes = decisions.read(out, whole)
    records = {row.id: slim(data.records_of(out, row)) for row in whole.rows}
    records = {row: of for row, of in records.items() if of}
    written, marked = marks.read_course_marks(out, whole)
    whole = structs.replace(whole, notes=(*whole.notes, *notes, *marked))
    known = standing.standings(whole, records, decided, rule)
    late = [each.row.id for each in known if each.status == standing.LATENESS]
    graded, found = exports.Graded(out, whole, records, known, written), list[copies.Found]()

    def look_for_copies(graded: exports.Graded) -> str:
        result, line = copies.write(whole, out, records)
        found.append(result)
        return line

    forms: dict[str, Callable[[exports.Graded], str]] = {
        "gradebook.csv": exports.write_gradebook,
        "the platform's file": exports.write_back,
        "pages": pages.write_students,
        "feedback.zip": exports.write_feedback,
        "gradescope": exports.write_gradescope,
        "junit.xml": exports.write_junit,
        "copies": look_for_copies,
        "class.html": lambda graded: pages.write_class(graded, found[0] if found else None),
        decisions.NAME: lambda graded: decisions.ask(out, whole, records, decided, late),
    }
    lines, failed = [*notes, *marked], 0
    for name, form in forms.items():
        try:
            lines.append(form(graded))
        except (BadArguments, OSError, ModuleNotFoundError) as error:
            lines.append(f"{name} was not written: {error}; the grades stand")
            failed += 1
        except Exception as error:
            failures.log(name, error)
            lines.append(f"{name} was not written, and that is the grader's fault: {error!r}; the grades stand")
            failed += 1
    for line in filter(None, lines):
        print(clean(line))
    return report(known, options) or int(failed > 0)


def slim(records: dict[str, Record]) -> dict[str, Record]:
    """The same without pictures and what was printed, so that a class fits in memory."""
    for record in records.values():
        for result in record.results:
            result.facts = structs.replace(result.facts, picture=NO_FACTS.picture, compiled=())
            result.printed = ""
    return records


def report(known: list[standing.Standing], options: Namespace) -> int:
    """The last lines; 0 where all is graded, 1 where the machine failed in some."""
    states = [state for each in known for state in each.states.values()]
    left = states.count(standing.FAULT) + states.count(standing.NOT_YET)
    waiting = sum(each.total is None and each.status != standing.EXCUSED for each in known)
    blank = "student has" if waiting == 1 else "students have"
    said = f"; {waiting} {blank} blank points: class.html says why" if waiting else ""
    print(f"results: {clean(str(options.out))} ({len(known)} students{said})")
    if left:
        what = "1 problem has" if left == 1 else f"{left} problems have"
        print(f"class: {what} no grade, because the machine failed, not the students; try again", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # lanes that were stopped have nothing more to say
