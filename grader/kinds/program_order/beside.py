"""Beside the submission: its program_order called on sizes of the grader's. Imports nothing."""


def order(module, about):
    """({"orders": [[[head, tile], ...] for each size], "came": text}, no tensors).

    The first result that is no list of pairs of integers is None, is described in "came", and is the last.
    """
    found = []
    for sizes in about["sizes"]:
        places = module.program_order(*sizes)
        found.append(as_pairs(places))
        if found[-1] is None:
            return {"orders": found, "came": f"{type(places).__name__} {places!r}"[:80]}, []
    return {"orders": found, "came": ""}, []


def as_pairs(places):
    """[[head, tile], ...], or None."""
    try:
        pairs = [list(map(int, place)) for place in places]
    except (TypeError, ValueError):
        return None
    return pairs if all(len(pair) == 2 for pair in pairs) else None
