"""What the trace counts of the solutions equals closed formulas, for every mask and many sizes."""

import contextlib
import itertools

import pytest

from grader.core.protocol.reports import KernelCosts
from grader.core.sandbox.submission import Submission
from grader.course.problem import SECONDS_PER_CASE
from grader.kinds.attention import inputs, tile_visits
from grader.kinds.attention.cases import Case
from grader.registry import PROBLEMS
from grader.tests.support import solution, thorough_but

TILES = ((16, 16), (32, 16), (16, 64), (64, 32))
LENGTHS = (1, 16, 63, 130)
WINDOWS = (1, 17, 64, 500)
SINKS = (0, 1, 40, 500)


def cases_of(problem_id):
    shape = {"B": 1, "Hq": 2, "Hkv": 2 if problem_id in ("p3", "p4") else 1, "D": 16}
    windows = WINDOWS if problem_id in ("p6", "p7") else (None,)
    sinks = SINKS if problem_id == "p7" else (None,)
    for N, window, sink in itertools.product(LENGTHS, windows, sinks):
        yield Case("counted", N=N, **shape, causal=problem_id != "p3", window=window, sinks=sink)


def visited(case, q_start, BLOCK_Q, BLOCK_K):
    """The first tokens of the tiles of keys that the tile of queries at q_start meets, by the masks' definitions."""
    end = min(q_start + BLOCK_Q, case.N) if case.causal else case.N
    first = 0 if case.window is None else max(0, q_start - case.window + 1) // BLOCK_K * BLOCK_K
    sinks = -(-min(case.sinks or 0, first) // BLOCK_K) * BLOCK_K
    return [*range(0, sinks, BLOCK_K), *range(first, end, BLOCK_K)]


def expected(case, BLOCK_Q, BLOCK_K):
    """(totals of the kernel, visits): heads and batches do the same."""
    heads, row = case.B * case.Hq, case.D * 2  # bytes of a row in float16
    starts = range(0, case.N, BLOCK_Q)
    tiles = [visited(case, start, BLOCK_Q, BLOCK_K) for start in starts]
    keys = sum(min(BLOCK_K, case.N - k_start) for met in tiles for k_start in met)
    steps = sum(map(len, tiles))
    totals = KernelCosts(
        launches=1,
        programs=heads * len(starts),
        loaded={"Q": heads * case.N * row, "K": heads * keys * row, "V": heads * keys * row},
        stored={"O": heads * case.N * row},
        loads={"Q": heads * len(starts), "K": heads * steps, "V": heads * steps},
        stores={"O": heads * len(starts)},
        dot_flops=heads * steps * 2 * 2 * BLOCK_Q * BLOCK_K * case.D,
        exponentials=heads * steps * (BLOCK_Q * BLOCK_K + BLOCK_Q),
    )
    return totals, dict(zip(starts, tiles, strict=True))


def trace_of(submission, case):
    answer = submission.problem.kind.handler(case).reply(submission, case, inputs.make(case, 0))
    assert answer.returned, answer
    return answer.reply.trace


@pytest.mark.parametrize("tiles", thorough_but([(32, 16)], TILES), ids=str)
@pytest.mark.parametrize("problem_id", ["p3", "p4", "p5", "p6", "p7"])
def test_counts_equal_closed_formulas(problem_id, tiles, tmp_path):
    problem = PROBLEMS[problem_id]
    usual = "TILES_INTERPRETER = (64, 32, 4, 1)"
    source = solution(problem_id)
    assert usual in source
    module = tmp_path / problem.module
    module.write_text(source.replace(usual, f"TILES_INTERPRETER = ({tiles[0]}, {tiles[1]}, 4, 1)"), encoding="utf-8")
    submission = Submission(module, problem, "cpu", SECONDS_PER_CASE["cpu"])
    with contextlib.closing(submission):
        for case in cases_of(problem_id):
            trace = trace_of(submission, case)
            totals, visits = expected(case, *tiles)
            assert trace.kernels == {"flash_attention_kernel": totals}, case
            found = tile_visits.read(trace)
            assert len(found) == totals.programs
            for visit in found:
                met = [first for first, _ in visit.tiles]
                assert met == visits[visit.q[0]], (case, visit)
                assert visit.q[1] == min(visit.q[0] + tiles[0], case.N) - 1
            assert not trace.faults
