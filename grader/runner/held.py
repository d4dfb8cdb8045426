"""In the runner, interpreted: how many keys' scores a program holds at once; the online softmax needs one tile's."""

import weakref


class Held:
    """Scores are blocks made of queries and keys, and what is made of them alone; they end with the last name for them.

    A name of the tile before may still be bound while the next is computed: of several tiles the last does not count.
    """

    def __init__(self):
        self.alive, self.most, self.written, self.newest = {}, {"keys": 0, "kernel": ""}, {}, None

    def begin_program(self):
        self.alive, self.newest = {}, None

    def add(self, block):
        """`block`, a value of the interpreter, has scores as its origin."""
        key, origin = id(block), block.origin
        self.alive[key] = weakref.ref(block), origin
        if (origin.rows, origin.tokens) == self.newest:  # of the same tile: no more keys than before
            return
        self.newest = origin.rows, origin.tokens
        self.alive = {k: entry for k, entry in self.alive.items() if entry[0]() is not None}
        tiles = {other.tokens for _, other in self.alive.values() if other.rows == origin.rows}
        self.note(tiles, origin.tokens, "")

    def stored(self, kernel, origin):
        """Scores were written to memory: there they stay."""
        tiles = self.written.setdefault((origin.place, origin.rows), set())
        tiles.add(origin.tokens)
        self.note(tiles | {(-1, -1)}, (-1, -1), kernel)

    def note(self, tiles, newest, kernel):
        before = keys_in(tiles - {newest})
        keys = max(before, newest[1] - newest[0] + 1)
        if keys > self.most["keys"]:
            self.most = {"keys": keys, "kernel": kernel}

    def report(self):
        return self.most


def keys_in(tiles):
    """How many keys lie in these (first, last), which may overlap."""
    count, end = 0, -2
    for first, last in sorted(tiles):
        count += max(0, last - max(first, end + 1) + 1) if first >= 0 else 0
        end = max(end, last)
    return count
