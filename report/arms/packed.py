"""Packed attention of images at one point: its patterns, what is right there, and its kernels."""

from functools import partial

import torch

from grader.kinds.block_sparse import patterns
from report.arms.pytorch import sdpa
from report.counting import masks
from report.measuring.arms import INTERPRETER, Arms, Built, Counted, NotRun
from report.measuring.check import Check
from report.places import load
from report.studies import packed as names

BACKENDS = {names.CUDNN: "CUDNN_ATTENTION", names.FLASH: "FLASH_ATTENTION"}


def grid(pattern, count, block):
    """The patterns.Blocks of an image of count x count blocks."""
    makers = {
        "dense": lambda: patterns.dense(count, block),
        "diagonal": lambda: patterns.local(count, block, radius=0),
        "local": lambda: patterns.local(count, block),
        "strided": lambda: patterns.strided(count, block),
        "global": lambda: patterns.local_and_global(count, block, radius=0),
        "local with global": lambda: patterns.local_and_global(count, block),
    }
    if pattern in makers:
        return makers[pattern]()
    return masks.scattered(count, block, float(pattern.removeprefix("random ")), diagonal=True)


class StudyArms(Arms):
    """Our kernel under each pattern, and dense attention of PyTorch, on slices of one packed (total, 3, H, D)."""

    def __init__(self, point, device):
        super().__init__(point, device)
        self.cu_seqlens = torch.arange(point.B + 1, dtype=torch.int32, device=device) * point.N

    def grid(self, name):
        """The blocks of an image; a peer's are all visible."""
        pattern, block = names.parts(name)
        block = block or max(names.BLOCKS)
        return grid(pattern or "dense", -(-self.point.N // block), block)

    def draw(self, generator):
        """q, k, v (total, H, D): what a model's one projection gives, so that rows lie 3 H D apart."""
        point = self.point
        shape = point.B * point.N, 3, point.H, point.D
        return torch.randn(shape, generator=generator, device=self.device).half().unbind(1)

    def by_image(self, x):
        """(B, H, N, D) of (total, H, D), the same memory."""
        return x.unflatten(0, (self.point.B, self.point.N)).transpose(1, 2)

    def build(self, name):
        if name == names.VARLEN:
            return varlen(self.point, self.cu_seqlens)
        if name in names.DENSE:
            dense = sdpa(BACKENDS[name], self.point, self.device)
            return Built(lambda q, k, v: dense.call(*map(self.by_image, (q, k, v))), dense.around)
        packed = load("packed_block_sparse.py")
        if self.device == "cpu" and not packed.INTERPRETED:
            raise NotRun(INTERPRETER)
        blocks = self.grid(name)
        mask = masks.base_mask([blocks] * self.point.B).to(self.device)
        sizes = (blocks.block, blocks.block)
        lists = packed.tile_lists(
            self.cu_seqlens, self.cu_seqlens, self.point.H, mask, sizes, tile=packed.choose_tile(sizes, self.point.D)
        )
        return Built(lambda q, k, v: packed.attend(q, k, v, lists))

    def compiles(self, name):
        return name not in names.DENSE

    def work(self, name):
        visible = round(self.point.N**2 * (1 - self.facts(name)["sparsity"]))
        point = self.point
        return Counted("", B=point.B, Hq=point.H, N=point.N, D=point.D, visible=visible)

    def facts(self, name):
        blocks = self.grid(name)
        return {"sparsity": masks.sparsity(blocks, self.point.N), "block_sparsity": 1 - masks.density(blocks)}

    def check(self, name, q, k, v):
        blocks = self.grid(name)
        if blocks not in self.checks:
            self.checks[blocks] = Check(*map(self.by_image, (q, k, v)), blocks)
        return partial(self.fault, self.checks[blocks])

    def fault(self, check, result):
        """`wrong: ...` if o, or lse where a kernel gives it, is not what is right."""
        o, lse = result if isinstance(result, tuple) else (result, None)
        o = self.by_image(o) if o.dim() == 3 else o
        if lse is not None:  # (H, total)
            lse = lse.unflatten(1, (self.point.B, self.point.N)).transpose(0, 1)
        return check.fault(o) or (None if lse is None else check.fault_of_lse(lse))


def varlen(point, cu_seqlens):
    """PyTorch's own packed attention: FlashAttention-2 over cu_seqlens."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ModuleNotFoundError:
        raise NotRun("varlen_attn came with PyTorch 2.10") from None
    if cu_seqlens.device.type == "cpu":
        raise NotRun("varlen_attn runs on GPUs only")
    return Built(lambda q, k, v: varlen_attn(q, k, v, cu_seqlens, cu_seqlens, point.N, point.N))
