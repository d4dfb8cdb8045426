"""Which keys of a cache each program reads: a line for each program, and the same as text."""

MOST_MARKS = 48  # of a line of text
SIGNS = {".": "not read", "o": "read", "x": "read, not seen", "!": "seen, not read"}


def lines_of(strips):
    """[(label, [(kind, first key, last key)])], the keys that no program reads last."""
    (first, last), found = strips["seen"], []
    for label, parts in strips["rows"]:
        cut = [("seen", max(a, first), min(b, last)) for a, b in parts]
        cut += [("extra", a, min(b, first - 1)) for a, b in parts]
        cut += [("extra", max(a, last + 1), b) for a, b in parts]
        found.append((label, [each for each in cut if each[1] <= each[2]]))
    if strips["missing"]:
        found.append(("no program", [("missing", a, b) for a, b in strips["missing"]]))
    return found


def in_text(strips):
    """The lines of the same as text, a mark for several keys."""
    step = -(-strips["keys"] // MOST_MARKS)
    sequence, head = strips["place"]
    lines = [f"keys of sequence {sequence}, kv head {head}, that programs read; each mark is {step} keys"]
    for label, parts in lines_of(strips):
        marks = ["."] * -(-strips["keys"] // step)
        for kind, first, last in sorted(parts, reverse=True):  # what is seen last: it stays
            for at in range(first // step, last // step + 1):
                marks[at] = {"seen": "o", "extra": "x", "missing": "!"}[kind]
        lines.append(f"{label:>16}  {''.join(marks)}")
    return [*lines, "  ".join(f"{sign} {words}" for sign, words in SIGNS.items() if any(sign in x for x in lines[1:]))]
