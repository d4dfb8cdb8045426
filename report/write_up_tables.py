"""The tables of REPORT.md that come from committed measurements and from formulas. No kernel runs here."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

from grader.assignment import Case
from grader.peaks import peak
from report import coverage, excerpts, kernels, ladder_rows, measured, table
from report.cost import cost, least_bytes, matrix_bytes, phases, useful_flops
from report.ladder_rows import BEFORE, RUNGS, LadderPoint, LadderRow
from report.measured import Ratio, length
from report.tables import number, plain, times
from report.tables import table as markdown

PROBLEMS = tuple(excerpts.MODULES)
TRITON = PROBLEMS[2:]
ADDS = {
    "P1": "the formula, with the whole score matrix",
    "P2": "tiles and the online softmax, in PyTorch",
    "P3": "the same loop as one Triton kernel",
    "P4": "causal: two phases",
    "P5": "query heads that share K and V",
    "P6": "a sliding window",
    "P7": "the first tokens stay visible",
}
MIB, GIB = 2**20, 2**30


# Measured ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ladder:
    """The rows of ladder.csv and the facts of their machine."""

    rows: dict
    machine: dict

    @cached_property
    def lengths(self):
        return sorted({n for n, _ in self.rows})

    @property
    def point(self):
        """The shape that all rungs share, at its greatest length."""
        return LadderPoint(self.lengths[-1])

    def row(self, kernel, n):
        return self.rows[n, kernel]

    def ratio(self, kernel, n, column):
        """How many times as fast a kernel is as column's: naive, full or before; None where it was not paired."""
        row = self.row(kernel, n)
        values = [getattr(row, f"over_{column}{end}") for end in ("", "_low", "_high")]
        return None if values[0] is None else Ratio(*values)

    def before(self, kernel, n):
        """Over the rung before; P3 over P2 is known from P2's own row, where P2 is too slow to take turns."""
        found = self.ratio(kernel, n, "before")
        if found is None and kernel == "P3":
            found = inverse(self.ratio("P2", n, "full"))
        return found


def inverse(ratio):
    return None if ratio is None else Ratio(1 / ratio.middle, 1 / ratio.high, 1 / ratio.low)


def load_ladder(folder=measured.PUBLISHED):
    """The committed Ladder; raises BadTable where a rung is missing or failed."""
    found = {(row.n, row.kernel): row for row in table.read(folder / ladder_rows.FILE, LadderRow)}
    lengths = {n for n, _ in found}
    missing = [
        f"{kernel} at {n}" for n in lengths for kernel in RUNGS if getattr(found.get((n, kernel)), "status", "") != "ok"
    ]
    if not found or missing:
        raise table.BadTable(
            f"{ladder_rows.FILE} lacks {', '.join(missing) or 'all rows'}; `{LadderRow.COMMAND}` measures"
        )
    return Ladder(found, measured.read_machine(folder / ladder_rows.MACHINE))


def machine_line(machine):
    """`NVIDIA H200, driver ..., PyTorch ..., Triton ..., commit ...`."""
    names = (("gpu", ""), ("driver", "driver "), ("torch", "PyTorch "), ("triton", "Triton "), ("commit", "commit "))
    return ", ".join(words + plain(machine[name]) for name, words in names if machine.get(name))


def rungs(ladder, n):
    """A line for each problem: its time, its memory, and how many times as fast as P1 and as the one before."""
    lines = []
    for name in PROBLEMS:
        row = ladder.row(name, n)
        lines.append([
            f"{name}: {ADDS[name]}", f"{number(row.median_ms)} ({number(row.p20_ms)} to {number(row.p80_ms)})",
            number(row.tflops), number(row.peak_mib), "" if name == "P1" else quick(ladder.ratio(name, n, "naive")),
            quick(ladder.before(name, n)),
        ])  # fmt: skip
    head = (length(n) + " tokens", "ms (p20 to p80)", "TFLOP/s", "memory, MiB", "over P1", "over the one before")
    return markdown(head, lines)


def quick(ratio):
    """A ratio with its interval: three digits where it is small, whole numbers where it is large."""
    if ratio is None:
        return ""
    if ratio.middle >= 0.1 and ratio.middle < 10:
        return times(ratio)
    return f"{number(ratio.middle)} ({number(ratio.low)} to {number(ratio.high)})"


def fast_form(ladder):
    """Our fast form under each mask, over the problem's own kernel."""
    lines = []
    for name in RUNGS:
        if name.startswith("fast"):
            cells = [
                f"{number(ladder.row(name, n).median_ms)}, {times(ladder.ratio(name, n, 'before'))}"
                for n in ladder.lengths
            ]
            lines.append([f"as {BEFORE[name]}", *cells])
    return markdown(("the fast form", *(f"{length(n)}: ms, over the problem's" for n in ladder.lengths)), lines)


def peers(sweep, label, n, dtype="float16"):
    """The sweep's kernels at one shape, full and causal: time, and how many times our fast form's."""
    lines = []
    rows = [row for row in sweep.rows if (row.tier, row.q_len, row.dtype) == (label, n, dtype)]
    kinds = {kind: {row.kernel: row for row in rows if measured.mask(row) == kind} for kind in ("full", "causal")}
    for kernel in table.KERNELS:
        cells = []
        for found in kinds.values():
            row = found.get(kernel)
            done = row is not None and row.median_ms is not None
            cells += [number(row.median_ms) if done else row.status if row else "",
                      times(measured.times_over(row, found["fast"])) if done and kernel != "fast" else ""]  # fmt: skip
        if any(cells):
            lines.append([kernel, *cells])
    return markdown(("kernel", "full, ms", "its time / fast", "causal, ms", "its time / fast"), lines)


def windows(sweep, label, n, dtype="float16"):
    """P6 and P7 beside FlexAttention and our fast form: windows at one length."""
    lines = []
    for (_, *_), cells in sweep.points().items():
        row = next(iter(cells.values()))
        if measured.mask(row) == "window" and (measured.shape(row), row.q_len, row.dtype) == (label, n, dtype):
            names = ("P6", "P7", "FlexAttention", "fast")
            texts = [number(cells[k].median_ms) if k in cells else "" for k in names]
            ours = cells["P6"] if "P6" in cells else cells["P7"]
            lines.append(
                [f"{row.window:,}, {row.sinks or 0}", *texts, times(measured.times_over(cells["FlexAttention"], ours))]
            )
    return markdown(
        ("window, sinks", "P6, ms", "P7", "FlexAttention", "fast", "FlexAttention's time / P6's, or P7's"), lines
    )


# By formula ----------------------------------------------------------------------------------------------------------


def tiles_of(problem, D):
    """(BLOCK_Q, BLOCK_K) that a solution takes first on a GPU."""
    return kernels.load(excerpts.MODULES[problem]).TILES[D][0][:2]


def case_of(problem, point):
    """The ladder's case of a problem."""
    rung = RUNGS[problem]
    return Case(
        problem, B=point.B, Hq=point.H, Hkv=point.kv_heads if rung.shared else point.H, N=point.N, D=point.D,
        causal=rung.causal, window=point.window if rung.windowed else None, sinks=point.sinks if rung.sinks else None,
    )  # fmt: skip


def by_formula(point):
    """What P3 to P7 cost at the ladder's shape, with the tiles that the solutions take on a GPU."""
    lines = []
    for problem in TRITON:
        case, blocks = case_of(problem, point), tiles_of(problem, point.D)
        done, useful = cost(case, *blocks), useful_flops(case)
        lines.append([
            f"{problem}, {blocks[0]} x {blocks[1]}", f"{done.tiles // (case.B * case.Hq):,}", number(useful / 1e12),
            f"{done.dot_flops / useful:.2f}", number(least_bytes(case) / MIB), f"{asked(done) / GIB:.2f}",
            f"{useful / least_bytes(case):,.0f}", f"{useful / asked(done):.0f}",
        ])  # fmt: skip
    head = ("kernel, its tiles", "tiles a head visits", "useful TFLOP", "computed / useful", "least, MiB",
            "asked for, GiB", "useful FLOP per least byte", "per byte asked for")  # fmt: skip
    return markdown(head, lines)


def asked(done):
    """Bytes that the programs of a Cost ask for, either way."""
    return done.loaded + done.stored


def balance(gpu):
    """FLOPs that a GPU does while a byte arrives from its memory."""
    known = peak(gpu)
    return known.tflops / known.terabytes


def computed_over_useful(problem, point):
    case = case_of(problem, point)
    return cost(case, *tiles_of(problem, point.D)).dot_flops / useful_flops(case)


def computed(problem, point):
    """FLOPs of whole tiles."""
    return cost(case_of(problem, point), *tiles_of(problem, point.D)).dot_flops


def matrix_gib(point, n=None):
    return matrix_bytes(replace(case_of("P1", point), N=n or point.N)) / GIB


def treatment(point):
    """How the tiles of one head are treated: never loaded, loaded without a mask, masked."""
    lines = []
    for problem in TRITON:
        case, (block_q, block_k) = case_of(problem, point), tiles_of(problem, point.D)
        found = [phases(case, q, block_q, block_k) for q in range(0, case.N, block_q)]
        every = len(found) * -(-case.N // block_k)
        bare = sum(len(p.get(">", ())) for p in found)
        visited = sum(len(tiles) for p in found for tiles in p.values())
        cells = [f"{n:,} ({n / every:.1%})" for n in (every - visited, bare, visited - bare)]
        lines.append([f"{problem}, {block_q} x {block_k}", *cells])
    return markdown(("kernel, its tiles", "never loaded", "loaded, no mask", "masked"), lines)


def steps_changed():
    """Which of the seven steps is other code than in the problem before; made by comparing the code."""
    lines = []
    for number_, name in enumerate(excerpts.STEPS, 1):
        cells = ["new"] + [
            "changes" if excerpts.changed(problem, before, name) else "" for before, problem in pairwise(TRITON)
        ]
        lines.append([f"{number_}. {name}", *cells])
    head = ["step", *TRITON]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---", *[":---:"] * len(TRITON)], *lines])


MIXED = {  # the number of the first tile, from the number of the program's own and whole tiles of the window
    "window // BLOCK": lambda tile, window, block: tile - window // block,
    "ceil(window / BLOCK)": lambda tile, window, block: tile - -(-window // block),
}


def mixed_up(N, block, windows):
    """First tiles from tile numbers against token positions: the visible pairs that one loses, the tiles it wastes."""
    lines = []
    for window in windows:
        shape, cells = coverage.Shape(N, window), []
        for mixed in MIXED.values():
            lost = wasted = 0
            for q_start in range(0, N, block):
                right = max(0, q_start - window + 1) // block * block
                first = max(0, mixed(q_start // block, window, block)) * block
                rows = range(q_start, min(q_start + block, N))
                lost += sum(shape.sees(i, j) for i in rows for j in range(right, first))
                wasted += max(0, right - first) // block
            cells += [f"{lost}", f"{wasted}"]
        lines.append([f"{window}", *cells])
    head = ("window", *(f"`{name}`: {what}" for name in MIXED for what in ("pairs lost", "tiles for nothing")))
    return markdown(head, lines)


def blind(N, window, sinks):
    """Rows that see no key in the first tile that their program visits, by mask, tiles and order."""

    lines, blocks = [], ((32, 32), (64, 32), (32, 64))
    for words, shape, order in (
        ("causal, left to right", coverage.Shape(N), list),
        ("causal, right to left", coverage.Shape(N), partial(sorted, reverse=True)),
        (f"window of {window}, left to right", coverage.Shape(N, window), list),
        (f"window of {window} and {sinks} sinks, sinks first", coverage.Shape(N, window, sinks), list),
    ):
        counts = [coverage.blind_rows(shape, phases, *block, order) for block in blocks]
        lines.append([words, *map(str, counts)])
    return markdown((f"{N} rows", *(f"tiles {q} x {k}" for q, k in blocks)), lines)
