"""In the runner: of how many keys does P2 hold the scores of one query at once?

NaN marks what depends on what. With one row of q NaN, the elements that depend on it are NaN; with a random half of the
keys NaN, scores are NaN for these keys alone, where what has been summed over keys is NaN throughout.
"""

import torch
from replay import list_tensors
from torch.multiprocessing.reductions import StorageWeakRef

LIMIT = 256  # keys
ROW = -1  # of q: under a causal mask it sees every key


def most_keys(replay, inputs, tensors):
    """Keys whose scores of one row are held at once, at most.

    replay: whose observer is changed. inputs: {name: Place}; tensors: {name: tensor}, whose values are changed here.
    """
    kept = tensors["q"][:, :, ROW].clone()
    tensors["q"][:, :, ROW] = torch.nan
    replay.observer = of_row = Row()
    replay.run(inputs)
    tensors["q"][:, :, ROW] = kept
    half = torch.rand(tensors["k"].shape[2], generator=torch.Generator().manual_seed(1)) < 0.5
    tensors["k"][:, :, half] = torch.nan
    replay.observer = scores = Scores(of_row.elements, tensors["k"].shape[-1])
    replay.run(inputs)
    return scores.most


class Row:
    """elements: {number of a tensor that is made: where it depends on the row}."""

    def __init__(self):
        self.elements, self.number = {}, 0

    def __call__(self, op, function, args, named, made):
        for tensor in made:
            self.number += 1
            if tensor.is_floating_point() and not op.startswith(UNWRITTEN):
                found = tensor[0, 0].isnan() if tensor.dim() > 2 else tensor.isnan()
                if bool(found.any()):
                    self.elements[self.number] = found


UNWRITTEN = ("empty", "new_empty")


class Scores:
    """Follows the scores of the row, of the first batch and head, from the product that makes them on.

    What is made of scores element by element is of the same keys. most: keys of which any is alive at once.
    """

    def __init__(self, of_row, width):
        self.of_row, self.width, self.number, self.most = of_row, width, 0, 0
        self.keys, self.alive = {}, {}

    def __call__(self, op, function, args, named, made):
        for tensor in made:
            self.number += 1
            mask = self.of_row.get(self.number)
            keys = None if mask is None else self.keys_in(tensor, mask)
            if keys:
                self.note(tensor, keys, list_tensors(args, named))

    def keys_in(self, tensor, mask):
        here = tensor[0, 0] if tensor.dim() > 2 else tensor
        return count_keys(here.isnan()[mask], self.width)

    def note(self, tensor, keys, operands):
        known = [self.alive[key] for key in map(storage_key, operands) if key in self.alive]
        inherited = set().union(*(origins for _, origins in known))
        if not inherited:
            inherited = {self.number}
            self.keys[self.number] = keys
        # While the reference is kept the storage's address is not given out again: what is freed goes with it.
        self.alive[storage_key(tensor)] = StorageWeakRef(tensor.untyped_storage()), inherited
        self.alive = {key: entry for key, entry in self.alive.items() if not entry[0].expired()}
        held = set().union(*(origins for _, origins in self.alive.values()))
        self.most = max(self.most, keys, sum(self.keys[origin] for origin in held))


def storage_key(tensor):
    return tensor.untyped_storage()._cdata


def count_keys(pattern, width):
    """How many keys' scores these elements of one query are, or None where they are sums over keys."""
    if bool(pattern.all()) or not bool(pattern.any()) or len(pattern) < 8:
        return None
    groups = pattern[: len(pattern) // width * width].view(-1, width)
    of_products = len(groups) > 1 and bool((groups == groups[:, :1]).all())  # q * k, not yet summed over d
    return len(pattern) // width if of_products else len(pattern)
