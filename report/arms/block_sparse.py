"""Block-sparse attention at one point: its masks, what is right there, and its kernels or builders of maps."""

import time
from functools import partial

import torch

from grader.core.run.stopwatch import Stopwatch
from grader.kinds.block_sparse import patterns
from report.arms import block_sparse_kernels as kernels
from report.measuring.arms import Arms, Counted
from report.measuring.check import Check, spread_rows
from report.studies import block_sparse as names

ROWS_OF_TILES = 16  # in which a kind of tile stands, are looked at


class WallClock(Stopwatch):
    """Times a call that waits for its own results: by the host's clock, to the end of the GPU's work."""

    def sample(self, call):
        started = time.perf_counter()
        call()
        if self.cuda:
            torch.cuda.synchronize()
        return (time.perf_counter() - started) * 1e3


class StudyArms(Arms):
    """Each kernel under the point's mask, by density each under its own; builders make the map of it."""

    def __init__(self, point, device):
        super().__init__(point, device)
        self.builds_maps = point.pattern in names.MAPS
        if self.builds_maps:
            self.stopwatch = WallClock(device)
        self.scene = kernels.Scene(kernels.visibility(point.pattern, point.N, point.block), point, device)
        self.scenes = {}

    def scene_of(self, name):
        """The mask that a kernel computes."""
        _, _, density = name.partition(" at ")
        if not density:
            return self.scene
        if density not in self.scenes:
            self.scenes[density] = kernels.at_density(self.point, float(density), self.device)
        return self.scenes[density]

    def draw(self, generator):
        n, point = 1 if self.builds_maps else self.point.N, self.point
        return tuple(
            torch.randn(1, point.H, n, point.D, generator=generator, device=self.device).half() for _ in range(3)
        )

    def build(self, name):
        return kernels.build(name, self.scene_of(name))

    def compiles(self, name):
        return name not in (names.CUDNN, names.MASKED)

    def work(self, name):
        if self.builds_maps:
            return None
        visible = self.point.N**2 if name in names.WITHOUT_MASK else self.scene_of(name).map.visible
        return Counted("", Hq=self.point.H, N=self.point.N, D=self.point.D, visible=visible)

    def facts(self, name):
        found = self.scene_of(name).map
        return {"sparsity": found.sparsity, "density": found.density}

    def check(self, name, q, k, v):
        scene, without_mask = self.scene_of(name), name in names.WITHOUT_MASK
        if self.builds_maps:
            return partial(fault_of_map, scene)
        key = without_mask or name.partition(" at ")[2]
        if key not in self.checks:
            seen = patterns.dense(1, self.point.N) if without_mask else scene.visibility
            rows = spread_rows(self.point.N, self.device) if without_mask else telling_rows(scene)
            self.checks[key] = Check(q, k, v, seen, rows)
        return partial(fault, self.checks[key])


def fault(check, result):
    """`wrong: ...` if o, or lse where a kernel gives it, is not what is right."""
    o, lse = result if isinstance(result, tuple) else (result, None)
    return check.fault(o) or (None if lse is None else check.fault_of_lse(lse))


def telling_rows(scene):
    """Positions of queries to look at: over the whole sequence, and the ends and the middle of rows of tiles in which
    each kind of tile stands."""
    found = [spread_rows(scene.n, scene.device)]
    for kind in (patterns.FULL, patterns.CAUSAL, patterns.PARTIAL):
        lines = (scene.map.kinds == kind).any(1).nonzero().flatten()
        lines = lines[:: max(1, len(lines) // ROWS_OF_TILES)] * scene.block
        found += [lines, lines + scene.block // 2, lines + scene.block - 1]
    return torch.cat(found).clamp(max=scene.n - 1).unique()


def fault_of_map(scene, built):
    """`wrong: ...` if a map is not that of the scene's mask: every pair of ours, every block of FlexAttention's."""
    if hasattr(built, "to_dense"):
        same = torch.equal(built.to_dense()[0, 0] != 0, scene.map.kinds != patterns.EMPTY)
        return None if same else "wrong: the blocks that are not empty are not those of the mask"
    mask = mask_of(getattr(built, "tiles", built))
    wrong = sum(int((strip != part).sum()) for strip, part in zip(scene.strips(), mask.split(512), strict=True))
    return f"wrong: {wrong} pairs of the map are not those of the mask" if wrong else None


def mask_of(tiles):
    """The booleans (queries, keys) that one map of Tiles stands for."""
    block_q, block_k, device = tiles.block_q, tiles.block_k, tiles.starts.device
    lines, columns = tiles.starts.shape[1], -(-tiles.keys // block_k)
    mask = torch.zeros(lines, block_q, columns, block_k, dtype=torch.bool, device=device)
    by_tile = mask.permute(0, 2, 1, 3)  # (lines, columns, block_q, block_k), the same memory
    triangle = torch.ones(block_q, block_k, dtype=torch.bool, device=device).tril()
    for line, (full, causal, masked, end) in enumerate(tiles.starts[0].tolist()):
        by_tile[line, tiles.columns[full:causal].long()] = True
        by_tile[line, tiles.columns[causal:masked].long()] = triangle
        words = tiles.bits[tiles.places[masked:end].long()]
        seen = (words[..., None] >> torch.arange(32, device=device)) & 1
        by_tile[line, tiles.columns[masked:end].long()] = seen.flatten(2).bool()
    return mask.view(lines * block_q, columns * block_k)[: tiles.queries, : tiles.keys]
