"""Confirmed repairs -> what is told: a line and a question about what stands there, never the change."""

from dataclasses import dataclass

from grader.diagnosis.repair import rank

LINES = 2  # more places than these tell nothing

WIDE = ("second mask", "bound")  # changes that can make up for a mistake elsewhere

QUESTIONS = {
    "comparison": "what does the comparison say where both sides are equal, and which side may be the larger?",
    "operator": "is this the operation that is meant, on these two operands in this order?",
    "left out": "does every part of this expression belong in it?",
    "constant": "where does this number come from?",
    "function": "is this the function that goes with the rest: which base has the exponential, what is reduced how?",
    "first value": "what must it hold before the first tile, and in which dtype?",
    "rounding": "is this rounded the right way, and by whole tiles?",
    "bound": "where does this stretch of keys end for each tile, and may another stretch have them too?",
    "axis": "which axis has the queries and which the keys?",
    "dtype": "in which dtype must this be computed, and in which stored?",
    "name": "is this the quantity that is meant, of all that are there?",
    "tensor": "whose memory and whose strides are meant here?",
    "stride": "whose strides are these, and in which order?",
    "factor": "is it in the same unit as what it meets: is it scaled, and rescaled, as often as that?",
    "running value": "which of the two is the value before this tile, and which after it?",
    "index": "which head, of which batch, does this program work on?",
    "mask": "which keys may each query see, and is that what is asked here?",
    "second mask": "which lanes must not count here, and what hides them?",
    "statement": "does this happen as often as it should, and does it keep what was there before?",
    "order": "must this come before or after its neighbour?",
    "value": "from which old and which new values does it follow?",
    "condition": "when must this happen?",
    "grid": "which axis of the grid is which?",
    "number": "what does the kernel expect in this argument?",
    "scale": "what does the kernel multiply its scores by, and in which base?",
}


@dataclass(frozen=True)
class Suspect:
    """A place that is probably wrong. line: of the submission's file, or None where only the quantity is known.

    quantity: what is made there, in the file's words. family: the kind of change that repairs it.
    """

    line: int | None
    quantity: str
    question: str
    family: str

    @property
    def sentence(self):
        """`See line 63 (new_max): which of the two is the value before this tile?`"""
        place = f"See line {self.line} ({self.quantity})" if self.line else f"Look at {self.quantity}"
        return f"{place}: {self.question}"


def suspects(hits, kernels, implicated):
    """[Suspect], at most LINES; empty where the confirmed repairs do not agree on a place.

    Where many lines make one quantity right, it is that quantity.
    """
    hits = [hit for hit in hits if rank.fits(hit.edit, implicated)]
    for is_second_best in (lambda hit: hit.loads_more, lambda hit: hit.edit.family in WIDE):
        hits = [hit for hit in hits if not is_second_best(hit)] or hits
    places = {}
    for hit in sorted(hits, key=lambda hit: len(hit.edit.lines)):
        if not any(line in places for line in hit.edit.lines):
            places[hit.edit.lines[0]] = hit.edit
    if len(places) > LINES:
        every = list(places.values())
        if len({edit.quantity for edit in every}) > 1:
            return []
        return [Suspect(None, every[0].quantity, QUESTIONS[every[0].family], every[0].family)]
    return [Suspect(line, e.quantity, QUESTIONS[e.family], e.family) for line, e in places.items()]
