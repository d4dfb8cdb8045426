"""Inside the child, interpreted: which keys each tile of queries loaded."""


class Visits:
    """Loads of q, k and v, grouped by tile of queries.

    A load of q opens a new record; loads of k and v belong to the record that is open, or to the next one of the same
    program where the program loads its keys first. A kernel that loads q again and again gets many small records: the
    judgement is then lenient, never false.
    """

    def __init__(self):
        self.records, self.open, self.waiting = [], None, []

    def begin_program(self):
        self.open, self.waiting = None, []

    def add(self, role, kernel, tokens, head, elements):
        """One load. tokens: (first, last) of the lanes that were live; head: batch and head as one number."""
        if role == "q":
            self.open = {"kernel": kernel, "q": tokens, "k": 0, "v": 0, "span": 1, "heads": set()}
            self.records.append(self.open)
            waiting, self.waiting = self.waiting, []
            for load in waiting:
                self._count(*load)
        elif self.open is None:
            self.waiting.append((role, tokens, head, elements))
        else:
            self._count(role, tokens, head, elements)

    def _count(self, role, tokens, head, elements):
        self.open[role] += elements
        self.open["span"] = max(self.open["span"], tokens[1] - tokens[0] + 1)
        self.open["heads"].add(head)

    def report(self):
        """Plain data: each record with the number of its key heads."""
        return [record | {"heads": max(1, len(record["heads"]))} for record in self.records]
