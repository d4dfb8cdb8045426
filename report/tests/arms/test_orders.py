"""The lab's kernel runs in the order that a row names."""

import pytest

from report.arms import orders


@pytest.mark.parametrize("order", orders.PLACES)
def test_the_kernel_runs_in_the_order_that_the_row_names(order):
    module = orders.forward(order).func.__globals__
    assert module["place_in_kernel"].fn is orders.PLACES[order]
    assert "place_in_kernel" in module["flash_attention_kernel"].fn.__code__.co_names
