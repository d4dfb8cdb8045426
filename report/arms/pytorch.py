"""PyTorch's own ways to attention: the plain forms that our kernels must beat, and the peers, SDPA and FlexAttention.

Whatever depends on the shape alone is made once, outside the timing, as a model would keep it from layer to layer: the
boolean mask of the plain forms and FlexAttention's block mask. Inputs are (B, H, N, D), the output likewise.
"""

import math
from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from report.measuring.arms import Built, NotRun, case_of

FLEX_BLOCK = 128  # 64 does not compile on Hopper
FLEX_SMALLER = {"BLOCK_M": 64, "BLOCK_N": 32, "num_stages": 1}  # where FlexAttention's own choice does not fit
DOES_NOT_FIT = ("out of resource", "OutOfResources", "No valid triton configs")


# The plain forms -----------------------------------------------------------------------------


def attend(q, k, v, hidden):
    """Softmax attention over the last two dimensions; hidden: booleans (Nq, Nk), or None.

    The careful form of good PyTorch code: scores in the dtype of q, the softmax in float32, its result in the
    dtype of q again.
    """
    scores = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(q.shape[-1]))
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype) @ v


def hidden_keys(point, device):
    """Booleans (N, N), True where the mask hides the key; None where it hides nothing."""
    if not point.causal:
        return None
    position = torch.arange(point.N, device=device)
    seen = case_of(point).visibility
    return ~torch.cat([seen.mask(rows, position) for rows in position.split(512)])


def per_head(point, device):
    """One head after the other: the whole N x N scores, but of one head at a time."""
    hidden = hidden_keys(point, device)

    def call(q, k, v):
        o = torch.empty_like(q)
        for b in range(q.shape[0]):
            for h in range(q.shape[1]):
                o[b, h] = attend(q[b, h], k[b, h], v[b, h], hidden)
        return o

    return Built(call)


def vectorised(point, device, attend=attend):
    """All heads at once; shared key/value heads are copied out, as plain PyTorch does."""
    hidden = hidden_keys(point, device)
    group = point.H // point.kv_heads

    def call(q, k, v):
        if group > 1:
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        return attend(q, k, v, hidden)

    return Built(call)


def vectorised_compiled(point, device):
    return vectorised(point, device, torch.compile(attend, dynamic=False))


# The peers -----------------------------------------------------------------------------------------------------------


def sdpa(backend, point, device):
    """PyTorch's own attention, one backend and no other; the choice is made outside the timing."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if device == "cpu" and backend != "FLASH_ATTENTION":
        raise NotRun("PyTorch has this backend on GPUs only")
    return Built(
        partial(scaled_dot_product_attention, is_causal=point.causal),
        lambda: sdpa_kernel(getattr(SDPBackend, backend)),
    )


def flex_mask(point):
    """FlexAttention's mask_mod for the mask of `point`, on single positions; None where nothing is hidden."""
    window, sinks = point.window, point.sinks or 0
    if window is not None:
        return lambda b, h, q, k: (k <= q) & ((q - k < window) | (k < sinks))
    return (lambda b, h, q, k: k <= q) if point.causal else None


def flex(point, device):
    if device == "cpu":
        raise NotRun("for a CPU it takes seconds to compile at each shape")
    return flex_compiled(point, device)


def flex_compiled(point, device):
    """FlexAttention under torch.compile, with its own choice of tiles unless that does not fit the GPU."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask_mod, block_mask = flex_mask(point), None
    if mask_mod is not None:
        block_mask = create_block_mask(mask_mod, None, None, point.N, point.N, device=device, BLOCK_SIZE=FLEX_BLOCK)
    compiled = torch.compile(flex_attention, dynamic=False)
    options = {"block_mask": block_mask, "enable_gqa": point.kv_heads != point.H}

    def call(q, k, v):
        try:
            return compiled(q, k, v, **options)
        except Exception as error:
            if "kernel_options" in options or not any(words in str(error) for words in DOES_NOT_FIT):
                raise
        options["kernel_options"] = FLEX_SMALLER
        return compiled(q, k, v, **options)

    return Built(call)
