"""Inputs: the same for the same seed, legal in every layout, and poisoned where a kernel must not look."""

from dataclasses import replace

import pytest
import torch

from grader.kinds.attention import inputs
from grader.kinds.attention.cases import Case
from grader.registry import PROBLEMS

CASES = [c for p in PROBLEMS.values() for c in p.cases if not c.gpu]


@pytest.mark.parametrize("layout", ["contiguous", "interleaved", "tokens first", "slice", "mixed", "poisoned tail"])
def test_layouts_are_legal_and_hold_the_values(layout):
    case = Case("x", B=2, Hq=4, Hkv=2, N=9, D=16, layout=layout)
    plain = inputs.make(replace(case, layout="contiguous", name="x"), 0)
    for placed in inputs.make(case, 0):
        tensor = placed.tensor
        assert tensor.stride(3) == 1
        assert all(stride * tensor.element_size() % 16 == 0 for stride in tensor.stride()[:3])
        assert placed.offset * tensor.element_size() % 16 == 0
        assert tensor.isfinite().all()
        assert tensor.shape[0] == 2 and len(plain) == 3


def test_rows_of_an_odd_stride_end_with_what_is_no_number_of_theirs():
    for placed in inputs.make(Case("x", B=2, Hq=4, Hkv=2, N=9, D=16, layout="odd rows"), 0):
        assert placed.tensor.stride()[2:] == (17, 1) and placed.tensor.isfinite().all()


@pytest.mark.parametrize("layout", [layout for layout, dims in inputs.FAR.items() if "q" in dims])
def test_offsets_of_one_dim_pass_int32_while_its_stride_fits_and_no_buffer_is_made(layout):
    case = Case("x", B=5, Hq=9, Hkv=3, N=9, D=16, layout=layout)
    plain = inputs.make(replace(case, layout="contiguous"), 0)
    for at, placed, dense in zip(inputs.FAR[layout].values(), inputs.make(case, 0), plain, strict=True):
        assert placed.strides[at] < 2**31 <= (placed.shape[at] - 1) * placed.strides[at]
        assert placed.base.numel() == placed.tensor.numel() and placed.elements > 2**31
        assert placed.tensor.shape == dense.tensor.shape and placed.describe("q").sparse
        assert len(placed.raw()) == placed.base.numel() * placed.base.element_size()


def test_mixed_gives_each_tensor_its_own_layout():
    q, k, v = inputs.make(Case("x", B=2, Hq=4, N=9, D=16, layout="mixed"), 0)
    assert len({q.strides, k.strides, v.strides}) == 3


def test_seeds_and_cases_give_other_numbers_and_the_same_seed_the_same():
    case = Case("x", N=9, D=16)
    first, again, other = (inputs.make(case, seed)[0].tensor for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert not torch.equal(first, inputs.make(replace(case, name="y"), 0)[0].tensor)


def test_poison_lies_past_the_end_of_every_head():
    placed = inputs.make(Case("x", Hq=2, N=9, D=16, layout="poisoned tail"), 0)[1]
    assert placed.base.reshape(1, 2, 9 + inputs.POISON_ROWS, 16)[:, :, 9:].isnan().all()


@pytest.mark.parametrize("values", ["falling", "rising"])
def test_sloped_scores_leave_float32_behind_within_a_window(values):
    q, k, _ = (placed.tensor.double() for placed in inputs.make(Case("x", N=150, values=values), 0))
    scores = (q @ k.mT / 32**0.5)[0, 0]
    fall = scores[0, 0] - scores[0, 60] if values == "falling" else scores[0, 60] - scores[0, 0]
    assert fall > 128  # exp2 of it, and exp all the more, is infinite in float32


def test_offset_values_add_up_past_float16():
    for case in (c for c in CASES if c.name == "values with a large offset"):
        keys = min(case.window or case.N, case.N)
        assert keys * inputs.OFFSET > 65504, case


def test_case_names_are_unique_in_each_problem():
    for problem in PROBLEMS.values():
        names = [case.name for case in problem.cases]
        assert len(set(names)) == len(names)
