"""The count of what PyTorch code moves and holds: against sums by hand, and against what was measured on a GPU."""

import torch

from notebooks.pictures.operations import count
from report.arms.pytorch import attend
from report.pages import measured
from report.places import load


def test_a_product_and_a_scale_by_hand():
    ledger = count(lambda a, b: (a @ b) * 2.0, (4, 8, 16), (4, 16, 32), dtype=torch.float32)
    product, scaled = ledger.operations
    assert (product.read, product.written) == (4 * 4 * (8 * 16 + 16 * 32), 4 * 4 * 8 * 32)
    assert (product.flops, scaled.flops) == (2 * 4 * 8 * 16 * 32, 0)
    assert (scaled.name, scaled.moved) == ("times the scale", 2 * product.written)
    assert ledger.peak == 2 * product.written


def test_views_cost_nothing_and_what_is_freed_is_not_held():
    def call(a):
        b = a.transpose(0, 1).reshape(4, 2, 2)[None] + 1
        b = b * 2
        return b - 1

    ledger = count(call, (4, 4), dtype=torch.float32, device="meta")
    assert [one.name for one in ledger.operations if one.name != "clone"] == [
        "add",
        "times the scale",
        "minus the maximum",
    ]
    assert ledger.peak < sum(one.written for one in ledger.operations)


def test_a_copy_into_a_slice_reads_its_source_alone():
    def call(a, b):
        a[:2] = b

    (copy,) = count(call, (4, 8), (2, 8), device="meta").operations
    assert (copy.read, copy.written) == (2 * 8 * 2, 2 * 8 * 2)


def test_what_is_held_is_what_was_measured():
    """MiB at the peak of plain PyTorch attention and of P2 on an H200, as the committed sweep has them."""
    points = measured.load(measured.PUBLISHED).points()
    p2 = load("p2_online_softmax.py").flash_attention_forward
    for n, device, name, call in (
        (512, "cuda", "vectorised", lambda q, k, v: attend(q, k, v, None)),
        (16384, "cuda", "vectorised", lambda q, k, v: attend(q, k, v, None)),
        (512, "meta", "P2", p2),
    ):
        row = points["B=4 H=16 D=128", n, n, False, "float16"][name]
        assert abs(count(call, *[(4, 16, n, 128)] * 3, device=device).peak / 2**20 / row.peak_mib - 1) < 1e-3
