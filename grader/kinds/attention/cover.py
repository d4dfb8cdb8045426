"""For a maintainer: which pairs of classes no case has, and cases that would have them.

python -m grader.kinds.attention.cover p5 prints what is missing and, where `pip install -e .[cover]` brought
allpairspy, classes for new cases, seeded with the cases that there are. A case is then written by hand: its numbers
are those of its classes, and as small as they can be.
"""

import sys
from functools import partial

from grader.kinds import pairs
from grader.kinds.attention import contract
from grader.kinds.registry import EVERY


def cases_of(id):
    """The cases of a problem that run without a GPU."""
    problem = EVERY[id]
    return [case for case in (*problem.cases, *problem.memory_cases) if case.attends and not case.gpu]


def main(ids):
    for id in ids or contract.ASKED:
        cases, table, meet = cases_of(id), contract.table(id), partial(contract.meet, id)
        absent = pairs.missing(table, cases, meet)
        count = len(pairs.pairs(table, meet))
        print(f"{id}: {len(cases)} cases, {count} pairs, {len(absent)} missing", *absent, sep="\n  ")
        for row in pairs.propose(table, cases, meet) if absent else ():
            print("  add", ", ".join(f"{name} {each}" for name, each in row.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
