"""A builder's wrong rule is told where it gives all of its kinds and no other rule does."""

import numpy as np
import pytest
import torch

from grader.kinds.block_sparse import tile_lists, wrong_rules
from grader.kinds.block_sparse.cases import LISTS


def tiles(case):
    """(the pairs of every tile, rows that exist alone; their kinds)."""
    lists = tile_lists.cut(case)
    return [lists.tile(*place) for place in np.ndindex(*lists.kinds.shape)], lists.kinds


@pytest.mark.parametrize("case", [case for case in LISTS if case.name != "lists of one token"], ids=lambda c: c.name)
def test_the_right_rules_give_the_right_kinds(case):
    pairs, right = tiles(case)
    assert [wrong_rules.kind_by({}, each) for each in pairs] == right.flatten().tolist()


def test_each_rule_is_told_in_some_case():
    told = set()
    for case in LISTS:
        pairs, right = tiles(case)
        for rule in wrong_rules.RULES:
            got = torch.tensor([wrong_rules.kind_by(rule.changes, each) for each in pairs]).view_as(right)
            if not torch.equal(got, right) and (found := wrong_rules.find(case, got)):
                assert found is rule
                told.add(rule.words)
    assert told == {rule.words for rule in wrong_rules.RULES}
