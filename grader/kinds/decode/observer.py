"""Beside the machine: which keys and values each line reads, by sequence and token. It explains and draws; no verdict
depends on it."""

import numpy as np
import torch

from grader.core.machine.observer import Observer
from grader.core.machine.rows import touched_rows

CACHES = ("k_cache", "v_cache")
NOBODY = -1


class Reads(Observer):
    """rows: {(kernel, line, input): [(program's place, row) of each read, as columns]}; a row is one of the input's
    first three dims."""

    def __init__(self, inputs):
        self.inputs, self.rows = inputs, {}

    def begin_launch(self, launch):
        self.launch = launch

    def accessed(self, access):
        buffer = access.buffer
        if access.kind == "load" and buffer.input in CACHES:
            key = self.launch.kernel, self.lines.kernel_line(access.operation.where) or 0, buffer.input
            numbers, rows = touched_rows(access)
            columns = torch.stack([*self.launch.place(numbers), rows], 1)
            self.rows.setdefault(key, []).append(columns.numpy())

    def find_tokens(self, index, page_size):
        """Rows (page, row, kv head) as rows (sequence, kv head, token); a page that no sequence has gives (NOBODY, kv
        head, page)."""
        table = self.inputs["block_table"].numpy()
        lengths = self.inputs["lengths"].numpy()
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

    def programs(self, name, parts):
        """[[place, stretches]] of what was read of an input; a stretch is [sequence, kv head, first, last]."""
        shape, found = self.inputs[name].shape, np.concatenate(parts)
        index = np.stack(np.unravel_index(found[:, 3], shape[:3]), 1)
        tokens = self.find_tokens(index, shape[1]) if "block_table" in self.inputs else index
        table = np.concatenate([found[:, :3], tokens], 1)
        table = table[np.lexsort(table.T[::-1])]
        steps = np.diff(table, axis=0)
        begins = np.r_[True, steps[:, :5].any(1) | (steps[:, 5] > 1)]
        ends = np.r_[begins[1:], True]
        programs = {}
        for *place, sequence, head, first, last in np.c_[table[begins], table[ends, 5]].tolist():
            programs.setdefault(tuple(place), []).append([sequence, head, first, last])
        return [[list(place), stretches] for place, stretches in programs.items()]

    def report(self):
        """[{"kernel", "line", "input", "programs"}]."""
        return [
            {"kernel": kernel, "line": line, "input": name, "programs": self.programs(name, parts)}
            for (kernel, line, name), parts in self.rows.items() if sum(map(len, parts))
        ]  # fmt: skip


OBSERVER = Reads
