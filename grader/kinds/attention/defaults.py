"""A default that is another than the contract's: wrong are exactly cases that leave the argument out."""

from grader.engine.cause import Measured
from grader.kinds.attention.known_mistakes import DIAGONAL
from grader.kinds.attention.mask_mistakes import SINKS, WINDOW
from grader.result import Outcome

EXPLAINED = {"is_causal": DIAGONAL, "window_size": WINDOW, "sink_size": SINKS}  # argument: section of a notebook


def look(cases, results):
    """Tell it of every wrong output in place of its causes, which only say what the default does instead."""
    wrong = [result for result in results if result.diagnosis and result.diagnosis.what == "output"]
    for name, section in EXPLAINED.items():
        if not wrong or any(name not in cases[result.case].left_out for result in wrong):
            continue
        if any(r.outcome is Outcome.PASSED and r.case in cases and name not in cases[r.case].left_out for r in results):
            said = f"Each case that is wrong leaves {name} out of the call, and cases that give it are right."
            for result in wrong:
                result.diagnosis.causes = []
                result.diagnosis.measured = [Measured("default", said, f"what is the default of {name}?", section)]
