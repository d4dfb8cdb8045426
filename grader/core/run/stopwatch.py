"""One call timed, by the same rules for a submission's program and for the report's kernels."""

import contextlib
import ctypes
import math
import time
from collections.abc import Callable
from typing import Any

FLUSH_MS = 0.05  # of one flush, at the least: how long it keeps a GPU busy
MOST_FLUSHES = 64
LATE_MS = 0.05  # a synchronization that finds nothing to wait for takes less


class Stopwatch:
    """Times a call on a device: on a GPU by CUDA events, L2 flushed, the launch hidden; on the CPU by the clock.

    A call is enqueued while the GPU still flushes, so a time is the GPU's own: what the host needs to launch a kernel
    (`host_ms`) is not in it, up to about 2 ms: MOST_FLUSHES hide no more.
    """

    def __init__(self, device: Any) -> None:
        import torch

        self.cuda, self.host_ms = torch.device(device).type == "cuda", 0.0
        if self.cuda:
            # Twice the L2 and more: what one sample left there is gone when the next begins.
            size = max(256 << 20, 4 * torch.cuda.get_device_properties(device).L2_cache_size)
            self.scrap = torch.empty(size, dtype=torch.uint8, device=device)

    def warm_up(self, call: Callable[[], Any], seconds: float = 0.5, most: int = 50) -> None:
        """Call until it is compiled and three calls take as long as the three before, or the time is over."""
        import torch

        times: list[float] = []
        hosts: list[float] = []
        deadline: float | None = None
        while len(times) < most:
            started = time.perf_counter()
            call()
            hosts.append((time.perf_counter() - started) * 1e3)
            if self.cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - started)
            deadline = deadline or time.perf_counter() + seconds  # the first call compiles: it is not counted
            if len(times) > 6 and abs(sum(times[-3:]) / sum(times[-6:-3]) - 1) < 0.03:
                break
            if time.perf_counter() > deadline:
                break
        self.host_ms = sorted(hosts[1:] or hosts)[len(hosts[1:]) // 2]

    def sample(self, call: Callable[[], Any], alone: bool = False) -> float:
        """Milliseconds of one call. alone: it begins when nothing else runs, so that its launch counts too."""
        if not self.cuda:
            started = time.perf_counter()
            call()
            return (time.perf_counter() - started) * 1e3
        import torch

        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        reset_persisting_lines()
        for _ in range(min(MOST_FLUSHES, 1 + math.ceil(1.5 * self.host_ms / FLUSH_MS))):
            self.scrap.zero_()
        if alone:
            torch.cuda.synchronize()
        start.record()
        call()
        end.record()
        end.synchronize()
        started = time.perf_counter()
        torch.cuda.synchronize()  # of all streams: what still runs beside the one that is timed counts too
        late = (time.perf_counter() - started) * 1e3
        return start.elapsed_time(end) + (late if late > LATE_MS else 0.0)

    def peak(self, call: Callable[[], Any]) -> int | None:
        """Bytes that one call holds at its peak beyond what was there before, its output included; on a GPU only."""
        if not self.cuda:
            return None
        import torch

        torch.cuda.synchronize()
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - held


def reset_persisting_lines() -> None:
    """Lines of L2 that a kernel asked to persist would outlive a flush (CUDA C++ programming guide, "L2 access")."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache()
