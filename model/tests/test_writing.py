"""Where a kernel is wrong: a token that differs is a tie only where rounding can make it one."""

import pytest
import torch

from model.writing import Wrong, compare

RIGHT = [0.0, 5.0, 4.9, 1.0]


class Said:
    """A writer with the same logits at each step."""

    def __init__(self, logits):
        self.logits = torch.tensor([logits])

    def begin(self, prompts):
        return self.logits

    def add(self, tokens):
        return self.logits


def last(mine, beside, steps=3):
    *_, (tokens, found) = compare(Said(mine), Said(RIGHT), Said(beside), [torch.tensor([7])], steps)
    return tokens.tolist(), found


def test_equal_tokens():
    tokens, found = last([0.0, 5.1, 4.9, 1.0], [0.0, 5.05, 4.9, 1.0])
    assert tokens == [1] and found.steps == 3 and not found.wrong and not found.ties
    assert (found.far, found.apart) == (pytest.approx(0.1, 1e-4), pytest.approx(0.05, 1e-4)) and not found.suspect


def test_a_token_within_rounding_is_a_tie_and_sdpas_goes_on():
    tokens, found = last([0.0, 4.9, 5.0, 1.0], [0.2, 5.0, 4.9, 1.0])
    assert tokens == [1] and found.ties == 3 and not found.wrong


def test_a_token_beyond_rounding_is_wrong_and_ends_it():
    tokens, found = last([0.0, 4.9, 5.0, 1.0], [0.05, 5.0, 4.9, 1.0])
    assert tokens == [1] and found.steps == 1
    assert found.wrong == Wrong(0, 0, 2, 1, pytest.approx(0.1), pytest.approx(0.1))


def test_nan_is_wrong_whatever_is_the_best():
    nan = float("nan")
    assert last([0.0, nan, 4.9, 1.0], [9.0, 5.0, 4.9, 1.0])[1].wrong.step == 0


def test_equal_tokens_of_logits_far_from_rounding_are_suspect():
    found = last([0.0, 5.5, 4.9, 1.0], [0.0, 5.1, 4.9, 1.0])[1]
    assert found.suspect and not found.wrong
