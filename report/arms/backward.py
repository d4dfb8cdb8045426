"""The backward pass in turns: the fast form, X3's, cuDNN's and FlexAttention's, on the same tensors.

    python -m report backward [--out FILE]      on a Hopper GPU; minutes; rows into report/results/<gpu>/backward.csv

A forward is made once for each shape, outside the timing, and each peer's backward is called again through autograd. A
time is of calls one after the other, the host's work included where it takes longer than the GPU's.
"""

import argparse
import csv
import random
import statistics
import time
from pathlib import Path

import torch

from report.measuring.machine import slug
from report.places import RESULTS, Refused, load

OURS, PEERS = "fast", ("cudnn", "flex", "x3")
HEAD = ("shape", "mask", *(f"{name}_us" for name in (OURS, *PEERS)),
        *(f"over_{name}{end}" for name in PEERS for end in ("", "_low", "_high")),
        "tflops", "rounds", "gpu", "torch", "triton")  # fmt: skip
# B, Hq, Hkv, D, N, causal, window
SHAPES = (
    (4, 16, 16, 128, 8192, True, None), (4, 16, 16, 128, 8192, False, None), (4, 16, 16, 64, 8192, True, None),
    (4, 16, 16, 64, 8192, False, None), (4, 16, 16, 128, 4096, True, None), (1, 32, 8, 128, 16384, True, None),
    (1, 32, 8, 128, 16384, True, 1024), (1, 32, 8, 128, 16384, True, 4096), (4, 16, 16, 128, 2048, True, None),
    (4, 16, 16, 128, 1024, True, None), (4, 16, 16, 128, 512, True, None), (1, 12, 12, 64, 1024, True, None),
)  # fmt: skip
ROUNDS, SECONDS, DRAWS = 11, 0.02, 2000  # of a kernel's calls in a round; of the bootstrap


def arms(B, Hq, Hkv, D, N, causal, window):
    """{name: a call of that backward} on tensors in bfloat16."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    x3, fast = load("x3_backward.py"), load("fast_backward.py")
    q, do, k, v = (torch.randn(B, H, N, D, device="cuda", dtype=torch.bfloat16) for H in (Hq, Hq, Hkv, Hkv))
    o, lse = x3.attention_forward(q, k, v, causal, window)
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    found = {
        OURS: lambda: fast.attention_backward(do, q, k, v, o, lse, causal, window),
        "x3": lambda: x3.attention_backward(do, q, k, v, o, lse, causal, window),
    }
    if window is None:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            by_cudnn = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=Hq != Hkv)
        found["cudnn"] = lambda: torch.autograd.grad(by_cudnn, leaves, do, retain_graph=True)
    reach = window or N
    blocks = create_block_mask(lambda b, h, i, j: (j <= i) & (i - j < reach), None, None, N, N, device="cuda")
    torch.compiler.reset()  # after eight shapes it would no longer compile, and run FlexAttention as it is
    compiled = torch.compile(flex_attention, dynamic=False)
    by_flex = compiled(*leaves, block_mask=blocks if causal else None, enable_gqa=Hq != Hkv)
    return found | {"flex": lambda: torch.autograd.grad(by_flex, leaves, do, retain_graph=True)}


def timed(calls):
    """{name: microseconds of one call in each round}; the order changes from round to round."""
    for call in calls.values():
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    calls[OURS]()
    torch.cuda.synchronize()
    times, count = {name: [] for name in calls}, max(1, int(SECONDS / (time.perf_counter() - start)))
    order = list(calls)
    for _ in range(ROUNDS):
        random.shuffle(order)
        for name in order:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            calls[name]()
            begin.record()
            for _ in range(count):
                calls[name]()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) / count * 1e3)
    return times


def with_interval(ratios):
    """The median of paired ratios, and the ends of its 95 % bootstrap interval."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
    return statistics.median(ratios), medians[DRAWS // 40], medians[-DRAWS // 40 - 1]


def row(shape, times):
    """A list of words, as HEAD has them; blank where a peer has no such mask."""
    B, Hq, Hkv, D, N, causal, window = shape
    middle = {name: statistics.median(each) for name, each in times.items()}
    visible = sum(min(i + 1, window or N) for i in range(N)) if causal else N * N
    ratios = []
    for name in PEERS:
        pairs = [theirs / ours for theirs, ours in zip(times.get(name, ()), times[OURS], strict=False)]
        ratios += [f"{each:.4f}" for each in with_interval(pairs)] if pairs else [""] * 3
    import triton

    return [
        f"B={B} H={Hq if Hq == Hkv else f'{Hq}/{Hkv}'} D={D} N={N}",
        "full" if not causal else f"window {window}" if window else "causal",
        *(f"{middle[name]:.2f}" if name in middle else "" for name in (OURS, *PEERS)), *ratios,
        f"{10 * B * Hq * D * visible / middle[OURS] / 1e6:.0f}", ROUNDS,
        torch.cuda.get_device_name().removeprefix("NVIDIA "), torch.__version__, triton.__version__,
    ]  # fmt: skip


def main(argv):
    parser = argparse.ArgumentParser(prog="python -m report backward", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: report/results/<gpu>/backward.csv")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        raise Refused("the fast backward pass is for Hopper GPUs, and there is none here")
    path = options.out or RESULTS / slug(torch.cuda.get_device_name()) / "backward.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEAD)
        for shape in SHAPES:
            writer.writerow(row(shape, timed(arms(*shape))))
            file.flush()
            print(*shape, flush=True)
    print(f"written: {path}")
    return 0
