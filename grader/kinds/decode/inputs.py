"""Case and seed -> q and the caches, as they lie in memory; lengths, table and logits are the case's alone."""

import math
from dataclasses import replace

import torch

from grader.course import tensors
from grader.engine import values
from grader.kinds.attention import inputs as attention

UNUSED = 3  # pages that hold nothing of any sequence; the last of the order is where unused entries lead
WIDER = 3  # entries of a row of the table that are not the call's
SLOPE = 3.0  # from a score to the next
SINKS = {  # of independent standard normal numbers
    "normal": lambda x: 2.0 * x,
    "large": lambda x: 40.0 + x,
    "small": lambda x: x - 40.0,
    "-inf": lambda x: torch.where(torch.arange(len(x)) % 2 == 0, -math.inf, x),
}


def make(case, seed):
    """q, k_cache and v_cache as Placed, on the CPU; the same case and seed always give the same numbers."""
    return lay_out(case, *draw(case, seed))


def draw(case, seed):
    """(q, k, v) in float32: q (B, Hq, Nq, D); k and v (B, Hkv, tokens, D), numbers also where nothing is to be read."""
    generator, shape = values.generator(case, seed), (case.B, case.Hkv, case.tokens, case.D)
    q = torch.randn(case.B, case.Hq, case.Nq, case.D, generator=generator)
    k, v = (torch.randn(shape, generator=generator) for _ in range(2))
    return VALUES[case.values](case, q, k, v)


def sloped(sign):
    """Scores that rise or fall by about SLOPE with every key: one piece has nearly all of the weight."""

    def of(case, q, k, v):
        position = torch.arange(case.tokens) - case.tokens / 2
        slope = sign * SLOPE * position / (4.0 * case.D * case.score_scale)
        return 4.0 + 0.1 * q, slope[:, None] + 0.1 * k, v

    return of


def uneven(case, q, k, v):
    """Scores hundreds above, or below, those of the next row: each row needs a maximum of its own."""
    sign = 1.0 - 2.0 * ((torch.arange(case.Hq)[:, None] + torch.arange(case.Nq)) % 2)
    return q + 6.0 * sign[..., None], k + 6.0, v


VALUES = {
    "normal": lambda case, q, k, v: (q, k, v), "rising": sloped(+1), "falling": sloped(-1), "uneven": uneven,
    "offset": lambda case, q, k, v: (0.1 * q, k, values.OFFSET + v),
}  # fmt: skip


def lay_out(case, q, k, v):
    """The three tensors as Placed: what may not be read is NaN where the case says so, pages lie as its table has them.

    k, v: (B, Hkv, tokens, D).
    """
    dtype = getattr(torch, case.dtype)
    caches = [spoil(case, cache.to(dtype)) for cache in (k, v)]
    if case.page is not None:
        caches = [cut(case, cache) for cache in caches]
    found = [attention.place(q.to(dtype), case.layout if case.fits_gpu else "contiguous", "q")]
    return (*found, *(attention.place(x, case.layout, which) for x, which in zip(caches, "kv", strict=True)))


def spoil(case, cache):
    """The cache with NaN past each length and before each window, where the case says so."""
    cache = cache.clone()
    for b, length in enumerate(case.lengths if case.rest == "NaN" else ()):
        cache[b, :, length:] = math.nan
        cache[b, :, : case.first_key(length)] = math.nan
    return cache


def cut(case, cache):
    """(pages, page, Hkv, D) of a cache (B, Hkv, tokens, D): each used page where the table has it."""
    table = block_table(case)
    most = table.shape[1]
    source = torch.Generator().manual_seed(1)
    pages = torch.randn(case.B * most + UNUSED, case.page, case.Hkv, case.D, generator=source).to(cache.dtype)
    if case.rest == "NaN":
        pages.fill_(math.nan)
    parts = cache.transpose(1, 2).unflatten(1, (most, case.page))
    for b, length in enumerate(case.lengths):
        for entry in used(case, length):
            pages[table[b, entry]] = parts[b, entry]
    return pages


def used(case, length):
    """The entries of a sequence's row of the table whose pages hold a key that is seen."""
    return range(case.first_key(length) // case.page, math.ceil(length / case.page))


def lengths(case):
    return torch.tensor(case.lengths, dtype=torch.int32)


def block_table(case):
    """(B, most pages): pages in a shuffled order; an unused entry leads to a page of nobody."""
    most = case.tokens // case.page
    order = torch.randperm(case.B * most + UNUSED, generator=values.generator(case, "table"))
    table = torch.full((case.B, most), int(order[-1]), dtype=torch.int32)
    for b, length in enumerate(case.lengths):
        for entry in used(case, length):
            table[b, entry] = order[b * most + entry]
    return table


def sink_logits(case):
    """(Hq,), float32."""
    return SINKS[case.sink](torch.randn(case.Hq, generator=values.generator((case.sink, case.Hq), "sinks")))


def beside(case):
    """{name: tensor} of the arguments that are not q and the caches."""
    found = {"lengths": lengths(case)}
    if case.page is not None:
        found["block_table"] = block_table(case)
    return found | ({"sink_logits": sink_logits(case)} if case.sink else {})


def placed_beside(case):
    """{name: Placed} of the same; the table of caches that are part of something larger is part of a wider one."""
    found = {name: tensors.place(x) for name, x in beside(case).items()}
    if case.page is not None and case.layout != "contiguous":
        wide = torch.nn.functional.pad(beside(case)["block_table"], (0, WIDER), value=-1)
        found["block_table"] = replace(found["block_table"], base=wide.reshape(-1), strides=wide.stride())
    return found


def dense(case, placed):
    """k and v (B, Hkv, tokens, D) in float64 as a kernel finds them behind its table; placed: the three tensors."""
    _, k, v = (each.tensor.double() for each in placed)
    if case.page is None:
        return k, v
    table = block_table(case).long()
    return tuple(x[table].flatten(1, 2).transpose(1, 2) for x in (k, v))
