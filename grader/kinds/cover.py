"""For a maintainer: python -m grader.kinds.cover p5 prints which pairs of classes no case has, and, where allpairspy is
installed (`pip install -e .[cover]`), classes for new cases. A case is then written by hand, as small as it can be."""

import sys
from functools import partial

from grader.engine import pairs
from grader.kinds.attention import contract
from grader.kinds.attention.cases import PROBLEMS
from grader.kinds.backward.cases import PROBLEM as BACKWARD
from grader.kinds.block_sparse.cases import PROBLEM as SPARSE


def main(ids):
    every = {problem.id: problem for problem in (*PROBLEMS, SPARSE, BACKWARD)}
    for id in ids or contract.ASKED:
        problem, table, meet = every[id], contract.table(id), partial(contract.meet, id)
        asked = [case for case in (*problem.cases, *problem.memory_cases) if case.attends and not case.gpu]
        cases = [case for case in asked if case.fits_gpu]
        if absent := pairs.missing(table, cases, meet):
            print(id, *absent, *pairs.propose(table, cases, meet), sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
