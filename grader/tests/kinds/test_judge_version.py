"""Where a verdict changes, the judge's version is raised: the keys of grades depend on nothing else of the grader."""

import pytest

from grader.tests.kinds import verdicts
from grader.tests.support import thorough_but

QUICK = ("p1_heads_flattened", "p1 input mutated", "p3_decoy_kernel", "p4 no causal skip", "x2 every tile of keys")


@pytest.mark.parametrize("name", thorough_but(QUICK, verdicts.CHOSEN))
def test_a_verdict_changes_with_the_version_alone(name, tmp_path):
    why = verdicts.differs(name, verdicts.judge(name, tmp_path), verdicts.kept()[name])
    assert why is None, why


def test_what_changed_is_said_with_what_to_do():
    before = {"version": 1, "text": "a", "verdicts": {"one token": "correct: passed"}}
    other = before | {"verdicts": {"one token": "correct: wrong"}}
    assert verdicts.differs("p3_sdpa", before, before) is None
    said = verdicts.differs("p3_sdpa", other, before)
    assert '"one token" was correct: passed, is correct: wrong' in said and "raise JUDGE_VERSION" in said
    assert "write that anew" in verdicts.differs("p3_sdpa", other | {"version": 2}, before)
    assert "so did the submission" in verdicts.differs("p3_sdpa", other | {"text": "b"}, before)
    assert verdicts.differs("p3_sdpa", before | {"text": "b"}, before) is None


def test_every_kind_and_every_common_outcome_is_among_them():
    kept = verdicts.kept()
    assert {name[:2] for name in kept} == {"p1", "p2", "p3", "p4", "p5", "p6", "p7", "w3", "x1", "x2", "x3", "x4"}
    outcomes = {said.partition(": ")[2] for entry in kept.values() for said in entry["verdicts"].values()}
    assert outcomes >= {"passed", "wrong", "unsafe", "wasteful", "crashed", "needs review"}
