"""The ladder: each rung has the mask of its problem, and stands on another."""

import pytest

from report.arms.ladder import case_of
from report.measuring.arms import case_of as case_of_point
from report.studies.ladder import BEFORE, RUNGS, WHOLE


@pytest.mark.parametrize("name", RUNGS)
def test_each_rung_has_the_mask_of_its_problem(name):
    case = case_of(case_of_point(WHOLE[0]), RUNGS[name])
    problem = name.rpartition(" ")[2]
    expected = {
        "P1": "no mask", "P2": "no mask", "P3": "no mask", "P4": "causal", "P5": "causal", "P6": "window 1024",
        "P7": "window 1024, 4 sinks",
    }  # fmt: skip
    assert str(case.visibility) == expected[problem]
    assert case.kv_heads == (4 if problem in ("P5", "P6", "P7") else 16)


def test_every_rung_but_the_first_stands_on_another():
    assert set(BEFORE) == set(RUNGS) - {"P1"} and set(BEFORE.values()) <= set(RUNGS)
