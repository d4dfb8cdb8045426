"""For a maintainer: which pairs of classes no case has, and cases that would have them.

python -m grader.kinds.attention.cover p5 prints what is missing and, where `pip install -e .[cover]` brought
allpairspy, classes for new cases, seeded with the cases that there are. A case is then written by hand: its numbers
are those of its classes, and as small as they can be.
"""

import sys
from collections import OrderedDict
from itertools import combinations

from grader.kinds.attention import contract
from grader.kinds.registry import EVERY


def cases_of(id):
    """The cases of a problem that the interpreter runs."""
    problem = EVERY[id]
    return [case for case in (*problem.cases, *problem.memory_cases) if case.attends and not case.gpu]


def propose(id, cases):
    """[{parameter: class}]: what new cases may be so that no pair is missing; needs allpairspy."""
    from allpairspy import AllPairs

    parameters = contract.classes(id)
    names = list(parameters)

    def may_be(row):
        return all(contract.meet(id, *pair) for pair in combinations(zip(names, row, strict=False), 2))

    there = [list(contract.classes_of(case, id).values()) for case in cases]
    rows = AllPairs(OrderedDict(parameters), filter_func=may_be, previously_tested=there)
    return [dict(zip(names, row, strict=True)) for row in rows]


def main(ids):
    for id in ids or contract.ASKED:
        cases = cases_of(id)
        absent = contract.missing(id, cases)
        print(f"{id}: {len(cases)} cases, {len(contract.pairs(id))} pairs, {len(absent)} missing", *absent, sep="\n  ")
        for row in propose(id, cases) if absent else ():
            print("  add", ", ".join(f"{name} {each}" for name, each in row.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
