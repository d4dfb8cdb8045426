"""The backward pass in turns: the fast form, X3's, cuDNN's and FlexAttention's, on the same tensors.

    python -m report backward [--out FILE]      on a Hopper GPU; minutes; rows into report/results/<gpu>/backward.csv
    python -m report backward --ideas           each idea of the fast form: the time without it over the time with it

A forward is made once for each shape, outside the timing, and each peer's backward is called again through autograd. A
time is of calls one after the other, the host's work included where it takes longer than the GPU's.
"""

import argparse
import csv
import math
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import torch

from grader.gpu import timing
from report.arms.backward_ideas import HEAD_DIMS, WITHOUT, module_without
from report.measuring.machine import slug
from report.places import RESULTS, Refused, load

OURS, PEERS = "fast", ("cudnn", "flex", "x3")
OWN = "sinks", "learned", "ordered"  # ours with 4 sinks, with learned ones, with dq added in one order
HEAD = ("shape", "mask", *(f"{name}_us" for name in (OURS, *PEERS)),
        *(f"over_{name}{end}" for name in PEERS for end in ("", "_low", "_high")),
        *(f"{name}_over{end}" for name in OWN for end in ("", "_low", "_high")),
        "host_us", "cudnn_host_us", "tflops", "rounds", "gpu", "torch", "triton")  # fmt: skip
# B, Hq, Hkv, D, N, causal, window
SHAPES = (
    (4, 16, 16, 128, 8192, True, None), (4, 16, 16, 128, 8192, False, None), (4, 16, 16, 64, 8192, True, None),
    (4, 16, 16, 64, 8192, False, None), (4, 16, 16, 128, 4096, True, None), (1, 32, 8, 128, 16384, True, None),
    (1, 32, 8, 128, 16384, True, 1024), (1, 32, 8, 128, 16384, True, 4096), (4, 16, 16, 128, 2048, True, None),
    (4, 16, 16, 128, 1024, True, None), (4, 16, 16, 128, 512, True, None), (1, 12, 12, 64, 1024, True, None),
    (2, 8, 8, 256, 8192, True, None), (2, 8, 8, 256, 8192, False, None),
)  # fmt: skip
IDEAS_HEAD = ("idea", "shape", "mask", "over", "over_low", "over_high", "rounds", "gpu", "torch", "triton")
IDEAS_SHAPES = (*SHAPES[:4], SHAPES[6], *SHAPES[12:])
ROUNDS, SECONDS = 11, 0.02  # of a kernel's calls in a round
PLAN = timing.Plan(target=0.0, budget_s=math.inf, min_rounds=ROUNDS, max_rounds=ROUNDS, against=OURS)


def given(B, Hq, Hkv, D, N, causal, window):
    """(do, q, k, v, o, lse, causal, window): what each of our backward passes takes, in bfloat16."""
    q, do, k, v = (torch.randn(B, H, N, D, device="cuda", dtype=torch.bfloat16) for H in (Hq, Hq, Hkv, Hkv))
    return do, q, k, v, *load("x3_backward.py").attention_forward(q, k, v, causal, window), causal, window


def arms(B, Hq, Hkv, D, N, causal, window):
    """{name: a call of that backward} on tensors in bfloat16."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    ours, x3 = (load(name).attention_backward for name in ("fast_backward.py", "x3_backward.py"))
    do, q, k, v, *_ = told = given(B, Hq, Hkv, D, N, causal, window)
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    found = {OURS: partial(ours, *told), "x3": partial(x3, *told)}
    found["learned"] = partial(ours, *told, 0, torch.zeros(Hq, device="cuda"))
    found["ordered"] = partial(ours, *told, deterministic=True)
    if window is not None:
        found["sinks"] = partial(ours, *told, 4)
    else:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            by_cudnn = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=Hq != Hkv)
        found["cudnn"] = lambda: torch.autograd.grad(by_cudnn, leaves, do, retain_graph=True)
    reach = window or N
    blocks = create_block_mask(lambda b, h, i, j: (j <= i) & (i - j < reach), None, None, N, N, device="cuda")
    torch.compiler.reset()  # after eight shapes it would no longer compile, and run FlexAttention as it is
    compiled = torch.compile(flex_attention, dynamic=False)
    by_flex = compiled(*leaves, block_mask=blocks if causal else None, enable_gqa=Hq != Hkv)
    return found | {"flex": lambda: torch.autograd.grad(by_flex, leaves, do, retain_graph=True)}


class Arm:
    """A backward as an arm of `take_turns`: a sample is the mean of calls one after the other."""

    def __init__(self, call):
        self.call, self.count = call, 1

    def warm_up(self, seed):
        for _ in range(3):
            self.call()
        torch.cuda.synchronize()
        start = time.perf_counter()
        self.call()
        torch.cuda.synchronize()
        self.count = max(1, int(SECONDS / (time.perf_counter() - start)))

    def round(self, seed, samples):
        """[milliseconds of a call]."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.call()
        begin.record()
        for _ in range(self.count):
            self.call()
        end.record()
        end.synchronize()
        return [begin.elapsed_time(end) / self.count]


def without_ideas(shape, folder):
    """{"fast": a call of the backward, idea: the same without it}."""
    told, ideas = given(*shape), [idea for idea in WITHOUT if shape[3] in HEAD_DIMS[idea]]
    modules = {OURS: load("fast_backward.py")} | {idea: module_without(idea, folder) for idea in ideas}
    return {name: partial(module.attention_backward, *told) for name, module in modules.items()}


def idea_rows(shape, timings):
    """[a list of words for each idea, as IDEAS_HEAD has them]."""
    ratios = ((idea, timing.ratio(timings, OURS, idea)) for idea in timings if idea != OURS)
    return [[idea, *named(shape), *(f"{each:.4f}" for each in ratio), *machine()] for idea, ratio in ratios]


def host_us(call, calls=20):
    """Microseconds of the host for a call: the median of calls that the GPU still has to do when they return."""
    torch.cuda.synchronize()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(1e6 * (time.perf_counter() - start))
    torch.cuda.synchronize()
    return statistics.median(times)


def named(shape):
    """(the shape, the mask) in words."""
    B, Hq, Hkv, D, N, causal, window = shape
    mask = "full" if not causal else f"window {window}" if window else "causal"
    return f"B={B} H={Hq if Hq == Hkv else f'{Hq}/{Hkv}'} D={D} N={N}", mask


def machine():
    import triton

    return ROUNDS, torch.cuda.get_device_name().removeprefix("NVIDIA "), torch.__version__, triton.__version__


def row(shape, timings, hosts):
    """A list of words, as HEAD has them; blank where a peer has no such mask. hosts: {name: host_us}."""
    B, Hq, _, D, N, causal, window = shape
    middle = {name: 1e3 * statistics.median(each.samples) for name, each in timings.items()}
    visible = sum(min(i + 1, window or N) for i in range(N)) if causal else N * N
    ratios = []
    for name in (*PEERS, *OWN):
        found = timing.ratio(timings, OURS, name)
        ratios += [f"{each:.4f}" for each in found] if found else [""] * 3
    return [
        *named(shape), *(f"{middle[name]:.2f}" if name in middle else "" for name in (OURS, *PEERS)), *ratios,
        *(f"{hosts[name]:.1f}" if name in hosts else "" for name in (OURS, "cudnn")),
        f"{10 * B * Hq * D * visible / middle[OURS] / 1e6:.0f}", *machine(),
    ]  # fmt: skip


def main(argv):
    parser = argparse.ArgumentParser(prog="python -m report backward", description=__doc__.partition("\n")[0])
    parser.add_argument("--ideas", action="store_true", help="each idea in turns with and without it")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: report/results/<gpu>/backward.csv")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        raise Refused("the fast backward pass is for Hopper GPUs, and there is none here")
    name = "backward_ideas.csv" if options.ideas else "backward.csv"
    path = options.out or RESULTS / slug(torch.cuda.get_device_name()) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file, tempfile.TemporaryDirectory() as folder:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(IDEAS_HEAD if options.ideas else HEAD)
        for shape in IDEAS_SHAPES if options.ideas else SHAPES:
            found = without_ideas(shape, folder) if options.ideas else arms(*shape)
            timings = timing.take_turns({name: Arm(call) for name, call in found.items()}, PLAN)
            hosts = {} if options.ideas else {name: host_us(call) for name, call in found.items()}
            writer.writerows(idea_rows(shape, timings) if options.ideas else [row(shape, timings, hosts)])
            file.flush()
            print(*shape, flush=True)
    print(f"written: {path}")
    return 0
