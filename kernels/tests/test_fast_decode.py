"""The fast form of X4: its kernel by tests' own means, its merge in the interpreter; test_decode.py has the GPU."""

import json
import math
import os
import subprocess
import sys
from functools import partial
from itertools import product
from unittest.mock import patch

import pytest
import torch

from grader.tests.support import ROOT, in_interpreter, thorough
from kernels.tests.for_hopper import compile_for_hopper
from kernels.tests.gluon_on_cpu import kernels
from kernels.tests.gluon_on_cpu.language import exp2
from kernels.tests.test_fast_backward import Plain

pytest.importorskip("triton.experimental.gluon.nvidia.hopper")
PIECE, RUN = 128, 2  # small ones, so that a few hundred tokens have several runs
LOWEST = -3.4028234663852886e38
FORMS = ("64", "128", "128, pages", "256", "64, most rows", "128, most rows", "256, most rows")


@pytest.mark.thorough
def test_it_compiles_for_a_hopper_gpu():
    for name, facts in compile_for_hopper(*(f"decode, {form}" for form in FORMS)).items():
        assert facts["kernel"] == "fast_decode_kernel" and facts["tma"] and facts["setmaxnreg"], name
        assert facts["as_the_driver_is_told"], name
        assert facts["shared_bytes"] <= facts["shared_limit"] and "wgmma" in facts["matrix_instructions"], name
        assert facts["spill_bytes"] == 0, (name, facts)


MERGED = []  # float32 rows of the merges since it was emptied: half precision hides where a sum has another order


def add_up(parts, acc):
    """(pivot, total, acc) of parts, each in its turn; the numbers and their order are the kernel's."""
    pivot, total = torch.tensor(LOWEST), torch.tensor(0.0)
    for new_pivot, new_total, new_acc in parts:
        greatest = torch.maximum(pivot, new_pivot)
        old, new = exp2(pivot - greatest), exp2(new_pivot - greatest)
        pivot, total, acc = greatest, total * old + new_total * new, acc * old + new_acc * new
    return pivot, total, acc


def merge(part_o, part_sums, sink_logits, lengths, o, Hq, Nq, window, slots, D, piece, span, run, *others):
    """merge_kernel by PyTorch; what no program has written is NaN in the parts."""
    per_run = piece * run // span
    for b, h, t in product(*map(range, o.shape[:3])):
        length = int(lengths[b])
        first = max(length - Nq - window + 1, 0)
        origin = first // (piece * run) * (piece * run)
        there = [slot for slot in range(slots) if first < origin + (slot + 1) * span and origin + slot * span < length]
        parts = {slot: (*part_sums[b, h, t, slot], part_o[b, h, t, slot]) for slot in there}
        runs = [
            add_up([parts[s] for s in there if s // per_run == r], torch.zeros(D)) for r in range(-(-slots // per_run))
        ]
        greatest = torch.stack([pivot for pivot, _, _ in runs]).max()
        weights = [exp2(pivot - greatest) for pivot, _, _ in runs]
        total = sum(total * weight for (_, total, _), weight in zip(runs, weights, strict=True))
        acc = sum(acc * weight for (_, _, acc), weight in zip(runs, weights, strict=True))
        if sink_logits is not None:
            sink = sink_logits[h] * 1.4426950408889634
            pivot, greatest = greatest, torch.maximum(greatest, sink)
            old = exp2(pivot - greatest)
            total, acc = total * old + exp2(sink - greatest), acc * old
        exact = acc / torch.where(total > 0.0, total, 1.0)
        MERGED.append(exact)
        o[b, h, t] = exact.to(o.dtype)


@pytest.fixture(scope="module")
def fast():
    module = kernels.import_on_cpu()["fast_decode"]
    module.merge_kernel, module.PIECE, module.RUN = Plain(merge), PIECE, RUN
    return module


def unwritten(*shape, dtype, device=None):
    return torch.zeros(*shape, dtype=dtype) / (0 if dtype.is_floating_point else 1)


def decode(module, span, *given):
    """decode_attention where a program has `span` tokens; what it leaves unwritten is NaN."""
    module.PLANS.kept.clear()
    with patch.object(module, "choose_span", lambda *sizes: span), patch.object(torch, "empty", unwritten):
        return kernels.run(module.decode_attention, *given)


def expected(q, k, v, lengths, sink_logits, window):
    """o in float64."""
    (B, Hq, Nq, D), o = q.shape, torch.zeros(q.shape, dtype=torch.float64)
    k, v = (x.double().repeat_interleave(Hq // k.shape[1], 1) for x in (k, v))
    for b in range(B):
        n = int(lengths[b])
        age = torch.arange(n - Nq, n)[:, None] - torch.arange(n)
        scores = (q[b].double() @ k[b, :, :n].mT / math.sqrt(D)).masked_fill(
            (age < 0) | (age >= (window or n)), -math.inf
        )
        sink = torch.full((Hq,), -math.inf) if sink_logits is None else sink_logits
        scores = torch.cat([scores, sink.double()[:, None, None].expand(-1, Nq, 1)], 2)
        o[b] = scores.softmax(-1).nan_to_num(0.0)[..., :n] @ v[b, :, :n]
    return o


def in_pages(caches, size):
    """(pages of k, of v, block table) of dense caches, in reverse order."""
    B, H, N, D = caches[0].shape
    most = -(-N // size)
    table = torch.arange(B * most, dtype=torch.int32).flip(0).view(B, most)
    found = []
    for x in caches:
        pages = torch.full((B * most, size, H, D), math.nan, dtype=x.dtype)
        room = torch.nn.functional.pad(x, (0, 0, 0, most * size - N), value=math.nan)
        pages[table.flatten()] = room.transpose(1, 2).reshape(-1, size, H, D)
        found.append(pages)
    return *found, table


@pytest.mark.parametrize("D", [64, thorough(128), thorough(256)])
@pytest.mark.parametrize(
    ("lengths", "Nq", "group", "window", "sinks"),
    [
        ((700, 300, 1), 2, 3, None, True), ((700, 256, 257), 1, 4, None, False), ((500, 130), 5, 2, 200, True),
        ((640, 70), 1, 8, 64, False), ((250, 9), 8, 8, None, True),
    ],
)  # fmt: skip
def test_values_and_the_same_bits_whoever_adds_up(D, lengths, Nq, group, window, sinks, fast):
    """A program has a piece, a run, or all; the cache is dense or in pages; a sequence is alone. NaN past a length."""
    torch.manual_seed(D)
    B, Hkv, N, group = len(lengths), 2, max(lengths), min(group, fast.MOST_ROWS[D] // Nq)
    q = torch.randn(B, Hkv * group, Nq, D).half()
    k, v = (torch.randn(B, Hkv, N, D).half() for _ in range(2))
    counts, sink_logits = torch.tensor(lengths, dtype=torch.int32), torch.randn(Hkv * group) * 2 if sinks else None
    for b, n in enumerate(lengths):
        first = max(0, n - Nq - (window or n) + 1)
        for x in (k, v):
            x[b, :, n:] = x[b, :, :first] = math.nan
    right = expected(q, k.nan_to_num(0.0), v.nan_to_num(0.0), counts, sink_logits, window)
    MERGED.clear()
    o = decode(fast, PIECE, q, k, v, counts, None, sink_logits, window)
    assert float((o.double() - right).abs().max()) < 4e-3
    again, by_pieces = partial(decode, fast, PIECE * RUN), MERGED.copy()
    MERGED.clear()
    assert torch.equal(again(q, k, v, counts, None, sink_logits, window), o)
    assert not MERGED or torch.equal(torch.stack(MERGED), torch.stack(by_pieces))
    for size in (16, 64, 128):
        k_pages, v_pages, table = in_pages((k, v), size)
        assert torch.equal(again(q, k_pages, v_pages, counts, table, sink_logits, window), o), size
    for b, n in enumerate(lengths):
        alone = q[b : b + 1], k[b : b + 1, :, :n], v[b : b + 1, :, :n], counts[b : b + 1]
        assert torch.equal(again(*alone, None, sink_logits, window)[0], o[b]), b


@pytest.mark.parametrize(
    ("N", "multiprocessors", "slots"),
    [(PIECE * RUN, 1, 1), (PIECE, 132, 1), (PIECE + 1, 132, 2), (PIECE * RUN + 1, 1, 2), (PIECE * RUN + 1, 132, 3)],
)
def test_programs_are_for_parts_that_can_hold_keys(N, multiprocessors, slots, fast):
    """Where there is one, nothing is left to merge."""
    q, cache, lengths = torch.zeros(2, 4, 1, 64).half(), torch.zeros(2, 2, N, 64).half(), torch.ones(2).int()
    plan = kernels.run(
        fast.prepare, q, cache, cache, lengths, None, None, None, None, multiprocessors=multiprocessors
    )  # fmt: skip
    assert plan.pieces.grid == (slots, 2, 2) and (plan.merge is None) == (slots == 1)


@pytest.mark.parametrize(
    ("change", "served"),
    [
        ({}, True), ({"Nq": 8, "Hq": 8}, True), ({"Nq": 8, "Hq": 16}, False), ({"dtype": torch.float32}, False),
        ({"D": 32}, False), ({"page": 48}, False), ({"page": 4}, False), ({"scale": -1.0}, False),
    ],
)  # fmt: skip
def test_what_it_does_not_take_goes_to_x4(change, served, fast):
    D, page = change.get("D", 64), change.get("page", 16)
    q = torch.zeros(1, change.get("Hq", 4), change.get("Nq", 1), D, dtype=change.get("dtype", torch.float16))
    cache = torch.zeros(4, page, 2, D, dtype=q.dtype)
    table, lengths = torch.zeros(1, 4, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    plan = kernels.run(fast.prepare, q, cache, cache, lengths, table, None, None, change.get("scale"))
    assert (plan is not None) == served


def test_a_cache_that_the_copy_engine_cannot_read_goes_to_x4_and_is_not_copied(fast, monkeypatch):
    q, cache = torch.zeros(8, 4, 1, 64).half(), torch.zeros(1, 2, 300, 64).half().expand(8, -1, -1, -1)
    monkeypatch.setattr(torch.Tensor, "clone", lambda *given, **named: pytest.fail("a cache was copied"))
    assert kernels.run(fast.prepare, q, cache, cache, torch.ones(8, dtype=torch.int32), None, None, None, None) is None


@in_interpreter
def test_the_merge_in_the_interpreter():
    child = ROOT / "kernels" / "tests" / "fast_decode_child.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(child)], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == {}
