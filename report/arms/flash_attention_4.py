"""FlashAttention-4's kernels as a peer, where they are installed: flash-attn-4, for Hopper GPUs and newer ones."""

import os

from report.measuring.arms import Built, NotRun


def attend(point, device):
    """Its tensors are (B, N, H, D): it takes ours as views, since only the last stride must be 1."""
    if device == "cpu":
        raise NotRun("it runs on GPUs only")
    if point.sinks:
        raise NotRun("its sinks are learned numbers, not the first tokens")
    os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1")  # keep on the disk what it compiles
    try:
        from flash_attn.cute import flash_attn_func
    except ImportError:
        raise NotRun("flash-attn-4 is not installed") from None
    window = (None, None) if point.window is None else (point.window - 1, 0)

    def call(q, k, v):
        given = (x.transpose(1, 2) for x in (q, k, v))
        o = flash_attn_func(*given, causal=point.causal, window_size=window)
        o = o[0] if isinstance(o, tuple) else o  # beside it, by version, the logsumexp
        return o.transpose(1, 2)

    return Built(call)
