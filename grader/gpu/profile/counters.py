"""The counters that matter for attention: their names in Nsight Compute, and what one launch's values amount to.

The counters and what they count: NVIDIA, "Kernel Profiling Guide", in Nsight Compute's documentation.
"""

from dataclasses import dataclass

from grader.gpu.profile.stalls import STALLS

OF_PEAK = "avg.pct_of_peak_sustained_elapsed"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
METRICS = {
    "ns": "gpu__time_duration.sum",
    "programs": "launch__grid_size",
    "threads": "launch__block_size",
    "rounds": "launch__waves_per_multiprocessor",
    "busiest": f"sm__throughput.{OF_PEAK}",
    "tensor": f"sm__pipe_tensor_cycles_active.{OF_PEAK}",
    "flops_float16": "sm__ops_path_tensor_src_fp16.sum",
    "flops_bfloat16": "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "flops_float32": "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
    "special": f"sm__inst_executed_pipe_xu.{OF_PEAK}",
    "issued": f"sm__inst_issued.{OF_PEAK}",
    "active": "sm__cycles_active.avg",
    "elapsed": "sm__cycles_elapsed.avg",
    "dram": f"gpu__dram_throughput.{OF_PEAK}",
    "dram_read": "dram__bytes_read.sum",
    "dram_written": "dram__bytes_write.sum",
    "l2_hits": "lts__t_sector_hit_rate.pct",
    "shared": f"{SHARED}.sum.pct_of_peak_sustained_elapsed",
    "wavefronts": f"{SHARED}.sum",
    "wavefronts_loaded": f"{SHARED}_op_ld.sum",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "warps_possible": "sm__maximum_warps_per_active_cycle_pct",
    "fit_registers": "launch__occupancy_limit_registers",
    "fit_shared": "launch__occupancy_limit_shared_mem",
    "fit_warps": "launch__occupancy_limit_warps",
    "fit_programs": "launch__occupancy_limit_blocks",
    "registers": "launch__registers_per_thread",
    "shared_bytes": "launch__shared_mem_per_block",
    "local_loaded": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "local_stored": "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
} | {f"stall_{name}": f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio" for name in STALLS}
SECTOR = 32  # bytes


def metrics_for(case):
    """The names to ask ncu for: of the FLOPs only those of the case's dtype, for each costs a replay."""
    others = [name for name in METRICS if name.startswith("flops_") and name != f"flops_{case.dtype}"]
    return [metric for name, metric in METRICS.items() if name not in others]


def with_flops_of_all(launches, most):
    """The values of each launch, its FLOPs those of all together: that is what the case's are compared with.

    Where the call may have had more than the `most` that are measured, the FLOPs are not known.
    """
    every = [launch.values for launch in launches]
    for metric in (metric for name, metric in METRICS.items() if name.startswith("flops_")):
        flops = None if len(every) >= most else total(*(values.get(metric) for values in every))
        every = [{name: v for name, v in values.items() if name != metric} for values in every]
        every = [values | ({} if flops is None else {metric: flops}) for values in every]
    return every


@dataclass(frozen=True)
class Reading:
    """The counters of one launch as attributes, by the names of METRICS; None for what was not measured.

    gpu: {"name", "shared_bytes"}: the GPU's name, and the shared memory that one program may have, in bytes or None.
    """

    values: dict
    case: object
    gpu: dict

    def __getattr__(self, name):
        if name not in METRICS:
            raise AttributeError(name)
        return self.values.get(METRICS[name])

    @property
    def tflops(self):
        """TFLOP/s over the visible pairs."""
        return self.ns and self.case.flops / self.ns / 1e3

    @property
    def work(self):
        """FLOPs that the tensor cores did, over those that the visible pairs need."""
        done = getattr(self, f"flops_{self.case.dtype}")
        return done / self.case.flops if done else None

    @property
    def at_work(self):
        """Percent of the time in which a multiprocessor had a program."""
        return share(self.active, self.elapsed)

    @property
    def conflicting(self):
        """Percent of the accesses to shared memory that were made again."""
        return share(self.conflicts, self.wavefronts)

    @property
    def moved(self):
        """Bytes between L2 and memory."""
        return total(self.dram_read, self.dram_written)

    @property
    def spilled(self):
        """Bytes that went to local memory and back."""
        sectors = total(self.local_loaded, self.local_stored)
        return None if sectors is None else SECTOR * sectors

    @property
    def stalls(self):
        """[(name in STALLS, percent of a warp's time)] of those that are waits, the longest first."""
        known = {
            name: self.values[METRICS[f"stall_{name}"]] for name in STALLS if METRICS[f"stall_{name}"] in self.values
        }
        waits = [(name, share(part, sum(known.values()))) for name, part in known.items() if STALLS[name] and part]
        return sorted(waits, key=lambda entry: -entry[1])


# Arithmetic in which what is not known stays so ----------------------------------------------------------------------


def share(part, whole):
    return None if part is None or not whole else 100 * part / whole


def total(*parts):
    return None if None in parts else sum(parts)


def at_least(value, limit):
    return value is not None and value >= limit


def below(value, limit):
    return value is not None and value < limit
