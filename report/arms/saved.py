"""Every kernel on saved patterns: is it right, what does it compute, and on a GPU how long does it take?

    python -m report saved samples/*.pt             files that `python -m report sample` wrote, or like them
    python -m report saved --only simple,fast X.pt

A file is what torch.save makes of {"q", "k", "v": (B, H, N, D), "mask": booleans (N, N), "o": the right output}; lse,
"block" (64), "pattern" and whatever else it holds are not needed. PASS: o, and lse where both have it, are within what
a careful kernel may be off by. tiles: of block x block, that a head computes, of all there are. Without a GPU there
are no times.
"""

import argparse
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from grader.core import in_process
from grader.core.run.stopwatch import Stopwatch
from grader.core.sandbox.texts import clean
from grader.gpu import timing
from grader.kinds.attention import oracle
from grader.kinds.block_sparse import tile_map
from report.measuring.arms import NotRun
from report.measuring.check import Rows, spread_rows
from report.places import NotThere, Refused
from report.studies import block_sparse as names

DENSE = "dense"  # SDPA with the mask: all pairs, hidden or not
KERNELS = (*names.STEPS, "fast", names.FLEX, DENSE)
NEEDED = ("q", "k", "v", "mask", "o")
WHOLE = 4096  # tokens up to which every row is compared
PASS, FAIL = "PASS", "FAIL"
TIMES = "                us (p20 to p80)  TFLOP/s  over dense  over simple"
TURNS = timing.Plan(target=0.02, budget_s=0.2, min_rounds=5, against=DENSE)


@dataclass(frozen=True)
class Saved:
    """What a file holds, on a device. mask: booleans (N, N)."""

    pattern: str
    block: int
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    seen: torch.Tensor
    o: torch.Tensor
    lse: torch.Tensor | None

    def mask(self, q_pos, k_pos):
        return self.seen[q_pos][:, k_pos]

    @cached_property
    def map(self):
        N = len(self.seen)
        return tile_map.cut(self, N, N, self.block, self.block, self.seen.device)

    @property
    def gflop(self):
        """Of the visible pairs, two products of D each, in all batches and heads."""
        B, H, _, D = self.q.shape
        return 4e-9 * B * H * D * self.map.visible

    def to(self, device):
        moved = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, torch.Tensor)}
        return replace(self, **moved)


def read(path):
    """The Saved of a file, on the CPU; raises Refused."""
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise Refused(f"there is no {path}; `make sample` writes such files") from None
    except OSError:
        raise
    except Exception as error:  # whatever a file raises that is none
        raise Refused(f"{path} is no file of tensors that torch.load reads: {type(error).__name__}") from None
    missing = [name for name in NEEDED if not isinstance(held, dict) or not isinstance(held.get(name), torch.Tensor)]
    if missing:
        raise Refused(f"{path} holds no tensor {missing[0]!r}; a saved pattern holds {', '.join(NEEDED)}")
    q, k, v, mask, o = (held[name] for name in NEEDED)
    mask = mask.bool().reshape(mask.shape[-2:]) if mask.numel() == mask.shape[-1] * mask.shape[-2] else mask
    N, shape = mask.shape[-1], tuple(q.shape)
    if q.dim() != 4 or o.shape != q.shape or k.shape != v.shape or tuple(mask.shape) != (N, N) or q.shape[2] != N:
        raise Refused(f"{path}: q and o must be (B, H, N, D) and mask (N, N); got {shape}, {tuple(o.shape)}, "
                      f"{tuple(mask.shape)}")  # fmt: skip
    return Saved(str(held.get("pattern", "mask")), int(held.get("block", 64)), q, k, v, mask, o, held.get("lse"))


# Right, and how much work ---------------------------------------------------------------------------------------------


class Expected:
    """The saved answer on some rows, and how far off a kernel may be on these inputs."""

    def __init__(self, saved):
        N = len(saved.seen)
        self.rows = spread_rows(N, saved.q.device) if N > WHOLE else torch.arange(N, device=saved.q.device)
        self.saved = saved
        self.allowed = oracle.expect(saved.q[:, :, self.rows], saved.k, saved.v, Rows(saved, self.rows))

    @property
    def fault(self):
        """What is wrong with the saved answer itself, or None."""
        off = (self.allowed.o - self.saved.o[:, :, self.rows].double()).abs()
        if (off <= self.allowed.allowed_o).all():
            return None
        return f"the saved o is not that of its q, k, v and mask: off by {float(off.max()):.1e}; every kernel may FAIL"

    def verdict(self, o, lse):
        """(PASS or FAIL, the largest error of o over what is allowed)."""
        off = (o[:, :, self.rows].double() - self.saved.o[:, :, self.rows].double()).abs()
        share = float((off / self.allowed.allowed_o).nan_to_num(nan=torch.inf).max())
        right = o.shape == self.saved.o.shape and share <= 1
        if lse is not None and self.saved.lse is not None:
            got, expected = lse[:, :, self.rows].double(), self.saved.lse[:, :, self.rows].double()
            right &= bool((((got - expected).abs() <= self.allowed.allowed_lse) | (got == expected)).all())
        return PASS if right else FAIL, share


def tiles_computed(name, scene):
    """How many tiles of block x block a head computes."""
    if name == "row_pairs":
        from kernels import block_sparse_steps as steps

        union = steps.prepare(name, scene.tiles)
        return len(union.columns) * union.rows
    if name in names.STEPS or name == "fast":
        return len(scene.tiles.columns)
    if name == DENSE:
        return scene.map.kinds.numel()
    return ""  # FlexAttention's blocks are its own


# The kernels ----------------------------------------------------------------------------------------------------------


def scene_of(saved):
    """The kernels.Scene of a file."""
    from report.arms import block_sparse_kernels as kernels

    _, H, N, D = saved.q.shape
    return kernels.Scene(saved, names.point(saved.pattern, N, saved.block, H, D), saved.q.device.type)


def build(name, scene):
    """The Built kernel; raises NotRun, or whatever it raises."""
    from report.arms import block_sparse_kernels as kernels

    if name == names.FLEX and scene.device == "cpu":
        return kernels.flex(scene, compiled=False)
    return kernels.build(names.MASKED if name == DENSE else name, scene)


class Turn:
    """An arm as timing.take_turns wants it."""

    def __init__(self, built, inputs):
        self.built, self.inputs, self.stopwatch = built, inputs, Stopwatch("cuda")

    def call(self):
        return self.built.call(*self.inputs)

    def warm_up(self, seed):
        with self.built.around():
            self.stopwatch.warm_up(self.call)

    def round(self, seed, samples):
        with self.built.around():
            return [self.stopwatch.sample(self.call) for _ in range(samples)]


def run(saved, asked):
    """Print a table of the kernels on one file; whether all that ran are right."""
    scene, expected, lines, arms = scene_of(saved), Expected(saved), {}, {}
    for name in asked:
        try:
            built = build(name, scene)
            with built.around():
                result = built.call(saved.q, saved.k, saved.v)
            verdict, share = expected.verdict(*(result if isinstance(result, tuple) else (result, None)))
            lines[name] = [verdict, f"{share:.2f}", tiles_computed(name, scene)]
            if verdict == PASS and saved.q.is_cuda:
                arms[name] = Turn(built, (saved.q, saved.k, saved.v))
        except (NotRun, NotThere) as reason:
            lines[name] = ["not run", str(reason)]
        except Exception as error:
            lines[name] = [FAIL, f"{type(error).__name__}: {str(error).splitlines()[0][:90]}"]
    if fault := expected.fault:
        print(f"  {fault}")
    times = timed(arms, saved.gflop)
    print("  kernel           o       error   tiles" + (TIMES if saved.q.is_cuda else ""))
    for name, (verdict, *facts) in lines.items():
        said = f"{facts[0]:>5}{facts[1]:>8}{times.get(name, '')}" if len(facts) > 1 else facts[0]
        print(clean(f"  {name:16} {verdict:8}{said}").rstrip(), flush=True)
    return all(verdict != FAIL for verdict, *_ in lines.values())


def timed(arms, gflop):
    """{name: its columns of TIMES} of arms that take turns."""
    if not arms:
        return {}
    timings = timing.take_turns(arms, TURNS if DENSE in arms else replace(TURNS, against=None))
    found = {}
    for name, took in timings.items():
        if (times := took.summary()) is None:
            found[name] = f"  no time: {took.failure}"
            continue
        us = f"{1e3 * times.median_ms:.4g} ({1e3 * times.p20_ms:.4g} to {1e3 * times.p80_ms:.4g})"
        over = (timing.ratio(timings, name, base) for base in (DENSE, "simple"))
        ratios = ("" if ratio is None else f"{ratio.median:.2f}" for ratio in over)
        found[name] = "{:>24}{:>9.1f}{:>12}{:>13}".format(us, gflop / times.median_ms, *ratios)
    return found


def parse(argv):
    parser = argparse.ArgumentParser("python -m report saved", description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="what `make sample` writes, or files like those")
    parser.add_argument("--only", metavar="LIST", help=f"of {', '.join(KERNELS)} (default: all)")
    options = parser.parse_args(argv)
    options.only = options.only.split(",") if options.only else list(KERNELS)
    if unknown := [name for name in options.only if name not in KERNELS]:
        raise Refused(f"there is no kernel {unknown[0]!r}; the kernels are {', '.join(KERNELS)}")
    return options


@torch.no_grad()
def main(argv):
    options = parse(argv)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        in_process.begin()
    warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")  # asked for
    print(f"on {torch.cuda.get_device_name() if device == 'cuda' else 'the CPU: no times'}")
    print("error: the largest of o, over what a careful kernel may be off by; tiles: that a head computes")
    wrong = []
    for number, path in enumerate(options.files, 1):
        saved = read(path).to(device)
        B, H, N, D = saved.q.shape
        counts = torch.bincount(saved.map.kinds.flatten(), minlength=4).tolist()
        shape = f"{saved.pattern}, B={B} H={H} N={N} D={D}, blocks of {saved.block}"
        print(clean(f"\n[{number}/{len(options.files)}] {path}: {shape}"))
        print(
            f"  sparsity {saved.map.sparsity:.4f}, {saved.gflop:.3g} GFLOP of visible pairs; tiles: {counts[0]} empty, "
            f"{counts[1]} FULL, {counts[2]} CAUSAL, {counts[3]} PARTIAL"
        )
        if not run(saved, options.only):
            wrong.append(path)
    print(f"\n{len(options.files)} files, {len(wrong)} with a FAIL" + "".join(f"\n  {path}" for path in wrong))
    return 1 if wrong else 0
