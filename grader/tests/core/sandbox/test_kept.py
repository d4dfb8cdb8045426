"""What the grader keeps between calls is what it worked out, or it is worked out anew."""

import pytest
import torch

from grader.core.sandbox import kept


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "_folder", tmp_path)
    return tmp_path


def test_what_is_kept_is_not_worked_out_again_unless_something_else_or_damaged(folder):
    calls = []

    def work_out():
        calls.append(None)
        return (torch.arange(3.0), {"a": [1, "b"]})

    for changed in (b"", b"x" * 40):
        for _ in range(2):
            numbers, rest = kept.kept(work_out, "case", 1)
            assert numbers.tolist() == [0, 1, 2] and rest == {"a": [1, "b"]}
        (file,) = folder.iterdir()
        file.write_bytes(changed or file.read_bytes()[:-1])
    assert len(calls) == 2
    kept.kept(work_out, "case", 2)
    kept.kept(work_out, "case", 3, worth=lambda made: False)
    assert len(calls) == 4 and len(list(folder.iterdir())) == 2


def test_nothing_is_kept_unless_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kept.kept(lambda: 1, "case") == 1 and not list(tmp_path.iterdir())
