"""Every kind of question, and every problem. A new kind is a folder here and its name in FOLDERS."""

import importlib

FOLDERS = (
    "attention",
    "block_sparse",
    "program_order",
    "backward",
)
KINDS = {name: importlib.import_module(f"grader.kinds.{name}.kind").KIND for name in FOLDERS}
EVERY = {problem.id: problem for kind in KINDS.values() for problem in kind.problems}
PROBLEMS = {id: problem for id, problem in EVERY.items() if problem.points}
LABS = {id: problem for id, problem in EVERY.items() if not problem.points}
NAME_OF = {problem.id: name for name, kind in KINDS.items() for problem in kind.problems}


def kind_of(problem):
    """The Kind of a problem."""
    return KINDS[NAME_OF[problem.id]]


def cases_of(problem, seed):
    """All cases of a problem that are asked with this seed."""
    return kind_of(problem).cases(problem, seed)


def handler_of(problem, case):
    """Who requests and judges this case."""
    return kind_of(problem).handler(case)
