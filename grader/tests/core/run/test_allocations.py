"""Inside the child: new memory is poisoned and fenced, and sizes are counted."""

import torch

from grader.core.run.allocations import Allocations


def test_uninitialised_memory_is_nan_and_zeros_are_zeros():
    with Allocations():
        made = [torch.empty(3, 4), torch.empty_like(torch.ones(2, 2)), torch.ones(1).new_empty(5)]
        zeros, full = torch.zeros(3), torch.full((2,), 7.0)
    assert all(tensor.isnan().all() for tensor in made)
    assert (zeros == 0).all() and (full == 7).all()


def test_strides_are_kept():
    q = torch.zeros(2, 5, 3, 16).transpose(1, 2)
    with Allocations():
        assert torch.empty_like(q).stride() == q.stride()
        assert torch.empty_strided((2, 3), (1, 2)).stride() == (1, 2)


def test_writes_past_either_end_are_noticed():
    for offset in (-1, 6):
        with Allocations() as watch:
            out = torch.empty(2, 3)
            out.fill_(1.0)
            assert watch.broken_fences() == []
            out.as_strided((1,), (1,), out.storage_offset() + offset).fill_(1.0)
        assert watch.broken_fences() == [[2, 3]]


def test_empty_tensors_and_integers_are_no_trouble():
    with Allocations():
        assert torch.empty(0).numel() == 0
        assert torch.empty(3, dtype=torch.int64).shape == (3,)
        assert torch.arange(4).sum() == 6
