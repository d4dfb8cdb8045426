"""Attention as an operator of PyTorch that trains: x3's forward and backward behind autograd and torch.compile.

    from solutions.attention_op import attention

    o = attention(q, k, v, window_size=1024)
    o.sum().backward()

Forward and backward are custom operators with shapes known ahead (register_fake), so that torch.compile goes through
them without a graph break. On a Hopper GPU the fast forms compute o where no gradient is asked for, and the gradients
where the head dim is 64 or 128 and there are no sinks. Its dq may differ in the last bits from run to run: after
torch.use_deterministic_algorithms(True) x3's backward computes it.

Source: PyTorch, "Custom operators", torch.library.custom_op; the kernels' own files name the methods.
"""

import torch

from solutions import x3_backward

HOPPER = (9, 0)


@torch.library.custom_op("attention_course::forward", mutates_args=())
def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, window_size: int | None, sink_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """o and lse, both kept for the backward."""
    return x3_backward.attention_forward(q, k, v, is_causal, window_size, sink_size)


@forward.register_fake
def _(q, k, v, is_causal, window_size, sink_size):
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("attention_course::backward", mutates_args=())
def backward(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor,
    is_causal: bool, window_size: int | None, sink_size: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """dq, dk and dv."""
    if takes_fast_backward(q, sink_size):
        from solutions import fast_backward  # needs Gluon, which older versions of Triton lack

        return fast_backward.attention_backward(do, q, k, v, o, lse, is_causal, window_size)
    return x3_backward.attention_backward(do, q, k, v, o, lse, is_causal, window_size, sink_size)


@backward.register_fake
def _(do, q, k, v, o, lse, is_causal, window_size, sink_size):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def keep(ctx, inputs, output):
    ctx.mark_non_differentiable(output[1])  # a loss made of lse is an error of autograd's, not a wrong gradient
    q, k, v, *ctx.told = inputs
    ctx.save_for_backward(q, k, v, *output)


def gradients(ctx, do, dlse):
    """What autograd asks for; dlse is None or zeros."""
    return (*backward(readable(do), *ctx.saved_tensors, *ctx.told), None, None, None)


def refuse(ctx, *gradients_of_gradients):
    raise RuntimeError("attention has no second derivative: the gradient of a gradient was asked for")


forward.register_autograd(gradients, setup_context=keep)
backward.register_autograd(refuse)


def readable(x):
    """The tensor with a last stride of 1: autograd hands over expanded gradients, the kernels read whole rows."""
    return x if x.stride(-1) == 1 else x.contiguous()


def attention(q, k, v, is_causal=True, window_size=None, sink_size=0):
    """Attention whose gradients are known.

    q: (B, Hq, N, D). k, v: (B, Hkv, N, D), Hq a multiple of Hkv. One dtype: float16, bfloat16 or float32. window_size:
    in tokens, the query's own included; None for no window. sink_size: tokens that every later query sees.
    Returns o (B, Hq, N, D), same dtype. Raises ValueError for arguments that do not fit, RuntimeError where a second
    derivative is asked for.
    """
    q, k, v = (readable(x) for x in (q, k, v))
    x3_backward.check_arguments(q, k, v, is_causal, window_size, sink_size)
    if takes_fast_form(q, k, v):
        from solutions import fast_attention  # needs Gluon, which older versions of Triton lack

        return fast_attention.flash_attention_forward(q, k, v, is_causal, window_size, sink_size if window_size else 0)
    return forward(q, k, v, is_causal, window_size, sink_size)[0]


def takes_fast_backward(q, sink_size):
    """Whether the Hopper kernel computes the gradients: it has two head dims, no sinks, and sums dq in any order."""
    fits = (
        not torch.are_deterministic_algorithms_enabled()
        and q.is_cuda
        and q.dtype != torch.float32
        and q.shape[3] in (64, 128)
        and not sink_size
    )
    return fits and torch.cuda.get_device_capability(q.device) == HOPPER


def takes_fast_form(q, k, v):
    """Whether the Hopper kernel can be called: it gives no lse, so that only a call without gradients may use it."""
    if torch.compiler.is_compiling() or not q.is_cuda or q.dtype == torch.float32:
        return False
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    return not wanted and torch.cuda.get_device_capability(q.device) == HOPPER
