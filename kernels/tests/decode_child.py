"""decode_attention on drawn batches, {number: what is wrong} as JSON: decode_child.py MODULE DEVICE BATCHES SHARE.

On a CPU with TRITON_INTERPRET=1. What may not be read is NaN; unused entries of a block table lead to pages of NaN.
"""

import json
import math
import random
import sys
from importlib import import_module
from unittest.mock import patch

import torch

FAST = sys.argv[1] == "fast_decode"
module, device = import_module(f"{'kernels' if FAST else 'solutions'}.{sys.argv[1]}"), sys.argv[2]
batches = range(int(sys.argv[4].split("/")[0]), int(sys.argv[3]), int(sys.argv[4].split("/")[1]))  # 1/4: every fourth
HEAD_DIMS, PAGE_SIZES = ((64, 128, 256), (8, 16, 64)) if FAST else ((16, 32), (1, 5, 16, 48, 64))
INTERPRETED = device == "cpu"
# The interpreter's dots of bfloat16 are wrong without the grader's patches.
DTYPES = (
    (torch.float32, torch.float16)
    if INTERPRETED
    else (torch.float16, torch.bfloat16, torch.float32)[: 2 if FAST else 3]
)
NEAR = {torch.float32: 1e-5 if INTERPRETED else 5e-3, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def attend(q, k, v, sink, window, scale):
    """o (Hq, Nq, D) of one sequence in float64. q: (Hq, Nq, D). k, v: (Hkv, length, D)."""
    group, Nq, length = q.shape[0] // k.shape[0], q.shape[1], k.shape[1]
    k, v = (x.double().repeat_interleave(group, 0) for x in (k, v))
    age = torch.arange(length - Nq, length, device=q.device)[:, None] - torch.arange(length, device=q.device)
    scores = (q.double() @ k.mT * scale).masked_fill((age < 0) | (age >= (window or length + 1)), -math.inf)
    if sink is not None:
        scores = torch.cat([scores, sink.double()[:, None, None].expand(-1, Nq, 1)], 2)
    p = scores.softmax(-1).nan_to_num(0.0)[..., :length]
    return p @ v


def dense(caches, room):
    """Caches [(Hkv, length, D)] as one (B, Hkv, room, D), the rest NaN."""
    found = torch.full((len(caches), caches[0].shape[0], room, caches[0].shape[2]), math.nan).to(caches[0])
    for row, cache in zip(found, caches, strict=True):
        row[:, : cache.shape[1]] = cache
    return found


def paged(caches, room, size, order):
    """(pages, block table) of the same; order: of all pages."""
    most, (heads, _, D) = -(-room // size), caches[0].shape
    pages = torch.full((len(caches) * most + 2, size, heads, D), math.nan).to(caches[0])
    table = torch.full((len(caches), most), order[-1], dtype=torch.int32, device=pages.device)
    for b, cache in enumerate(caches):
        for n in range(-(-cache.shape[1] // size)):
            table[b, n] = order[b * most + n]
            part = cache[:, n * size : (n + 1) * size]
            pages[table[b, n], : part.shape[1]] = part.transpose(0, 1)
    return pages, table


def run_for_run(*given, **named):
    """fast_decode's decode_attention where each program has a run of pieces, whatever the batch is."""
    module.PLANS.kept.clear()
    with patch.object(module, "choose_span", lambda *sizes: module.PIECE * module.RUN):
        o = module.decode_attention(*given, **named)
    module.PLANS.kept.clear()
    return o


def wrong_in(number):
    """What is wrong with one drawn batch."""
    draw, wrong = random.Random(number), []
    torch.manual_seed(number)
    module.TILES_INTERPRETER = (*draw.choice([(64, 32), (32, 16), (128, 64)]), 4, 1)
    piece = module.TILES_INTERPRETER[0] if INTERPRETED else module.PIECE
    Hkv, group, D, Nq = (
        draw.choice((1, 2)),
        draw.choice((1, 2, 3, 4)),
        draw.choice(HEAD_DIMS),
        draw.choice((1, 1, 2, 8)),
    )
    room, dtype = draw.choice((1, 3, 9, 36) if FAST else (1, 3)) * piece + draw.randint(1, 50), draw.choice(DTYPES)
    kinds = (1, Nq, room, piece, piece + 1, draw.randint(1, room), 0)
    lengths = [draw.choice(kinds) for _ in range(draw.randint(1, 4))]
    window, scale = draw.choice((None, 1, 5, 40, piece, 2 * piece, 10_000)), draw.choice((None, 0.3))
    q = torch.randn(len(lengths), Hkv * group, Nq, D, device=device).to(dtype)
    k, v = ([torch.randn(Hkv, n, D, device=device).to(dtype) for n in lengths] for _ in range(2))
    sink = draw.choice(
        (None, torch.randn(Hkv * group, device=device), torch.full((Hkv * group,), -math.inf, device=device))
    )
    rest = {"sink_logits": sink, "window_size": window, "softmax_scale": scale}
    first = [max(0, n - Nq + 1 - window) if window else 0 for n in lengths]
    expected = torch.stack([attend(*each, sink, window, scale or D**-0.5) for each in zip(q, k, v, strict=True)])
    for b, n in enumerate(first):
        k[b][:, :n] = v[b][:, :n] = math.nan
    count = torch.tensor(lengths, dtype=torch.int32, device=device)
    o = module.decode_attention(q, dense(k, room), dense(v, room), count, **rest)
    if not float((o.double() - expected).abs().max()) <= NEAR[dtype]:
        wrong.append("values")
    if FAST:
        transposed = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (dense(k, room), dense(v, room)))
        if not torch.equal(run_for_run(q, *transposed, count, **rest), o):
            wrong.append("bits of runs")
    size = draw.choice(PAGE_SIZES)
    order = torch.randperm(len(lengths) * -(-room // size) + 2)
    (k_pages, table), (v_pages, _) = paged(k, room, size, order), paged(v, room, size, order)
    if not torch.equal(module.decode_attention(q, k_pages, v_pages, count, table, **rest), o):
        wrong.append("bits of pages")
    for b, n in enumerate(lengths):
        alone = q[b : b + 1], dense(k[b : b + 1], max(1, n)), dense(v[b : b + 1], max(1, n)), count[b : b + 1]
        if not torch.equal(module.decode_attention(*alone, **rest)[0], o[b]):
            wrong.append(f"bits of sequence {b} alone")
    return wrong


print(json.dumps({number: found for number in batches if (found := wrong_in(number))}))
