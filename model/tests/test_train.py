"""Training: it learns, what was stopped goes on to the same weights, and the corpus says what differs."""

import csv
import json

import pytest
import torch

from model import corpus, train, weights
from model.tests.test_transformer import TINY
from model.transformer import START

TEXTS = {"one.py": b"def one(self):\n    return 1\n" * 30, "argparse.py": b"def two(self):\n    return 2\n" * 20}


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setattr(corpus, "load", lambda: corpus.Corpus(TEXTS, "3.11.7", 0))
    monkeypatch.setitem(weights.VARIANTS, "full", TINY)
    monkeypatch.setattr(train, "WARM_UP", 5)
    monkeypatch.setattr(train, "SHOWN", 5)
    return ["full", "--smoke", "--steps", "20", "--batch", "4", "--tokens", "32", "--out", str(tmp_path)]


def test_it_learns_and_writes_all(small, tmp_path, capsys):
    assert train.main(small) == 0
    rows = list(csv.DictReader((tmp_path / "full.csv").read_text("utf-8").splitlines()))
    assert [int(row["step"]) for row in rows] == [5, 10, 15, 20]
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"]) - 0.5
    facts = json.loads((tmp_path / "full.json").read_text("utf-8"))
    assert facts["held_out_loss"] == pytest.approx(float(rows[-1]["held_out_loss"]), abs=1e-4)
    assert weights.load(tmp_path / "full.safetensors").shape == TINY
    assert "tokens/s" in capsys.readouterr().out


def test_what_was_stopped_goes_on_to_the_same_weights(small, tmp_path, monkeypatch):
    assert train.main(small) == 0
    whole = (tmp_path / "full.safetensors").read_bytes()

    def stop(run, real=train.show):
        real(run)
        if run.step == 10:
            raise KeyboardInterrupt

    monkeypatch.setattr(train, "show", stop)
    assert train.main(small) == 130
    monkeypatch.undo()
    monkeypatch.setattr(corpus, "load", lambda: corpus.Corpus(TEXTS, "3.11.7", 0))
    monkeypatch.setitem(weights.VARIANTS, "full", TINY)
    monkeypatch.setattr(train, "WARM_UP", 5)
    assert train.main(small) == 0
    assert (tmp_path / "full.safetensors").read_bytes() == whole


def test_no_text_has_the_byte_that_begins_each_row():
    assert not any(START in text for text in corpus.read_standard_library().values())


def test_the_two_sides_of_the_corpus_share_no_file():
    found = corpus.Corpus(TEXTS, "3.11.7", 0)
    assert bytes(found.tensor(True).tolist()) == TEXTS["argparse.py"]
    assert bytes(found.tensor(False).tolist()) == TEXTS["one.py"]


def test_a_packed_corpus_comes_back_with_its_version(monkeypatch, tmp_path):
    monkeypatch.setattr(corpus, "PACKED", tmp_path / "corpus.zip")
    monkeypatch.setattr(corpus, "LIST", tmp_path / "corpus.csv")
    (tmp_path / "corpus.csv").write_text(corpus.write_list(TEXTS), "utf-8")
    monkeypatch.setattr(corpus, "version", lambda: "3.9.1")
    (tmp_path / "corpus.zip").write_bytes(corpus.pack(TEXTS))
    assert corpus.load() == corpus.Corpus(TEXTS, "3.9.1", 0)
    changed = {**TEXTS, "one.py": b"x = 2\n", "new.py": b""}
    (tmp_path / "corpus.zip").write_bytes(corpus.pack(changed))
    assert corpus.load().differing == 2 and "2 files differ" in str(corpus.load())


def test_the_list_has_the_held_out_modules_and_no_test():
    listed = corpus.read_list()
    assert set(corpus.HELD_OUT) <= listed.keys() and not any("test" in name.split("/") for name in listed)


def test_batches_depend_on_the_seed_and_the_step_alone():
    text = torch.arange(20, 220, dtype=torch.uint8)
    plan = train.Plan(batch=3, tokens=8)
    one, again, other = (train.batch_of(text, plan, number, "cpu") for number in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one, other)
    assert one.shape == (3, 9) and (one[:, 0] == 0).all() and (one[:, 1:].diff(dim=1) == 1).all()
