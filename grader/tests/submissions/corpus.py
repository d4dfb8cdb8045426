"""The submissions that the tests grade: honest kernels, known mistakes and cheats."""

from grader.registry import EVERY
from grader.tests.submissions.broken.memory import MEMORY
from grader.tests.submissions.broken.mistakes import LABS, MISTAKES, ON_HONEST
from grader.tests.submissions.broken.wasteful import WASTEFUL
from grader.tests.support import SUBMISSIONS, honest, solution

HONEST = sorted(path.stem for path in (SUBMISSIONS / "honest").glob("[px]*.py"))
DISHONEST = sorted(path.stem for path in (SUBMISSIONS / "dishonest").glob("*.py"))
ALL_BROKEN = (*MISTAKES, *LABS, *MEMORY, *WASTEFUL, *ON_HONEST)
BROKEN = {f"{mistake.base or mistake.problem} {mistake.name}": mistake for mistake in ALL_BROKEN}


def source_of(mistake):
    return mistake.apply(honest(mistake.base) if mistake.base else solution(mistake.problem))


def cheating(name):
    """The source of a cheat: it follows the solution of its problem, whose entry point is then named real_forward."""
    problem = EVERY[name[:2]]
    real = solution(problem.id).replace(f"def {problem.entry_point}(", "def real_forward(")
    return f"{real}\n\n{(SUBMISSIONS / 'dishonest' / f'{name}.py').read_text('utf-8')}"
