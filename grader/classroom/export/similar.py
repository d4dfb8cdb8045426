"""Suspected copies, found by copydetect, module by module: what two submissions share that neither was given.

Lines of the skeleton and of the reference solution count for nothing, nor do their passages under other names, nor what
more than COMMON submissions have: that is what the task, a lecture or chance makes alike. MOSS does likewise.

Three looks are taken at what is left: at the `wording`, names and remarks too; at the `structure`, statements in one
formatting with all names made one; and at the structure of what is `live`, can run at all. A pair is named whose own
parts are equal, and one where the smaller own part nearly all stands in the larger: what was added hides nothing.
Source: Schleimer, Wilkerson, Aiken, "Winnowing: local algorithms for document fingerprinting", 2003; section 2 has
containment, after Broder, "On the resemblance and containment of documents", 1997.

How the limits were chosen. Two equal own parts: of 569,800 pairs of P3's gaps, filled in by chance in one of the ways
that the task leaves (tests/filled_gaps.py, 40 classes of 60 and 4 of 500), none is equal in wording, so that few signs
are enough. With all names made one 268 are, none of more than 161 signs. With the names but without remarks 34 are, so
that such a look would name innocents: a copy of short gaps whose remarks were taken out goes unseen. All other copies
of whole gaps are found, 9 in a class of 60 and 50 in one of 500. Shares: none of 0.95 or more has more than 170 signs.

Of honest kernels in the tests, which one author wrote in one style, the two most alike share 0.95 of their structure
and 0.92 of their wording. Of 78 such kernels all are found when copied as they are, and with much dead or live code put
before or behind, or behind 60,000 lines of remarks; 77 with every name changed, also when padded; 76 with a useless
statement after each line, also with every name changed.
"""

import importlib
import importlib.util
import keyword
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from pathlib import Path

from grader.classroom.export import live
from grader.classroom.export.own import Own, among, numbers, signs
from grader.core.sandbox.child import ChildFailed
from grader.core.sandbox.limited import Limited

SHARE = 0.96  # of what is the own of the submission that has less of it
SIGNS = 250  # shared, letters of `wording`; of structure a name is one sign, as any other mark
COMMON = 10  # submissions: what more of them have is nobody's own
SECONDS = 300.0  # for one module of a class: ten texts of 1 MB took 205 on two busy cores
MEMORY = 4 << 30  # bytes, in which ten texts of 1 MB were looked at
LARGE = 100_000  # signs; a solution has some ten thousand
NOT_HERE = "Nobody looked: copydetect is not installed (pip install copydetect, or the extra `class`)."
METHOD = (
    "Pairs of modules of which one's own part is equal to the other's, or nearly all of it stands in the other. Own is "
    f"what stands neither in the skeleton nor in the reference solution, and in at most {COMMON} submissions. "
    "Signs: how much that is; the fewer, the sooner by chance. A reason to look, and no proof. Not for students."
)
DEFINED = re.compile(r"^(?:async )?def (\w+)", re.M)
# Of a string no more than 99 letters: who hands in a million quotes waits for nobody.
TOKEN = re.compile(r"""("(?:[^"\\]|\\.){0,99}"|'(?:[^'\\]|\\.){0,99}')|([^\W\d]\w*)|\s+""")


def wording(text):
    return " ".join(text.split())


@lru_cache(1 << 14)
def structure(text):
    """The text without blanks, with all names and all strings made one."""
    return TOKEN.sub(lambda m: "S" if m[1] else "" if not m[2] else m[2] if keyword.iskeyword(m[2]) else "V", text)


def as_written(text):
    """A module's lines, remarks and all."""
    return [live.Line(line, i, i, True) for i, line in enumerate(text.split("\n"))]


@dataclass(frozen=True)
class Look:
    """One way of comparing.

    form: how a line is compared; k: signs in a row that must agree before they count. equal: from how many signs on
    those are named whose own is equal.
    """

    name: str
    form: object
    k: int
    equal: int


WORDING = Look("wording", wording, 40, 60)
STRUCTURE = Look("structure", structure, 16, 200)
LIVE = Look("live", structure, 16, 200)


@dataclass(frozen=True)
class Pair:
    """Two submissions with a module that they share. lines: of either, the numbers of those that are alike, from 0."""

    one: str
    other: str
    module: str
    look: str
    share: float
    signs: int
    equal: bool
    lines: tuple[frozenset[int], ...] = ()

    @property
    def page(self):
        """The page that shows both, relative to class.html."""
        return f"copies/{self.one}--{self.other}--{Path(self.module).stem}.html"


@dataclass
class Found:
    """pairs: the most alike first. skipped: why nobody looked, or "". missed: sentences on what nobody looked at."""

    pairs: list[Pair] = field(default_factory=list)
    skipped: str = ""
    missed: list[str] = field(default_factory=list)
    method: str = METHOD


def installed():
    return importlib.util.find_spec("copydetect") is not None


def look(modules, given):
    """Found among `modules`: {module: {submission id: text}}; given: {module: [texts that all students were given]}.

    Each module is looked at in a process of its own, that a few large texts cost no more than SECONDS; where that is
    too little, those of more than LARGE signs are left out, and are named.
    """
    if not installed():
        return Found(skipped=NOT_HERE)
    importlib.import_module("copydetect.utils")  # once, and not in each process
    best, missed = [], []
    with Limited(lambda asked: pairs_of(*asked, given.get(asked[0], ())), SECONDS, MEMORY) as limited:
        for module, texts in modules.items():
            try:
                best += limited.attempt((module, texts))
            except ChildFailed as lost:
                small = {id: text for id, text in texts.items() if len(text) <= LARGE}
                left = ", ".join(id for id in texts if id not in small)
                try:
                    best += limited.attempt((module, small))
                    missed.append(f"Nobody looked at {module} of {left}, of more than {LARGE:,} signs: {lost}.")
                except ChildFailed as lost:
                    missed.append(f"Nobody looked at {module}: {lost}.")
    best.sort(key=lambda pair: (not pair.equal, -round(pair.share, 2), -pair.signs, pair.one, pair.other, pair.module))
    return Found(best, missed=missed)


def pairs_of(module, texts, templates):
    """The Pairs of one module, each by the look in which it is the most alike."""
    best = {}
    for way, own, given in looks(texts, templates):
        for pair in equal_pairs(module, way, own):
            if not (known := best.get((pair.one, pair.other))) or not known.equal:
                best[pair.one, pair.other] = pair
        equal = {ids for ids, pair in best.items() if pair.equal}  # nothing is more alike: these are not compared
        for pair in sharing_pairs(module, way, own, given, equal):
            known = best.setdefault((pair.one, pair.other), pair)
            if pair.share > known.share:
                best[pair.one, pair.other] = pair
    return list(best.values())


def looks(texts, templates):
    """(Look, {submission id: Own}, Owns of what was given) for each look at the texts of one module."""
    entries, seen = {name for text in templates for name in DEFINED.findall(text)}, {}
    distinct = {text: live.lines(text, entries, seen) for text in set(texts.values())}
    read = {id: distinct[texts[id]] for id in sorted(texts)}
    given = [live.lines(text, entries, seen) for text in templates]
    for way, of_each, of_given in (
        (WORDING, {id: as_written(texts[id]) for id in sorted(texts)}, list(map(as_written, templates))),
        (STRUCTURE, read, given),
        (LIVE, {id: [line for line in lines if line.live] for id, lines in read.items()}, given),
    ):
        known = {way.form(line.text) for lines in of_given for line in lines}
        of_text = {texts[id]: Own(of_each[id], known, way) for id in {texts[id]: id for id in of_each}.values()}
        yield way, {id: of_text[texts[id]] for id in of_each}, [Own(lines, (), way) for lines in of_given]


def equal_pairs(module, way, own):
    """Pairs whose own lines are the same, in whatever order, and of no more than COMMON submissions."""
    same = defaultdict(list)
    for id, one in own.items():
        if len(one.text) >= way.equal:
            same[one.forms].append(id)
    for ids in same.values():
        lines = {id: numbers(line for _, line in own[id].kept) for id in ids} if 1 < len(ids) <= COMMON else {}
        for a, b in combinations(lines, 2):
            yield Pair(a, b, module, way.name, 1.0, len(own[a].text), True, (lines[a], lines[b]))


def sharing_pairs(module, way, own, given, but):
    """Pairs of which the smaller's own is nearly all in the other's; `but`: pairs that are not to be compared."""
    import numpy as np

    none = np.array([], dtype=np.int64)
    hashes = np.concatenate([none, *(np.unique(one.hashes) for one in own.values())])
    every, having = np.unique(hashes, return_counts=True)
    never = np.union1d(every[having > COMMON], np.concatenate([none, *(one.hashes for one in given)]))
    shared = np.setdiff1d(every[having > 1], never, assume_unique=True)
    for one in {id(one): one for one in own.values()}.values():
        one.split(never, shared)
    for (a, b), count in counted(own, shared).items():
        if count * way.k >= SIGNS and (a, b) not in but and (pair := compare(module, way, a, b, own)):
            yield pair


def counted(own, shared):
    """{(a, b): how many of the shared hashes both have}, of pairs that have one."""
    import numpy as np

    ids, many = list(own), len(own)
    at = np.concatenate([np.array([], dtype=np.int64), *(np.searchsorted(shared, one.grams) for one in own.values())])
    who = np.repeat(np.arange(many), [len(one.grams) for one in own.values()])
    order = np.argsort(at, kind="stable")  # so that those who have a hash stand together, in the order of `own`
    at, who = at[order], who[order]
    both = np.zeros(many * many, dtype=np.int64)
    for apart in range(1, COMMON):
        same = at[apart:] == at[:-apart]
        both += np.bincount(who[:-apart][same] * many + who[apart:][same], minlength=many * many)
    return {(ids[i // many], ids[i % many]): int(both[i]) for i in np.flatnonzero(both).tolist()}


def compare(module, way, a, b, own):
    """The Pair of two submissions, or None where they share too little."""
    one, other = own[a], own[b]
    both = one.grams[among(one.grams, other.grams)]
    smaller = min(one, other, key=lambda side: side.signs)
    alike = signs(smaller.find_places(both), way.k)
    share = alike / max(1, smaller.signs)
    if share < SHARE or alike < SIGNS:
        return None
    lines = tuple(side.lines_at(side.find_places(both)) for side in (one, other))
    return Pair(a, b, module, way.name, share, alike, False, lines)
