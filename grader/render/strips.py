"""Which rows of an input each program reads, as text: a line for each program."""

MOST_MARKS = 48  # of a line
SIGNS = {".": "not read", "o": "read", "x": "read, not needed", "!": "needed, not read"}
MARKS = {"seen": "o", "extra": "x", "missing": "!"}


def title(strips):
    return f"{strips['what']}s{' of ' * bool(strips['of'])}{strips['of']} that programs read"


def in_text(strips):
    """The lines, a mark for several rows."""
    step = -(-strips["size"] // MOST_MARKS)
    lines = [f"{title(strips)}; each mark is {step} {strips['what']}{'s' * (step > 1)}"]
    for label, parts in strips["rows"]:
        marks = ["."] * -(-strips["size"] // step)
        for kind, first, last in sorted(parts, reverse=True):  # what is not needed last: it stays
            for at in range(first // step, last // step + 1):
                marks[at] = MARKS[kind]
        lines.append(f"{label:>16}  {''.join(marks)}")
    return [*lines, "  ".join(f"{sign} {words}" for sign, words in SIGNS.items() if any(sign in x for x in lines[1:]))]
