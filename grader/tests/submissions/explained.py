"""How many wrong kernels of the corpus are explained: python -m grader.tests.submissions.explained [WORDS OF A NAME].

Of each wrong output of `broken/`: "cause", a known mistake that gives it; "measured", what more runs of the kernel have
shown; "place", rows and numbers alone. Whether what is said is true, tests/engine asserts.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

from grader.result import Outcome
from grader.tests.submissions.corpus import MISTAKES, ON_HONEST, source_of
from grader.tests.support import grade_text


def explain(mistake):
    """(how it is explained, the sentence) in the case that must show it."""
    with tempfile.TemporaryDirectory() as folder:
        (result,) = grade_text(Path(folder), mistake.problem, source_of(mistake), names=[mistake.case])
    how = "cause" if result.facts.causes else "measured" if result.facts.measured else "place"
    return how, result.sentence


def main():
    wrong = [mistake for mistake in (*MISTAKES, *ON_HONEST) if mistake.outcome is Outcome.WRONG]
    asked = [mistake for mistake in wrong if all(word in f"{mistake.base} {mistake.name}" for word in sys.argv[1:])]
    counts = Counter()
    for mistake in asked:
        how, sentence = explain(mistake)
        counts[how] += 1
        if how != "cause":
            print(f"{mistake.base or mistake.problem}: {mistake.name}: {how}\n    {sentence}", flush=True)
    told = len(asked) - counts["place"]
    print(f"{dict(counts)}: {counts['cause']} of {len(asked)} by a cause, {told} explained ({told / len(asked):.1%})")


if __name__ == "__main__":
    main()
