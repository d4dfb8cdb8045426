"""The card is what the facts beside the weights give."""

import json

from model import card, train, weights
from model.tests.test_train import small  # noqa: F401


def test_the_committed_card_is_what_is_written():
    assert card.main(["--check"]) == 0


def test_a_card_says_what_was_trained(small, tmp_path):  # noqa: F811
    assert card.text(card.read(tmp_path)) == card.EMPTY
    assert train.main(small) == 0
    facts = json.loads((tmp_path / "full.json").read_text("utf-8"))
    said = card.text(card.read(tmp_path))
    assert f"{facts['parameters']:,} parameters" in said and f"| {facts['held_out_loss']:.3f} |" in said
    assert "seed 40, 20 steps of 4 x 32 bytes" in said and "argparse.py" in said


def test_an_old_card_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(card, "CARD", tmp_path / "README.md")
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    assert card.main(["--check"]) == 1 and "python -m model.card" in capsys.readouterr().out
    assert card.main([]) == 0 == card.main(["--check"])
