"""The course's kernels behind the three functions that most trainers and servers call, those of flash-attn.

    from kernels.as_flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

    theirs = FlashAttn(over_p6(p6.flash_attention_forward), x4.decode_attention)     the same over a student's kernels

A model that calls flash-attn takes our kernels by this import. Arguments have flash-attn's names, order and meaning:
tokens stand before heads, and window_size is (left, right) with the query itself not counted, -1 for no limit. What the
kernels do not have (dropout, softcap, ALiBi, rotary embedding, a window to the right) is refused with a sentence.

Source: Dao-AILab/flash-attention, flash_attn/flash_attn_interface.py, for the signatures.
"""

import math
from itertools import pairwise

import torch

from kernels import attention_op
from solutions import x4_decode

NOTHING = (None, False, 0, 0.0, -1)  # what an option that is not asked for may be


def refuse(**options):
    """Raise ValueError for an option that is asked for and that no kernel here has."""
    for name, value in options.items():
        if not (value is None or (isinstance(value, (bool, int, float)) and value in NOTHING)):
            raise ValueError(f"the course's kernels have no {name}; got {value}")


def check_deterministic(asked):
    """Raise ValueError where the same bits are asked for and PyTorch, which the operator goes by, is not told."""
    if asked and not torch.are_deterministic_algorithms_enabled():
        raise ValueError("deterministic=True needs torch.use_deterministic_algorithms(True) before")


def visibility(causal, window_size):
    """(is_causal, window in tokens with the query's own, or None)."""
    left, right = window_size
    if right > 0 or (left >= 0 and not causal and right != 0):
        raise ValueError(f"a window looks back only; got causal={causal}, window_size={window_size}")
    return causal or right == 0, None if left < 0 else left + 1


def over_p6(forward):
    """P6's function, which always has a window, as FlashAttn's `attention`."""
    return lambda q, k, v, is_causal, window: forward(q, k, v, is_causal, window or k.shape[2])


def decode_attention(q, *given, **named):
    """X4's, or where the GPU has it, its fast form."""
    if attention_op.takes_fast_form(q, (64, 128, 256)):
        from kernels import fast_decode  # needs Gluon, which older versions of Triton lack

        return fast_decode.decode_attention(q, *given, **named)
    return x4_decode.decode_attention(q, *given, **named)


class FlashAttn:
    """flash-attn's three functions over two kernels.

    attention(q, k, v, is_causal, window_size) as the operator's, None for no window; decode as X4's decode_attention.
    """

    def __init__(self, attention=attention_op.attention, decode=decode_attention):
        self.attention, self.decode = attention, decode

    def attend(self, q, k, v, softmax_scale, causal, window_size):
        """(B, N, H, D) each; fewer queries than keys are the last ones."""
        is_causal, window = visibility(causal, window_size)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        if softmax_scale is not None:  # the kernels scale by 1 / sqrt(D)
            q = q * (softmax_scale * math.sqrt(q.shape[3]))
        missing = k.shape[2] - q.shape[2]
        if missing < 0:
            raise ValueError(f"more queries than keys: {q.shape[2]} and {k.shape[2]}")
        q = torch.nn.functional.pad(q, (0, 0, missing, 0))  # rows of before, which are thrown away
        return self.attention(q, k, v, is_causal, window)[:, :, missing:].transpose(1, 2)

    def flash_attn_func(
        self, q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
        alibi_slopes=None, deterministic=False, return_attn_probs=False,
    ):  # fmt: skip
        """q (B, N, Hq, D), k and v (B, N, Hkv, D) -> o like q, with gradients where `attention` has them."""
        check_deterministic(deterministic)
        refuse(dropout_p=dropout_p, softcap=softcap, alibi_slopes=alibi_slopes, return_attn_probs=return_attn_probs)
        return self.attend(q, k, v, softmax_scale, causal, window_size)

    def flash_attn_varlen_func(
        self, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=None, max_seqlen_k=None, dropout_p=0.0,
        softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False,
        return_attn_probs=False, block_table=None,
    ):  # fmt: skip
        """Sequences one after the other: q (all queries, Hq, D), k and v (all keys, Hkv, D) -> o like q.

        cu_seqlens: (B + 1,), where each sequence begins, the end last. With block_table k and v are pages (pages,
        page_size, Hkv, D), and cu_seqlens_k says how many tokens of a sequence they hold. One call for each sequence.
        """
        check_deterministic(deterministic)
        refuse(dropout_p=dropout_p, softcap=softcap, alibi_slopes=alibi_slopes, return_attn_probs=return_attn_probs)
        of_q, of_k, found = cu_seqlens_q.tolist(), cu_seqlens_k.tolist(), []
        for sequence, (start, end) in enumerate(pairwise(of_k)):
            if block_table is None:
                keys, values = k[start:end], v[start:end]
            else:
                pages = block_table[sequence, : -(-(end - start) // k.shape[1])].long()
                keys, values = (x[pages].flatten(0, 1)[: end - start] for x in (k, v))
            queries = q[of_q[sequence] : of_q[sequence + 1]]
            found.append(self.attend(queries[None], keys[None], values[None], softmax_scale, causal, window_size)[0])
        return torch.cat(found)

    def flash_attn_with_kvcache(
        self, q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None,
        cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False,
        window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0,
        return_softmax_lse=False,
    ):  # fmt: skip
        """q (B, Nq, Hq, D), the newest 1 to 8 tokens; caches (B, Nmax, Hkv, D) or pages (pages, page_size, Hkv, D).

        cache_seqlens: tokens in the cache before the call, a number or (B,) int32. k and v (B, Nq, Hkv, D) are written
        behind these first. num_splits changes nothing: a piece of the cache has a fixed number of tokens.
        """
        refuse(
            rotary_cos=rotary_cos, rotary_sin=rotary_sin, cache_batch_idx=cache_batch_idx, cache_leftpad=cache_leftpad,
            softcap=softcap, alibi_slopes=alibi_slopes, return_softmax_lse=return_softmax_lse,
        )  # fmt: skip
        if q.shape[1] > 1 and not causal:
            raise ValueError(f"{q.shape[1]} new tokens are causal among themselves; got causal={causal}")
        _, window = visibility(True, window_size)
        dense = k_cache.shape[1] if block_table is None else block_table.shape[1] * k_cache.shape[1]
        if cache_seqlens is None and k is not None:
            raise ValueError("k and v are written behind cache_seqlens tokens; got cache_seqlens=None")
        found = torch.as_tensor(dense if cache_seqlens is None else cache_seqlens, dtype=torch.int32, device=q.device)
        lengths = found.expand(q.shape[0]).contiguous()
        if k is not None:
            places = (lengths[:, None] + torch.arange(k.shape[1], device=q.device)).long()  # (B, Nq)
            rows = torch.arange(q.shape[0], device=q.device)[:, None].expand_as(places)
            if block_table is not None:
                rows = block_table.gather(1, places // k_cache.shape[1]).long()
                places = places % k_cache.shape[1]
            k_cache[rows, places], v_cache[rows, places] = k, v
            lengths = lengths + k.shape[1]
        caches = (x.transpose(1, 2) for x in (k_cache, v_cache)) if block_table is None else (k_cache, v_cache)
        o = self.decode(q.transpose(1, 2), *caches, lengths, block_table, None, window, softmax_scale)
        return o.transpose(1, 2)


OURS = FlashAttn()
flash_attn_func, flash_attn_varlen_func = OURS.flash_attn_func, OURS.flash_attn_varlen_func
flash_attn_with_kvcache = OURS.flash_attn_with_kvcache
