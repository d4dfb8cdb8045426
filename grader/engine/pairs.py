"""Cases that cover a table of classes by pairs, for any kind.

A class is what a kernel can get wrong by itself: one column, a row that no tile divides. Two classes together are what
it gets wrong where one alone is right. A table is {parameter: {class: function of a case, whether the case is of it}}.
"""

from collections import OrderedDict
from itertools import combinations, product


def classes_of(case, table):
    """{parameter: the class of the case}; raises ValueError where it is of none or of several, which none may be."""
    fits = {name: [each for each, is_of in classes.items() if is_of(case)] for name, classes in table.items()}
    if strange := {name: each for name, each in fits.items() if len(each) != 1}:
        raise ValueError(f"{case.name!r} is of no class, or of several: {strange}")
    return {name: each for name, (each,) in fits.items()}


def pairs(table, meet=lambda *pair: True):
    """The pairs of (parameter, class) that may meet. meet(one, other): whether two may."""
    every = [[(name, each) for each in classes] for name, classes in table.items()]
    return {frozenset(pair) for two in combinations(every, 2) for pair in product(*two) if meet(*pair)}


def missing(table, cases, meet=lambda *pair: True):
    """The pairs that may meet and are in none of these cases, as sorted text: `D=256, N=ragged`."""
    there = {frozenset(pair) for case in cases for pair in combinations(classes_of(case, table).items(), 2)}
    return sorted(", ".join("=".join(each) for each in sorted(pair)) for pair in pairs(table, meet) - there)


def propose(table, cases, meet=lambda *pair: True):
    """[{parameter: class}]: what new cases may be so that no pair is missing; needs allpairspy."""
    from allpairspy import AllPairs

    def may_be(row):
        return all(meet(*pair) for pair in combinations(zip(table, row, strict=False), 2))

    parameters = OrderedDict((name, list(classes)) for name, classes in table.items())
    there = [list(classes_of(case, table).values()) for case in cases]
    return [dict(zip(table, row, strict=True)) for row in AllPairs(parameters, may_be, previously_tested=there)]
