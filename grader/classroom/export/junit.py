"""junit.xml: a testsuite for each submission, a testcase for each case; written as it goes, whatever the class's size.

Source: the schema of the Jenkins xUnit plugin, junit-10.xsd.
"""

import io
import re
from xml.sax.saxutils import XMLGenerator

from grader.classroom.export.standing import GRADED, standing
from grader.processes import files, text

# XML 1.0 has no place for these, escaped or not: terminals' colours, NUL, lone surrogates.
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
FAULTS = ("grader fault", "machine fault")


def clean(said):
    return NOT_XML.sub("\ufffd", text.clean(str(said)))


def kind_of(outcome):
    """How JUnit says an outcome: None passed, else the element's name."""
    if outcome == "passed":
        return None
    return "error" if outcome in FAULTS else "skipped" if outcome == "not run" else "failure"


def cases_of(records):
    """(problem, case, outcome, sentence, printed, seconds) of all that was asked of a submission."""
    for id, record in records.items():
        if record.points is None:
            why = "; ".join(record.remarks) or "the grader's machine failed"
            yield id, "the whole problem", record.status, why, "", record.seconds
        for result in record.results if record.points is not None else ():
            name = result["case"] if result["aspect"] == "correct" else f"{result['aspect']}: {result['case']}"
            yield (
                id,
                name,
                result["outcome"],
                result.get("sentence") or "",
                result.get("printed") or "",
                result["seconds"],
            )


class Writer:
    """An XMLGenerator that keeps what XML cannot say out of the file."""

    def __init__(self, stream):
        self.xml = XMLGenerator(stream, encoding="utf-8", short_empty_elements=True)
        self.xml.startDocument()

    def start(self, element, /, **attributes):
        self.xml.startElement(element, {name: clean(value) for name, value in attributes.items()})

    def end(self, name):
        self.xml.endElement(name)
        self.xml.characters("\n")

    def element(self, element, inner="", /, **attributes):
        self.start(element, **attributes)
        self.xml.characters(clean(inner))
        self.end(element)


def write(graded, path):
    """Write it; returns the line to print."""
    stream = io.BytesIO()
    writer = Writer(stream)
    writer.start("testsuites", name="FlashAttention in seven problems")
    for row in (row for row in graded.submissions if row.handed_in):
        write_suite(writer, graded, row)
    writer.end("testsuites")
    files.write(path, stream.getvalue())
    return f"junit: {path}"


def write_suite(writer, graded, row):
    records = graded.of(row)
    cases = list(cases_of(records))
    kinds = [kind_of(outcome) for _, _, outcome, *_ in cases]
    known = standing(graded, row, records)
    writer.start(
        "testsuite", name=row.title, id=row.id, tests=len(cases), failures=kinds.count("failure"),
        errors=kinds.count("error"), skipped=kinds.count("skipped"), time=f"{sum(c[-1] for c in cases):.3f}",
    )  # fmt: skip
    for (problem, case, outcome, sentence, printed, seconds), kind in zip(cases, kinds, strict=True):
        writer.start("testcase", name=case, classname=f"{row.id}.{problem}", time=f"{seconds:.3f}")
        if kind:
            said = {} if kind == "skipped" else {"type": outcome}
            writer.element(kind, "" if kind == "skipped" else sentence, message=sentence or outcome, **said)
        if printed:
            writer.element("system-out", printed)
        writer.end("testcase")
    remarks = [*known.remarks, *([known.status] if known.status != GRADED else [])]
    if remarks:
        writer.element("system-out", "\n".join(remarks))
    writer.end("testsuite")
