"""The warm-ups, and what every kind has of the room: classes in pairs, inputs by name, the allowed error."""

import math

import pytest
import torch

from grader.engine import careful, pairs, values
from grader.kinds.warm_ups import cases
from grader.registry import EVERY

KIND = EVERY["w3"].kind
TABLES = {"w1": (cases.OF_VECTORS, cases.VECTORS), "w2": (cases.OF_ROWS, cases.MATRICES)}
MOST = 0.9  # of what is allowed: a form that nobody listed has room


@pytest.mark.parametrize("id", TABLES)
def test_no_pair_of_classes_is_missing_and_a_case_taken_away_leaves_some(id):
    table, every = TABLES[id]
    assert pairs.missing(table, every) == []
    assert pairs.missing(table, every[:-1])


def right_of(id, case):
    placed = KIND.inputs(case, 3)
    (right,) = KIND.right(EVERY[id], case, placed, "cpu")
    return placed[0].tensor.float(), right


def used(out, right):
    """The largest share of what is allowed; NaN is infinite."""
    out = out.to(getattr(torch, right.dtype)).double()
    return ((out - right.expected).abs() / right.allowed).nan_to_num(nan=math.inf).max().item()


def by_lanes(x, tile):
    """A block of running sums, of which the sum is taken at the end."""
    x = torch.nn.functional.pad(x, (0, -x.shape[1] % tile))
    return x.view(len(x), -1, tile).cumsum(1)[:, -1].sum(1)


def online(x, tile, base=1.0):
    """The softmax whose maximum is known only when the row was read."""
    row_max, row_sum = torch.full((len(x), 1), -math.inf), torch.zeros(len(x), 1)
    for part in (x * base).split(tile, 1):
        new = torch.maximum(row_max, part.amax(1, keepdim=True))
        power = torch.exp2 if base != 1.0 else torch.exp
        row_sum = row_sum * power(row_max - new) + power(part - new).sum(1, keepdim=True)
        row_max = new
    return power(x * base - row_max) / row_sum


@pytest.mark.parametrize("case", cases.MATRICES, ids=lambda case: case.name)
def test_careful_kernels_in_many_orders_have_room(case):
    x, right = right_of("w2", case)
    for tile in (16, 64, 1024):
        assert used(by_lanes(x, tile), right) < MOST
        assert used(torch.stack([part.sum(1) for part in x.split(tile, 1)]).flip(0).cumsum(0)[-1], right) < MOST
    x, right = right_of("w3", case)
    for tile in (16, 64):
        assert used(online(x, tile), right) < MOST


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_sums_in_few_bits_are_rejected(name):
    dtype = getattr(torch, name)
    asked = [case for case in cases.MATRICES if case.dtype == name and case.columns > 2 and case.values != "high"]
    for case in asked:  # numbers around 20000 are multiples of so large a power of two that their sums are exact
        x, right = right_of("w2", case)
        assert used(x.to(dtype).cumsum(1)[:, -1], right) > 1.0
    assert len(asked) > 3


def test_a_form_that_is_not_careful_is_an_error_of_the_kind():
    with pytest.raises(ValueError, match="not finite"):
        careful.allow(torch.ones(2, dtype=torch.float64), [torch.tensor([1.0, math.nan])], torch.float32)


def test_what_is_nearly_zero_has_the_smallest_numbers_of_its_dtype_for_room():
    expected = torch.tensor([1.0, 3e-8], dtype=torch.float64)
    allowed = careful.allow(expected, [expected.float()], torch.float16)
    assert 0.0009 < allowed[0] < 0.0012 and 3e-8 < allowed[1] < 2e-7


@pytest.mark.parametrize("layout", ["contiguous", "slice", "odd rows", "every third"])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4, 5)])
def test_a_tensor_of_any_shape_lies_amid_other_numbers(layout, shape):
    given = torch.randn(shape)
    placed = values.place(given, layout)
    assert torch.equal(placed.tensor, given)
    rest = placed.base[~torch.isin(placed.base, given)]
    assert (rest == values.HUGE).all() and bool(len(rest)) is (layout != "contiguous")
