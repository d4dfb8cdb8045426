"""A kernel of the course run on cases of one's own, as `make grade` runs it: in a child process, every load watched."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from grader.core.sandbox import pool
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.registry import EVERY
from report import places

TILES = (64, 32)  # queries and keys of a tile of the solutions without a GPU
SIZES = {"float16": 2, "bfloat16": 2, "float32": 4}  # bytes


@dataclass(frozen=True)
class Cost:
    """tiles: of keys that all programs visit; keys: in them, those past the end left out; programs: tiles of queries.

    dot_flops: two for each multiply and add, of whole tiles. exponentials: of p and alpha, elements. loaded, stored:
    bytes, as the programs ask for them: caches answer for most.
    """

    programs: int
    tiles: int
    keys: int
    dot_flops: int
    exponentials: int
    loaded: int
    stored: int


def run(problem, *cases, source=None):
    """The Result of each case, its picture in `facts.picture`.

    problem: "p3" to "p7", or "x1". source: the text of the module, where it is not the solution's. Raises RuntimeError,
    with the grader's sentence, where no picture came back.
    """
    asked = replace(EVERY[problem], cases=cases, memory_cases=())
    with tempfile.TemporaryDirectory() as folder:
        submission = places.SOLUTIONS
        if source is not None:
            submission = Path(folder)
            (submission / asked.module).write_text(source, encoding="utf-8")
        names = frozenset(case.name for case in cases)  # named, so that nothing is timed
        results = grade(Request(submission, (asked,), names, "cpu", 0), 1)
        pool.leave(folder)
    for result in results:
        if not result.facts.picture.get("visits"):
            raise RuntimeError(f"{problem} {result.case!r} was not traced: {result.outcome.value}: {result.sentence}")
    return results


def source_of(problem):
    """The text of a solution, to be changed and run."""
    return places.source(EVERY[problem].module)


def tiles_visited(result):
    return result.facts.picture["need"]["visited_tiles"]


def tiles_needed(result):
    return result.facts.picture["need"]["needed_tiles"]


def counted(case, result):
    """What the kernel did, as cost.py has it by formula: a Cost."""
    (total,) = result.facts.picture["totals"].values()  # one kernel, launched once
    row = case.D * SIZES[case.dtype]
    return Cost(
        programs=total["programs"],
        tiles=tiles_visited(result),
        keys=total["loaded"]["K"] // row,
        dot_flops=total["dot_flops"],
        exponentials=total["exponentials"],
        loaded=sum(total["loaded"].values()),
        stored=sum(total["stored"].values()),
    )
