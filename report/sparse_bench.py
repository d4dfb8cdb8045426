"""The child that measures block-sparse attention: all kernels of one point, in turns.

`python -m report.sparse_bench cuda` or `cpu`. The protocol is the sweep's (`report/measuring.py`): right first, fresh
inputs in each round, a cold L2.
"""

import sys
import time
from dataclasses import dataclass, replace

import torch

from grader.gpu import peaks, timing
from grader.kinds.block_sparse import patterns
from grader.runner.stopwatch import Stopwatch
from report import bench, sparse_kernels
from report import sparse_points as names
from report.check import Check, spread_rows
from report.measuring import CHECK_SEED, Bench
from report.sparse_points import SparsePoint

BASES = {"over_flex": names.FLEX, "over_cudnn": names.CUDNN, "over_dense": names.DENSE}
ROWS_OF_TILES = 16  # in which a kind of tile stands, are looked at


@dataclass(frozen=True)
class Work:
    """What one call computes, as grader.peaks asks for it."""

    visible: int
    N: int
    Hq: int
    D: int
    B: int = 1
    dtype: str = "float16"

    @property
    def visibility(self):
        return self

    def pairs(self, queries, keys):
        return self.visible

    @property
    def kv_heads(self):
        return self.Hq

    @property
    def num_keys(self):
        return self.N


class WallClock(Stopwatch):
    """Times a call that waits for its own results: by the host's clock, to the end of the GPU's work."""

    def sample(self, call):
        started = time.perf_counter()
        call()
        if self.cuda:
            torch.cuda.synchronize()
        return (time.perf_counter() - started) * 1e3


class SparseBench(Bench):
    """One point: its masks, what is right there, its kernels or builders made ready and timed."""

    bases = tuple(BASES.values())

    def set_up(self):
        point = self.point
        self.builds_maps = point.pattern in names.MAPS
        self.anchor = {names.FULL_MAP: names.DENSE, names.BY_DENSITY: "fast at 1"}.get(point.pattern, names.FLEX)
        if self.builds_maps:
            self.anchor, self.stopwatch = names.FLEX_BUILDER, WallClock(self.device)
        seen = sparse_kernels.visibility(point.pattern, point.n, point.block)
        self.scene = sparse_kernels.Scene(seen, point, self.device)
        self.scenes = {}
        self.checks = {}

    def scene_of(self, name):
        """The mask that a kernel computes: by density each its own."""
        _, _, density = name.partition(" at ")
        if not density:
            return self.scene
        if density not in self.scenes:
            self.scenes[density] = sparse_kernels.at_density(self.point, float(density), self.device)
        return self.scenes[density]

    def draw(self, generator):
        n, point = 1 if self.builds_maps else self.point.n, self.point
        return tuple(
            torch.randn(1, point.heads, n, point.head_dim, generator=generator, device=self.device).half()
            for _ in range(3)
        )

    def build(self, name):
        return sparse_kernels.build(name, self.point.pattern, self.scene_of(name))

    def compiles(self, name):
        return name not in (names.CUDNN, names.MASKED)

    # Right first ------------------------------------------------------------------------------------------------------

    def learn_what_is_right(self):
        self.checks.clear()  # each is made when the first kernel needs it

    def fault(self, name, result):
        if self.builds_maps:
            return fault_of_map(result, self.scene)
        o, lse = result if isinstance(result, tuple) else (result, None)
        scene, key = self.scene_of(name), name in names.WITHOUT_MASK or name.partition(" at ")[2]
        if key not in self.checks:
            seen = patterns.dense(1, self.point.n) if key is True else scene.visibility
            rows = spread_rows(self.point.n, self.device) if key is True else telling_rows(scene)
            self.checks[key] = Check(*self.inputs(CHECK_SEED), seen, rows)
        check = self.checks[key]
        return check.fault(o) or (None if lse is None else check.fault_of_lse(lse))

    # Rows ------------------------------------------------------------------------------------------------------------

    def work(self, name):
        n = self.point.n
        visible = n * n if name in names.WITHOUT_MASK else self.scene_of(name).map.visible
        return Work(visible, n, self.point.heads, self.point.head_dim)

    def flops(self, name):
        return peaks.visible_flops(self.work(name))

    def least_ms(self, name):
        return None if self.builds_maps else peaks.least_ms(self.work(name), self.gpu)

    def filled(self, row, name, arm, timings):
        summary = timings[name].summary()
        return replace(
            row,
            **{f"{what}_us": summary[f"{what}_ms"] * 1e3 for what in ("median", "p20", "p80")},
            samples=summary["samples"],
            tflops=None if self.builds_maps else self.flops(name) / summary["median_ms"] / 1e9,
            **self.ratios(name, timings),
        )

    def report(self, name, asked, row):
        """Whether it was measured or not, a row says what its mask is."""
        found = self.scene_of(name).map
        super().report(name, asked, replace(row, sparsity=found.sparsity, density=found.density))

    def ratios(self, name, timings):
        found = {}
        plain, _, density = name.partition(" at ")
        bases = {"over_dense": f"{plain} at 1"} if density else BASES
        for column, base in bases.items():
            if base not in timings or timings[base].failure is not None:
                continue
            ratio = timing.ratio(timings, name, base) if name != base else timing.Ratio(1.0, 1.0, 1.0)
            if ratio is not None:
                found |= {column: ratio.median, f"{column}_low": ratio.low, f"{column}_high": ratio.high}
        return found


def telling_rows(scene):
    """Positions of queries to look at: over the whole sequence, and the ends and the middle of rows of tiles in which
    each kind of tile stands."""
    found = [spread_rows(scene.n, scene.device)]
    for kind in (patterns.FULL, patterns.CAUSAL, patterns.PARTIAL):
        lines = (scene.map.kinds == kind).any(1).nonzero().flatten()
        lines = lines[:: max(1, len(lines) // ROWS_OF_TILES)] * scene.block
        found += [lines, lines + scene.block // 2, lines + scene.block - 1]
    return torch.cat(found).clamp(max=scene.n - 1).unique()


def fault_of_map(built, scene):
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
    for line, (full, causal, partial, end) in enumerate(tiles.starts[0].tolist()):
        by_tile[line, tiles.columns[full:causal].long()] = True
        by_tile[line, tiles.columns[causal:partial].long()] = triangle
        words = tiles.bits[tiles.places[partial:end].long()]
        seen = (words[..., None] >> torch.arange(32, device=device)) & 1
        by_tile[line, tiles.columns[partial:end].long()] = seen.flatten(2).bool()
    return mask.view(lines * block_q, columns * block_k)[: tiles.queries, : tiles.keys]


def make(point, device, say):
    return SparseBench(SparsePoint(**point), device, say)


if __name__ == "__main__":
    bench.main(sys.argv[-1], make)
