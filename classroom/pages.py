"""A page for each student, and class.html for the instructor; every page shows the points that the gradebook has."""

import os
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from classroom.copies import Found
from classroom.data import digest, records_of
from classroom.decisions import decimal
from classroom.exports import Graded, in_words, percent
from classroom.standing import EXCUSED, GRADED, LATENESS, NOT_HANDED_IN, OPEN, REVIEW, UNREAD, Standing
from grader.core.sandbox import files
from grader.engine.request import Request
from grader.registry import EVERY
from grader.render import html
from grader.render.drawing import KINDS
from grader.result import Outcome, Result

TEMPLATES = Path(__file__).parent / "templates"
SHOWN = 12  # cases and misconceptions; the others are folded up
RANGES = 20  # into which the points are divided
TAIL = 200  # bytes at the end of a page, in which its mark stands
NO_FAILURE = (Outcome.PASSED, Outcome.NOT_RUN, Outcome.GRADER_FAULT, Outcome.NEEDS_REVIEW)
LATE_CASES, ABSENT = "timed out", "0 because it was not handed in"


# A student's page -----------------------------------------------------------------------------------------------------


def write_students(graded: Graded) -> str:
    """pages/ROW.html of all that have results; one that shows what counts now is left as it is."""
    folder = graded.out / "pages"
    folder.mkdir(parents=True, exist_ok=True)
    known = {f"{standing.row.id}.html": standing for standing in graded.standings if standing.row.id in graded.records}
    for name in set(os.listdir(folder)) - set(known):
        (folder / name).unlink(missing_ok=True)
    for name, standing in known.items():
        mark = mark_of(graded, standing)
        if not shows(folder / name, mark):
            files.write(folder / name, f"{student_page(graded, standing).rstrip()}\n{mark}")
    return f"pages: {folder}: {len(known)} students"


def mark_of(graded: Graded, known: Standing) -> str:
    """The last line of a page: a hash of all that it shows."""
    parts = known.row.name, *map(str, known.row.keys.items()), *map(str, known.points.items()), *known.remarks
    parts += (*map(str, known.states.items()), str(known.total), *written_half(graded, known))
    return f"<!-- shows {digest(*parts)} -->\n"


def shows(path: Path, mark: str) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            return file.read().endswith(b"\n" + mark.encode())
    except OSError:
        return False


def student_page(graded: Graded, known: Standing) -> str:
    whole, records = graded.whole, records_of(graded.out, known.row)
    results = [result for record in records.values() for result in record.results]
    request = Request(
        Path(known.row.id), tuple(EVERY[id] for id in records), None, whole.device, whole.seed, targets=whole.targets,
        private_seed=bool(whole.seed),
    )  # fmt: skip
    points = {id: in_words(graded, known, id) for id in records}
    of = f"of {decimal(graded.most)} points"
    said = f"{decimal(known.total)} {of}" if known.total is not None else f"points not known yet: {known.status}"
    said = EXCUSED if known.status == EXCUSED else said
    notes = [*known.remarks, *written_half(graded, known)]
    seconds = sum(record.seconds for record in records.values())
    return html.render(results, request, seconds, known.row.name, said, points, notes)


def written_half(graded: Graded, known: Standing) -> list[str]:
    """The levels of the written half, once all are there, and what both halves are together."""
    marks, share = graded.marks, percent(graded, known)
    if marks is None or (points := marks.points.get(known.row.id)) is None:
        return []
    levels = ", ".join(f"{id} level {level}" for id, level in marks.levels[known.row.id].items())
    whole = [f"With the written half: {decimal(share)} percent of the whole."] if share is not None else []
    return [f"The written half: {decimal(points)} of {decimal(marks.most)} points ({levels}).", *whole]


# The class ------------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """How one case, or one misconception, went: failed: row ids, of so many `asked`; words: as they were said."""

    problem: str
    asked: int = 0
    failed: dict[str, None] = field(default_factory=dict)
    words: Counter = field(default_factory=Counter)

    @property
    def most_often(self) -> str:
        return self.words.most_common(1)[0][0] if self.words else ""


def write_class(graded: Graded, found: Found | None) -> str:
    """class.html: how the class did, and first what to look at."""
    files.write(graded.out / "class.html", render_class(graded, found))
    return f"class page: {graded.out / 'class.html'}"


def render_class(graded: Graded, found: Found | None) -> str:
    environment = html.templates(TEMPLATES)
    environment.filters |= {"points": decimal, "percent": lambda part, all: f"{100 * part / all:.0f} %" if all else ""}
    known, whole = graded.standings, graded.whole
    failing, causes = tallies(graded)
    totals = [standing.total for standing in known if standing.total is not None]
    times = sorted(
        ((sum(r.seconds for r in records.values()), id) for id, records in graded.records.items()), reverse=True
    )
    return environment.get_template("class.html").render(
        kinds=KINDS, known=known, names={standing.row.id: standing.row.name for standing in known},
        links={id: f"pages/{id}.html" for id in graded.records},
        written={
            s.row.id: (graded.marks.points.get(s.row.id), percent(graded, s)) for s in known if graded.marks is not None
        }, look=look_at(graded, found), found=found,
        facts=facts(known, totals, graded.most), ranges=count_totals(totals, graded.most), problems=problems_of(graded),
        failing=failing, causes=causes, shown=SHOWN, slowest=times[:10], notes=whole.notes,
    )  # fmt: skip


def look_at(graded: Graded, found: Found | None) -> list[tuple[str, list[tuple[str, str]]]]:
    """[(what, [(row id, words)])]: what an instructor looks at first; nothing that is empty."""
    look: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for known in graded.standings:
        row, records = known.row, graded.records.get(known.row.id, {})
        states = known.states
        if UNREAD in states.values():
            of = ", ".join(problem for problem, state in states.items() if state == UNREAD)
            look[UNREAD].append((row.id, f"{of}: {row.why or ' '.join(dict.fromkeys(row.unread.values()))}"))
        for problem, record in records.items():
            signs = list(dict.fromkeys(signs_of(record.to_review)))
            if states[problem] == REVIEW:
                look[REVIEW].append((row.id, f"{problem}: {' '.join(signs[:3])}"))
            late = [result.case for result in record.results if result.outcome is Outcome.TIMED_OUT]
            if late:
                look[LATE_CASES].append(
                    (row.id, f"{problem}: {len(late)} of {len(record.results)} cases, the first '{late[0]}'")
                )
            crashes = {result.sentence for result in record.results if result.outcome is Outcome.CRASHED}
            if len(crashes) == 1 and all(r.outcome in (Outcome.CRASHED, Outcome.NOT_RUN) for r in record.results):
                look["crashed in every case"].append((row.id, f"{problem}: {next(iter(crashes))}"))
        for problem, why in graded.whole.faults.get(row.id, {}).items():
            look["the machine failed"].append(
                (row.id, f"{problem}: {why}: no point is lost, the same command tries again")
            )
        absent = [
            id for id in records
            if EVERY[id].module not in row.modules and states[id] == GRADED and id not in known.words
        ]  # fmt: skip
        if known.status == LATENESS:
            look[LATENESS].append(
                (row.id, "how many days late it was is not known: a row `late` in decisions.csv waits")
            )
        if known.status == NOT_HANDED_IN:
            look[NOT_HANDED_IN].append(
                (row.id, "nothing: the points are blank; a row `all`, 0 in decisions.csv gives 0")
            )
        if row.entries and absent:
            look[ABSENT].append((row.id, ", ".join(absent)))
    taken: dict[str, list[str]] = defaultdict(list)
    for row, problem in found.reference if found else ():
        taken[row.id].append(problem)
    look["equals the reference solution"] += [(id, ", ".join(problems)) for id, problems in taken.items()]
    for group in found.wrong if found else ():
        words = f"{group.problem}, the same wrong answers: {group.sentence}"
        look["equal wrong answers"] += [(row.id, words) for row in group.rows]
    order = (
        UNREAD, REVIEW, "the machine failed", LATENESS, LATE_CASES, "equals the reference solution",
        "equal wrong answers", "crashed in every case", ABSENT, NOT_HANDED_IN,
    )  # fmt: skip
    return [(what, look[what]) for what in order if look[what]]


def signs_of(results: list[Result]) -> list[str]:
    return [sign for result in results for sign in (result.facts.evidence or (result.sentence,))]


def tallies(graded: Graded) -> tuple[list[tuple[str, Tally]], list[tuple[str, Tally]]]:
    """([(case, Tally)], those that fail most first; [(kind of cause, Tally)], the most frequent first)."""
    cases: dict[tuple[str, str], Tally] = {}
    causes: dict[str, Tally] = {}
    for id, records in graded.records.items():
        for problem, record in records.items():
            for result in record.results:
                name = result.case if result.aspect.concerns_case else f"{result.aspect.value}: {result.case}"
                tally = cases.setdefault((problem, name), Tally(problem))
                tally.asked += result.outcome not in NO_FAILURE[1:]
                if result.outcome not in NO_FAILURE:
                    tally.failed[id] = None
                    tally.words[result.outcome.value] += 1
                for cause in result.facts.causes:
                    of = causes.setdefault(cause.kind, Tally(problem))
                    of.failed[id] = None
                    of.words[cause.equals] += 1
    failing = [(name, tally) for (_, name), tally in cases.items() if tally.failed]
    failing.sort(key=lambda pair: (-len(pair[1].failed) / pair[1].asked, pair[1].problem, pair[0]))
    return failing, sorted(causes.items(), key=lambda pair: (-len(pair[1].failed), pair[0]))


def problems_of(graded: Graded) -> list[dict]:
    """What a table of the problems shows of each."""
    table = []
    for id, most in graded.whole.problems.items():
        states = Counter(known.states[id] for known in graded.standings)
        of_all = [known.points[id] for known in graded.standings if known.states[id] == GRADED]
        points = [each for each in of_all if each is not None]
        table.append({
            "id": id, "title": EVERY[id].title, "most": most, "graded": len(points),
            "full": sum(each == most for each in points), "mean": statistics.mean(points) if points else None,
            "open": sum(states[state] for state in OPEN),
        })  # fmt: skip
    return table


def facts(known: list[Standing], totals: list[Fraction], most: Fraction) -> list[str]:
    """What stands at the top: short phrases."""
    count = Counter(standing.status for standing in known)
    count.pop(NOT_HANDED_IN, 0)
    handed_in = sum(bool(standing.row.entries) for standing in known)
    said = [f"{handed_in} submissions", *(f"{n} {status}" for status, n in sorted(count.items()))]
    said += [f"{len(known) - handed_in} without a hand-in"] if len(known) > handed_in else []
    if totals:
        median, mean = statistics.median(totals), statistics.mean(totals)
        said.append(f"median {decimal(median)}, mean {decimal(mean)} of {decimal(most)} points")
    return said


def count_totals(totals: list[Fraction], most: Fraction) -> list[tuple[str, int]]:
    """[(range of points, how many submissions)], the most points first; from the lowest to the highest that occurs."""
    if not totals or not most:
        return []
    counts = Counter(min(RANGES - 1, max(0, int(total * RANGES / most))) for total in totals)
    width = most / RANGES
    places = range(max(counts), min(counts) - 1, -1)
    return [(f"{decimal(i * width)} to {decimal((i + 1) * width)}", counts[i]) for i in places]
