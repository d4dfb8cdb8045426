"""The published interface of block-sparse attention on packed sequences, over packed_block_sparse.py.

A script that imports `block_sparse_attn_func` runs with this line in the place of its import:

    from kernels.block_sparse_attn import block_sparse_attn_func

What differs from packed_block_sparse_attention is how things are said: the heads' modes are numbers, a mask may have
a map for each sparse head alone, its blocks are m_block_dim x n_block_dim, and the probabilities can be asked for.

Source of the interface: Guo et al., "Block Sparse Attention", 2024 (github.com/mit-han-lab/Block-Sparse-Attention), and
scripts for vision transformers written for it.
"""

import torch

from kernels import packed_block_sparse as packed
from kernels.dropout_pattern import kept

DENSE, SPARSE = 0, 1
NOT_OFFERED = {"streaming_info": None, "exact_streaming": False}  # of streaming heads


def block_sparse_attn_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, head_mask_type=None, base_blockmask=None, max_seqlen_q=None,
    max_seqlen_k=None, m_block_dim=128, n_block_dim=128, p_dropout=0.0, softmax_scale=None, is_causal=False,
    return_attn_probs=False, *, seed=None, deterministic=False, **others,
):  # fmt: skip
    """Attention of packed sequences under a mask of blocks, as it is published.

    q: (total_q, Hq, D); k, v: (total_k, Hkv, D). cu_seqlens_q, cu_seqlens_k: int32 (B + 1,). head_mask_type: Hq
    integers, 0 for a dense head, 1 for one under the mask; None: all under the mask, if there is one. base_blockmask:
    booleans or integers 0 and 1, (B, maps, blocks of queries, blocks of keys), with a map for all heads, one for each
    sparse head in their order, or one for each head; blocks past the longest sequence are ignored. max_seqlen_q,
    max_seqlen_k: at least the longest sequence; else ValueError. m_block_dim, n_block_dim: tokens of a block, multiples
    of 64, or of 32 or 16. p_dropout in [0, 1), under `seed`, which is drawn from torch's generator where it is None.
    deterministic: accepted; the forward always is.
    Returns out (total_q, Hq, D), lse (Hq, total_q) in float32, and with return_attn_probs the probabilities
    (B, Hq, longest q, longest k) in q's dtype, those that dropout took away negative; else None. They are the N x N
    matrix that the kernel never makes: for tests, not for training. Raises ValueError for what does not fit.
    """
    for name, value in others.items():
        if name not in NOT_OFFERED:
            raise TypeError(f"block_sparse_attn_func() got an unexpected keyword argument {name!r}")
        if value is not NOT_OFFERED[name]:
            raise ValueError(f"streaming heads are not offered: {name} must be {NOT_OFFERED[name]}; got {value!r}")
    longest = []
    for name, cu_seqlens, most in (("q", cu_seqlens_q, max_seqlen_q), ("k", cu_seqlens_k, max_seqlen_k)):
        longest.append(max(packed.lengths_of(cu_seqlens, f"cu_seqlens_{name}")))
        if most is not None and most < longest[-1]:
            raise ValueError(f"max_seqlen_{name} must be at least the longest sequence, {longest[-1]}; got {most}")
    block = (m_block_dim, n_block_dim)
    sparse = sparse_heads(head_mask_type, q.shape[1], base_blockmask is not None)
    mask = map_for_each_head(base_blockmask, sparse, [-(-n // size) for n, size in zip(longest, block, strict=True)])
    tile = packed.choose_tile(block, q.shape[2])
    seed = int(torch.randint(1 << 62, ())) if seed is None and p_dropout else seed or 0
    lists = packed.tile_lists(cu_seqlens_q, cu_seqlens_k, q.shape[1], mask, block, sparse, is_causal, tile)
    out, lse = packed.attend(q, k, v, lists, softmax_scale, p_dropout, seed)
    if not return_attn_probs:
        return out, lse, None
    seen = None if mask is None else mask.bool() | ~torch.tensor(sparse, device=mask.device)[:, None, None]
    return out, lse, probabilities(q, k, lse, lists, seen, block, softmax_scale, p_dropout, seed)


def sparse_heads(head_mask_type, Hq, has_mask):
    """[whether a head is under the mask] of the published numbers."""
    if head_mask_type is None:
        return [has_mask] * Hq
    modes = [int(mode) for mode in head_mask_type]
    if len(modes) != Hq or not set(modes) <= {DENSE, SPARSE}:
        streaming = "; -1, a streaming head, is not offered" if -1 in modes else ""
        raise ValueError(f"head_mask_type must hold {DENSE} or {SPARSE} for each of {Hq} heads; got {modes}{streaming}")
    if SPARSE in modes and not has_mask:
        raise ValueError(f"base_blockmask is missing: head_mask_type has {sum(modes)} heads under it")
    return [mode == SPARSE for mode in modes]


def map_for_each_head(mask, sparse, needed):
    """The mask as packed_block_sparse has it: (B, 1 or Hq, blocks that are needed). None where there is none."""
    if mask is None or not any(sparse):
        return None
    if mask.dim() != 4 or mask.shape[2] < needed[0] or mask.shape[3] < needed[1]:
        raise ValueError(
            f"base_blockmask must be (B, maps, {needed[0]} or more, {needed[1]} or more); got {tuple(mask.shape)}"
        )
    mask, maps, under_it = mask[:, :, : needed[0], : needed[1]], mask.shape[1], sum(sparse)
    if maps in (1, len(sparse)):
        return mask
    if maps != under_it:
        raise ValueError(
            f"base_blockmask must have 1 map, one for each of {under_it} sparse heads or one for each of "
            f"{len(sparse)} heads; got {maps}"
        )
    own = torch.tensor(sparse, device=mask.device).cumsum(0) - 1
    return mask[:, own.clamp(min=0)]  # a dense head's map is not looked at


def probabilities(q, k, lse, lists, seen, block, softmax_scale, p_dropout, seed):
    """(B, Hq, longest q, longest k): exp(score - lse) where a pair is visible, negative where it was dropped."""
    group = q.shape[1] // k.shape[1]
    scale = q.shape[2] ** -0.5 if softmax_scale is None else softmax_scale
    ends_q, ends_k = lists.cu_seqlens_q.tolist(), lists.cu_seqlens_k.tolist()
    lengths = [(q_end - q_begin, k_end - k_begin) for q_begin, q_end, k_begin, k_end in
               zip(ends_q, ends_q[1:], ends_k, ends_k[1:], strict=False)]  # fmt: skip
    sizes = [max(sizes) for sizes in zip(*lengths, strict=True)]
    found = torch.zeros(len(lengths), q.shape[1], *sizes, dtype=q.dtype, device=q.device)
    for b, (Nq, Nk) in enumerate(lengths):
        rows, keys = slice(ends_q[b], ends_q[b] + Nq), slice(ends_k[b], ends_k[b] + Nk)
        scores = q[rows].float().transpose(0, 1) @ k[keys].float().permute(1, 2, 0).repeat_interleave(group, 0) * scale
        p = torch.exp(scores - lse[:, rows, None])
        if seen is not None:
            in_tokens = seen[b].repeat_interleave(block[0], 1).repeat_interleave(block[1], 2)
            p = p.masked_fill(~in_tokens[:, :Nq, :Nk], 0.0)
        if lists.is_causal:
            p = p.tril(Nk - Nq)
        if p_dropout:
            keep = kept(Nq, Nk, q.shape[1], b, p_dropout, seed).to(p.device)
            p = torch.where(keep, p, -p)
        found[b, :, :Nq, :Nk] = p.nan_to_num(0.0)  # a row that sees nothing has lse = -inf
    return found
