"""The study of sinks: its masks beside attention written out, its cut of the texts, and the whole of it, tiny."""

import csv

import pytest
import torch

from model import corpus, sdpa, train, weights
from model.tests.test_transformer import TINY, make
from model.transformer import Whole, rotate, turns
from report.arms import sinks
from report.places import Refused
from report.studies.sinks import ARMS, Arm, bins


def by_hand(q, k, v, window, count, near):
    """Each query by itself, of q and k without positions: the keys that it sees, at their places in a cache."""
    rows = []
    for i in range(q.shape[2]):
        seen = [j for j in range(i + 1) if i - j < window or j < count]
        places, at = torch.tensor(seen), i
        if near and i >= window + count:
            at = window + count - 1
            places = torch.tensor([j if j < count else at - (i - j) for j in seen])
        turned = rotate(q[:, :, i : i + 1], *turns(torch.tensor([at]), TINY))
        keys = rotate(k[:, :, seen], *turns(places, TINY))
        p = (turned @ keys.repeat_interleave(2, 1).transpose(2, 3) / q.shape[3] ** 0.5).softmax(3)
        rows.append(p @ v[:, :, seen].repeat_interleave(2, 1))
    return torch.cat(rows, 2)


@pytest.mark.parametrize("count, near", [(0, False), (1, True), (4, True), (4, False)])
def test_a_sink_has_the_place_that_the_arm_says(count, near):
    q, k, v = (torch.randn(1, heads, 24, TINY.head_dim) for heads in (4, 2, 2))
    everywhere = turns(torch.arange(24), TINY)
    attend = sinks.attention_of(Arm("", sinks=count, near=near), sdpa.attend, TINY, 6)
    found = attend(rotate(q, *everywhere), rotate(k, *everywhere), v, window_size=None, sink_size=0, sink_logits=None)
    assert torch.allclose(found, by_hand(q, k, v, 6, count, near), atol=1e-4)


def test_losses_are_by_position():
    model = make()
    rows = torch.randint(256, (2, 11))
    losses = sinks.losses_of(model, rows, sdpa.attend, torch.float32)
    logits = model(rows[:, :-1], Whole(sdpa.attend), torch.float32).log_softmax(2)
    wanted = -logits.gather(2, rows[:, 1:, None])[..., 0]
    assert torch.allclose(losses.float(), wanted, atol=1e-5)


def test_the_share_of_the_first_token():
    model = make(learned_sinks=True)
    for layer in model.layers:
        layer.q.weight.data.zero_()  # scores of 0: even attention, and a logit of 0 counts as one key
        layer.sink_logits.data.zero_()
    first, logit = sinks.shares_of(model, torch.randint(256, (1, 16)), 16)
    even = sum(1 / (n + 2) for n in range(8, 16)) / 8
    assert first == pytest.approx([even] * 2) and logit == pytest.approx([even] * 2)


def test_sequences_are_of_one_module_each(monkeypatch):
    monkeypatch.setattr(corpus, "HELD_OUT", ("a", "b", "c"))
    source = corpus.Corpus({"a": b"aaaaaaa", "b": b"bbbbbbbbb", "c": b"c"}, "", 0)
    rows = sinks.sequences_of(source, 3, 3, "cpu")
    assert rows.tolist() == [[0, *b"aaa"], [0, *b"bbb"], [0, *b"aaa"]]
    with pytest.raises(Refused, match="10 bytes"):
        sinks.sequences_of(source, 10, 3, "cpu")


def test_the_whole_study_tiny(monkeypatch, tmp_path):
    monkeypatch.setattr(corpus, "HELD_OUT", ("argparse.py",))
    text = b"def one(self):\n    return 1\n" * 30
    monkeypatch.setattr(corpus, "load", lambda: corpus.Corpus({"one.py": text, "argparse.py": text}, "3.11.7", 0))
    for name in ("full", "learned_sinks"):
        shape = make(learned_sinks=name != "full").shape
        monkeypatch.setitem(weights.VARIANTS, name, shape)
        assert (
            train.main([name, "--smoke", "--steps", "2", "--batch", "2", "--tokens", "64", "--out", str(tmp_path)]) == 0
        )
    options = [
        "--device",
        "cpu",
        "--tokens",
        "160",
        "--sequences",
        "3",
        "--models",
        str(tmp_path),
        "--out",
        str(tmp_path),
    ]
    assert sinks.main(options) == 0
    rows = list(csv.DictReader((tmp_path / "sinks.csv").read_text("utf-8").splitlines()))
    assert len(rows) == len(ARMS) * len(bins(160))
    assert {float(row["less"]) for row in rows if row["arm"] == "window"} == {0.0}
    full, window = ([float(row["loss"]) for row in rows if row["arm"] == name] for name in ("full attention", "window"))
    assert full[0] == window[0] and full[-1] != window[-1]
