"""Beside the submission: its program_order called on sizes of the grader's. Imports nothing."""


def order(module, about):
    """({"orders": [[[head, tile], ...] for each size], "came": text}, no tensors).

    The first result that is no list of pairs of integers is None, is described in "came", and is the last.
    """
    orders, came = [], ""
    for sizes in about["sizes"]:
        places = module.program_order(*sizes)
        try:
            orders.append([[int(head), int(tile)] for head, tile in places])
        except (TypeError, ValueError):
            came = f"{type(places).__name__} {places!r}"[:80]
            return {"orders": [*orders, None], "came": came}, []
    return {"orders": orders, "came": came}, []
