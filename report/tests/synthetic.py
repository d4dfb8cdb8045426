"""A sweep that nobody measured, for tests only: times of a GPU that does not exist, with every kind of row."""

import json
import random
from dataclasses import replace

from report.measuring.rows import not_measured, write_whole
from report.pages import measured
from report.studies.sweep import KERNELS, Row

TIERS = ((1, 12, 12, 64), (8, 12, 12, 64), (1, 12, 12, 128), (2, 24, 24, 256), (4, 16, 16, 128))
WINDOWED = ((1, 32, 8, 128), (1, 32, 8, 64))
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
WINDOWS, SINKS = (128, 1024, 4096), (0, 4, 128)
PEAK = 990.0  # TFLOP/s
MEMORY = 144_000  # MiB
# The share of PEAK that a kernel reaches on long rows, and what one call costs before any work, in ms.
SPEED = {
    "naive per head": (0.025, 0.4), "vectorised": (0.03, 0.08), "vectorised compiled": (0.06, 0.06), "P2": (0.02, 2.0),
    "P3": (0.42, 0.012), "P4": (0.4, 0.012), "P6": (0.33, 0.02), "P7": (0.32, 0.022), "fast": (0.54, 0.011),
    "SDPA flash": (0.35, 0.014), "SDPA efficient": (0.26, 0.016), "SDPA cuDNN": (0.57, 0.013),
    "FlexAttention": (0.43, 0.05), "FlashAttention-4": (0.6, 0.012),
}  # fmt: skip
WHOLE_MATRIX = ("naive per head", "vectorised", "vectorised compiled")
MACHINE = {
    "gpu": "Imaginary GPU", "driver": "0.0", "memory_gib": 140.6, "torch": "2.13.0", "triton": "3.7.1", "cuda": "13.0",
    "cudnn": "9.1", "python": "3.12.3", "commit": "0123456789abcdef", "dirty": False,
    "clocks": {"before": "1980 MHz", "after": "1965 MHz"}, "date": "2000-01-01",
    "protocol": {"warm-up": "until three calls agree within 2 %", "rounds": "5 to 100"},
}  # fmt: skip


def rows(seed=0, dtypes=("float16", "bfloat16"), tiers=TIERS, lengths=LENGTHS, windowed=WINDOWED):
    """Every row of a sweep, a few of them failed, out of memory, not run or missing altogether."""
    rng = random.Random(seed)
    table_rows = []
    for dtype in dtypes:
        for shape in tiers:
            for n in lengths:
                for causal in (False, True):
                    names = [k for k in KERNELS if k not in ("P6", "P7", "P4" if not causal else "P3")]
                    table_rows += point(rng, shape, n, causal, None, None, dtype, names)
        for shape in windowed:
            for n in (4096, 16384):
                for window in WINDOWS:
                    for sinks in SINKS:
                        names = (
                            ["P7", "fast", "FlexAttention"]
                            if sinks
                            else ["P6", "fast", "FlexAttention", "FlashAttention-4"]
                        )
                        table_rows += point(rng, shape, n, True, window, sinks, dtype, names)
    return table_rows


def point(rng, shape, n, causal, window, sinks, dtype, names):
    """The rows of all kernels at one point, with ratios that agree with their times."""
    cells = [row(rng, kernel, shape, n, causal, window, sinks, dtype) for kernel in names]
    cells = [cell for cell in cells if cell is not None]
    times = {cell.kernel: cell.median_ms for cell in cells if cell.status == "ok"}
    base, ours = times.get("vectorised") or times.get("naive per head"), times.get("fast")
    return [with_ratios(cell, base, ours) for cell in cells]


def with_ratios(cell, base, ours):
    ratios = {}
    if cell.status == "ok" and base:
        speedup = base / cell.median_ms
        ratios |= {"speedup": speedup, "speedup_low": speedup * 0.99, "speedup_high": speedup * 1.01}
    if cell.status == "ok" and ours:
        times = cell.median_ms / ours
        ratios |= {"ours": times, "ours_low": times * 0.993, "ours_high": times * 1.006}
    return replace(cell, **ratios)


def row(rng, kernel, shape, n, causal, window, sinks, dtype):
    batch, heads, kv_heads, dim = shape
    blank = Row(kernel, "", n, n, dim, heads, kv_heads, batch, causal, window, sinks, dtype)
    blank = replace(blank, tier=measured.shape(blank) + (f" window={window} sinks={sinks}" if window else ""))
    if kernel == "SDPA efficient" and n == 512 and batch == 1 and causal:
        return None  # the sweep was stopped here
    if kernel == "FlexAttention" and dim == 256 and n == 512:
        return not_measured(blank, "failed", "OutOfResources: shared memory, 262144 of 232448 bytes")
    if kernel == "P2" and dim == 256:
        return not_measured(blank, "not run", "left out at head dim 256")
    matrix = heads * (1 if kernel == "naive per head" else batch) * n * n * 2 / 2**20
    peak = n * heads * batch * dim * 2 / 2**20 + (3 * matrix if kernel in WHOLE_MATRIX else 0)
    if peak > MEMORY:
        return not_measured(blank, "oom", f"tried to allocate {peak / 1024:.1f} GiB")
    share, start = SPEED[kernel]
    work = 4 * batch * heads * dim * measured.visible_pairs(blank) * 1e-12
    done = 4 * batch * heads * dim * n * n * 1e-12 if kernel in WHOLE_MATRIX else work * (1 + 0.3 * (sinks or 0) / 128)
    median = (start + done / (share * PEAK) * 1e3) * rng.uniform(0.98, 1.02)
    spread = 0.06 if n == 512 else 0.01
    return replace(
        blank, avg_ms=median * 1.01, std_ms=median * spread, min_ms=median * 0.97, median_ms=median,
        p20_ms=median * (1 - spread / 2), p80_ms=median * (1 + spread), samples=40, host_ms=start / 2,
        tflops=work / median * 1e3, fraction_of_peak=work / median * 1e3 / PEAK, peak_mib=peak,
    )  # fmt: skip


def write(folder, table_rows=None, **machine):
    """A folder as the sweep leaves it; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "sweep.csv", rows() if table_rows is None else table_rows, Row)
    (folder / "machine.json").write_text(json.dumps(MACHINE | machine), "utf-8")
    return folder
