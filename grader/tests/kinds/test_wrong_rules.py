"""A builder's wrong rule is told where it gives all of its kinds and no other rule does."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from grader.kinds.block_sparse import check_lists, tile_lists, wrong_rules
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


def test_an_answer_without_a_field_is_wrong():
    lists = (getattr(tile_lists.cut(LISTS[0]), name) for name in tile_lists.NAMES)
    outputs = [SimpleNamespace(plain=True, dtype="int32", shape=each.shape) for each in lists]
    assert " of the Tiles is None; it must be " in check_lists.wrong_fields(LISTS[0], outputs, {}).sentence
