"""All forms of a graded class, one after the other: one that fails does not stop the next, and costs no grade."""

from pathlib import Path

from grader.classroom import journal
from grader.classroom.export import decisions, gradebook, gradescope, junit, similar
from grader.classroom.record import Class
from grader.classroom.sheet import BadSheet
from grader.diagnosis import failures

AGAIN = "the grades stand; python -m grader.classroom.export writes it again"


def write(out, graded: Class | None = None):
    """Write gradebook.csv, junit.xml, gradescope/, copies/, class.html and decisions.csv into a class's folder.

    Yields a line of each. graded: the Class, read from `out` where it is not given. Raises journal.JournalBroken where
    `out` is no class's folder.
    """
    out = Path(out)
    graded = journal.read(out) if graded is None else graded
    found, waiting = list[similar.Found](), {"decisions.csv": lambda: decisions.ask(graded, out)}
    try:
        before, graded = graded.notes, decisions.applied(graded, out)
        yield from graded.notes[len(before) :]
    except BadSheet as error:
        waiting = {}
        yield f"no decision counts before this is mended: {error}"
    forms = {
        "gradebook.csv": lambda: gradebook.write(graded, out / "gradebook.csv"),
        "junit.xml": lambda: junit.write(graded, out / "junit.xml"),
        "gradescope/": lambda: gradescope.write(graded, out / "gradescope"),
        "copies/": lambda: write_copies(graded, out, found),
        "class.html": lambda: write_page(graded, out, found),
        **waiting,
    }
    for name, form in forms.items():
        try:
            line = form()
        except ModuleNotFoundError as error:
            line = f"{name} was not written: {error.name} is missing (pip install {error.name}); {AGAIN}"
        except OSError as error:
            line = f"{name} was not written: {error.strerror}; {AGAIN}"
        except Exception as error:
            failures.log(name, error)
            line = f"{name} was not written, and that is the grader's fault: {type(error).__name__}: {error}; {AGAIN}"
        if line:
            yield line


def write_copies(graded, out, found):
    """Look for copies and write their pages; `found` gets what was found, for the class's page."""
    from grader.classroom.export import copies

    found.append(similar.look(copies.texts(graded, out), copies.given(graded)))
    if found[0].skipped:
        return f"suspected copies: {found[0].skipped}"
    return " ".join([copies.write(graded, out, found[0].pairs), *found[0].missed])


def write_page(graded, out, found):
    from grader.classroom.export import pages

    return pages.write(graded, out, found[0] if found else None)
