"""junit.xml: a testsuite for each submission, a testcase for each case.

Source: the schema of the Jenkins xUnit plugin, junit-10.xsd.
"""

import re
from xml.etree.ElementTree import Element, SubElement, tostring
from xml.sax.saxutils import quoteattr

from grader.classroom.export.standing import GRADED, standing
from grader.classroom.record import name_of_case
from grader.core.sandbox import files
from grader.core.sandbox.texts import clean as harmless
from grader.course import course

# XML 1.0 has no place for these, escaped or not: terminals' colours, NUL, lone surrogates.
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
FAULTS = ("grader fault", "machine fault")


def clean(said):
    return NOT_XML.sub("\ufffd", harmless(str(said)))


def junit_element(outcome):
    """How JUnit says an outcome: None passed, else the element's name."""
    if outcome == "passed":
        return None
    return "error" if outcome in FAULTS else "skipped" if outcome == "not run" else "failure"


def add(parent, element, inner="", /, **attributes):
    """A new element below `parent`, without what XML cannot say."""
    made = SubElement(parent, element, {name: clean(value) for name, value in attributes.items()})
    made.text = clean(inner) or None
    return made


def write(graded, path):
    """Write it; returns the line to print."""
    rows = [row for row in graded.submissions if row.handed_in]
    suites = (tostring(render_suite(graded, row), encoding="unicode") for row in rows)
    title = quoteattr(course.current().said.title)
    head = f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name={title}>'
    files.write(path, "\n".join([head, *suites, "</testsuites>\n"]))
    return f"junit: {path}"


def render_suite(graded, row):
    """The element of one submission."""
    records = graded.find_records(row)
    known, suite = standing(graded, row, records), Element("testsuite", name=clean(row.title), id=row.id)
    for problem, record in records.items():
        if record.points is None:
            why = "; ".join(record.remarks) or "the grader's machine failed"
            whole = {"outcome": record.status, "sentence": why, "seconds": record.seconds}
            add_case(suite, f"{row.id}.{problem}", "the whole problem", whole)
            continue
        for result in record.results:
            add_case(suite, f"{row.id}.{problem}", name_of_case(result), result)
    suite.set("tests", str(len(suite)))
    for kind, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(count, str(len(suite.findall(f"testcase/{kind}"))))
    suite.set("time", f"{sum(float(case.get('time')) for case in suite):.3f}")
    remarks = [*known.remarks, *([known.status] if known.status != GRADED else [])]
    if remarks:
        add(suite, "system-out", "\n".join(remarks))
    return suite


def add_case(suite, of, name, result):
    """The element of one case."""
    case = add(suite, "testcase", name=name, classname=of, time=f"{result['seconds']:.3f}")
    outcome, sentence = result["outcome"], result.get("sentence") or ""
    kind = junit_element(outcome)
    if kind == "skipped":
        add(case, kind, message=sentence or outcome)
    elif kind:
        add(case, kind, sentence, message=sentence or outcome, type=outcome)
    if result.get("printed"):
        add(case, "system-out", result["printed"])
