"""Saved patterns: every kernel that can run here is right on them, and what cannot be used is one sentence."""

import pytest
import torch

from report import __main__ as command_line
from report.arms import sample
from report.tests.called import report

pytest.importorskip("triton")


def saved(folder, name="x.pt", arguments=("random", "--kinds", "FCP", "--tokens", "160"), **changes):
    """The path of a file like those of `make sample`."""
    options = sample.parse([*arguments, "--block", "32", "--head-dim", "16"])
    held = sample.example(options, *sample.pattern(options)) | changes
    torch.save({key: value for key, value in held.items() if value is not None}, folder / name)
    return folder / name


@pytest.mark.thorough
def test_every_kernel_is_right_and_a_wrong_answer_fails(tmp_path):
    good = saved(tmp_path, "good.pt")
    bare = saved(tmp_path, "bare.pt", lse=None, kinds=None, pattern=None, sparsity=None, density=None)
    held = torch.load(good)["o"]
    held[0, 1, 5] *= 1.5
    wrong = saved(tmp_path, "wrong.pt", o=held)
    done = report("saved", good, bare)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASS") == 12 and done.stdout.count("not run") == 2
    assert "random FCP, B=1 H=2 N=160 D=16, blocks of 32" in done.stdout and "2 files, 0 with a FAIL" in done.stdout
    assert done.stderr == ""
    done = report("saved", wrong, good, "--only", "simple,row_pairs")
    assert done.returncode == 1 and done.stdout.count("FAIL ") == 2 and done.stdout.count("PASS") == 2
    assert "the saved o is not that of its q, k, v and mask" in done.stdout and done.stdout.endswith(f"\n  {wrong}\n")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mask": None}, "holds no tensor 'mask'; a saved pattern holds q, k, v, mask, o"),
        ({"q": torch.zeros(1, 2, 150, 16)}, "must be (B, H, N, D) and mask (N, N); got (1, 2, 150, 16)"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path, monkeypatch, changes, words, capsys):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert command_line.main(["saved", str(saved(tmp_path, **changes))]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no.pt"], "there is no no.pt; `make sample` writes such files"),
        ([__file__], "is no file of tensors that torch.load reads"),
        ([__file__, "--only", "shared"], "there is no kernel 'shared'; the kernels are simple, prefetch, row_pairs,"),
    ],
)
def test_what_is_no_file_or_kernel_is_one_sentence(arguments, words, monkeypatch, capsys):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert command_line.main(["saved", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1
