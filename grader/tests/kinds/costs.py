"""Measures what kernels cost on the long row, as ratios to what its mask needs: how the bounds of work.py were set.

python -m grader.tests.kinds.costs                 the solutions and every honest kernel of the tests
python -m grader.tests.kinds.costs FILE [FILE ...]  these files, named by their problem: p5_what_it_is.py
"""

import contextlib
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from grader.core.sandbox import pool
from grader.core.sandbox.submission import Submission
from grader.course.problem import LONG_ROW
from grader.kinds.attention import work
from grader.registry import EVERY
from grader.tests.support import SUBMISSIONS, solution

SHOWN = ("products", "loaded", "keys_loaded", "computed", "stored", "different")


def measure(problem, source):
    """{what: ratio} of a kernel on the long row of its problem, or a text that says why there is none."""
    case = next(case for case in problem.cases if case.name == LONG_ROW)
    how = problem.kind.handler(case)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        module = Path(folder, problem.module)
        module.write_text(source, encoding="utf-8")
        with contextlib.closing(Submission(module, problem, "cpu", 300.0)) as submission:
            answer = how.reply(submission, case, how.inputs(case, 0))
    if not answer.returned:
        return str(answer.reply)[:80]
    found, q = asdict(work.measure(case, answer.reply.trace.costs)), case.B * case.Hq * case.N * case.D
    lengths, wrapper = work.held_by_length([(case, answer), *answer.more]), answer.reply.wrapper
    ratios = {name: found[name] for name in SHOWN} | {"held": lengths[case.N] / lengths[min(lengths)]}
    return ratios | {name: getattr(wrapper, name) / q for name in ("touched", "multiply_adds", "made")}


def main():
    paths = [Path(name) for name in sys.argv[1:]]
    entries = [
        (path.name, path.read_text("utf-8")) for path in paths or sorted(SUBMISSIONS.glob("honest/[px][1-7]_*.py"))
    ]
    entries += [] if paths else [(f"{id} solution", solution(id)) for id in EVERY]
    most = {}
    for name, source in entries:
        problem = EVERY[name[:2]]
        if problem.uses_triton and any(case.name == LONG_ROW for case in problem.cases):
            found = measure(problem, source)
            said = (
                found if isinstance(found, str) else "  ".join(f"{what} {ratio:.2f}" for what, ratio in found.items())
            )
            print(f"{name:44} {said}", flush=True)
            for what, ratio in found.items() if isinstance(found, dict) else ():
                most[what] = max(most.get(what, (0.0, "")), (ratio, name))
    print("\nmost of each:", *(f"  {what}: {ratio:.2f} ({name})" for what, (ratio, name) in most.items()), sep="\n")
    pool.close_all()


if __name__ == "__main__":
    main()
