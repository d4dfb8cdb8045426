"""The page on training: the committed one, and what it counts."""

import pytest

from report.pages import training
from report.places import PUBLISHED
from report.tests import called


def test_how_far_apart_losses_are():
    losses = {"ours": [1.0, 2.0], "one": [1.5, 2.0], "other": [0.9, 3.0]}
    assert training.apart(losses) == [(pytest.approx(0.1), pytest.approx(0.6)), (0.0, 1.0)]
    assert "At 2 of 2 steps" in training.page(losses, {"gpu": "a GPU"})
    apart = {"ours": [2.0, 2.0], "one": [1.5, 2.0], "other": [1.5, 2.0]}
    assert "d happens to be at most 0, and\ne at most 0.5." in training.page(apart, {})


def test_the_committed_training_learns():
    losses, facts = training.load(PUBLISHED)
    assert len(losses) == 3 and facts["gpu"] == "NVIDIA H200"
    assert all(len(values) == 300 and values[0] > 4 and values[-1] < 0.01 for values in losses.values())


@pytest.mark.thorough
def test_a_tiny_one_trains_alike_in_the_interpreter(tmp_path):
    pytest.importorskip("triton")
    done = called.report("training", "--steps", "2", "--tiny", "--device", "cpu", "--out", tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    losses, _ = training.load(tmp_path)
    assert losses["attention_op"] == pytest.approx(losses["SDPA math"], rel=1e-6)
