"""Suspected copies, found by copydetect, module by module: what two submissions share that neither was given.

Lines of the skeleton and of the reference solution count for nothing, nor do their passages under other names, nor what
more than COMMON submissions have: that is what the task, a lecture or chance makes alike. MOSS does likewise.

Two looks are taken at what is left. `structure` sees code with all names made one, and finds a copy whose names were
changed; `wording` sees names and remarks too, and finds a copy of short gaps, which leave little choice of structure.
Source: Schleimer, Wilkerson, Aiken, "Winnowing: local algorithms for document fingerprinting", 2003.

How the limits were chosen: of all pairs of honest kernels in tests/honest, which one author wrote in one style, the
two most alike share 0.93 of their structure and 0.88 of their wording. Of 410,000 pairs of P3's gaps, filled in by
chance in one of the ways that the task leaves (tests/filled_gaps.py, classes of 60 and 500), none is named. Of copies
among them, all are found in classes of 12 and 60, and 30 of 50 in a class of 500, where others have much of the
wording too. Of 56 honest kernels all are found when copied as they are, and 52 with every name changed.
"""

import importlib.util
import io
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

SHARE = 0.95  # of what is a submission's own; of the one that has more
SIGNS = 250  # shared, as copydetect counts them: a word of code is one sign in `structure`, a letter in `wording`
COMMON = 10  # submissions: what more of them have is nobody's own
LONGEST = 200_000  # characters of a module that is looked at
NOT_HERE = "Nobody looked: copydetect is not installed (pip install copydetect, or the extra `class`)."
METHOD = (
    f"Pairs of modules that share {100 * SHARE:.0f} % or more of what is their own: of what stands neither in the "
    f"skeleton nor in the reference solution, and in at most {COMMON} submissions. "
    "A reason to look, and no proof."
)


@dataclass(frozen=True)
class Look:
    """One way of comparing. k: signs that must agree in a row before they count; structure: names are made one."""

    name: str
    k: int
    structure: bool

    def form(self, line):
        """A line as it is looked up among those that were given: without its indent, in `structure` without names."""
        return WORD.sub("V", line.strip()) if self.structure else line.strip()


WORD = re.compile(r"[^\W\d]\w*")
LOOKS = (Look("wording", 40, False), Look("structure", 16, True))


@dataclass(frozen=True)
class Pair:
    """Two submissions with a module that they share. lines: of either, the numbers of those that are alike, from 0."""

    one: str
    other: str
    module: str
    look: str
    share: float
    signs: int
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


@dataclass
class Own:
    """What of a module is a submission's own. print: copydetect's CodeFingerprint; grams: the hashes that count."""

    text: str
    starts: list[int]  # where each kept line starts in `text`
    numbers: list[int]  # its number in the file
    print: object = None
    grams: set = field(default_factory=set)

    def lines_of(self, slices):
        """The file's line numbers that slices (2, S) of `text` touch."""
        touched = set()
        for start, end in zip(*slices, strict=True) if len(slices) else ():
            for i, at in enumerate(self.starts):
                last = self.starts[i + 1] if i + 1 < len(self.starts) else len(self.text) + 1
                if at < end and start < last:
                    touched.add(self.numbers[i])
        return frozenset(touched)


def installed():
    return importlib.util.find_spec("copydetect") is not None


def look(modules, given):
    """Found among `modules`: {module: {submission id: text}}; given: {module: [texts that all students were given]}."""
    if not installed():
        return Found(skipped=NOT_HERE)
    pairs = {}
    for module, texts in modules.items():
        for way in LOOKS:
            for pair in compare_all(module, way, texts, given.get(module, ())):
                pairs.setdefault((pair.one, pair.other, module), pair)
    found = sorted(
        pairs.values(), key=lambda pair: (-round(pair.share, 2), -pair.signs, pair.one, pair.other, pair.module)
    )
    return Found(found)


def without(text, known, way):
    """An Own of the lines of `text` whose form is not known."""
    kept, starts, numbers, at = [], [], [], 0
    for number, line in enumerate(text.splitlines()):
        stripped = line.strip()
        if stripped and way.form(line) not in known:
            kept.append(stripped)
            starts.append(at)
            numbers.append(number)
            at += len(stripped) + 1
    return Own("\n".join(kept), starts, numbers)


def compare_all(module, way, texts, templates):
    """The Pairs that pass the limits, by one look at the texts of one module."""
    known = {way.form(line) for text in templates for line in text.splitlines()}
    own = {id: without(text[:LONGEST], known, way) for id, text in texts.items()}
    given = set().union(*(fingerprint(text, way).hashes for text in templates))
    for one in own.values():
        one.print = fingerprint(one.text, way)
        one.grams = one.print.hashes - given
    having = Counter(gram for one in own.values() for gram in one.grams)
    groups = defaultdict(list)
    for id in sorted(own):
        own[id].grams = {gram for gram in own[id].grams if having[gram] <= COMMON}
        for gram in own[id].grams:
            groups[gram].append(id)
    shared = Counter(pair for ids in groups.values() for pair in combinations(ids, 2))
    for (a, b), count in shared.items():
        if count >= (SHARE - 0.15) * max(len(own[a].grams), len(own[b].grams)) and count * way.k >= SIGNS:
            pair = compare(module, way, a, b, own)
            if pair.share >= SHARE and pair.signs >= SIGNS:
                yield pair


def fingerprint(text, way):
    """copydetect's fingerprint of every run of k signs: with a window of 1 none is left to chance."""
    from copydetect import CodeFingerprint

    return CodeFingerprint("module.py", way.k, 1, filter=way.structure, language="python", fp=io.StringIO(text))


def compare(module, way, a, b, own):
    """The Pair of two submissions, whatever they share."""
    from copydetect import compare_files

    narrowed = [narrow(own[id]) for id in (a, b)]
    signs, shares, slices = compare_files(*narrowed)
    lines = tuple(own[id].lines_of(part) for id, part in zip((a, b), slices, strict=True))
    return Pair(a, b, module, way.name, float(min(shares)), int(signs), lines)


def narrow(own):
    """The fingerprint with nothing but what is a submission's own."""
    from copydetect.utils import get_token_coverage

    print = own.print
    print.hash_idx = {gram: places for gram, places in print.hash_idx.items() if gram in own.grams}
    print.hashes = set(own.grams)
    print.token_coverage = get_token_coverage(print.hash_idx, print.k, len(print.filtered_code))
    return print
