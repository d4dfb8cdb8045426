"""The program that Nsight Compute looks into: one kernel in each order, once. `order_profiled.py POINT`, in JSON."""

import json
import sys
from pathlib import Path


def main(given):
    import torch

    from report.order_bench import forward
    from report.order_rows import restored

    point = restored(given)
    tier = point.tier
    q, k, v = (
        torch.randn(tier.B, heads, point.N, tier.D, dtype=torch.float16, device="cuda")
        for heads in (tier.H, tier.kv_heads, tier.kv_heads)
    )
    orders = [forward(name) for name in point.kernels]
    with torch.no_grad():
        for order in orders:  # compiled, and the clocks up
            order(q, k, v), order(q, k, v)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        for order in orders:
            order(q, k, v)
            torch.cuda.synchronize()
        torch.cuda.profiler.stop()


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # not this folder: its modules have common names
    main(json.loads(sys.argv[1]))
