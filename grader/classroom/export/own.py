"""What of a module was not given to all students, and what of that others have too: hashes of k signs in a row."""

from functools import cached_property
from itertools import islice

MARKED = 5000  # lines of a module that are named as alike: a page is read, whatever was handed in


class Own:
    """What of a module was not given. text: its lines in one form; hashes: of the k signs from each place of it.

    own, shared: the places whose hash counts as the submission's own, and those of them that another has too; grams:
    the hashes of the latter, in order and each once.
    """

    def __init__(self, lines, known, way):
        import numpy as np
        from copydetect.utils import hashed_kgrams

        forms = ((way.form(line.text), line) for line in lines)
        self.kept = [(form, line) for form, line in forms if form and form not in known]
        self.text = "\n".join(form for form, _ in self.kept)
        self.hashes = np.array(hashed_kgrams(self.text, way.k), dtype=np.int64)
        self.k = way.k

    @cached_property
    def forms(self):
        """The same for modules whose own lines are equal, in whatever order."""
        return hash(tuple(sorted(form for form, _ in self.kept)))

    def split(self, never, shared):
        """Tell apart which hashes are nobody's own, and which are shared."""
        import numpy as np

        self.own = np.flatnonzero(~among(self.hashes, never))
        self.shared = self.own[among(self.hashes[self.own], shared)]
        self.grams, self.gram_at = np.unique(self.hashes[self.shared], return_inverse=True)
        self.signs = signs(self.own, self.k)

    def find_places(self, grams):
        """The places of these hashes."""
        return self.shared[among(self.grams, grams)[self.gram_at]]

    def lines_at(self, places):
        """The file's first line numbers that k signs from any of these places touch."""
        import numpy as np

        ends = np.cumsum([len(form) + 1 for form, _ in self.kept], dtype=np.int64)
        first, last = np.searchsorted(ends, [places, places + self.k - 1], side="right")
        change = np.bincount(first, minlength=len(ends) + 1) - np.bincount(last + 1, minlength=len(ends) + 1)
        touched = np.flatnonzero(np.cumsum(change)[: len(ends)])[:MARKED]
        return numbers(self.kept[i][1] for i in touched)


def among(hashes, ordered):
    """Which hashes are among the ordered ones; numpy's own isin orders them again for each submission."""
    import numpy as np

    at = np.searchsorted(ordered, hashes)
    return ordered[np.minimum(at, len(ordered) - 1)] == hashes if len(ordered) else np.zeros(len(hashes), bool)


def numbers(lines):
    return frozenset(islice((number for line in lines for number in range(line.first, line.last + 1)), MARKED))


def signs(places, k):
    """How many signs k of them from each of these places cover."""
    from copydetect.utils import get_copied_slices

    starts, ends = get_copied_slices(places, k)
    return int((ends - starts).sum())
