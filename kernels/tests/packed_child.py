"""The packed form on batches of all kinds, a JSON line {name: facts} each, or one check; in the machine or on a GPU.

    packed_child.py kernels/ cpu cases        or poisoned, patterns, expectation

A process of its own, since modules read at their import how kernels run.
"""

import json
import sys
from itertools import accumulate

import torch

from grader.core import in_process

sys.path.insert(0, sys.argv[1])
if sys.argv[2] == "cpu":
    in_process.begin()
import dropout_pattern
import packed_block_sparse as packed

from grader.kinds.attention import oracle
from kernels import block_sparse_attn

MIXED = [70, 0, 1, 130, 5]
SHAPE = {
    "q": MIXED, "k": None, "Hq": 4, "Hkv": 2, "D": 16, "dtype": "float16", "block": (64, 64), "tile": (32, 32),
    "heads": 4, "sparse": None, "causal": False, "scale": None, "dropout": 0.0, "mask": "int64",
}  # fmt: skip
CASES = {
    "no mask": {"heads": None},
    "a mask for each head": {},
    "a mask that heads share": {"heads": 1, "mask": "bool"},
    "dense and sparse heads": {"sparse": [True, False, False, True], "mask": "int8"},
    "dense and sparse heads, one mask": {"heads": 1, "sparse": [False, True, False, True]},
    "blocks of 128": {"q": [300, 129], "block": (128, 128), "tile": (64, 64), "Hq": 2},
    "blocks of 256": {"q": [600, 256], "block": (256, 256), "tile": (64, 64), "Hq": 2},
    "blocks of 384": {"q": [800], "block": (384, 384), "tile": (64, 64), "Hq": 2},
    "blocks of 512": {"q": [513, 90], "block": (512, 512), "tile": (64, 64), "Hq": 2},
    "blocks of 3 x 64": {"q": [400, 191], "block": (192, 192), "tile": (64, 64), "Hq": 2},
    "other blocks for queries than for keys": {"block": (48, 128), "tile": (16, 64), "q": [100, 49, 250]},
    "causal": {"causal": True},
    "causal, no mask": {"causal": True, "heads": None},
    "causal, more keys than queries": {"causal": True, "q": [5, 64, 33], "k": [70, 100, 33]},
    "causal, more queries than keys": {"causal": True, "q": [70, 100, 64], "k": [5, 64, 0]},
    "causal, one query": {"causal": True, "q": [1, 1, 1], "k": [1, 65, 200], "heads": None},
    "no keys at all": {"q": [5, 3], "k": [0, 0]},
    "no queries at all": {"q": [0, 0], "k": [5, 40]},
    "nothing at all": {"q": [0], "k": [0], "heads": None},
    "one token": {"q": [1], "heads": None},
    "heads of their own": {"Hkv": 4},
    "float32": {"dtype": "float32"},
    "another scale": {"scale": 0.5},
    "dropout": {"dropout": 0.3},
    "dropout, causal, float32": {"dropout": 0.6, "causal": True, "dtype": "float32", "k": [75, 3, 9, 100, 0]},
}


def starts(lengths):
    return list(accumulate(lengths, initial=0))


def run(changes):
    """The excess of the errors of o and lse over what is allowed (0 or less is right), and the largest error of o."""
    case = SHAPE | changes
    q_lengths, k_lengths, Hq, Hkv = case["q"], case["k"] or case["q"], case["Hq"], min(case["Hkv"], case["Hq"])
    cu_q, cu_k, dtype, D = starts(q_lengths), starts(k_lengths), getattr(torch, case["dtype"]), case["D"]
    q = torch.randn(cu_q[-1], Hq, D).to(dtype)
    k, v = torch.randn(cu_k[-1], 2, Hkv, D).to(dtype).unbind(1)  # slices of one buffer
    grid = [-(-max(lengths) // block) for lengths, block in zip((q_lengths, k_lengths), case["block"], strict=True)]
    mask = None
    if case["heads"]:
        mask = torch.randint(2, (len(q_lengths), min(case["heads"], Hq), *grid)).to(getattr(torch, case["mask"]))
    seed = (1 << 40) + 12345
    o, lse = packed.packed_block_sparse_attention(
        q, k, v, as_int32(cu_q), as_int32(cu_k), mask, case["block"], case["sparse"], case["causal"], case["scale"],
        case["dropout"], seed, case["tile"],
    )  # fmt: skip
    facts = {"form": [list(o.shape), str(o.dtype), list(lse.shape), str(lse.dtype)], "o": 0.0, "lse": 0.0, "error": 0.0}
    facts |= {"nothing": True, "empty_rows": 0, "shape": list(q.shape)}
    for b in range(len(q_lengths)):
        rows, keys = slice(*cu_q[b : b + 2]), slice(*cu_k[b : b + 2])
        for h in range(Hq):
            seen = visible(case, mask, b, h, q_lengths[b], k_lengths[b])
            kv = h // (Hq // Hkv)
            one = judged(q[rows, h], k[keys, kv], v[keys, kv], seen, o[rows, h], lse[h, rows], case, b, h, seed)
            facts |= {key: max(facts[key], one[key]) for key in ("o", "lse", "error")}
            facts["nothing"] &= one["nothing"]
            facts["empty_rows"] += one["empty_rows"]
    return facts


def as_int32(numbers):
    return torch.tensor(numbers, dtype=torch.int32)


def visible(case, mask, b, h, Nq, Nk):
    """The plain reading of the mask: booleans (Nq, Nk)."""
    i, j = torch.arange(Nq), torch.arange(Nk)
    seen = torch.ones(Nq, Nk, dtype=torch.bool)
    if mask is not None and (case["sparse"] is None or case["sparse"][h]):
        blocks = mask[b, h if mask.shape[1] > 1 else 0].bool()
        seen = blocks[i // case["block"][0]][:, j // case["block"][1]]
    return seen & (j <= i[:, None] + Nk - Nq) if case["causal"] else seen


class Dense:
    def __init__(self, seen):
        self.seen = seen

    def mask(self, q_pos, k_pos):
        return self.seen[q_pos][:, k_pos]


def judged(q, k, v, seen, o, lse, case, b, h, seed):
    """One head of one sequence against float64, by what a careful kernel may be off by; dropout scales that too."""
    Nq, Nk = seen.shape
    if Nq == 0:
        return {"o": 0.0, "lse": 0.0, "error": 0.0, "nothing": True, "empty_rows": 0}
    empty = ~seen.any(1)
    quiet = bool(
        (o[empty] == 0).all() and (lse[empty] == -torch.inf).all() and not (o.isnan().any() | lse.isnan().any())
    )
    facts = {"o": 0.0, "lse": 0.0, "error": 0.0, "nothing": quiet, "empty_rows": int(empty.sum())}
    if Nk == 0:
        return facts
    scaled = q if case["scale"] is None else q * (case["scale"] * case["D"] ** 0.5)  # the oracle's is 1 / sqrt(D)
    # A GPU's dots of float32 are tf32's by default.
    allowed = oracle.expect(scaled[None, None], k[None, None], v[None, None], Dense(seen), tf32=q.is_cuda)
    p, keep = case["dropout"], torch.tensor(True)
    if p:
        keep = dropout_pattern.kept(Nq, Nk, h + 1, b, p, seed)[h]
    right, right_lse = dropout_pattern.dropped_attention(
        q[:, None], k[:, None], v[:, None], seen, keep, p, case["scale"]
    )
    error = (o.double() - right[:, 0]).abs()
    facts["o"] = float((error - allowed.allowed_o[0, 0] / (1 - p)).max())
    facts["error"] = float(error.max())
    if not empty.all():
        facts["lse"] = float(((lse - right_lse[0]).abs() - allowed.allowed_lse[0, 0])[~empty].max())
    return facts


# What must not be loaded, and what must be dropped --------------------------------------------------------------------


def poisoned():
    """Keys and values that no query may see are NaN: whole blocks, and all of the neighbours in the buffer."""
    q, k, v = torch.randn(200, 2, 16).half(), torch.randn(230, 2, 16).half(), torch.randn(230, 2, 16).half()
    cu_q, cu_k = as_int32([0, 20, 170, 200]), as_int32([0, 50, 200, 230])  # in the middle 150 queries and keys
    mask = torch.zeros(3, 1, 3, 3, dtype=torch.bool)
    mask[1, 0] = torch.tensor([[1, 0, 1], [1, 0, 0], [0, 0, 1]])

    def middle(k, v):
        return packed.packed_block_sparse_attention(q, k, v, cu_q, cu_k, mask, (64, 64), tile=(32, 32))

    clean = middle(k, v)
    for x in (k, v):
        x[:50], x[50 + 64 : 50 + 128], x[200:] = torch.nan, torch.nan, torch.nan
    spoiled = middle(k, v)
    return {"same": all(torch.equal(a, b) for a, b in zip(clean, spoiled, strict=True))}


def pattern(tile, mask=None, block=(32, 64)):
    """What dropout keeps, read off the kernel: with one-hot values, o is the row of probabilities. (2, 2, 40, 128)."""
    generator = torch.Generator(torch.get_default_device()).manual_seed(5)
    q, k = (torch.randn(2 * n, h, 64, generator=generator) for n, h in ((40, 2), (128, 1)))
    parts = []
    for first in (0, 64):
        v = torch.zeros(2, 128, 1, 64)
        v[:, first : first + 64] = torch.eye(64)[:, None]
        cu = as_int32([0, 40, 80]), as_int32([0, 128, 256])
        o, _ = packed.packed_block_sparse_attention(
            q, k, v.view(256, 1, 64), *cu, mask, block, p_dropout=0.4, seed=7, tile=tile
        )
        parts.append(o.view(2, 40, 2, 64))
    return torch.cat(parts, -1).transpose(1, 2) > 0


def patterns():
    """For each shape of tiles: is its pattern the one of dropout_pattern? And under a mask, where it is visible?"""
    expected = torch.stack([dropout_pattern.kept(40, 128, 2, b, 0.4, 7) for b in range(2)])
    tiles = ((16, 16), (16, 64), (32, 32), (32, 16), (32, 64))
    facts = {f"{tile[0]} x {tile[1]}": torch.equal(pattern(tile), expected) for tile in tiles}
    mask = torch.tensor([[1, 0], [1, 1]]).expand(2, 1, 2, 2)
    seen = mask[0, 0].bool().repeat_interleave(32, 0).repeat_interleave(64, 1)[:40]
    return facts | {"masked": torch.equal(pattern((32, 32), mask), expected & seen)}


def expectation(seeds=200):
    """z: how far the mean of o over seeds is from o without dropout, in standard errors; lse must not move at all."""
    q, k, v = (torch.randn(8, 2, 16) for _ in range(3))
    cu = as_int32([0, 8])
    o, lse = packed.packed_block_sparse_attention(q, k, v, cu, cu, tile=(16, 16))
    lists = packed.tile_lists(cu, cu, 2, tile=(16, 16))
    dropped, lses = zip(*(packed.attend(q, k, v, lists, None, 0.25, seed) for seed in range(seeds)), strict=True)
    dropped = torch.stack(dropped)
    z = (dropped.mean(0) - o) / (dropped.std(0) / seeds**0.5)
    return {
        "largest_z": float(z.abs().max()),
        "mean_z2": float((z**2).mean()),
        "lse": all(torch.allclose(x, lse, rtol=1e-6) for x in lses),
    }


# The published interface ----------------------------------------------------------------------------------------------


def published():
    """{what the adapter does: is it so?}, beside the packed form and the plain reading of the probabilities."""
    lengths, modes = [70, 0, 130], torch.tensor([0, 1, 1, 0], dtype=torch.int32)
    cu = as_int32(starts(lengths))
    q, k, v = (torch.randn(200, heads, 16).half() for heads in (4, 2, 2))
    mask = torch.randint(2, (3, 2, 4, 6))  # of the two sparse heads, with a row and a column too many
    shared = {"p_dropout": 0.3, "softmax_scale": 0.5, "is_causal": True, "seed": 5}
    out, lse, probs = block_sparse_attn.block_sparse_attn_func(
        q, k, v, cu, cu, head_mask_type=modes, base_blockmask=mask, max_seqlen_q=130, max_seqlen_k=256, m_block_dim=64,
        n_block_dim=32, return_attn_probs=True, **shared,
    )  # fmt: skip
    own = mask[:, [0, 0, 1, 1], :3, :5]
    o, its_lse = packed.packed_block_sparse_attention(
        q, k, v, cu, cu, own, (64, 32), [False, True, True, False], tile=(64, 32), **shared
    )
    facts = {"heads of two kinds": torch.equal(out, o) and torch.equal(lse, its_lse)}
    kept, row_sums = probs.clamp(min=0.0).double() / 0.7, probs.abs().double().sum(-1)
    for b, (begin, n) in enumerate(zip(cu.tolist(), lengths, strict=False)):
        values = v[begin : begin + n].double().repeat_interleave(2, 1).transpose(0, 1)
        error = (kept[b, :, :n, :n] @ values - out[begin : begin + n].transpose(0, 1)).abs()
        sees = lse[:, begin : begin + n].isfinite()
        sums = (row_sums[b, :, :n] - sees.double()).abs()
        facts[f"probabilities {b}"] = bool((error < 2e-2).all() and (sums < 2e-2).all())
    dense = block_sparse_attn.block_sparse_attn_func(q, k, v, cu, cu)
    plain = packed.packed_block_sparse_attention(q, k, v, cu, cu)
    facts["no mask"] = dense[2] is None and torch.equal(dense[0], plain[0])
    wide = torch.eye(1, dtype=torch.bool).expand(3, 1, 1, 1)
    one = block_sparse_attn.block_sparse_attn_func(q, k, v, cu, cu, None, wide, m_block_dim=192, n_block_dim=192)
    whole = packed.packed_block_sparse_attention(q, k, v, cu, cu, block=(192, 192))
    facts["blocks of 192"] = torch.equal(one[0], whole[0])
    torch.manual_seed(3)
    drawn = [block_sparse_attn.block_sparse_attn_func(q, k, v, cu, cu, p_dropout=0.5)[0] for _ in range(2)]
    torch.manual_seed(3)
    again = block_sparse_attn.block_sparse_attn_func(q, k, v, cu, cu, p_dropout=0.5)[0]
    facts["a seed of torch's"] = not torch.equal(*drawn) and torch.equal(drawn[0], again)
    return facts


def refusals():
    """{words of the arguments: what is said of them}."""
    cu, mask = as_int32([0, 40]), torch.ones(1, 1, 1, 1, dtype=torch.bool)
    q = torch.randn(40, 2, 16)
    said = {}
    for name, more in {
        "streaming": {"streaming_info": torch.zeros(2)}, "a streaming head": {"head_mask_type": [-1, 0]},
        "no mask": {"head_mask_type": [1, 0]}, "too short": {"max_seqlen_q": 39}, "two modes": {"head_mask_type": [0]},
        "maps": {"base_blockmask": mask.expand(1, 3, 1, 1)}, "rows": {"base_blockmask": mask[:, :, :0]},
        "gradients": {"q": q.clone().requires_grad_()}, "unknown": {"window": 3},
    }.items():  # fmt: skip
        try:
            block_sparse_attn.block_sparse_attn_func(
                **({"q": q, "k": q, "v": q} | more), cu_seqlens_q=cu, cu_seqlens_k=cu
            )
        except (ValueError, TypeError) as problem:
            said[name] = str(problem)
    return said


if __name__ == "__main__":
    _, _, device, what = sys.argv
    torch.set_default_device(device)
    torch.set_num_threads(1)  # tensors are small, and other tests want the other cores
    torch.manual_seed(0)
    if what == "cases":
        for name, changes in CASES.items():
            print(json.dumps({name: run(changes)}))
    else:
        print(json.dumps(globals()[what]()))
