"""The tables of REPORT.md that come from formulas and from comparing code. No kernel runs here."""

import heapq
from functools import partial
from itertools import pairwise

from grader.gpu.peaks import peak
from report.arms.ladder import case_of as case_of_rung
from report.counting import coverage
from report.counting.cost import cost, least_bytes, matrix_bytes, phases
from report.measuring.arms import case_of as case_of_point
from report.pages.tables import number
from report.pages.tables import table as markdown
from report.places import load
from report.studies.ladder import RUNGS
from report.write_up import excerpts

TRITON = tuple(excerpts.MODULES)[2:]
MIB, GIB = 2**20, 2**30
MULTIPROCESSORS, REGISTERS_KIB = 132, 256  # of an H200; the registers are of each, on an A100 or H100 as well
FLOAT32_TFLOPS = 67  # of an H200 outside its matrix units, by its data sheet
PASSES_OF_P1 = (1, 2, 1, 2, 2, 1, 1)  # over the scores: product, scale, maximum, subtract, exp, sum, product with v


def tiles_of(problem, D):
    """(BLOCK_Q, BLOCK_K) that a solution takes first on a GPU."""
    return load(excerpts.MODULES[problem]).TILES[D][0][:2]


def case_of(problem, point):
    """The ladder's case of a problem."""
    return case_of_rung(case_of_point(point), RUNGS[problem])


def by_formula(point, ms):
    """What P3 to P7 cost at the ladder's shape, with the tiles that the solutions take on a GPU; ms: of a problem."""
    lines = []
    for problem in TRITON:
        case, blocks = case_of(problem, point), tiles_of(problem, point.D)
        done, useful = cost(case, *blocks), case.flops
        each_second = asked(done) / ms(problem) / 1e9
        lines.append([
            f"{problem}, {blocks[0]} x {blocks[1]}", f"{done.tiles // (case.B * case.Hq):,}", number(useful / 1e12),
            f"{done.dot_flops / useful:.2f}", number(least_bytes(case) / MIB), f"{asked(done) / GIB:.2f}",
            f"{useful / least_bytes(case):,.0f}", f"{useful / asked(done):.0f}", f"{each_second:.2f}",
        ])  # fmt: skip
    head = ("kernel, its tiles", "tiles a head visits", "useful TFLOP", "computed / useful", "least, MiB",
            "asked for, GiB", "useful FLOP per least byte", "per byte asked for", "asked for, TB/s")  # fmt: skip
    return markdown(head, lines)


def asked(done):
    """Bytes that the programs of a Cost ask for, either way."""
    return done.loaded + done.stored


def balance(gpu):
    """FLOPs that a GPU does while a byte arrives from its memory."""
    known = peak(gpu)
    return known.tflops / known.terabytes


def computed(problem, point):
    """FLOPs of whole tiles."""
    return cost(case_of(problem, point), *tiles_of(problem, point.D)).dot_flops


def makespan(problem, point, own=0):
    """When the last program ends, in tiles, if multiprocessors take programs in order, one each, and a tile takes 1.

    own: what each program takes beside its tiles.
    """
    case, (block_q, block_k) = case_of(problem, point), tiles_of(problem, point.D)
    head = [sum(map(len, phases(case, q, block_q, block_k).values())) + own for q in range(0, case.N, block_q)]
    free = [0] * MULTIPROCESSORS
    for tiles in head * (case.B * case.Hq):
        heapq.heappush(free, heapq.heappop(free) + tiles)
    return max(free)


def least_of_p1(point, gpu):
    """P1's two lower bounds: GiB and ms of its passes over the score matrix, ms of its products in float32."""
    case = case_of("P1", point)
    moved = sum(PASSES_OF_P1) * matrix_bytes(case)
    return {"passes": sum(PASSES_OF_P1), "gib": moved / GIB, "ms": moved / peak(gpu).terabytes / 1e9,
            "products_ms": case.flops / FLOAT32_TFLOPS / 1e9}  # fmt: skip


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
    "window - 1": lambda tile, window, block: tile - (window - 1),
}


def mixed_up(N, block, windows):
    """First tiles from tile numbers against token positions: the visible pairs that one loses, the tiles it wastes."""
    lines = []
    for window in windows:
        sees, cells = coverage.seen(coverage.shape(N, window).visibility, N), []
        for mixed in MIXED.values():
            lost = wasted = 0
            for q_start in range(0, N, block):
                right = max(0, q_start - window + 1) // block * block
                first = max(0, mixed(q_start // block, window, block)) * block
                rows = range(q_start, min(q_start + block, N))
                lost += sum(sees[i][j] for i in rows for j in range(right, first))
                wasted += max(0, right - first) // block
            cells += [f"{lost}", f"{wasted}"]
        lines.append([f"{window}", *cells])
    head = ("window", *(f"`{name}`: {what}" for name in MIXED for what in ("pairs lost", "tiles for nothing")))
    return markdown(head, lines)


def blind(N, window, sinks):
    """Rows that see no key in the first tile that their program visits, by mask, tiles and order."""
    lines, blocks = [], ((32, 32), (64, 32), (32, 64))
    for words, case, order in (
        ("causal, left to right", coverage.shape(N), list),
        ("causal, right to left", coverage.shape(N), partial(sorted, reverse=True)),
        (f"window of {window}, left to right", coverage.shape(N, window), list),
        (f"window of {window} and {sinks} sinks, sinks first", coverage.shape(N, window, sinks), list),
    ):
        counts = [coverage.blind_rows(case, phases, *block, order) for block in blocks]
        lines.append([words, *map(str, counts)])
    return markdown((f"{N} rows", *(f"tiles {q} x {k}" for q, k in blocks)), lines)
