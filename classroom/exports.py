"""A graded class in the forms that others read: each a function of the same Graded, and none decides anything.

Sources: Gradescope, "Autograder specifications", section "Output format"; the schema of the Jenkins xUnit plugin,
junit-10.xsd; Canvas Instructor Guide, "How do I upload all graded submissions?"; MoodleDocs, "Assignment settings",
section "Feedback files".
"""

import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from classroom import roster, sheet
from classroom.data import Class, Record
from classroom.decisions import decimal
from classroom.marks import Marks
from classroom.standing import EXCUSED, GRADED, LATENESS, NOT_HANDED_IN, Standing
from grader import score
from grader.core.sandbox import files
from grader.core.sandbox.texts import clean
from grader.course import course
from grader.registry import EVERY
from grader.result import Outcome, Result

HERE = re.compile(
    r""" SUBMISSION=(?:\$?'[^']*'|"[^"]*"|[^\s'"])+"""
)  # a path of the grader's: students grade problems/
# XML 1.0 has no place for these, escaped or not: terminals' colours, NUL, lone surrogates.
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
BY_DECISION = "by the instructor's decision"
SHOWN = 5  # failing cases of a problem whose sentences a test of Gradescope's has
DATE = (2000, 1, 1, 0, 0, 0)  # of every file in a zip


@dataclass(frozen=True)
class Graded:
    """A class and what was decided. records: {row id: {problem: Record}}; marks: of the written half, or None."""

    out: Path
    whole: Class
    records: Mapping[str, Mapping[str, Record]]
    standings: list[Standing]
    marks: Marks | None = None

    @property
    def most(self) -> Fraction:
        """Points of all problems."""
        return Fraction(sum(self.whole.problems.values()))


# The gradebook, ours and the platform's -------------------------------------------------------------------------------


def write_gradebook(graded: Graded) -> str:
    """gradebook.csv: a line a student; what is not known is blank, never 0."""
    problems, written = list(graded.whole.problems), graded.marks is not None
    halves = ["written", "percent"] if written else []
    table = [
        ["student", "id", "name", "email", *problems, "late points", "bonus", "total", *halves, "status", "remarks"]
    ]
    for known in graded.standings:
        student = known.row.student
        points = [decimal(known.points[problem]) for problem in problems]
        beside = [decimal(-known.late) if known.late else "", decimal(known.bonus) if known.bonus else ""]
        both = [decimal(graded.marks.points.get(known.row.id)), decimal(percent(graded, known))] if graded.marks else []
        row = [known.row.id, known.id, known.row.name, student.email if student else "", *points, *beside]
        table.append([*row, decimal(known.total), *both, known.status, "; ".join(r.rstrip(".") for r in known.remarks)])
    files.write(graded.out / "gradebook.csv", sheet.to_csv(table))
    return f"gradebook: {graded.out / 'gradebook.csv'}"


def percent(graded: Graded, known: Standing) -> Fraction | None:
    """Of the whole, the written half with its share; None where a part is unknown."""
    written = course.current().said.written
    if graded.marks is None or written is None:
        return None
    return graded.marks.combined(known.row.id, known.total, graded.most, written.share)


def write_back(graded: Graded) -> str:
    """The platform's own file, where that is the roster; none of an earlier roster stays."""
    for name in roster.PLATFORMS:
        (graded.out / f"{name}.csv").unlink(missing_ok=True)
    whole = graded.whole
    if not whole.platform:
        return ""
    points = {
        known.row.student.line: roster.Back(decimal(known.total), known.status == EXCUSED, problem_line(graded, known))
        for known in graded.standings
        if known.row.student
    }
    return "\n".join(
        roster.write_back(Path(whole.roster), whole.platform, whole.column, graded.out, points, graded.most)
    )


def problem_line(graded: Graded, known: Standing) -> str:
    """`p1 10/10, p2 not known (needs review); 1 day late: 5 points less`: one line for a student about all."""
    parts = [f"{problem} {in_words(graded, known, problem)}" for problem in known.points]
    return "; ".join([", ".join(parts), *known.changes])


def in_words(graded: Graded, known: Standing, problem: str) -> str:
    """`10/10`, `excused`, `not known (needs review)`"""
    state, most = known.states[problem], graded.whole.problems[problem]
    if state == GRADED:
        return f"{decimal(known.points[problem])}/{most}" if most else "-"
    return state if state in (EXCUSED, NOT_HANDED_IN) else f"not known ({state})"


# Gradescope -----------------------------------------------------------------------------------------------------------


def write_gradescope(graded: Graded) -> str:
    """gradescope/ROW.json: results.json of each submission."""
    folder = graded.out / "gradescope"
    folder.mkdir(parents=True, exist_ok=True)
    handed_in = [known for known in graded.standings if known.row.entries]
    for old in {path.name for path in folder.glob("*.json")} - {f"{known.row.id}.json" for known in handed_in}:
        (folder / old).unlink(missing_ok=True)
    for known in handed_in:
        document = gradescope(graded, known)
        files.write(folder / f"{known.row.id}.json", json.dumps(document, indent=1) + "\n")
    return f"gradescope: {folder}: results.json of {len(handed_in)} submissions"


def gradescope(graded: Graded, known: Standing) -> dict:
    """The document of one submission: a test for each aspect of each problem.

    While something waits there is no score of the whole, and Gradescope adds up the tests: no other points are hidden.
    A lateness that is to be decided concerns them all: then no test has points.
    """
    tests: list[dict[str, Any]] = []
    for problem, record in graded.records.get(known.row.id, {}).items():
        if known.states[problem] != GRADED or problem in known.words:
            tests.append(whole_problem(graded, known, problem))
            continue
        triples = list(zip(record.results, score.earned(record.results), score.max_points(record.results), strict=True))
        for aspect in dict.fromkeys(result.aspect for result in record.results):
            group = [each for each in triples if each[0].aspect is aspect]
            tests.append(aspect_test(problem, aspect, group))
    missing = [problem for problem in known.states if problem not in graded.records.get(known.row.id, {})]
    tests += [whole_problem(graded, known, problem) for problem in missing]
    if known.status == LATENESS:
        tests = [{"name": test["name"], "output": test["output"]} for test in tests]
    remarks = [said for said in known.remarks if said not in known.changes]
    document = {"output": "\n".join([problem_line(graded, known), *remarks]), "tests": tests}
    return document if known.total is None else {"score": number(known.total)} | document


def whole_problem(graded: Graded, known: Standing, problem: str) -> dict[str, Any]:
    """One test for a problem that was decided, is excused, or waits: its points stand there only if they are known."""
    state, points = known.states[problem], known.points[problem]
    open_points = f"{state}: there are no points before the instructor decides."
    decided = known.words.get(problem) or (EXCUSED if state == EXCUSED else BY_DECISION)
    test: dict[str, Any] = {
        "name": f"{problem} {EVERY[problem].title}", "output": decided if problem in known.words else open_points,
    }  # fmt: skip
    if points is not None:
        test |= {"score": number(points), "max_score": float(graded.whole.problems[problem])}
    return test


def aspect_test(problem: str, aspect, group: list[tuple[Result, Fraction, Fraction]]) -> dict:
    """One test of Gradescope's: the cases of a problem, or its work, its speed or its compiling."""
    results, most = [result for result, *_ in group], sum((most for *_, most in group), Fraction(0))
    failed = [result for result in results if not score.passed([result])]
    passed = len(results) - len(failed)
    lines = [
        f"{passed} of {len(results)} cases"
        if aspect.concerns_case
        else (results[0].sentence or results[0].outcome.value)
    ]
    for result in failed[:SHOWN] if aspect.concerns_case else ():
        lines += [f"{result.case}: {result.outcome.value}: {result.sentence}", f"again: {HERE.sub('', result.again)}"]
    if len(failed) > SHOWN:
        lines.append(f"and {len(failed) - SHOWN} more cases; the page has all")
    test: dict[str, Any] = {
        "name": f"{problem} {EVERY[problem].title}: {'cases' if aspect.concerns_case else aspect.value}"
    }
    if most:
        test |= {"score": number(sum((got for _, got, _ in group), Fraction(0))), "max_score": number(most)}
        test["status"] = "failed" if failed else "passed"
    return test | {"output": "\n".join(lines)}


def number(points: Fraction | None) -> float:
    return float(decimal(points or Fraction(0), 3))


# JUnit ----------------------------------------------------------------------------------------------------------------


def write_junit(graded: Graded) -> str:
    """junit.xml: a testsuite for each submission, a testcase for each case."""
    root = Element("testsuites", name=harmless(course.current().said.title))
    for known in graded.standings:
        for problem, record in graded.records.get(known.row.id, {}).items():
            cases = [(result, element(result)) for result in record.results]
            attributes = {"name": harmless(f"{known.row.id} {problem}"), "tests": str(len(cases)), "errors": "0"}
            for kind, plural in (("failure", "failures"), ("skipped", "skipped")):
                attributes[plural] = str(sum(of == kind for _, of in cases))
            suite = SubElement(root, "testsuite", attributes)
            for result, of in cases:
                name = harmless(f"{result.aspect.value}: {result.case}")
                place = {"classname": suite.get("name", ""), "name": name, "time": f"{result.seconds:.3f}"}
                case = SubElement(suite, "testcase", place)
                if of:
                    SubElement(case, of, message=harmless(result.sentence or result.outcome.value))
    files.write(graded.out / "junit.xml", tostring(root, encoding="utf-8", xml_declaration=True))
    return f"junit: {graded.out / 'junit.xml'}"


def element(result: Result) -> str:
    """How JUnit says an outcome: "" where it passed."""
    if result.outcome is Outcome.PASSED:
        return ""
    return "skipped" if result.outcome is Outcome.NOT_RUN else "failure"


def harmless(said: str) -> str:
    return NOT_XML.sub("\ufffd", clean(said))


# Back to students -----------------------------------------------------------------------------------------------------


def write_feedback(graded: Graded) -> str:
    """feedback.zip: the page of each student whose points are known, by the names that Moodle or Canvas take back."""
    chosen = [known for known in graded.standings if known.status in (GRADED, EXCUSED)]
    pages = [(known.row, graded.out / "pages" / f"{known.row.id}.html") for known in chosen]
    pages = [(row, path) for row, path in pages if path.exists()]
    part = graded.out / "feedback.zip.part"
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for row, path in pages:
            name = f"{row.stem or f'{row.id}/'}feedback.html"
            archive.writestr(zipfile.ZipInfo(name, DATE), path.read_bytes(), zipfile.ZIP_DEFLATED)
    part.replace(graded.out / "feedback.zip")
    left = sum(known.status not in (GRADED, EXCUSED, NOT_HANDED_IN) for known in graded.standings)
    said = f"; those of {left} wait until their points are known" if left else ""
    return f"feedback: {graded.out / 'feedback.zip'}: {len(pages)} pages{said}"
