"""Rows of block_sparse.csv that nobody measured: times by a formula, some of them missing, wrong or out of memory."""

from dataclasses import replace

from report.studies import block_sparse as names

MACHINE = {
    "gpu": "NVIDIA H200",
    "torch": "2.11.0",
    "triton": "3.6.0",
    "driver": "580",
    "commit": "abc",
    "protocol": {"min_rounds": 5},
}
SPEED = {"simple": 0.6, "prefetch": 0.8, "row_pairs": 0.9, "longest_first": 1.1, "fast": 1.8, names.FLEX: 1.0,
         names.CUDNN: 1.2, names.MASKED: 0.1, names.DENSE: 1.25}  # fmt: skip
DENSITY = {"documents": 0.41, "interleaved": 0.7, "causal": 0.52, "random FP": 0.52, "random FCP": 0.52}


def microseconds(point, kernel):
    """Of a machine that is as slow as one likes."""
    plain, _, density = kernel.partition(" at ")
    if point.pattern in names.MAPS:
        return dict(zip(names.BUILDERS, (40_000.0, 3000.0, 400.0, 800.0), strict=True))[kernel]
    part = 1.0 if plain in names.WITHOUT_MASK else float(density or DENSITY.get(point.pattern, 1.0))
    return 10 + part * point.N**2 / 250_000 / SPEED[plain]


def row(point, kernel):
    us = {name: microseconds(point, name) for name in point.kernels}
    _, _, density = kernel.partition(" at ")
    bases = {"flex": names.FLEX, "cudnn": names.CUDNN, "dense": names.DENSE}
    if density:
        bases = {"dense": kernel.partition(" at ")[0] + " at 1"}
    ratios = {
        f"over_{column}{end}": us[base] / us[kernel] * by
        for column, base in bases.items()
        if base in us
        for end, by in (("", 1.0), ("_low", 0.99), ("_high", 1.01))
    }
    part = float(density or DENSITY.get(point.pattern, 1.0))
    return replace(
        names.STUDY.blank(point, kernel), sparsity=1 - part, density=part, median_us=us[kernel],
        p20_us=us[kernel] * 0.98, p80_us=us[kernel] * 1.02, samples=100, tflops=300.0, **ratios,
    )  # fmt: skip


def rows():
    return [row(point, kernel) for point in names.WHOLE for kernel in point.kernels]
