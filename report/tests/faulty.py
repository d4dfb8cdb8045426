"""The process that measures, with faulty arms: python -m report.tests.faulty P2=crash sweep cpu."""

import os
import signal
import sys
import time
from functools import partial
from itertools import count

import torch

from report.measuring import serve
from report.measuring.arms import Built


def command(faults):
    """What starts it; faults: {arm: fault}, see `build`."""
    return (sys.executable, "-m", "report.tests.faulty", *(f"{name}={fault}" for name, fault in faults.items()))


def main(*arguments):
    *faults, study, device = arguments
    faults = dict(fault.split("=") for fault in faults)
    arms = serve.import_arms(study, device)
    right = arms.StudyArms.build
    if "loses tiles" in faults.values():
        import triton.language

        lost.__globals__["tl"] = triton.language
        arms.PLACES |= {order: lost for order, fault in faults.items() if fault == "loses tiles"}
        faults = {}
    arms.StudyArms.build = lambda self, name: build(partial(right, self), name, faults.get(name))
    serve.main(study, device)


def lost(program, num_tiles, num_heads, num_dies, heads_per_kv):
    """A place in the kernel that leaves out all heads but the first."""
    return 0, program % num_tiles


def build(right, name, fault):
    """The arm `name` that `right` builds, with one fault; a fault `as X` builds the arm X in its place."""
    if fault is None:
        return right(name)
    if fault.startswith("as "):
        return right(fault.removeprefix("as "))
    built, calls = right(name), count(1)
    return Built(lambda *inputs: faulty(built.call, inputs, fault, next(calls)), built.around)


def faulty(call, inputs, fault, number):
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
    result = call(*inputs)
    o, *others = result if isinstance(result, tuple) else (result,)
    if fault == "wrong":
        o[..., -1, 3] += 0.25
    if fault == "wrong lse":
        others[0][..., -1] += 0.01
    if fault == "wrong map":
        result.bits[0, 0, 0] ^= 2
    return result


if __name__ == "__main__":
    main(*sys.argv[1:])
