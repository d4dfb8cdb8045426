"""An access that is not legal, in the words of decode: rows of a tile, keys, pages, pieces."""

from grader.kinds.decode.mistakes import GROUP, IN_PAGES
from grader.kinds.decode.reads import CACHES

TWICE = "element written twice by one store"
LOAD = "out-of-bounds load"
KEYS = "which is the first key that a new token sees, where a window is longer than the sequence?"
PIECES = (
    "how many pieces of a row does the merge load, which one is the first, and for how many does the wrapper make room?"
)


def explain(case, trace, fault):
    """What lies at a fault's addresses, and a question; empty where they do not tell."""
    if fault.kind == TWICE:
        return f"two rows of the tile have the same place: {GROUP}"
    table = next((each for each in trace.addresses if each.argument == fault.argument), None)
    if fault.kind != LOAD or table is None or fault.at is None:
        return ""
    if table.input is None:
        return PIECES
    if table.input not in CACHES:
        return ""
    if fault.at.first < 0:
        return f"the tile begins before the first key of {fault.argument}: {KEYS}"
    if case.page is not None:
        return f"{fault.argument} is (pages, page_size, Hkv, D): {IN_PAGES}"
    return ""
