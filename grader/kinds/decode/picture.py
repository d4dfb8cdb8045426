"""The numbers behind the picture of a case: which keys of one sequence and kv head each program reads, and which are
seen."""

import itertools

from grader.diagnosis import failures
from grader.diagnosis.compare_values import ranges
from grader.kinds.decode.reads import readers

MOST_PROGRAMS = 16


def draw(case, lines, errors):
    """`errors` with {"size", "strips"}; a failure costs only the picture.

    strips: {"place": [sequence, kv head], "keys": of the longest row, "seen": [first, last], "missing": [[first, last]]
    that no program reads, "rows": [[label, [[first, last]]]]}, a row for each program that reads keys there.
    """
    with failures.harmless("a picture"):
        rows = readers(lines, "k_cache")
        places = itertools.product(range(case.B), range(case.Hkv))
        strips = [strip(case, *place, rows.get(place, {})) for place in places]
        size = [case.Nq, case.D]
        return {"size": size} | errors | ({"strips": max(strips, key=telling)} if rows else {})
    return errors


def strip(case, sequence, head, programs):
    length, every = case.lengths[sequence], set().union(*programs.values())
    first = case.first_key(length)
    rows = [[f"program {', '.join(map(str, place))}", stretches(keys)] for place, keys in sorted(programs.items())]
    return {
        "place": [sequence, head], "keys": max([length, *(key + 1 for key in every)]), "seen": [first, length - 1],
        "missing": stretches(set(range(first, length)) - every), "rows": rows[:MOST_PROGRAMS],
    }  # fmt: skip


def stretches(keys):
    return [list(pair) for pair in ranges(sorted(keys))]


def telling(strip):
    """What is read in vain or not at all first, then many keys."""
    first, last = strip["seen"]
    outside = sum(max(0, first - a) + max(0, b - last) for _, row in strip["rows"] for a, b in row)
    return outside + sum(b - a + 1 for a, b in strip["missing"]), last
