"""The ladder's kind: attention of q, k and v under a mask; its work is counted in tiles of keys."""

from pathlib import Path

from grader.engine.kind import Kind, Timing
from grader.kinds.attention import catalogue, judging, kv_heads, naive, seeded_cases, work
from grader.kinds.attention.cases import PROBLEMS
from grader.kinds.attention.contrasts import CONTRASTS


class Ladder(Kind):
    """P1 to P7, which have cases of a seed, too."""

    problems, contrasts = PROBLEMS, CONTRASTS
    inputs, request, next_call, size = judging.make_inputs, judging.request, judging.next_call, judging.size
    right, outputs, warm, drawn = judging.right, judging.outputs, judging.warm, judging.drawn
    explain_fault, diagnose, beyond_values = judging.explain_fault, judging.diagnose, judging.beyond_values
    check_cases, look_closer, right_picture = judging.check_cases, judging.look_closer, judging.right_picture
    small_case, example_sizes = judging.small_case, judging.sizes_shown
    tables, first_difference = judging.show_tables, judging.first_difference
    known_mistakes, wasted = staticmethod(catalogue.every), staticmethod(work.wasted)
    judge_work = staticmethod(work.judge)
    timing, parts = Timing(Path(naive.__file__), "naive_attention", "naive PyTorch"), kv_heads.parts

    def cases(self, problem, seed):
        return seeded_cases.every(problem, seed)

    def case_by_name(self, problem, name):
        return seeded_cases.from_name(name, problem)


KIND = Ladder()
