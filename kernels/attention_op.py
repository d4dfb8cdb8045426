"""Attention as an operator of PyTorch that trains: x3's forward and backward behind autograd and torch.compile.

    from kernels.attention_op import attention

    o = attention(q, k, v, window_size=1024)
    o.sum().backward()

Forward and backward are custom operators with shapes known ahead (register_fake), so that torch.compile goes through
them without a graph break. On a Hopper GPU the fast forms compute o and lse, and where the head dim is 64, 128 or 256
the gradients. Their dq may differ in the last bits from run to run, but not after
torch.use_deterministic_algorithms(True).

Source: PyTorch, "Custom operators", torch.library.custom_op; the kernels' own files name the methods.
"""

import torch

from solutions import x3_backward

HOPPER, HEAD_DIMS = (9, 0), x3_backward.HEAD_DIMS


@torch.library.custom_op("attention_course::forward", mutates_args=())
def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, window_size: int | None, sink_size: int,
    sink_logits: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """o and lse, both kept for the backward."""
    if takes_fast_form(q, HEAD_DIMS):
        from kernels import fast_attention  # needs Gluon, which older versions of Triton lack

        told = is_causal, window_size, sink_size if window_size else 0, sink_logits
        return fast_attention.flash_attention_forward(q, k, v, *told, with_lse=True)
    return x3_backward.attention_forward(q, k, v, is_causal, window_size, sink_size, sink_logits)


@forward.register_fake
def _(q, k, v, is_causal, window_size, sink_size, sink_logits):
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("attention_course::backward", mutates_args=())
def backward(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor,
    is_causal: bool, window_size: int | None, sink_size: int, sink_logits: torch.Tensor | None,
) -> list[torch.Tensor]:  # fmt: skip
    """dq, dk and dv; with sink_logits their gradient, too."""
    told = is_causal, window_size, sink_size, sink_logits
    if takes_fast_form(q, (64, 128, 256)):
        from kernels import fast_backward

        same_bits = torch.are_deterministic_algorithms_enabled()
        return list(fast_backward.attention_backward(do, q, k, v, o, lse, *told, deterministic=same_bits))
    return list(x3_backward.attention_backward(do, q, k, v, o, lse, *told))


@backward.register_fake
def _(do, q, k, v, o, lse, is_causal, window_size, sink_size, sink_logits):
    return [x.new_empty(x.shape) for x in (q, k, v, sink_logits) if x is not None]


def keep(ctx, inputs, output):
    ctx.mark_non_differentiable(output[1])  # a loss made of lse is an error of autograd's, not a wrong gradient
    q, k, v, *ctx.told, sink_logits = inputs
    ctx.save_for_backward(q, k, v, *output, sink_logits)


def gradients(ctx, do, dlse):
    """What autograd asks for; dlse is None or zeros."""
    *saved, sink_logits = ctx.saved_tensors
    dq, dk, dv, *of_sinks = backward(readable(do), *saved, *ctx.told, sink_logits)
    return dq, dk, dv, None, None, None, of_sinks[0] if of_sinks else None


def refuse(ctx, *gradients_of_gradients):
    raise RuntimeError("attention has no second derivative: the gradient of a gradient was asked for")


forward.register_autograd(gradients, setup_context=keep)
backward.register_autograd(refuse)


def readable(x):
    """The tensor with a last stride of 1: autograd hands over expanded gradients, the kernels read whole rows."""
    return x if x.stride(-1) == 1 else x.contiguous()


def attention(q, k, v, is_causal=True, window_size=None, sink_size=0, sink_logits=None):
    """Attention whose gradients are known.

    q: (B, Hq, N, D). k, v: (B, Hkv, N, D), Hq a multiple of Hkv. One dtype: float16, bfloat16 or float32. window_size:
    in tokens, the query's own included; None for no window. sink_size: tokens that every later query sees.
    sink_logits: (Hq,), float32, or None: learned sinks; exp(sink_logits) of its head joins the sum of exponentials of
    each row and has no value.
    Returns o (B, Hq, N, D), same dtype. Raises ValueError for arguments that do not fit, RuntimeError where a second
    derivative is asked for.
    """
    q, k, v = (readable(x) for x in (q, k, v))
    x3_backward.check_arguments(q, k, v, is_causal, window_size, sink_size)
    x3_backward.check_sink_logits(sink_logits, q)
    told = is_causal, window_size, sink_size, sink_logits
    asked = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, sink_logits) if x is not None)
    if not asked and not torch.compiler.is_compiling() and takes_fast_form(q, HEAD_DIMS):
        from kernels import fast_attention

        sinks = sink_size if window_size else 0  # without a window a sink is like any other key
        return fast_attention.flash_attention_forward(q, k, v, is_causal, window_size, sinks, sink_logits)
    return forward(q, k, v, *told)[0]


def takes_fast_form(q, head_dims):
    """Whether a Hopper kernel computes it, which has these head dims."""
    fits = q.is_cuda and q.dtype != torch.float32 and q.shape[3] in head_dims
    return fits and torch.cuda.get_device_capability(q.device) == HOPPER
