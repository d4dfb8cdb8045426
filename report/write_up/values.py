"""What REPORT.md.jinja asks for by name: words, measured rows, formulas, and what ran while the page was made."""

from dataclasses import replace

from grader.gpu.peaks import peak
from report.counting import cost, coverage, traced
from report.pages.measured import length, times_over
from report.pages.tables import number, times
from report.places import NotThere, load
from report.write_up import excerpts, figures, measured, runs, tables
from report.write_up.tables import GIB, MIB, case_of, computed, tiles_of

SWEPT, LONG = "B=4 H=16 D=128", 16384  # the sweep's shape beside the peers
WINDOWED = "B=1 H=32/8 D=128"
MIXED, BLIND = (512, 32, (1, 31, 33, 48, 64, 80, 96, 100)), (256, 80, 4)
OWN_TILES = 3  # what a program takes beside its tiles in the schedule: fitted by eye, and said so


def values(ladder, sweep):
    """All of them."""
    words = {"number": number, "length": length, "times": times, "step": excerpts.step, "cut": excerpts.cut}
    return words | from_ladder(ladder) | from_sweep(sweep) | by_formula(ladder) | by_trial()


def from_ladder(ladder):
    point, machine, n = ladder.point, ladder.machine, ladder.lengths[-1]

    def ms(kernel, at=n):
        return ladder.row(kernel, at).median_ms

    def over(kernel, column, at=n):
        return ladder.before(kernel, at) if column == "before" else ladder.ratio(kernel, at, column)

    return {
        "n": n, "short": ladder.lengths[0], "point": point, "shape": point.keys["shape"].partition(" window")[0],
        "gpu": machine["gpu"], "machine": measured.machine_line(machine), "ms": ms, "over": over,
        "rungs": {at: measured.rungs(ladder, at) for at in ladder.lengths},
        "mib": lambda kernel: ladder.row(kernel, n).peak_mib, "tflops": lambda kernel: ladder.row(kernel, n).tflops,
        "samples": samples(ladder), "slow_samples": ladder.row("P2", n).samples,
        "fast_form": measured.fast_form(ladder),
        "p2_steps": (steps := (n // p2_block()) ** 2), "p2_step_us": 1e3 * ms("P2") / steps,
        "sink_time": 100 * (1 / over("P7", "before").middle - 1),
        "sink_fast": {at: 100 * (ms("fast as P7", at) / ms("fast as P6", at) - 1) for at in ladder.lengths},
    }  # fmt: skip


def samples(ladder):
    """`5 or 10`: of each kernel that took turns with all."""
    return listed(
        sorted({row.samples for (n, name), row in ladder.rows.items() if (n, name) != (ladder.point.N, "P2")})
    )


def from_sweep(sweep):
    def row(kernel, causal=False, tier=SWEPT):
        return measured.swept(sweep, kernel, tier, LONG, causal)

    def over(kernel, other, causal):
        return times_over(row(kernel, causal), row(other, causal))

    window = f"{WINDOWED} window=1024 sinks="
    p6, p7, p7_sinks, fast, fast_sinks = (
        row(name, True, window + sinks).median_ms
        for name, sinks in (("P6", "0"), ("P7", "0"), ("P7", "4"), ("fast", "0"), ("fast", "4"))
    )
    plain, spread = (measured.order_row(name) for name in ("plain", "all heads"))
    return {
        "sweep_machine": measured.machine_line(sweep.machine), "long": LONG, "swept_shape": SWEPT,
        "windowed_shape": WINDOWED, "peers": measured.peers(sweep, SWEPT, LONG),
        "windows": measured.windows(sweep, WINDOWED, LONG), "p3_cudnn": over("P3", "SDPA cuDNN", False),
        "p4_cudnn": over("P4", "SDPA cuDNN", True), "p3_flash": over("P3", "SDPA flash", False),
        "p4_flash": over("P4", "SDPA flash", True), "compiled": over("vectorised compiled", "fast", True),
        "compiled_full": over("vectorised compiled", "fast", False), "halves": over("vectorised", "P3", False),
        "window_ms": {"p6": p6, "p7": p7, "p7_sinks": p7_sinks},
        "sink_swept": 100 * (fast_sinks / fast - 1), "in_steps": measured.in_steps(f"{SWEPT} N={LONG}"),
        "plain": plain, "spread": spread,
    }  # fmt: skip


def by_formula(ladder):
    point, gpu = ladder.point, ladder.machine["gpu"]
    row_bytes = point.B * point.N * point.D * cost.SIZES[point.dtype]
    visible = {name: case_of(name, point).flops for name in ("P1", "P6", "P7")}
    at = {n: replace(point, N=n) for n in ladder.lengths}
    acc_kib = tiles_of("P3", point.D)[0] * point.D * 4 // 1024
    return {
        "steps_changed": tables.steps_changed(), "treatment": tables.treatment(point),
        "by_formula": tables.by_formula(point, lambda name: ladder.row(name, point.N).median_ms),
        "balance": tables.balance(gpu), "peak": peak(gpu).tflops, "bandwidth": peak(gpu).terabytes,
        "p1_least": tables.least_of_p1(point, gpu), "float32_tflops": tables.FLOAT32_TFLOPS,
        "flops_p1": visible["P1"] / 1e12, "matrix_gib": cost.matrix_bytes(case_of("P1", point)) / GIB,
        "o_mib": row_bytes * point.H / MIB, "kv_mib": 2 * row_bytes * point.kv_heads / MIB,
        "kv_mib_whole": 2 * row_bytes * point.H / MIB, "overflow_tokens": 2**31 // (point.B * point.H * point.D),
        "blocks": {name: tiles_of(name, point.D) for name in tables.TRITON},
        "acc_kib": acc_kib, "acc_share": acc_kib / tables.REGISTERS_KIB, "registers_kib": tables.REGISTERS_KIB,
        "half": 100 * computed("P4", point) / computed("P3", point),
        "p5_over_p6": {n: computed("P5", point_n) / computed("P6", point_n) for n, point_n in at.items()},
        # How many times as fast as P3 the schedule lets P4 be.
        "schedule": {n: [tables.makespan("P3", point_n, own) / tables.makespan("P4", point_n, own)
                         for own in (0, OWN_TILES)] for n, point_n in at.items()},
        "own_tiles": OWN_TILES, "multiprocessors": tables.MULTIPROCESSORS,
        "work_ratio": {n: computed("P3", point_n) / computed("P4", point_n) for n, point_n in at.items()},
        "sink_pairs": 100 * (visible["P7"] / visible["P6"] - 1),
        "sink_flops": 100 * (computed("P7", point) / computed("P6", point) - 1),
        "mixed": {"N": MIXED[0], "block": MIXED[1], "table": tables.mixed_up(*MIXED)},
        "blind": {"N": BLIND[0], "table": tables.blind(*BLIND)},
    }  # fmt: skip


def by_trial():
    """What was tried: small cases by brute force, and kernels that run."""
    tried, fault = coverage.checked(cost.phases)
    if fault:
        raise runs.Disagrees(f"the phases are wrong: {fault}")
    return {
        "coverage": {"longest": coverage.LONGEST, "tried": tried, "blocks": listed(coverage.BLOCKS)},
        "shared_tile": shared_tile(),
        "counted": {"N": runs.N, "D": runs.D, "tiles": traced.TILES, "table": runs.counted()},
        "sinks_last": runs.sinks_last(), "tail": runs.tail_forgotten(),
    }  # fmt: skip


def shared_tile():
    """The tile of the figure of one program that holds sinks and belongs to the window's edge: its ends, its sinks'."""
    first = cost.phases(figures.ONE, figures.Q_START, figures.BLOCK, figures.BLOCK)["E"].start
    if not first < figures.ONE.sinks <= first + figures.BLOCK:
        raise runs.Disagrees("the figure of one program has no tile that holds both sinks and the window's edge")
    return {"first": first, "last": first + figures.BLOCK - 1, "last_sink": figures.ONE.sinks - 1}


def p2_block():
    module = load(excerpts.MODULES["P2"])
    if module.BLOCK_Q != module.BLOCK_K:
        raise NotThere("P2's tiles are no longer square, and the text counts them so: mend report/")
    return module.BLOCK_Q


def listed(items):
    """`2, 4 or 8`"""
    *most, last = map(str, items)
    return f"{', '.join(most)} or {last}" if most else last
