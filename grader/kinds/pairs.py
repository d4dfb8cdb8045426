"""Cases that cover a table of classes by pairs, for any kind.

A class is what a kernel can get wrong by itself: one column, a row that no tile divides. Two classes together are what
it gets wrong where one alone is right. A table is {parameter: {class: function of a case, whether the case is of it}}.
A kind's test asks that no pair is missing; `propose` says what cases would have those that are.
"""

from collections import OrderedDict
from itertools import combinations, product


def always(one, other):
    return True


def classes_of(case, table):
    """{parameter: the class of the case}; raises ValueError where it is of none or of several, which none may be."""
    found = {}
    for name, classes in table.items():
        fits = [each for each, is_of in classes.items() if is_of(case)]
        if len(fits) != 1:
            raise ValueError(f"{case.name!r}: {name} is of the classes {fits}")
        found[name] = fits[0]
    return found


def pairs(table, meet=always):
    """The pairs of (parameter, class) that may meet. meet(one, other): whether two may."""
    every = [[(name, each) for each in classes] for name, classes in table.items()]
    return {
        frozenset(pair) for some, others in combinations(every, 2) for pair in product(some, others) if meet(*pair)
    }  # fmt: skip


def missing(table, cases, meet=always):
    """The pairs that may meet and are in none of these cases, as sorted text: `D=256, N=ragged`."""
    of_cases = (combinations(classes_of(case, table).items(), 2) for case in cases)
    found = pairs(table, meet).difference(*(map(frozenset, each) for each in of_cases))
    return sorted(", ".join("=".join(each) for each in sorted(pair)) for pair in found)


def propose(table, cases, meet=always):
    """[{parameter: class}]: what new cases may be so that no pair is missing; needs allpairspy."""
    from allpairspy import AllPairs

    names = list(table)

    def may_be(row):
        return all(meet(*pair) for pair in combinations(zip(names, row, strict=False), 2))

    there = [list(classes_of(case, table).values()) for case in cases]
    parameters = OrderedDict((name, list(classes)) for name, classes in table.items())
    return [dict(zip(names, row, strict=True)) for row in AllPairs(parameters, may_be, previously_tested=there)]
