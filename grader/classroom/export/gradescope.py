"""Gradescope: results.json of each submission, from its records.

Source: Gradescope, "Autograder specifications", section "Output format". A document without a score is an autograder
that failed, which nobody takes for a 0.
"""

import json
import re
from fractions import Fraction

from grader.classroom.export.standing import decimal, problem_line, standing
from grader.core.sandbox import files

HERE = re.compile(
    r""" SUBMISSION=(?:\$?'[^']*'|"[^"]*"|[^\s'"])+"""
)  # a path of the grader's machine: a student grades problems/
SORRY = "This is a fault of the grader's machine, not of the submission: there is no score, and no point is lost."
WAITS = "Some cases wait for the instructor's decision: there is no score before it."


def render(graded, row):
    """The document of one submission as plain data."""
    records = graded.find_records(row)
    known = standing(graded, row, records)
    tests = [test(record, result) for record in records.values() for result in record.results]
    said = [problem_line(records), *known.remarks]
    if known.total is None:
        for one in tests:
            one.pop("score"), one.pop("max_score")
        waiting = any(record.to_review for record in records.values())
        said.insert(0, WAITS if waiting and None not in (r.points for r in records.values()) else SORRY)
    document = {"output": "\n".join(line for line in said if line), "tests": tests}
    return document if known.total is None else {"score": float(decimal(known.total, places=3))} | document


def test(record, result):
    """One case, named as `make grade` names it in its own results.json."""
    return {
        "name": f"{record.problem} {result['aspect']}: {result['case']}",
        "score": number(result, "earned"),
        "max_score": number(result, "possible"),
        "status": "passed" if result["outcome"] == "passed" else "failed",
        "output": output(result),
        "extra_data": {"problem": record.problem} | {name: result[name] for name in ("case", "aspect", "outcome")},
    }


def number(result, name):
    return float(decimal(Fraction(result.get(name) or 0), places=3))


def output(result):
    """What the student reads of one case."""
    lines = [f"{result['outcome']}: {result.get('description') or ''}".removesuffix(": "), result.get("sentence")]
    if result["outcome"] != "passed" and result.get("again"):
        lines.append(f"again: {HERE.sub('', result['again'])}")
    lines += [f"printed:\n{result['printed']}"] if result.get("printed") else []
    return "\n".join(line for line in lines if line)


def write(graded, folder):
    """`folder`/<id>.json for each submission; returns the line to print."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for row in graded.submissions if row.handed_in]
    for old in folder.glob("*.json"):
        if old.stem not in {row.id for row in rows}:  # of a submission that is no longer in the class
            old.unlink(missing_ok=True)
    for row in rows:
        files.write(folder / f"{row.id}.json", json.dumps(render(graded, row), indent=1) + "\n")
    return f"gradescope: {folder}: results.json of {len(rows)} submissions, named by their ids"
