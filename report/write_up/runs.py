"""The parts of REPORT.md that run kernels: solutions in the grader's machine, every load counted."""

import math

import torch

from grader.kinds.attention import inputs, oracle
from grader.kinds.attention.cases import Case
from grader.kinds.attention.masks import Visibility
from grader.registry import EVERY
from report.counting import traced
from report.counting.cost import cost
from report.pages.tables import table as markdown
from report.places import NotThere, Refused

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
SINK_PHASE = "    state = attend(state, queries, keys, 0, sink_end, window_size, sink_size, BLOCK_K, MASKED=True)\n"
AFTER_PHASES = "    acc, _, row_sum = state\n"


class Disagrees(Refused):
    """What ran is not what the report says; the text says where."""


def counted():
    """A line for each kernel of P3 to P7: what its trace counted. Raises Disagrees unless the formula says the same."""
    lines = []
    for problem, case in SHOWN.items():
        (result,) = traced.run(problem, case)
        found, expected = traced.counted(case, result), cost(case, *traced.TILES)
        if found != expected:
            raise Disagrees(f"{problem} did {found}, and the formula says {expected}")
        of, useful = case.Hq * math.prod(-(-N // side) for side in traced.TILES), case.flops
        lines.append([
            f"{problem.upper()}, {case.name}" + (f", {case.Hq} heads on {case.kv_heads}" if case.Hq > 1 else ""),
            f"{found.tiles:,} of {of:,}", f"{found.dot_flops / 1e6:.2f}", f"{found.dot_flops / useful:.2f}",
            f"{found.exponentials:,}", f"{found.loaded:,}", f"{found.stored:,}",
        ])  # fmt: skip
    head = ("kernel and mask", "tiles visited", "MFLOP in dots", "over useful", "exponentials", "bytes loaded",
            "bytes stored")  # fmt: skip
    return markdown(head, lines)


def sinks_last():
    """How many of P7's cases pass with the sinks visited after the diagonal. Raises Disagrees where one does not."""
    source = traced.source_of("p7")
    if gone := [line for line in (SINK_PHASE, AFTER_PHASES) if source.count(line) != 1]:
        raise NotThere(f"P7 no longer says {gone[0].strip()!r}: mend report/write_up/runs.py")
    moved = source.replace(SINK_PHASE, "").replace(AFTER_PHASES, SINK_PHASE + AFTER_PHASES)
    cases = [case for case in EVERY["p7"].cases if not case.gpu]
    results = traced.run("p7", *cases, source=moved)
    if failed := [result.case for result in results if result.outcome.value != "passed"]:
        raise Disagrees(f"with the sinks last, P7 fails {', '.join(failed)}")
    return len(results)


def tail_forgotten(tokens=1000, almost=1020, tolerance=5e-2):
    """P3 without its mask at the tail: what a fixed tolerance would not see, and what ours does not (`almost` tokens).

    {"N", "extra", "error", "sentence", "allowed"} and {"almost", "almost_extra"}.
    """
    source = traced.source_of("p3")
    if source.count(TAIL_MASK) != 1:
        raise NotThere(f"P3 no longer says {TAIL_MASK!r}: mend report/write_up/runs.py")
    case, hidden = (Case(f"{n} tokens without a mask at the tail", Hq=2, N=n, D=64) for n in (tokens, almost))
    result, passing = traced.run("p3", case, hidden, source=source.replace(TAIL_MASK, "scores = scores"))
    error = error_of_zero_keys(case, -tokens % traced.TILES[1])
    if (result.outcome.value, passing.outcome.value) != ("wrong", "passed") or not error < tolerance:
        raise Disagrees(
            f"P3 without its mask at the tail is {result.outcome.value} at {tokens} tokens, off by {error:.1e}, and "
            f"{passing.outcome.value} at {almost}"
        )
    side = traced.TILES[1]
    return {"N": tokens, "extra": -tokens % side, "error": error, "almost": almost, "almost_extra": -almost % side,
            "sentence": result.sentence.split(". ")[0] + ".",
            "allowed": result.facts.mismatch.first_allowed}  # fmt: skip


def error_of_zero_keys(case, extra):
    """The largest error that `extra` keys and values of zero make, in float64."""
    q, k, v = (placed.tensor.double() for placed in inputs.make(case, seed=0))
    longer = [torch.nn.functional.pad(x, (0, 0, 0, extra)) for x in (k, v)]
    right, wrong = (oracle.attention(q, *keys, Visibility().mask)[0] for keys in ((k, v), longer))
    return (right - wrong).abs().max().item()
