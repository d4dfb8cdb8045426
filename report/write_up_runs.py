"""The parts of REPORT.md that run kernels: solutions in the interpreter, through the grader, every load counted."""

import torch

from grader import inputs, oracle
from grader.assignment import Case
from grader.labs import EVERY
from grader.visibility import Visibility
from report import excerpts, traced
from report.cost import cost, useful_flops
from report.tables import table as markdown

SIDE = 32  # of a tile in the interpreter, both ways
N, D = 500, 32
WINDOW, SINKS = 100, 40
SHOWN = {
    "p3": Case("full", N=N, D=D),
    "p4": Case("causal", N=N, D=D, causal=True),
    "p5": Case("causal", Hq=4, Hkv=2, N=N, D=D, causal=True),
    "p6": Case(f"window {WINDOW}", N=N, D=D, causal=True, window=WINDOW),
    "p7": Case(f"window {WINDOW}, {SINKS} sinks", N=N, D=D, causal=True, window=WINDOW, sinks=SINKS),
}
TAIL_MASK = 'scores = tl.where(k_pos[None, :] < N, scores, float("-inf"))'
SINK_LOOP, DIAGONAL_LOOP = (
    "for k_start in range(0, sink_end, BLOCK_K):",
    "for k_start in range(diagonal, k_end, BLOCK_K):",
)


class Disagrees(Exception):
    """What ran is not what the report says; the text says where."""


def counted():
    """A line for each kernel of P3 to P7: what its trace counted. Raises Disagrees unless the formula says the same."""
    lines = []
    for problem, case in SHOWN.items():
        (result,) = traced.run(problem, case)
        found, expected = traced.counted(case, result), cost(case, SIDE, SIDE)
        if found != expected:
            raise Disagrees(f"{problem} did {found}, and the formula says {expected}")
        of = case.Hq * (-(-N // SIDE)) ** 2
        lines.append([
            f"{problem.upper()}, {case.name}" + (f", {case.Hq} heads on {case.kv_heads}" if case.Hq > 1 else ""),
            f"{found.tiles:,} of {of:,}", f"{found.dot_flops / 1e6:.2f}", f"{found.dot_flops / useful_flops(case):.2f}",
            f"{found.exponentials:,}", f"{found.loaded:,}", f"{found.stored:,}",
        ])  # fmt: skip
    head = ("kernel and mask", "tiles visited", "MFLOP in dots", "over useful", "exponentials", "bytes loaded",
            "bytes stored")  # fmt: skip
    return markdown(head, lines)


def sinks_last():
    """How many of P7's cases pass with the sinks visited after the diagonal. Raises Disagrees where one does not."""
    source = traced.source_of("p7")
    start, end = source.index("    " + SINK_LOOP), source.index("    for k_start in range(first, inside, BLOCK_K):")
    loop, rest = source[start:end], source[:start] + source[end:]
    after = rest.index("\n\n", rest.index(DIAGONAL_LOOP)) + 1
    cases = [case for case in EVERY["p7"].cases if not case.gpu]
    results = traced.run("p7", *cases, source=rest[:after] + loop + rest[after:])
    if failed := [result.case for result in results if result.outcome.value != "passed"]:
        raise Disagrees(f"with the sinks last, P7 fails {', '.join(failed)}")
    return len(results)


def tail_forgotten(tokens=1000, tolerance=5e-2):
    """P3 without its mask at the tail: {"N", "extra", "error", "sentence"}: what a fixed tolerance would not see."""
    source = traced.source_of("p3")
    if source.count(TAIL_MASK) != 1:
        raise excerpts.NotThere(f"P3 no longer says {TAIL_MASK!r}: mend report/write_up_runs.py")
    case = Case("without a mask at the tail", Hq=2, N=tokens, D=64)
    (result,) = traced.run("p3", case, source=source.replace(TAIL_MASK, "scores = scores"))
    extra = -tokens % SIDE
    error = error_of_zero_keys(case, extra)
    if result.outcome.value != "wrong" or not error < tolerance:
        raise Disagrees(f"P3 without its mask at the tail is {result.outcome.value}, and off by {error:.1e}")
    facts = result.facts
    return {"N": tokens, "extra": extra, "error": error, "of": facts["total"], "wrong": facts["wrong"],
            "sentence": result.sentence.split(". ")[0] + ".", "allowed": facts["first_allowed"]}  # fmt: skip


def error_of_zero_keys(case, extra):
    """The largest error that `extra` keys and values of zero make, in float64."""
    q, k, v = (placed.tensor.double() for placed in inputs.make(case, seed=0))
    longer = [torch.nn.functional.pad(x, (0, 0, 0, extra)) for x in (k, v)]
    right, wrong = (oracle.attention(q, *keys, Visibility().mask)[0] for keys in ((k, v), longer))
    return (right - wrong).abs().max().item()
