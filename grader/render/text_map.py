"""A picture's numbers -> a small map in text: the wrong tiles, or the tiles that the kernel visited."""

from grader.engine.error_map import MARKS

MOST_LINES = 9  # of marks; above them what they are and a ruler, below them what each mark means: 12 in all
MOST_MARKS = 48  # in a line
SIGN_OF_MARK = dict(zip(MARKS, ".+++####IN?", strict=True))
ERROR_SIGNS = {
    ".": "right", "+": "wrong", "#": "off by 30 x the allowed error or more", "I": "inf", "N": "NaN", "?": "unwritten",
}  # fmt: skip
MASK_SIGNS = {".": "hidden", "+": "in part", "o": "visible"}
VISIT_SIGNS = {
    ".": "skipped", "o": "visited", "m": "visited, masked", "2": "visited again", "x": "not needed", "!": "missing",
}  # fmt: skip


def draw(picture):
    """The lines of the map that says most: of errors where there are some, else of needless visits; [] for neither."""
    if "heads" in picture:
        return draw_heads(picture["heads"])
    bands = (picture.get("visits") or {}).get("bands", ())
    if any(times > 1 or not needed for band in bands for *_, times, needed in band["tiles"]):
        return draw_visits(picture)
    return []


def draw_heads(heads):
    """A line for each batch and head, a mark for each tile of rows; neighbours alike share one; [] for one mark."""
    if heads["of"] == 1 and len(heads["cells"][0]) == 1:
        return []
    rows = []
    for place, cells in zip(heads["places"], heads["cells"], strict=True):
        line = "".join(SIGN_OF_MARK[mark] for mark in cells)
        if rows and rows[-1][2] == line:
            rows[-1] = (rows[-1][0], place, line)
        else:
            rows.append((place, place, line))
    rows, step = squeezed(rows, heads["step"][0], ERROR_SIGNS)
    titled = [
        (f"{b}, {h}" if [b, h] == last else f"{b}, {h} to {last[0]}, {last[1]}", line) for (b, h), last, line in rows
    ]
    if heads["of"] == 1:
        titled = [(heads["output"], line) for _, line in titled]
    by = " by (batch, head)" * (heads["of"] > 1)
    return [
        f"{heads['output']}{by}; each mark is {step} row{'s' * (step > 1)}", *ruled(titled, step, "row"),
        key_to(titled, ERROR_SIGNS),
    ]  # fmt: skip


def draw_visits(picture):
    """A line for each tile of queries, a mark for as many keys as a tile of keys has."""
    keys, bands = picture["size"][1], picture["visits"]["bands"]
    step = max(last - first + 1 for band in bands for first, last, *_ in band["tiles"])
    order, rows = list(VISIT_SIGNS), []
    for band in bands:
        line = ["."] * -(-keys // step)
        marked = [(first, last, "!") for first, last in band["missing"]]
        marked += [(first, last, "m") for first, last in band.get("masked", ())]
        marked += [(a, b, "x" if not needed else "2" if times > 1 else "o") for a, b, times, needed in band["tiles"]]
        for first, last, sign in marked:
            for i in range(first // step, last // step + 1):
                line[i] = max(line[i], sign, key=order.index)
        rows.append((*band["q"], "".join(line)))
    rows, step = squeezed(rows, step, VISIT_SIGNS)
    titled = [(f"{first}-{last}", line) for first, last, line in rows]
    (batch, head), kernels = picture["visits"]["place"], " and ".join(picture["visits"]["kernels"])
    title = f"queries x keys of {kernels}, ({batch}, {head}); each mark is {step} key{'s' * (step > 1)}"
    key = key_to(titled, VISIT_SIGNS)
    if picture["visits"].get("did") == "lists":  # a builder's: nothing was visited
        key = key.replace("visited", "listed").replace("skipped", "not listed")
    return [title[:70], *ruled(titled, step, "key"), key]


def draw_mask(picture):
    """The mask by itself, for code whose visits nobody sees."""
    (rows, _), (step_q, step_k) = picture["size"], picture["shown"]["step"]
    starts = range(0, rows, step_q)
    titled = [
        (f"{q}-{min(q + step_q, rows) - 1}", line) for q, line in zip(starts, picture["shown"]["cells"], strict=True)
    ]
    title = f"what the mask shows, queries x keys; each mark is {step_k} key{'s' * (step_k > 1)}"
    return [title, *ruled(titled, step_k, "key"), key_to(titled, MASK_SIGNS)]


def draw_letters(letters):
    """The kind of each tile, a letter; [] where that is too large to read."""
    rows, block_q = letters["rows"], letters["block"][0]
    if len(rows) > 2 * MOST_LINES or len(rows[0]) > MOST_MARKS:
        return []
    titled = [(str(i * block_q), row.replace(" ", ".")) for i, row in enumerate(rows)]
    title = f"tiles of {block_q} x {letters['block'][1]} of the mask"
    return [title, *ruled(titled, letters["block"][1], "key"), key_to(titled, {".": "empty", **letters["names"]})]


def squeezed(rows, step, signs):
    """Rows (first, last, line) and the elements of a mark, joined two by two until they fit; the later sign stays."""
    order = list(signs)

    def join(*lines):
        return "".join(max(marks, key=order.index) for marks in zip(*lines, strict=True))

    while len(rows[0][2]) > MOST_MARKS:
        even = [(first, last, line + "." * (len(line) % 2)) for first, last, line in rows]
        rows, step = [(first, last, join(line[::2], line[1::2])) for first, last, line in even], step * 2
    while len(rows) > MOST_LINES:
        pairs = [rows[i : i + 2] for i in range(0, len(rows), 2)]
        rows = [(pair[0][0], pair[-1][1], join(*(line for _, _, line in pair))) for pair in pairs]
    return rows, step


def ruled(titled, step, name):
    """The lines with their titles and, above them, the position of every fourth or eighth mark."""
    wide = max(len(name), *(len(title) for title, _ in titled))
    marks = len(titled[0][1])
    room = 4 if step * marks < 1000 else 8
    ruler = "".join(f"{i * step:<{room}}" for i in range(0, marks, room)).rstrip()
    return [f"{name:>{wide}}  {ruler}", *(f"{title:>{wide}}  {line}" for title, line in titled)]


def key_to(titled, signs):
    """What each mark that appears means."""
    return "  ".join(f"{sign} {words}" for sign, words in signs.items() if any(sign in line for _, line in titled))
