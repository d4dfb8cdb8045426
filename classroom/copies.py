"""Suspected copies: who handed in the reference solution, whose wrong answers are equal, and modules that are alike.

copydetect compares modules twice, without what is in the skeleton, the reference solution, or more than COMMON
submissions. With names and remarks it finds copies of short gaps; without them, longer copies with other names.
How the limits were chosen: of 410,000 pairs of P3 whose gaps were filled at random, in classes of 60 and 500, none is
named: without names and remarks no gaps have 200 fingerprints. Of 88 honest kernels by one author the two most alike
share 0.92; of their copies with other names all but one share 0.99 or more, and so do those with 50 more functions.
Source: Schleimer, Wilkerson, Aiken, "Winnowing: local algorithms for document fingerprinting", 2003.
"""

import ast
import builtins
import importlib
import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from classroom.data import Class, Record, Row, digest
from grader.core.sandbox import files
from grader.core.sandbox.child import ChildFailed
from grader.core.sandbox.limited_call import Limited
from grader.course import course, gaps
from grader.registry import EVERY
from grader.render import html
from grader.render.drawing import KINDS
from grader.result import Aspect, Outcome, Result

TEMPLATES = Path(__file__).parent / "templates"
COMMON = 10  # submissions: what more of them have comes from the task, a lecture or chance
EVIDENCE = 2  # cases with equal wrong outputs that no known mistake explains
CHARACTERS = {True: 40, False: 16}  # of a fingerprint, with names and remarks or without
LEAST = {True: 60, False: 200}  # fingerprints that a pair shares
SHARE = 0.95  # of the fingerprints of the module that has fewer
PAIRS, LINES = 500, 5000  # pairs that are named, the most alike; lines of a module on a page
KEPT = "work/copies.json"
LARGEST, SECONDS = 200_000, 10.0  # characters of a module that is read, and the time for it
NOT_HERE = "No modules were compared: copydetect is not installed (pip install copydetect, or the extra `class`)."
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Group:
    """Submissions with the same wrong answers to a problem. cases: those that no known mistake explains."""

    problem: str
    rows: list[Row]
    cases: list[str]
    sentence: str


@dataclass(frozen=True)
class Pair:
    """Two submissions whose modules are alike. named: compared with names and remarks. share: from 0 to 1."""

    one: Row
    other: Row
    module: str
    named: bool
    share: float

    @property
    def page(self) -> str:
        """Relative to class.html."""
        return f"copies/{self.one.id}--{self.other.id}--{Path(self.module).stem}.html"


class Texts(Struct, frozen=True):
    """What comparing texts found. key: of all that decides it; reference, pairs and notes: as in Found."""

    key: str
    reference: list[tuple[Row, str]]
    pairs: list[Pair]
    notes: list[str]


@dataclass(frozen=True)
class Found:
    """reference: (row, problem) of each module that equals the reference solution. notes: what was not compared."""

    reference: list[tuple[Row, str]]
    wrong: list[Group]
    pairs: list[Pair]
    notes: list[str]


def write(whole: Class, out: Path, records: dict[str, dict[str, Record]]) -> tuple[Found, str]:
    """Look for all, and write `out`/copies: (Found, the line to print). records: {row id: {problem: Record}}."""
    folder = out / "copies"
    folder.mkdir(parents=True, exist_ok=True)
    known = chain.from_iterable(given(EVERY[problem].module) for problem in whole.problems)
    key = digest(msgspec.json.encode(whole.rows), Path(__file__).read_bytes(), str(find_spec("copydetect")), *known)
    texts = read_texts(out / KEPT, key) or compare(whole, out, key)
    found = Found(texts.reference, equal_wrong_answers(whole, records), texts.pairs, texts.notes)
    taken = len({row.id for row, _ in found.reference})
    counts = f"reference solutions {taken}, groups with equal wrong answers {len(found.wrong)}"
    return found, f"suspected copies: {counts}, pairs of modules {len(found.pairs)}"


def read_texts(path: Path, key: str) -> Texts | None:
    """What was found among the same hand-ins before, or None."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Texts)
    except (OSError, ValueError):
        return None
    return kept if kept.key == key else None


def compare(whole: Class, out: Path, key: str) -> Texts:
    """Compare all modules, write a page for each pair, and keep what was found: it takes minutes for a large class."""
    found, texts = Texts(key, equals_reference(whole, out), *alike(whole, out)), texts_of(whole, out)
    for old in (out / "copies").glob("*.html"):
        old.unlink()
    with Limited(call, SECONDS) as limited:
        for pair in found.pairs:
            both = [texts[pair.module][row.id] for row in (pair.one, pair.other)]
            lines = attempt(limited, lines_alike, *both, pair.module, pair.named)
            files.write(out / pair.page, page(pair, both, lines or [set(), set()]))
    files.write(out / KEPT, msgspec.json.encode(found))
    return found


def texts_of(whole: Class, out: Path) -> dict[str, dict[str, str]]:
    """{module: {row id: text}} of what was handed in."""
    found: dict[str, dict[str, str]] = {EVERY[problem].module: {} for problem in whole.problems}
    for row in whole.rows:
        for module in found if row.folder else ():
            if (path := out / row.folder / module).is_file():
                found[module][row.id] = path.read_text("utf-8-sig", "replace")
    return found


def given(module: str) -> tuple[str, str]:
    """The skeleton and the reference solution."""
    solution = (course.current().solutions / module).read_text("utf-8")
    return gaps.skeleton(solution, module), solution


def call(asked: tuple) -> Any:
    """In a fork, since students wrote the texts: asked[0] called with the others."""
    warnings.simplefilter("ignore")  # about odd escapes in strings
    return asked[0](*asked[1:])


def attempt(limited: Limited, work: Callable, text: str, *others: Any) -> Any:
    """What `work` returns, or None where the text is too large or takes too much."""
    try:
        return limited.attempt((work, text, *others)) if len(text) <= LARGEST else None
    except ChildFailed:
        return None


def equals_reference(whole: Class, out: Path) -> list[tuple[Row, str]]:
    """(row, problem) of each module that equals the reference solution but for names, remarks and formatting."""
    texts, found = texts_of(whole, out), []
    with Limited(call, SECONDS) as limited:
        form = cache(lambda text: attempt(limited, canonical, text))
        for problem in whole.problems:
            skeleton, solution = map(canonical, given(EVERY[problem].module))
            of = texts[EVERY[problem].module] if skeleton != solution else {}
            found += [(row, problem) for row in whole.rows if row.id in of and form(of[row.id]) == solution]
    return found


def bare(text: str) -> ast.Module:
    """The tree without docstrings and other statements that are constants."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            kept = [part for part in body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))]
            vars(node).update(body=kept or [ast.Pass()])
    return tree


def canonical(text: str) -> str | None:
    """The tree as text, with numbers for names in each function, in their order; None where it does not parse."""
    try:
        tree = bare(text)
        imported = {(node.asname or node.name).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.alias)}
        for part in tree.body:
            numbers = {name: name for name in imported.union(dir(builtins))}
            for node in ast.walk(part):
                if isinstance(node, ast.keyword):
                    node.arg = None  # it may be the name of a parameter
                elif place := {ast.Name: "id", ast.arg: "arg", ast.FunctionDef: "name"}.get(type(node)):
                    setattr(node, place, numbers.setdefault(getattr(node, place), f"name{len(numbers)}"))
        return ast.dump(tree)
    except UNREADABLE:
        return None


def equal_wrong_answers(whole: Class, records: dict[str, dict[str, Record]]) -> list[Group]:
    """Groups that fail the same cases of a problem, EVIDENCE of them with equal outputs that nothing explains."""
    same: dict[tuple, list[tuple[Row, Result]]] = defaultdict(list)
    for row in whole.rows:
        for problem, record in records.get(row.id, {}).items():
            wrong = [each for each in record.results if (each.aspect, each.outcome) == (Aspect.CORRECT, Outcome.WRONG)]
            telling = {each.case: output for each in wrong if (output := output_of(each))}
            if len(telling) >= EVIDENCE:
                example = next(each for each in wrong if each.case in telling)
                same[problem, frozenset(each.case for each in wrong), tuple(telling.items())].append((row, example))
    found = []
    for (problem, _, telling), of in same.items():
        if len({row.entries or row.id for row, _ in of}) > 1 and len(of) <= COMMON:
            one_file = len({row.keys.get(problem, row.id) for row, _ in of}) == 1
            words = f"{len(telling)} cases, as {of[0][1].case}: {of[0][1].sentence}"
            found.append(
                Group(problem, [row for row, _ in of], list(dict(telling)), "the same file" if one_file else words)
            )
    return found


def output_of(result: Result) -> tuple | None:
    """What tells a wrong output from others; None where a known mistake explains it, or there is little to tell."""
    m = result.facts.mismatch
    if m is None or result.facts.causes or m.unwritten or m.nan + m.inf + m.zero >= m.total:
        return None
    numbers = m.first_got, m.worst_excess
    return (m.first, m.worst, m.wrong, *numbers) if all(map(math.isfinite, numbers)) else None


def alike(whole: Class, out: Path) -> tuple[list[Pair], list[str]]:
    """(pairs, the most alike first; sentences on what was not compared)."""
    try:
        importlib.import_module("copydetect")  # once, and not in each fork
    except ImportError:
        return [], [NOT_HERE]
    rows, found, notes = {row.id: row for row in whole.rows}, dict[str, Pair](), dict[str, None]()
    with Limited(call, SECONDS) as limited:
        for (module, texts), named in product(texts_of(whole, out).items(), (True, False)):
            known = set.union(*(fingerprints(text, named) for text in given(module)))
            read = {
                text: (every := attempt(limited, fingerprints, text, named)) and every - known
                for text in set(texts.values())
            }
            marks = {id: read[text] for id, text in texts.items() if read[text] is not None}
            lost = [rows[id].name for id in texts if id not in marks]
            notes |= {f"{module} of {name} was not compared: it is too large or too deep.": None for name in lost}
            for one, other, share in sharing(marks, LEAST[named]):
                if rows[one].entries == rows[other].entries != ():
                    continue  # one hand-in of a group
                pair = Pair(rows[one], rows[other], module, named, share)
                found[pair.page] = max(found.get(pair.page, pair), pair, key=lambda each: each.share)
    pairs = sorted(found.values(), key=lambda pair: (-pair.share, pair.page))
    more = [f"{len(pairs) - PAIRS} more pairs of modules are alike."] if len(pairs) > PAIRS else []
    return pairs[:PAIRS], [*notes, *more]


def sharing(marks: dict[str, set[int]], least: int) -> Iterator[tuple[str, str, float]]:
    """(id, other id, share) of those that share enough of the fingerprints that at most COMMON have."""
    many, having, sizes = Counter(chain.from_iterable(marks.values())), defaultdict(list), Counter[str]()
    for id, each in marks.items():
        for mark in each:
            if many[mark] <= COMMON:
                having[mark].append(id)
                sizes[id] += 1
    both = Counter(chain.from_iterable(combinations(ids, 2) for ids in having.values()))
    for (one, other), count in both.items():
        share = count / min(sizes[one], sizes[other])
        if count >= least and share >= SHARE:
            yield one, other, share


def fingerprints(text: str, named: bool) -> set[int]:
    """Hashes of all CHARACTERS in a row; without names and remarks of the tree in one formatting, where it parses."""
    from copydetect.utils import hashed_kgrams

    try:
        form = text if named else ast.unparse(bare(text))
    except UNREADABLE:
        form = text
    return set(hashed_kgrams("\n".join(filter(None, forms(form, named))), CHARACTERS[named]).tolist())


def lines_alike(one: str, other: str, module: str, named: bool) -> list[set[int]]:
    """The numbers, from 0, of the lines that are in both texts, but not in the skeleton or the reference solution."""
    first, second, *known = (forms(text, named) for text in (one, other, *given(module)))
    shared = set(first).intersection(second).difference(*known)
    return [{i for i, line in enumerate(lines) if line in shared} for lines in (first, second)]


def forms(text: str, named: bool) -> list[str]:
    """Each line in the form in which it is compared."""
    return [" ".join(line.split()) if named else without_names(line) for line in text.split("\n")]


@lru_cache(1 << 14)  # a class has many lines of the skeleton
def without_names(line: str) -> str:
    from copydetect.utils import filter_code

    return filter_code(line, ".py", "python")[0]


def page(pair: Pair, texts: list[str], alike: list[set[int]]) -> str:
    """The page of a pair. alike: for each of the texts the numbers of the lines to mark, from 0."""
    sides = [
        (row, [(i + 1, seen(line), i in marked) for i, line in enumerate(text.split("\n")[:LINES])])
        for row, text, marked in zip((pair.one, pair.other), texts, alike, strict=True)
    ]
    return html.templates(TEMPLATES).get_template("copies.html").render(pair=pair, sides=sides, kinds=KINDS)


def seen(line: str) -> str:
    """The line with a mark for what is not shown or turns lines round: a reader sees what was compared."""
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in line)
