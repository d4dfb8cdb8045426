"""The steps of attention are right, a mistake replaces steps that there are, and what is shared changes no answer."""

from dataclasses import replace

import pytest
import torch

from grader.kinds.attention import causes, inputs, oracle, softmax_mistakes, tile_visits, variants
from grader.kinds.attention.cases import Case
from grader.kinds.attention.known_mistakes import Memory
from grader.registry import EVERY

RAGGED = Case("ragged", B=2, Hq=4, Hkv=2, N=70, D=16, causal=True, window=20, sinks=3)
WHOLE = Case("not causal", Hq=2, N=41, Nk=70, D=16, dtype="float32")
CASES = (("p7", RAGGED), ("p2", WHOLE))
STEPS = {variants.whole: variants.WHOLE.keys(), variants.online: {*variants.START, *variants.TILE, *variants.END}}


def spec_of(case):
    return causes.spec_of(case, inputs.make(case, 0))


def every_mistake(problem, case, sizes):
    placed = inputs.make(case, 0)
    return list(EVERY[problem].kind.known_mistakes(EVERY[problem], case, placed, spec_of(case), (), sizes))


@pytest.mark.parametrize("case", [RAGGED, WHOLE])
@pytest.mark.parametrize("tiles", [None, (32, 16), (16, 32)])
def test_attention_over_tiles_and_over_the_matrix_is_right(case, tiles):
    steps = tile_visits.guessed_steps(case, *tiles) if tiles else None
    q, k, v = (placed.tensor for placed in inputs.make(case, 0))
    o, _, size = oracle.attention(q, k, v, case.visibility.mask)
    for method in (variants.whole, variants.online):
        found = replace(spec_of(case), method=method, tiles=steps).answer(causes.every_pair(case))
        assert torch.allclose(found.o, o.flatten(0, 1), atol=1e-12)
        assert torch.allclose(found.size, size.flatten(0, 1), atol=1e-12)


@pytest.mark.parametrize(("problem", "case"), CASES)
def test_a_mistake_replaces_steps_that_there_are(problem, case):
    for mistake in every_mistake(problem, case, [(32, 16)]):
        assert mistake.spec.changes.keys() <= STEPS[mistake.spec.method], mistake.equals


@pytest.mark.parametrize(("problem", "case"), CASES)
def test_mistakes_that_share_what_they_have_in_common_give_what_each_gives_alone(problem, case):
    rows, pairs, memory = torch.tensor([0, 1, 19, 20, 40]), causes.every_pair(case)[1:2], Memory()
    found = every_mistake(problem, case, [(32, 16)])
    assert len(found) > 60
    for mistake in found:
        shared = mistake.spec.answer(pairs, rows, memory)
        for one, other in zip(shared, mistake.spec.answer(pairs, rows), strict=True):
            assert torch.equal(one.nan_to_num(1e9), other.nan_to_num(1e9)), mistake.equals


def test_what_is_right_before_a_change_is_computed_once(monkeypatch):
    counted = []
    scores = variants.TILE["scores"]
    monkeypatch.setitem(variants.TILE, "scores", lambda x: counted.append(1) or scores(x))
    spec = replace(spec_of(WHOLE), tiles=tile_visits.guessed_steps(WHOLE, 16, 16))
    memory, pairs, rows = Memory(), causes.every_pair(WHOLE)[:1], torch.tensor([0, 40])
    found = []
    for factor in (1.0, 2.0):
        changes = {"new_acc": lambda x, factor=factor: x.acc * factor + x.tile_acc}
        found.append(softmax_mistakes.over_tiles(spec, changes).answer(pairs, rows, memory).o)
        assert len(counted) == 5  # tiles of keys
    assert not torch.equal(*found)
