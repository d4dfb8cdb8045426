"""Every kernel that block-sparse attention is compared with, by name; and what builds maps of tiles.

What depends on the mask alone is made once, outside the timing, as a model keeps it from layer to layer: the lists, the
order of rows, FlexAttention's block mask.
"""

from contextlib import nullcontext
from functools import cached_property, partial
from importlib import import_module

import torch
from torch.nn.functional import scaled_dot_product_attention

from grader.kinds.attention.masks import Visibility
from grader.kinds.block_sparse import patterns, tile_map
from kernels import block_sparse_steps as steps
from report.arms.pytorch import FLEX_BLOCK, sdpa
from report.counting import masks
from report.measuring.arms import INTERPRETER, Built, NotRun
from report.places import load, source
from report.studies import block_sparse as names
from solutions import x1_block_sparse as x1

WINDOW = 1024


# Masks ----------------------------------------------------------------------------------------------------------------


def visibility(pattern, n, block):
    """The mask of a pattern over n tokens, in blocks where it is made of such."""
    count = -(-n // block)
    fp, fcp = (patterns.FULL, patterns.PARTIAL), (patterns.FULL, patterns.CAUSAL, patterns.PARTIAL)
    makers = {
        "documents": lambda: patterns.Documents(masks.document_lengths(n)),
        "interleaved": lambda: patterns.Interleaved(masks.interleaved_lengths(n)),
        "causal": lambda: Visibility(causal=True),
        "window": lambda: Visibility(True, WINDOW),
        "random FP": lambda: patterns.random_blocks(count, block, fp),
        "random FCP": lambda: patterns.random_blocks(count, block, fcp),
        "random FP published": lambda: patterns.random_blocks(count, block, fp, made_of=masks.PublishedBlocks),
        "random FCP published": lambda: patterns.random_blocks(count, block, fcp, made_of=masks.PublishedBlocks),
        names.FULL_MAP: lambda: patterns.dense(count, block),
        names.BY_DENSITY: lambda: patterns.dense(count, block),
    }
    return makers[pattern.removeprefix("map of ")]()


class Scene:
    """A mask on a device, and what kernels need of it, each made when it is first asked for."""

    def __init__(self, seen, point, device):
        self.visibility, self.point, self.device = seen, point, device
        self.n, self.block, self.head_dim = point.N, point.block, point.D

    @cached_property
    def tiles(self):
        return x1.tiles_of_predicate(self.visibility.mask, self.n, self.n, self.block, self.block, self.device)

    @cached_property
    def map(self):
        return tile_map.cut(self.visibility, self.n, self.n, self.block, self.block, self.device)

    def strips(self, rows=512):
        """The mask, that many rows of it at a time: booleans (rows, n)."""
        position = torch.arange(self.n, device=self.device)
        return (self.visibility.mask(part, position) for part in position.split(rows))


# Ours -----------------------------------------------------------------------------------------------------------------


def step(name, scene):
    if scene.device == "cpu" and not steps.INTERPRETED:
        raise NotRun(INTERPRETER)
    prepared = steps.prepare(name, scene.tiles)
    return Built(lambda q, k, v: steps.KERNELS[name](q, k, v, scene.tiles, prepared))


def for_hopper(module):
    """The module of that name in kernels/, which runs on Hopper GPUs alone; raises NotThere."""
    source(f"{module}.py")
    return import_module(f"kernels.{module}")


def fast(scene):
    module = for_hopper("fast_block_sparse")
    if scene.device == "cpu":
        raise NotRun("the fast form is written in Gluon, which has no interpreter")
    prepared = module.prepare(scene.tiles, scene.head_dim)
    return Built(lambda q, k, v: module.block_sparse_attention(q, k, v, prepared))


def fast_dense(scene):
    if scene.device == "cpu":
        raise NotRun("the fast form is written in Gluon, which has no interpreter")
    return Built(partial(load("fast_attention.py").flash_attention_forward, is_causal=False))


# The peers ------------------------------------------------------------------------------------------------------------


def masked(scene):
    """SDPA with an N x N mask of booleans, by the one backend that takes masks on any GPU."""
    mask = torch.cat(list(scene.strips()))
    around = nullcontext if scene.device == "cpu" else sdpa("EFFICIENT_ATTENTION", scene.point, scene.device).around
    return Built(partial(scaled_dot_product_attention, attn_mask=mask), around)


def segments(lengths, n, device):
    """int32: the number of the segment in which each of n positions lies."""
    return patterns.segment_of(torch.arange(n, device=device), lengths).int()


def mask_mod(scene):
    """FlexAttention's mask_mod for the scene's mask: the fastest of those that were tried on an H200.

    For random masks that is a table of N x N booleans. Packed bits, or a table of kinds with the hash of the random
    pairs, need a tile of int32 in each stage: with the default stages they do not fit shared memory, with one they
    took 4 to 6 times as long.
    """
    seen = scene.visibility
    if isinstance(seen, patterns.Documents):
        of = segments(seen.lengths, scene.n, scene.device)
        return lambda b, h, q, k: of[q] == of[k]
    if isinstance(seen, patterns.Interleaved):
        of = segments(seen.lengths, scene.n, scene.device)
        return lambda b, h, q, k: (of[k] < of[q]) | ((of[k] == of[q]) & ((of[q] % 2 == 1) | (q >= k)))
    if isinstance(seen, Visibility):
        window = seen.window or scene.n
        if seen.window is None:
            return lambda b, h, q, k: k <= q
        return lambda b, h, q, k: (k <= q) & (q - k < window)
    mask = torch.cat(list(scene.strips()))
    return lambda b, h, q, k: mask[q, k]


def flex(scene, compiled=True):
    """FlexAttention in blocks of 128 with its own tiles, asked for o alone; not compiled it is right, but slow."""
    if compiled and scene.device == "cpu":
        raise NotRun("for a CPU it takes seconds to compile at each shape")
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    blocks = create_block_mask(mask_mod(scene), None, None, scene.n, scene.n, scene.device, FLEX_BLOCK)
    attend = torch.compile(flex_attention, dynamic=False) if compiled else flex_attention
    return Built(partial(attend, block_mask=blocks))


# What builds a map ---------------------------------------------------------------------------------------------------


def lab_builder(scene):
    build = partial(x1.tiles_of_predicate, scene.visibility.mask, scene.n, scene.n, scene.block, scene.block)
    return Built(lambda q, k, v: build(scene.device))


def flex_builder(scene):
    from torch.nn.attention.flex_attention import create_block_mask

    seen = mask_mod(scene)
    build = torch.compile(create_block_mask, dynamic=False) if scene.device == "cuda" else create_block_mask
    return Built(lambda q, k, v: build(seen, None, None, scene.n, scene.n, scene.device, scene.block))


def gpu_builder(scene, with_lists):
    """tiles_on_gpu's map, and the fast form's lists of it if asked: what must be made anew when a mask changes."""
    module, fast_form = for_hopper("tiles_on_gpu"), for_hopper("fast_block_sparse")
    if scene.device == "cpu":
        raise NotRun(INTERPRETER)
    predicate, data = {
        "documents": lambda: (module.documents, segments(scene.visibility.lengths, scene.n, scene.device)),
        "causal": lambda: (module.causal, torch.zeros(1, dtype=torch.int32, device=scene.device)),
        "window": lambda: (module.sliding_window, torch.tensor([WINDOW, 0], dtype=torch.int32, device=scene.device)),
    }[scene.point.pattern.removeprefix("map of ")]()
    tiles = partial(module.tiles_of, predicate, data, scene.n, scene.n, scene.block, scene.block)
    return Built(lambda q, k, v: fast_form.prepare(tiles(), scene.head_dim) if with_lists else tiles())


def build(name, scene):
    """The Built kernel, or builder of maps, `name`; raises NotRun, or whatever it raises."""
    plain = name.partition(" at ")[0]
    makers = {
        **{step_name: partial(step, step_name) for step_name in names.STEPS},
        "fast": fast,
        names.FLEX: flex,
        names.CUDNN: lambda scene: sdpa("CUDNN_ATTENTION", scene.point, scene.device),
        names.MASKED: masked,
        names.DENSE: fast_dense,
        names.LAB_BUILDER: lab_builder,
        names.FLEX_BUILDER: flex_builder,
        names.GPU_BUILDER: partial(gpu_builder, with_lists=False),
        names.FAST_BUILDER: partial(gpu_builder, with_lists=True),
    }
    return makers[plain](scene)


def at_density(point, density, device):
    """The Scene of `point` with that part of its blocks at random places."""
    count = -(-point.N // point.block)
    return Scene(masks.scattered(count, point.block, density), point, device)
