"""What a GPU can do at the most: dense matrix FLOPs and memory bandwidth, from the vendors' data sheets."""

import re
from dataclasses import dataclass

MARGIN = 1.05  # boards may clock a little above their data sheet


@dataclass(frozen=True)
class Peak:
    """tflops: dense, 16-bit inputs and float32 sums; half of that for tf32. terabytes: of memory, each second."""

    tflops: float
    terabytes: float

    def of(self, dtype):
        return self.tflops / 2 if dtype == "float32" else self.tflops


# By a pattern of the name that the driver gives; the first that fits.
PEAKS = {
    r"B200": Peak(2250, 8.0),
    r"H200": Peak(989, 4.8),
    r"H100 PCIe": Peak(756, 2.0),
    r"H100 NVL": Peak(835, 3.9),
    r"H100": Peak(989, 3.35),
    r"A100.*80GB": Peak(312, 2.04),
    r"A100": Peak(312, 1.56),
    r"A10G": Peak(70, 0.6),
    r"A10\b": Peak(125, 0.6),
    r"L40S": Peak(362, 0.864),
    r"L4\b": Peak(121, 0.3),
    r"RTX 5090": Peak(210, 1.79),
    r"RTX 4090": Peak(165, 1.01),
    r"RTX 3090": Peak(71, 0.936),
    r"V100": Peak(125, 0.9),
    r"T4\b": Peak(65, 0.32),
    r"MI300X": Peak(1307, 5.3),
}


def peak(gpu):
    """The Peak of the GPU of that name, or None where it is not known."""
    return next((peak for pattern, peak in PEAKS.items() if gpu and re.search(pattern, gpu)), None)


def least_ms(case, gpu):
    """The shortest time in which the GPU can do a case's work, or None where its peak is not known.

    The larger of its FLOPs over the peak and of the bytes of inputs and outputs, each moved once, over the bandwidth.
    """
    known = peak(gpu)
    if known is None:
        return None
    moving = case.least_bytes / (known.terabytes * 1e12)
    computing = case.flops / (known.of(case.dtype) * 1e12)
    return 1e3 * max(moving, computing) / MARGIN
