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

Of honest kernels in tests/honest, which one author wrote in one style, the two most alike share 0.95 of their structure
and 0.92 of their wording. Of 78 such kernels all are found when copied as they are, and with much dead or live code put
before or behind, or behind 60,000 lines of remarks; 77 with every name changed, also when padded; 76 with a useless
statement after each line, also with every name changed.
"""

import importlib.util
import keyword
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from pathlib import Path

from grader.classroom.export import live

SHARE = 0.96  # of what is the own of the submission that has less of it
SIGNS = 250  # shared, letters of `wording`; of structure a name is one sign, as any other mark
COMMON = 10  # submissions: what more of them have is nobody's own
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
    lines: tuple[frozenset, frozenset] = ()

    @property
    def page(self):
        """The page that shows both, relative to class.html."""
        return f"copies/{self.one}--{self.other}--{Path(self.module).stem}.html"


@dataclass
class Found:
    """pairs: the most alike first. skipped: why nobody looked, or ""."""

    pairs: list[Pair] = field(default_factory=list)
    skipped: str = ""
    method: str = METHOD


class Own:
    """What of a module was not given. text: its lines in one form; hashes: of the k signs from each place of it.

    own, shared: the places whose hash counts as the submission's own, and those of them that another has too.
    """

    def __init__(self, lines, known, way):
        import numpy as np
        from copydetect.utils import hashed_kgrams

        forms = ((way.form(line.text), line) for line in lines)
        self.kept = [(form, line) for form, line in forms if form and form not in known]
        self.text = "\n".join(form for form, _ in self.kept)
        self.hashes = np.array(hashed_kgrams(self.text, way.k), dtype=np.int64)
        self.k = way.k

    def split(self, never, shared):
        """Tell apart which hashes are nobody's own, and which are shared."""
        import numpy as np

        self.own = np.flatnonzero(~among(self.hashes, never))
        self.shared = self.own[among(self.hashes[self.own], shared)]
        self.signs = signs(self.own, self.k)

    def lines_at(self, places):
        """The file's line numbers that k signs from any of these places touch."""
        import numpy as np

        ends = np.cumsum([len(form) + 1 for form, _ in self.kept], dtype=np.int64)
        first, last = np.searchsorted(ends, [places, places + self.k - 1], side="right")
        touched = {i for a, b in set(zip(first.tolist(), last.tolist(), strict=True)) for i in range(a, b + 1)}
        return numbers(self.kept[i][1] for i in touched)


def among(hashes, ordered):
    """Which hashes are among the ordered ones; numpy's own isin orders them again for each submission."""
    import numpy as np

    at = np.searchsorted(ordered, hashes)
    return ordered[np.minimum(at, len(ordered) - 1)] == hashes if len(ordered) else np.zeros(len(hashes), bool)


def numbers(lines):
    return frozenset(number for line in lines for number in range(line.first, line.last + 1))


def signs(places, k):
    """How many signs k of them from each of these places cover."""
    from copydetect.utils import get_copied_slices

    starts, ends = get_copied_slices(places, k)
    return int((ends - starts).sum())


def installed():
    return importlib.util.find_spec("copydetect") is not None


def look(modules, given):
    """Found among `modules`: {module: {submission id: text}}; given: {module: [texts that all students were given]}."""
    if not installed():
        return Found(skipped=NOT_HERE)
    best = {}
    for module, texts in modules.items():
        for way, own, templates in looks(texts, given.get(module, ())):
            for pair in [*equal_pairs(module, way, own), *sharing_pairs(module, way, own, templates)]:
                known = best.setdefault((pair.one, pair.other, module), pair)
                if (pair.equal, pair.share) > (known.equal, known.share):
                    best[pair.one, pair.other, module] = pair
    found = sorted(
        best.values(),
        key=lambda pair: (not pair.equal, -round(pair.share, 2), -pair.signs, pair.one, pair.other, pair.module),
    )
    return Found(found)


def looks(texts, templates):
    """(Look, {submission id: Own}, Owns of what was given) for each look at the texts of one module."""
    entries, seen = {name for text in templates for name in DEFINED.findall(text)}, {}
    read = {id: live.lines(texts[id], entries, seen) for id in sorted(texts)}
    given = [live.lines(text, entries, seen) for text in templates]
    for way, of_each, of_given in (
        (WORDING, {id: as_written(texts[id]) for id in sorted(texts)}, list(map(as_written, templates))),
        (STRUCTURE, read, given),
        (LIVE, {id: [line for line in lines if line.live] for id, lines in read.items()}, given),
    ):
        known = {way.form(line.text) for lines in of_given for line in lines}
        own = {id: Own(lines, known, way) for id, lines in of_each.items()}
        yield way, own, [Own(lines, (), way) for lines in of_given]


def equal_pairs(module, way, own):
    """Pairs whose own lines are the same, in whatever order, and of no more than COMMON submissions."""
    same = defaultdict(list)
    for id, one in own.items():
        if len(one.text) >= way.equal:
            same[tuple(sorted(form for form, _ in one.kept))].append(id)
    for ids in same.values():
        for a, b in combinations(ids, 2) if len(ids) <= COMMON else ():
            lines = tuple(numbers(line for _, line in own[id].kept) for id in (a, b))
            yield Pair(a, b, module, way.name, 1.0, len(own[a].text), True, lines)


def sharing_pairs(module, way, own, given):
    """Pairs of which the smaller's own is nearly all in the other's."""
    import numpy as np

    none = np.array([], dtype=np.int64)
    hashes = np.concatenate([none, *(np.unique(one.hashes) for one in own.values())])
    every, having = np.unique(hashes, return_counts=True)
    never = np.union1d(every[having > COMMON], np.concatenate([none, *(one.hashes for one in given)]))
    shared = np.setdiff1d(every[having > 1], never, assume_unique=True)
    holders = defaultdict(list)
    for id, one in own.items():
        one.split(never, shared)
        for gram in np.unique(one.hashes[one.shared]).tolist():
            holders[gram].append(id)
    counted = Counter()
    for ids, count in Counter(map(tuple, holders.values())).items():  # the same few submissions hold many of them
        counted.update(dict.fromkeys(combinations(ids, 2), count))
    for (a, b), count in counted.items():
        if count * way.k >= SIGNS:
            pair = compare(module, way, a, b, own)
            if pair.share >= SHARE and pair.signs >= SIGNS:
                yield pair


def compare(module, way, a, b, own):
    """The Pair of two submissions, whatever they share."""
    import numpy as np

    one, other = own[a], own[b]
    both = np.intersect1d(one.hashes[one.shared], other.hashes[other.shared])
    places = [side.shared[among(side.hashes[side.shared], both)] for side in (one, other)]
    smaller = int(other.signs < one.signs)
    alike = signs(places[smaller], way.k)
    lines = tuple(side.lines_at(at) for side, at in zip((one, other), places, strict=True))
    return Pair(a, b, module, way.name, alike / max(1, (one, other)[smaller].signs), alike, False, lines)
