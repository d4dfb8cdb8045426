"""Every kind of question and every problem of the course. A new kind is a folder, and its name in course.toml."""

import importlib
from dataclasses import replace
from pathlib import Path

import grader.kinds
from grader.course import course
from grader.course.course import BadCourse, Course
from grader.course.problem import Problem
from grader.engine import row_log


def load_kinds(given: Course) -> dict:
    """{name: Kind}; a kind in the course's own folder is imported as a module of grader.kinds, as ours are."""
    kinds, own = {}, given.folder / "kinds"
    grader.kinds.__path__.append(str(own))
    for name in given.said.kinds:
        if not any((Path(folder) / name / "kind.py").is_file() for folder in grader.kinds.__path__):
            said = f"there is no kind {name!r}: its code is {own / name}/kind.py"
            raise BadCourse(f"{given.folder / 'course.toml'}: {said}")
        kinds[name] = importlib.import_module(f"grader.kinds.{name}.kind").KIND
    return kinds


def load_problems(given: Course, kinds: dict) -> dict[str, Problem]:
    """{id: Problem} in the order of course.toml, each with its kind; what is not timed there has no speed."""
    known, problems = {problem.id: (problem, kind) for kind in kinds.values() for problem in kind.problems}, {}
    for entry in given.said.problem:
        if entry.id not in known:
            said = f"no kind has the problem {entry.id!r}; the kinds have {', '.join(known)}"
            raise BadCourse(f"{given.folder / 'course.toml'}: {said}")
        asked, kind = known[entry.id]
        timed = {} if entry.timed else {"speed_case": None, "compile_case": asked.compiled_case}
        watched = {"observer": Path(row_log.__file__)} if kind.reads else {}
        problems[entry.id] = replace(asked, points=entry.points, kind=kind, **timed, **watched)
    return problems


KINDS = load_kinds(course.current())
EVERY = load_problems(course.current(), KINDS)
PROBLEMS = {id: problem for id, problem in EVERY.items() if problem.points}
LABS = {id: problem for id, problem in EVERY.items() if not problem.points}
NAME_OF = {problem.id: name for name, kind in KINDS.items() for problem in kind.problems}
