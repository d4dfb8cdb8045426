"""In the runner, interpreted: which keys and values each line reads, by sequence and token. It explains and draws; no
verdict depends on it."""

import numpy as np

from grader.core.run.observe import Observer

CACHES = ("k_cache", "v_cache")
NOBODY = -1


class Reads(Observer):
    """read: {(kernel, line, input): {program's place: [arrays of rows (sequence, kv head, token)]}}; a page that no
    sequence has gives (NOBODY, kv head, page)."""

    def __init__(self, watch):
        super().__init__(watch)
        self.read = {}

    def accessed(self, access):
        if access.kind != "load" or access.region.input not in CACHES:
            return
        index = np.unique(indices(access.offsets, access.region.view), axis=0)
        if "block_table" in self.watch.inputs:
            index = self.find_tokens(index, access.region.tensor.shape[1])
        key = self.watch.kernel, self.watch.kernel_line(), access.region.input
        self.read.setdefault(key, {}).setdefault(self.watch.places[self.watch.program], []).append(index)

    def find_tokens(self, index, page_size):
        """Rows (page, row, kv head) as rows (sequence, kv head, token)."""
        table = self.watch.inputs["block_table"].numpy()
        lengths = self.watch.inputs["lengths"].numpy()
        entries = np.arange(table.shape[1])
        used = entries * page_size < lengths[:, None]
        pages, count = table[used], np.bincount(table[used], minlength=int(index[:, 0].max()) + 1)
        owner = np.full((len(count), 2), NOBODY)
        owner[pages] = np.stack(np.nonzero(used), 1)
        page, row, head = index.T
        sequence, entry = owner[page].T
        alone = (sequence != NOBODY) & (count[page] == 1)
        token = np.where(alone, entry * page_size + row, page)
        return np.stack([np.where(alone, sequence, NOBODY), head, token], 1)

    def report(self):
        """[{"kernel", "line", "input", "programs": [[place, stretches]]}]."""
        return [
            {"kernel": kernel, "line": line, "input": name,
             "programs": [[list(place), stretches(np.concatenate(parts))] for place, parts in found.items()]}
            for (kernel, line, name), found in self.read.items()
        ]  # fmt: skip


OBSERVER = Reads


def indices(offsets, view):
    """Rows (lanes, 3): the index of the first three dims of each legal byte offset."""
    left, found = offsets - view.start, np.zeros((len(offsets), 4), np.int64)
    for stride, _, dim in view.dims:
        found[:, dim], left = left // stride, left % stride
    return found[:, :3]


def stretches(rows):
    """[[sequence, kv head, first, last]] of these rows, each once."""
    rows = np.unique(rows, axis=0)
    cuts = np.flatnonzero((np.diff(rows[:, :2], axis=0) != 0).any(1) | (np.diff(rows[:, 2]) != 1)) + 1
    return [[*map(int, each[0]), int(each[-1, 2])] for each in np.split(rows, cuts)]
