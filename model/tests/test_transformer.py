"""The model: decoding equals the whole sequence, positions are relative, and each option changes what is seen."""

from dataclasses import replace

import pytest
import torch

from model import sdpa
from model.transformer import Cache, Shape, Transformer, Whole, rotate, turns

TINY = Shape(layers=2, width=32, hidden=32, heads=4, kv_heads=2, head_dim=16)


def make(**options):
    torch.manual_seed(0)
    model = Transformer(replace(TINY, **options))
    for layer in model.layers:  # scores of its first weights are too even for a mask to show
        layer.q.weight.data *= 30
        layer.v.weight.data *= 30
    if options.get("learned_sinks"):
        for layer in model.layers:
            layer.sink_logits.data.normal_()
    return model.requires_grad_(False)


def tokens_of(batch, count, seed=1):
    return torch.randint(256, (batch, count), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("options", [{}, {"window_size": 5}, {"learned_sinks": True}])
def test_decoding_in_steps_equals_the_whole_sequence(options):
    model, tokens = make(**options), tokens_of(2, 20)
    whole = model(tokens, Whole(sdpa.attend), torch.float32)
    cache = Cache.empty(model.shape, 2, 32, torch.float32)
    first = [model.prefill(tokens[row, : 9 + row], sdpa.attend, cache, row) for row in range(2)]  # of two lengths
    assert torch.allclose(first[1], whole[1, :10], atol=1e-5)
    for count in (1, 3):
        new = torch.stack([tokens[row, n : n + count] for row, n in enumerate(cache.lengths.tolist())])
        logits = model.step(new, sdpa.decode, cache)
        for row, end in enumerate(cache.lengths.tolist()):
            assert torch.allclose(logits[row], whole[row, end - count : end], atol=1e-5)


def test_each_option_changes_the_logits():
    tokens, seen = tokens_of(1, 24), []
    for options in ({}, {"window_size": 5}, {"window_size": 5, "sink_size": 2}, {"learned_sinks": True}):
        seen.append(make(**options)(tokens, Whole(sdpa.attend), torch.float32)[0, -1])
    assert all((one - other).abs().max() > 1e-3 for i, one in enumerate(seen) for other in seen[:i])


def test_positions_are_relative():
    x = torch.randn(1, 2, 6, 16)
    scores = []
    for start in (0, 100):
        turned = rotate(x, *turns(torch.arange(6) + start, TINY))
        scores.append(turned @ turned.transpose(2, 3))
    assert torch.allclose(*scores, atol=1e-4)
    assert not torch.allclose(scores[0], x @ x.transpose(2, 3), atol=1e-2)


def test_decoding_with_sink_tokens_is_refused():
    model = make(window_size=4, sink_size=1)
    with pytest.raises(ValueError, match="sink_size=1"):
        model.step(tokens_of(1, 1), sdpa.decode, Cache.empty(model.shape, 1, 8, torch.float32))


def test_sdpa_is_what_the_operator_computes(monkeypatch):
    """Every option of the model, beside softmax written out in float64."""
    q, k, v = (torch.randn(1, heads, 12, 16, dtype=torch.float64) for heads in (4, 2, 2))
    logits = torch.randn(4, dtype=torch.float64)
    for window, sinks, learned in ((None, 0, None), (3, 2, None), (3, 0, logits)):
        age = torch.arange(12)[:, None] - torch.arange(12)
        seen = (age >= 0) & ((age < (window or 12)) | (torch.arange(12) < sinks))
        scores = (q @ k.repeat_interleave(2, 1).transpose(2, 3) / 4).masked_fill(~seen, float("-inf"))
        more = torch.zeros(4) if learned is None else learned.exp()
        p = scores.exp() / (scores.exp().sum(3, keepdim=True) + more[:, None, None] * (learned is not None))
        wanted = p @ v.repeat_interleave(2, 1)
        assert torch.allclose(sdpa.attend(q, k, v, True, window, sinks, learned), wanted)
