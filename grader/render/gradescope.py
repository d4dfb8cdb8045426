"""Results -> results.json in Gradescope's format.

Source: Gradescope, "Autograder specifications", section "Output format".
"""

import json

from grader import score
from grader.core.sandbox import files
from grader.result import Outcome, Result, to_plain


def render(results, failed=0):
    """The document as plain data: score, tests[] with name, score, max_score, status, output and extra_data.

    failed: how many explanations failed, which changes no verdict.
    """
    tests = []
    for group in score.by_problem(results).values():
        for result, got, most in zip(group, score.earned(group), score.max_points(group), strict=True):
            ours = result.outcome is Outcome.GRADER_FAULT  # its points are open: no score
            tests.append(
                {
                    "name": f"{result.problem} {result.aspect.value}: {result.case}",
                    **({} if ours else {"score": round(float(got), 3)}),
                    "max_score": round(float(most), 3),
                    "status": "passed" if score.passed([result]) else "failed",
                    "output": output(result),
                    "extra_data": {
                        "problem": result.problem,
                        "case": result.case,
                        "aspect": result.aspect.value,
                        "outcome": result.outcome.value,
                    }
                    | extra_facts(result),
                }
            )
    document = {"score": round(float(score.total(results)[0]), 3), "tests": tests}
    if left := score.open_points(results):
        document["output"] = f"Incomplete: the grader failed, and {float(left):.2f} points are open. Grade it again."
    if failed:
        document["extra_data"] = {"failed_explanations": failed}
    return document


def extra_facts(result: Result) -> dict:
    """What is known of the speed and of compiled kernels, and the evidence for a review."""
    known = to_plain(result.facts)
    return known.get("speed", {}) | {name: known[name] for name in ("compile", "evidence") if name in known}


def output(result):
    lines = [f"{result.outcome.value}: {result.description}", result.sentence]
    lines += [f"also: {sign}" for sign in result.facts.evidence[1:]]
    lines += [f"ask yourself: {result.facts.question}"] if result.facts.question else []
    lines += [f"again: {result.again}"] if result.outcome is not Outcome.PASSED and result.again else []
    lines += [f"printed:\n{result.printed}"] if result.printed else []
    return "\n".join(line for line in lines if line)


def write(results, path, failed=0):
    """Write the document."""
    files.write(path, json.dumps(render(results, failed), indent=1) + "\n")
