"""A builder's wrong rule is told where it gives all of its kinds and no other rule does."""

import itertools

import pytest
import torch

from grader.kinds.block_sparse import tile_lists, wrong_rules
from grader.kinds.block_sparse.cases import LISTS
from grader.kinds.block_sparse.patterns import PARTIAL


def tiles(case):
    """(the pairs of every tile, rows that exist alone; the form of their kinds)."""
    right = tile_lists.cut(case).kinds
    found = []
    for batch, head in itertools.product(*map(range, case.maps)):
        mask = tile_lists.padded_mask(case, batch, head)[: case.N]
        sizes = range(right.shape[-2]), range(right.shape[-1])
        found += [tile_lists.tile_of(mask, i, j, case.block) for i, j in itertools.product(*sizes)]
    return found, right.flatten(0, 1)


@pytest.mark.parametrize("case", [case for case in LISTS if case.name != "lists of one token"], ids=lambda c: c.name)
def test_the_right_rules_give_the_right_kinds(case):
    pairs, right = tiles(case)
    kinds = [next((kind for kind, holds in wrong_rules.RIGHT.items() if holds(each)), PARTIAL) for each in pairs]
    assert kinds == right.flatten().tolist()


def test_each_rule_is_told_in_some_case():
    told = set()
    for case in LISTS:
        pairs, right = tiles(case)
        for rule in wrong_rules.RULES:
            got = torch.tensor([wrong_rules.kind_by(rule, each) for each in pairs]).view_as(right)
            if not torch.equal(got, right) and (found := wrong_rules.find(case, got)):
                assert found == rule[:2]
                told.add(found[0])
    assert told == {words for words, *_ in wrong_rules.RULES}
