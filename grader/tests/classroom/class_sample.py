"""A class without a run of any kernel: students, odd names, records of every sort, from one seed."""

import random
import re
from fractions import Fraction

from grader.classroom import journal
from grader.classroom.record import GRADED, MACHINE_FAULT, Class, Record, Row
from grader.kinds.registry import PROBLEMS

NAMES = ("Ada Lovelace", "Søren Åström", "李 明", "José Ñúñez", "=cmd|' /C calc'!A0", "<script>alert(1)</script>",
         'Anne "Annie" O\'Neill', "Smith, John", "Zoë Müller", "@import", "-Minus", "Ng", "Ada Lovelace")  # fmt: skip
CAUSES = {"a window of 33": "is `<` right?", "no scale at all": "what is divided by?", "a shared maximum": "whose?"}
CASES = 6  # of a problem: enough to tell


def make(students=40, seed=0, review=True):
    """A Class of so many students, the last two without a submission; one submission has no row in the roster."""
    dice = random.Random(seed)
    rows, records = [], {}
    for i in range(students):
        name = NAMES[i] if i < len(NAMES) else f"Student {i} Müller"
        roster = {"id": f"s{i:04}", "name": name, "email": f"s{i:04}@uni.example", "login": f"login{i}"}
        if i >= students - 2:
            rows.append(Row(f"absent-{i}", name, roster=roster, handed_in=False))
            continue
        roster = None if i == 7 else roster
        rows.append(Row(f"sub-{i:04}", name, ("two modules were nested",) if i == 3 else (), tuple(PROBLEMS), roster))
        for id in PROBLEMS:
            odd = {(5, "p3"): "review" if review else None, (6, "p4"): "fault"}
            state = odd.get((i, id)) or dice.random()
            records[rows[-1].id, id] = record(rows[-1].id, id, state, dice)
    return Class(tuple(rows), {id: str(p.points) for id, p in PROBLEMS.items()}, records)


def write_class(folder, graded):
    """The journal and the list of a class, as make class leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = {}
    for (row, problem), record in graded.records.items():
        keys.setdefault(row, {})[problem] = record.key
    journal.write_class(folder, graded.submissions, graded.problems, keys)
    with journal.Journal(folder) as book:
        book.append(list(graded.records.values()))
    return folder


def record(row, id, state, dice):
    """A record: "review", "fault", or by a number, as of a die: mostly right below 0.6, mostly wrong above."""
    problem = PROBLEMS[id]
    if state == "fault":
        return Record(f"key-{row}-{id}", row, id, MACHINE_FAULT, None, str(problem.points), attempts=3,
                      remarks=("the node was lost three times",))  # fmt: skip
    each = Fraction(problem.points, CASES)
    results = [result(problem, case, state, each, dice) for case in problem.cases[:CASES]]
    if state == "review":
        results[1] |= {"outcome": "needs review", "earned": "0",
                       "sentence": "The launch did nothing: o is <b>not</b> its.",
                       "evidence": {"dots of the kernel": 0, "dots needed": 64}}  # fmt: skip
    earned = sum((Fraction(r["earned"]) for r in results), Fraction(0))
    seconds = round(dice.uniform(1, 9), 3)
    return Record(f"key-{row}-{id}", row, id, GRADED, str(earned), str(problem.points), tuple(results), seconds,
                  seconds * 1.3, machine="this")  # fmt: skip


def result(problem, case, state, each, dice):
    wrong = isinstance(state, float) and dice.random() < (0.05 if state < 0.6 else 0.6)
    cause = dice.choice(list(CAUSES)) if wrong else None
    return {
        "case": case.name, "aspect": "correct", "outcome": "wrong" if wrong else "passed",
        "sentence": f"Your output equals {cause}." if wrong else "", "description": case.describe(0),
        "again": f'make grade P={problem.number} CASE="{case.name}" SUBMISSION="/somewhere/of/the/grader"',
        "printed": "a\x1b[1mline\x00" if wrong else "", "seconds": 0.25, "earned": "0" if wrong else str(each),
        "possible": str(each), "causes": {re.sub(r"\d+", "#", cause): cause} if wrong else {}, "evidence": None,
    }  # fmt: skip
