"""The program that Nsight Compute looks into: one kernel in each order, once. `order_profiled.py POINT`, in JSON."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from report.order_bench import forward
from report.order_rows import restored


def main(point):
    tier = point.tier
    q, k, v = (
        torch.randn(tier.B, heads, point.N, tier.D, dtype=torch.float16, device="cuda")
        for heads in (tier.H, tier.kv_heads, tier.kv_heads)
    )
    orders = [forward(name) for name in point.kernels]
    for order in orders:  # compiled, and the clocks up
        order(q, k, v), order(q, k, v)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for order in orders:
        order(q, k, v)
        torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    with torch.no_grad():
        main(restored(json.loads(sys.argv[1])))
