"""The sweep's child with faulty kernels: `python -m report.tests.child P2=crash cpu`."""

import os
import signal
import sys
import time
from itertools import count

import torch

from report import bench, kernels


def faulty(builder, fault):
    """A builder of the same kernel with one fault."""

    def build(point, device):
        right, calls = builder(point, device).call, count(1)

        def call(q, k, v):
            number = next(calls)
            if fault == "crash":
                os.write(2, b"the last words of a kernel\n")
                os._exit(7)
            if fault == "crash late" and number == 5:
                os.kill(os.getpid(), signal.SIGSEGV)
            if fault == "hang":
                time.sleep(1000)
            if fault == "oom":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 48.00 GiB.")
            if fault == "raises":
                raise RuntimeError("no kernel image is available\nand more lines")
            if fault == "prints":
                print("stray words", flush=True)
                os.write(1, b'{"event": "row"}\n')
            o = right(q, k, v)
            if fault == "wrong":
                o[..., -1, 3] += 0.25
            if fault == "NaN":
                o[0, 0, 5] = float("nan")
            return o

        return kernels.Built(call)

    return build


if __name__ == "__main__":
    for argument in sys.argv[1:-1]:
        name, fault = argument.split("=")
        kernels.BUILDERS[name] = faulty(kernels.BUILDERS["vectorised" if name == "P3" else name], fault)
    bench.main(sys.argv[-1])
