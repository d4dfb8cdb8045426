"""Decode beside cuDNN's attention and beside a copy as a page, DECODE.md, with its picture; no torch."""

from report.pages.measured import read_both
from report.pages.steps import interval
from report.pages.tables import machine_words, number, table
from report.pages.template import render
from report.places import PUBLISHED
from report.studies.decode import COPY, CUDNN, FAST, OURS, PLAIN, SINK, X4

PAGE, PICTURE = "DECODE.md", "figures/decode.svg"
NAMES = {CUDNN: "cuDNN", X4: "X4", FAST: "fast"}
PAGES, PIECES = "pages of ", "pieces of "  # how names of forms begin


def files(folder=PUBLISHED):
    """{path: text} of the page and its picture."""
    rows, facts = load(folder)
    return {PAGE: page(rows, facts)} | ({PICTURE: drawn(rows)} if rows else {})


def load(folder):
    """({(shape, kernel, form): row}, facts of the machine); ({}, {}) where nothing was measured."""
    rows, facts = read_both("decode", folder)
    return {(row["shape"], row["kernel"], row["form"]): row for row in rows}, facts


def page(rows, facts):
    if not rows:
        return render(PAGE, rows=rows)
    shapes, ours = list(dict.fromkeys(shape for shape, _, _ in rows)), [k for k in OURS if kernel_rows(rows, k)]
    best, shares = ours[-1], {kernel: by_share(rows, kernel) for kernel in ours}
    beside_cudnn = [row for row in kernel_rows(rows, best) if row["over_cudnn"]]
    return render(
        PAGE, rows=rows, machine=machine_words(facts), picture=PICTURE,
        rounds=facts["rounds"], best=NAMES[best],
        speeds=speeds(rows, shapes),
        slower=", ".join(row["shape"] for row in beside_cudnn if float(row["over_cudnn"]) < 1),
        beside=len(beside_cudnn),
        copies=sorted(float(row["gb_s"]) for row in kernel_rows(rows, COPY)),
        least=min((100 * float(row["of_copy"]), row["shape"]) for row in kernel_rows(rows, best)),
        same_bytes=same_bytes(rows, ours), others=others(rows, ours),
        shares=shares_table(rows, shares), cost=cost(rows, shares[best]), hosts=hosts(rows, shapes),
        faults=[f"{row['shape']}, {row['kernel']} {row['form']}: {row['fault']}"
                for row in rows.values() if row["fault"]],
    )  # fmt: skip


def kernel_rows(rows, kernel, form=PLAIN.name):
    """The measured rows of a kernel in that form."""
    return [row for key, row in rows.items() if key[1:] == (kernel, form) and row["us"]]


def cell(rows, key, words):
    """words(row), or blank where that row was not measured."""
    return words(rows[key]) if key in rows and rows[key]["us"] else ""


def part(row):
    """`87 % (86 to 88)`: of the copy's bandwidth."""
    ends = [100 * float(row[end]) for end in ("of_copy", "of_copy_low", "of_copy_high") if row[end]]
    return "{:.0f} % ({:.0f} to {:.0f})".format(*ends) if ends else ""


def speeds(rows, shapes):
    """The table of all shapes: times, ratios to cuDNN's, parts of the copy's bandwidth."""
    head = [
        "shape", "MiB", "copy, GB/s", *(f"{name}, us" for name in NAMES.values()),
        *(f"{NAMES[kernel]} over cuDNN" for kernel in OURS), *(f"{name} of copy" for name in NAMES.values()),
    ]  # fmt: skip

    def line(shape):
        def show(kernel, words):
            return cell(rows, (shape, kernel, PLAIN.name), words)

        return [
            shape, show(COPY, lambda row: number(float(row["mib"]))),
            show(COPY, lambda row: number(float(row["gb_s"]))),
            *(show(kernel, lambda row: number(float(row["us"]))) for kernel in NAMES),
            *(show(kernel, lambda row: interval(row, "over_cudnn", digits=3)) for kernel in OURS),
            *(show(kernel, part) for kernel in NAMES),
        ]  # fmt: skip

    return table(head, [line(shape) for shape in shapes])


def over_plain(row):
    return interval(row, "over_plain", 3)


def list_forms(rows, wanted):
    """[(shape, form)] of the forms beside the plain one whose name is wanted, each once."""
    return list(dict.fromkeys((shape, form) for shape, _, form in rows if form and wanted(form)))


def same_bytes(rows, ours):
    """The forms that read as much as the plain one: the time over the plain form's."""
    keys = list_forms(rows, lambda form: form == SINK.name or form.startswith(PAGES))
    lines = [[*key, *(cell(rows, (key[0], kernel, key[1]), over_plain) for kernel in ours)] for key in keys]
    return table(["shape", "form", *(NAMES[kernel] for kernel in ours)], lines, left=2)


def others(rows, ours):
    """The forms that read another number of bytes."""
    words = {
        "MiB": lambda row: row["mib"], "us": lambda row: number(float(row["us"])), "of copy": part,
        "over plain": lambda row: interval(row, "over_plain"), "over cuDNN": lambda row: interval(row, "over_cudnn"),
    }  # fmt: skip
    lines = [
        [shape, form, NAMES[kernel], *(cell(rows, (shape, kernel, form), each) for each in words.values())]
        for shape, form in list_forms(rows, lambda form: form != SINK.name and not form.startswith((PAGES, PIECES)))
        for kernel in ours
    ]
    return table(["shape", "form", "kernel", *words], lines, left=3)


def by_share(rows, kernel):
    """{shape: the fastest row of that kernel with pieces of another size}; no shape where none was measured."""
    found = {}
    for (shape, name, form), row in rows.items():
        if name == kernel and form.startswith(PIECES) and row["over_plain"]:
            found[shape] = min(found.get(shape, row), row, key=lambda row: float(row["us"]))
    return found


def shares_table(rows, shares):
    lines = [
        [shape, NAMES[kernel], number(float(rows[shape, kernel, PLAIN.name]["us"])), number(float(row["us"])),
         row["form"].removeprefix(PIECES), over_plain(row)]
        for kernel, found in shares.items() for shape, row in found.items()
    ]  # fmt: skip
    return table(["shape", "kernel", "fixed, us", "by share, us", "tokens", "by share over fixed"], lines, left=2)


def cost(rows, found):
    """(by how many % fixed pieces are slower at most, the shape) of {shape: row}; below 0 where they are faster."""
    return max(((100 / float(row["over_plain"]) - 100, shape) for shape, row in found.items()), default=(0.0, ""))


def hosts(rows, shapes):
    lines = [[shape, *(cell(rows, (shape, kernel, ""), lambda row: row["host_us"]) for kernel in NAMES)]
             for shape in shapes]  # fmt: skip
    return table(["shape", *NAMES.values()], lines)


def drawn(rows):
    """The SVG: the bandwidth of the copy and of each kernel, at each shape."""
    from report.pages.decode_picture import picture
    from report.pages.drawing import svg

    shapes = list(dict.fromkeys(shape for shape, _, _ in rows))
    speeds = {
        name: [float(cell(rows, (shape, kernel, PLAIN.name), lambda row: row["gb_s"]) or 0) / 1e3 for shape in shapes]
        for kernel, name in {COPY: COPY, **NAMES}.items() if kernel_rows(rows, kernel)
    }  # fmt: skip
    return svg(picture(shapes, speeds))
