"""Patterns in files: each loads without running code and holds the right answer; what is refused is one sentence."""

import pytest
import torch

from grader.kinds.block_sparse.patterns import EMPTY, FULL
from report import __main__ as command_line
from report.arms import sample


@pytest.mark.parametrize("name", sample.PATTERNS)
def test_every_pattern_makes_a_file_that_loads_without_running_code(name, tmp_path, capsys):
    path = tmp_path / "sample.pt"
    assert command_line.main(["sample", name, "--out", str(path), "--head-dim", "16", "--kinds", "EFCP"]) == 0
    assert "q_block=7:" in capsys.readouterr().out
    saved = torch.load(path, weights_only=True)
    q, k, v, mask = (saved[key] for key in ("q", "k", "v", "mask"))
    scores = (q.double() @ k.double().mT / 4).masked_fill(~mask, -torch.inf)
    expected = torch.softmax(scores, -1).nan_to_num(0) @ v.double()  # a row that sees nothing gives zeros
    assert torch.allclose(saved["o"], expected) and torch.equal(saved["lse"].isinf()[0, 0], ~mask.any(1))
    assert saved["block"] == 64 and saved["pattern"].startswith(name) and saved["kinds"].shape == (8, 8)
    tiles = mask.view(8, 64, 8, 64).transpose(1, 2).flatten(2)
    assert torch.equal(saved["kinds"] == FULL, tiles.all(2)) and torch.equal(saved["kinds"] == EMPTY, ~tiles.any(2))
    assert saved["sparsity"] == 1 - float(mask.double().mean())


def test_a_file_of_each_pattern_size_and_block(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sample, "TOKENS", (128,))
    monkeypatch.setattr(sample, "BLOCKS", (32, 64))
    assert command_line.main(["sample", "every", "--out", str(tmp_path / "samples"), "--head-dim", "16"]) == 0
    files = sorted(path.name for path in (tmp_path / "samples").iterdir())
    assert len(files) == 2 * (len(sample.PATTERNS) + 2) and "random-published-FCP-128-64.pt" in files
    assert "[24/24]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["document", "--segments", "3,x"], "got '3,x'"),
        (["document", "--segments", "3,4", "--tokens", "9"], "add up to 7, --tokens is 9"),
        (["random", "--kinds", "FX"], "got 'FX'"),
        (["causal", "--block", "0"], "--block must be at least 1; got 0"),
        (["causal", "--out", "/nowhere/there/x.pt"], "cannot be written"),
    ],
)
def test_bad_arguments_are_one_sentence(arguments, words, capsys):
    assert command_line.main(["sample", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
