"""The model report: `report/REPORT.md` and its pictures, out of text, solutions, kernels that run, and measured rows.

    python -m report.write_up            write them; kernels run in Triton's interpreter, half a minute
    python -m report.write_up --check    exit 1 where one is not what would be written

The text is REPORT.md.jinja; numbers come from write_up_tables.py (by formula, or measured) and write_up_runs.py.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import jinja2

from grader.peaks import peak
from report import cost, coverage, excerpts, kernels, measured, write_up_runs, write_up_tables
from report.measured import length, times_over
from report.table import BadTable
from report.tables import number, times
from report.write_up_tables import case_of, computed, tiles_of

HERE = Path(__file__).parent
TEMPLATE, PAGE, FIGURES = "REPORT.md.jinja", "REPORT.md", "figures"
SWEPT, LONG = "B=4 H=16 D=128", 16384  # the sweep's shape beside the peers
WINDOWED = "B=1 H=32/8 D=128"
MIXED, BLIND = (512, 32, (1, 31, 33, 48, 64, 80, 96, 100)), (256, 80, 4)


def values(ladder, sweep):
    """What the text asks for by name."""
    point, machine = ladder.point, ladder.machine
    n, short = ladder.lengths[-1], ladder.lengths[0]
    tables, runs = write_up_tables, write_up_runs

    def ms(kernel, at=n):
        return ladder.row(kernel, at).median_ms

    def over(kernel, column, at=n):
        return ladder.before(kernel, at) if column == "before" else ladder.ratio(kernel, at, column)

    def swept(kernel, causal):
        rows = {(r.kernel, r.tier, r.q_len, r.causal, r.dtype): r for r in sweep.rows}
        return [rows[name, SWEPT, LONG, causal, "float16"] for name in (kernel, "SDPA cuDNN", "fast")]

    def to_cudnn(kernel, causal):
        row, cudnn, _ = swept(kernel, causal)
        return times_over(row, cudnn)

    pairs = {name: cost.useful_flops(case_of(name, point)) for name in ("P6", "P7")}
    row_bytes = point.B * point.N * point.D * cost.SIZES[point.dtype]
    tried, fault = coverage.checked(cost.phases)
    if fault:
        raise write_up_runs.Disagrees(f"the phases are wrong: {fault}")
    return {
        # who and where
        "n": n, "short": short, "point": point, "shape": point.shape.partition(" window")[0], "gpu": machine["gpu"],
        "machine": tables.machine_line(machine), "sweep_machine": tables.machine_line(sweep.machine),
        # words
        "number": number, "length": length, "times": times, "step": excerpts.step, "cut": excerpts.cut,
        # measured
        "ms": ms, "over": over, "rungs": {at: tables.rungs(ladder, at) for at in ladder.lengths},
        "mib": lambda kernel: ladder.row(kernel, n).peak_mib, "tflops": lambda kernel: ladder.row(kernel, n).tflops,
        "fast_form": tables.fast_form(ladder), "peers": tables.peers(sweep, SWEPT, LONG),
        "windows": tables.windows(sweep, WINDOWED, LONG),
        "p3_cudnn": to_cudnn("P3", False), "p4_cudnn": to_cudnn("P4", True),
        "compiled": times_over(*swept("vectorised compiled", True)[::2]),
        "compiled_full": times_over(*swept("vectorised compiled", False)[::2]),
        "sink_time": 100 * (1 / over("P7", "before").middle - 1),
        "sink_fast": 100 * (ms("fast as P7") / ms("fast as P6") - 1),
        # by formula
        "steps_changed": tables.steps_changed(), "treatment": tables.treatment(point),
        "by_formula": tables.by_formula(point), "balance": tables.balance(machine["gpu"]),
        "peak": peak(machine["gpu"]).tflops, "flops_p1": cost.useful_flops(case_of("P1", point)) / 1e12,
        "matrix_gib": tables.matrix_gib(point), "o_mib": row_bytes * point.H / 2**20,
        "kv_mib": 2 * row_bytes * point.kv_heads / 2**20, "kv_mib_whole": 2 * row_bytes * point.H / 2**20,
        "overflow_tokens": -(-(2**31) // (point.B * point.H * point.D)),
        "blocks": {name: tiles_of(name, point.D) for name in tables.TRITON},
        "acc_kib": tiles_of("P3", point.D)[0] * point.D * 4 // 1024,
        "p2_steps": (steps := (n // p2_block()) ** 2), "p2_step_us": 1e3 * ms("P2") / steps,
        "half": 100 * computed("P4", point) / computed("P3", point),
        "p5_over_p6": {
            at: computed("P5", replace(point, N=at)) / computed("P6", replace(point, N=at)) for at in ladder.lengths
        },
        "sink_pairs": 100 * (pairs["P7"] / pairs["P6"] - 1),
        "sink_flops": 100 * (computed("P7", point) / computed("P6", point) - 1),
        "mixed": {"N": MIXED[0], "block": MIXED[1], "table": tables.mixed_up(*MIXED)},
        "blind": {"N": BLIND[0], "table": tables.blind(*BLIND)},
        "coverage": {"longest": coverage.LONGEST, "tried": tried, "blocks": listed(coverage.BLOCKS)},
        # what ran
        "counted": {"N": runs.N, "D": runs.D, "side": runs.SIDE, "table": runs.counted()},
        "sinks_last": runs.sinks_last(), "tail": runs.tail_forgotten(),
    }  # fmt: skip


def p2_block():
    module = kernels.load(excerpts.MODULES["P2"])
    assert module.BLOCK_Q == module.BLOCK_K  # the text speaks of one size
    return module.BLOCK_Q


def listed(items):
    """`2, 4 or 8`"""
    *most, last = map(str, items)
    return f"{', '.join(most)} or {last}"


def page(ladder, sweep):
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    return environment.get_template(TEMPLATE).render(values(ladder, sweep))


def drawn(ladder):
    """{file name: the SVG's text}"""
    from report import write_up_figures
    from report.drawing import save

    with tempfile.TemporaryDirectory() as folder:
        for name, figure in write_up_figures.drawn(ladder).items():
            save(figure, Path(folder) / name)
        return {path.name: path.read_text(encoding="utf-8") for path in Path(folder).iterdir()}


def files():
    """{path: text} of all that the command writes."""
    ladder, sweep = write_up_tables.load_ladder(), measured.load(measured.PUBLISHED)
    found = {HERE / PAGE: page(ladder, sweep)}
    return found | {HERE / FIGURES / name: text for name, text in drawn(ladder).items()}


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m report.write_up", description="Write REPORT.md and its pictures.")
    parser.add_argument("--check", action="store_true", help="only say whether they are what would be written")
    check = parser.parse_args(argv).check
    try:
        made = files()
    except (OSError, BadTable, excerpts.NotThere, write_up_runs.Disagrees) as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    stale = [path for path, text in made.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if check:
        for path in stale:
            print(f"report/{path.relative_to(HERE)} is not what `python -m report.write_up` writes: run it, and commit")
        return 1 if stale else 0
    for path in stale:
        path.write_text(made[path], encoding="utf-8")
    print(f"written: {', '.join(sorted(path.name for path in stale)) or 'nothing, all is as it would be'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
