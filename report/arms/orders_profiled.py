"""The program that Nsight Compute looks into: one kernel in each order, once. `orders_profiled.py POINT`, in JSON."""

import json
import sys
from pathlib import Path


def main(given):
    import torch

    from report.arms.orders import StudyArms, forward
    from report.measuring.study import Point

    point = Point(**given)
    q, k, v = StudyArms(point, "cuda").draw(torch.Generator("cuda"))
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
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # not this folder: its modules have common names
    main(json.loads(sys.argv[1]))
