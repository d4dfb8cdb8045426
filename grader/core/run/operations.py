"""In the runner: which operations of PyTorch a program may have outside its kernels.

An operation of PyTorch's own (namespace aten) is allowed where PyTorch tags it as pointwise or as a reduction, where it
returns a view, or where it stands on a short list: it makes a tensor, moves, orders or sums elements, or multiplies
matrices, whose cost is judged elsewhere. The runner refuses all else: fused layers, convolutions, transforms, solvers,
files and other libraries have no such tag and stand on no list; random numbers have a tag of their own. A course may
refuse more.
"""

import functools
from collections.abc import Collection
from typing import Any

import torch

from grader.core.protocol.program import (
    Choice,
    Input,
    Launch,
    Operation,
    Program,
    Tensor,
    flat,
    storages_in,
)


def names(text: str) -> set[str]:
    return set(text.split())


def variants(text: str, *forms: str) -> set[str]:
    """Each name as it is and in these forms: in place, as a copy of a view."""
    return {form.format(name) for name in names(text) for form in ("{}", *forms)}


UNWRITTEN = ("empty", "new_empty")  # how the names begin of those whose tensors hold no number until one is written
MAKE = variants("empty zeros ones full empty_strided", "{}_like", "new_{}") | names(
    "empty_permuted fill fill_ zero_ arange linspace scalar_tensor eye tril_indices triu_indices"
)
MOVE = variants(
    "clone copy cat stack index_select constant_pad_nd flip roll repeat index slice_scatter select_scatter index_put "
    "index_copy index_fill scatter masked_fill masked_scatter masked_select where gather take tril triu contiguous "
    "repeat_interleave lift _pin_memory _to_copy _unsafe_view",
    "{}_",
) | variants(
    "view expand as_strided slice permute transpose t split_with_sizes diagonal select unbind squeeze unsqueeze unfold "
    "lift_fresh _reshape",
    "{}_copy",
) | {"_index_put_impl_"}  # fmt: skip
ORDER = variants(
    "cumsum cumprod cummax cummin logcumsumexp sort topk nonzero isin bucketize searchsorted equal floor_divide ldexp "
    "index_add scatter_add scatter_reduce __and__ __or__ __lshift__ __rshift__",
    "{}_",
)
PRODUCTS = variants("mm bmm addmm baddbmm dot mv addmv vdot addbmm _int_mm", "{}_")
SOFTMAX = names("_softmax _log_softmax")
LISTED = MAKE | MOVE | ORDER | PRODUCTS | SOFTMAX
TAGS = {torch.Tag.pointwise, torch.Tag.reduction}
IN_A_CHOICE = MAKE | names("copy_ clone _to_copy")  # before a launch that is tuned: what it writes is made ready


@functools.cache
def is_allowed(op: str) -> bool:
    """True for an operation of this name that a wrapper may use."""
    forms: list[Any] = [getattr(torch.ops.aten, name, None) for name in {op, op.removesuffix("_")}]
    forms = [form for form in forms if isinstance(form, torch._ops.OpOverloadPacket)]
    overloads = [getattr(form, name) for form in forms for name in form.overloads()]
    tags = {tag for overload in overloads for tag in overload.tags}
    if not overloads or torch.Tag.nondeterministic_seeded in tags:
        return False
    return op in LISTED or bool(TAGS & tags) or any(map(returns_view, overloads))


def returns_view(overload: Any) -> bool:
    aliases = [returned.alias_info for returned in overload._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def forbidden(program: Program, refused: Collection[str]) -> Operation | None:
    """The first operation that is not allowed, or one of those that this problem refuses; None where all are."""
    for step in program.setup + program.steps:
        for inner in flat([step]):
            if isinstance(inner, Operation):
                allowed = inner.namespace == "aten" and is_allowed(inner.op) and inner.op not in refused
                if not allowed or (isinstance(step, Choice) and inner.op not in IN_A_CHOICE):
                    return inner
    return None


def made_without_a_launch(program: Program) -> list[int]:
    """The numbers of the returned tensors that depend on nothing that a launch wrote."""
    steps = [*flat(program.setup + program.steps)][::-1] if program.kernels else []
    inputs = {i for i, storage in enumerate(program.storages) if isinstance(storage, Input)}
    returns = [(i, returned) for i, returned in enumerate(program.returns) if isinstance(returned, Tensor)]
    return [i for i, returned in returns if not depends_on_a_launch(returned, steps, inputs)]


def depends_on_a_launch(returned: Tensor, backwards: list[Operation | Launch], inputs: set[int]) -> bool:
    """True where the tensor depends on what a launch may have written: never an input.

    backwards: the program's steps, the last first. inputs: their storages.
    """
    live = {returned.storage}
    for step in backwards:
        touched = storages_in(step).keys() - inputs
        if not isinstance(step, Operation):
            if touched & live:
                return True
        elif any(made.storage in live for made in step.out):
            live |= touched
    return False
