"""The child of block-sparse attention with faulty kernels: `python -m report.tests.sparse_child simple=wrong cpu`."""

import sys

from report import bench, sparse_bench, sparse_kernels
from report.kernels import Built
from report.tests.child import faulty

right = sparse_kernels.build


def build_faulty(faults):
    """sparse_kernels.build, where kernels have a fault: one of the sweep's, in o, or `wrong lse`, or `wrong map`."""

    def build(name, pattern, scene):
        built, fault = right(name, pattern, scene), faults.get(name)
        if fault == "wrong lse":
            return Built(lambda q, k, v: with_wrong_lse(*built.call(q, k, v)))
        if fault == "wrong map":
            return Built(lambda q, k, v: with_wrong_bits(built.call(q, k, v)))
        if fault is None:
            return built
        return faulty(lambda point, device: Built(lambda q, k, v: built.call(q, k, v)[0]), fault)(None, None)

    return build


def with_wrong_lse(o, lse):
    lse[..., -1] += 0.01
    return o, lse


def with_wrong_bits(tiles):
    tiles.bits[0, 0, 0] ^= 2
    return tiles


if __name__ == "__main__":
    sparse_kernels.build = build_faulty(dict(argument.split("=") for argument in sys.argv[1:-1]))
    bench.main(sys.argv[-1], sparse_bench.make)
