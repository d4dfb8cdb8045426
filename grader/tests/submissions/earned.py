"""What typical mistakes earn, for docs/points.md: python -m grader.tests.submissions.earned [NAMES...]

Grades each on the CPU, without compiling, as `make grade P=...` does, and prints the table. It takes a few minutes.
"""

import sys
import tempfile
from pathlib import Path

from grader import score
from grader.registry import EVERY
from grader.tests.submissions.corpus import BROKEN, source_of
from grader.tests.support import grade_text, solution

OWN_KV_HEAD = "kv_head = head // group"
# {name: (words of the solution, what stands there instead)}: the lessons not learned
LESSONS = {
    "p5 every query head reads the first kv head": (OWN_KV_HEAD, "kv_head = head * 0"),
    "p5 kv heads by the remainder": (OWN_KV_HEAD, "kv_head = head % (tl.num_programs(1) // group)"),
    "p6 a window of one more": ("age < window_size", "age <= window_size"),
    "p7 a window of one more": ("age < window_size", "age <= window_size"),
}
TYPICAL = 36  # of the corpus: so many with the first letters of P3 to P7, in its order


def chosen():
    """The names of all that are measured."""
    by_problem = {id: [name for name in BROKEN if name.startswith(f"{id} ")] for id in ("p3", "p4", "p5", "p6", "p7")}
    each = [names[:: max(1, len(names) * 5 // TYPICAL)][: TYPICAL // 5 + 1] for names in by_problem.values()]
    return [*LESSONS, *(name for names in each for name in names)][: TYPICAL + len(LESSONS)]


def measure(name, folder):
    """(cases passed, cases, points earned, points, the outcome of the work half or a dash) of a mistake."""
    id = name[:2]
    if name in LESSONS:
        was, now = LESSONS[name]
        assert was in solution(id), name
        text = solution(id).replace(was, now)
    else:
        text = source_of(BROKEN[name])
    results = grade_text(folder, id, text, hints=False)
    cases = [result for result in results if result.aspect.concerns_case]
    work = next((result.outcome.value for result in results if result.aspect.value == "work"), "-")
    passed = sum(result.outcome.value == "passed" for result in cases)
    return passed, len(cases), float(sum(score.earned(results))), EVERY[id].points, work


def main(names):
    print("| mistake | cases passed | work | earned |\n|---|---|---|---|")
    for name in names or chosen():
        with tempfile.TemporaryDirectory() as folder:
            passed, every, earned, points, work = measure(name, Path(folder))
        print(f"| {name} | {passed} of {every} | {work} | {earned:.1f} of {points} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
