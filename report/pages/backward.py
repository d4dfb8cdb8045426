"""The fast backward pass beside its peers as a page, BACKWARD.md; blank where a peer has no such mask. No torch."""

from statistics import geometric_mean

from report.pages.measured import read_words
from report.pages.steps import interval
from report.pages.tables import number, table
from report.pages.template import render
from report.places import PUBLISHED

PAGE, CSV, IDEAS = "BACKWARD.md", PUBLISHED / "backward.csv", PUBLISHED / "backward_ideas.csv"
OPTIONS = {"sinks": "4 sinks", "learned": "learned sinks", "ordered": "in one order"}
PEERS = {"cudnn": "cuDNN", "flex": "FlexAttention", "x3": "X3"}
LONG, SHORT = 2048, 1024  # tokens: of the rows that have a mean; below the second the host sets the time


def files(path=CSV):
    """{path: text} of the page."""
    rows = read_words(path)
    lines = [
        [row["shape"], row["mask"], number(float(row["fast_us"])), row["tflops"],
         *(interval(row, f"over_{peer}") for peer in PEERS)]
        for row in rows
    ]  # fmt: skip
    head = ["shape", "mask", "us", "TFLOP/s", *(f"over {name}" for name in PEERS.values())]
    long = [row for row in rows if int(row["shape"].rpartition("=")[2]) >= LONG]
    means = {peer: geometric_mean(float(row[f"over_{peer}"]) for row in long if row[f"over_{peer}"]) for peer in PEERS}
    slower = [f"{row['shape']} {row['mask']}" for row in long if float(row["over_cudnn"] or 1) < 1]
    options = [
        [row["shape"], row["mask"], *(interval(row, f"{name}_over") for name in OPTIONS)] for row in rows
        if row in long
    ]  # fmt: skip
    dearest = max(long, key=lambda row: float(row["ordered_over"]))
    hosts = [[row["shape"], row["mask"], row["host_us"], row["cudnn_host_us"]] for row in rows]
    return {PAGE: render(
        PAGE, rows=table(head, lines, left=2), means=means, machine=rows[0], long=LONG, short=SHORT,
        slower=", ".join(slower), most=100 * float(dearest["ordered_over"]) - 100,
        dearest=f"{dearest['shape']} {dearest['mask']}",
        options=table(["shape", "mask", *OPTIONS.values()], options, left=2),
        hosts=table(["shape", "mask", "ours", "cuDNN's"], hosts, left=2), ideas=ideas(),
    )}  # fmt: skip


def told_apart(row):
    """`1.09`, in brackets where the 95 % interval includes 1."""
    text = f"{float(row['over']):.2f}"
    return f"({text})" if float(row["over_low"]) <= 1 <= float(row["over_high"]) else text


def ideas():
    """A table: a line for each shape, a column for each idea."""
    rows = read_words(IDEAS)
    names = list(dict.fromkeys(row["idea"] for row in rows))
    found = {(row["shape"], row["mask"], row["idea"]): told_apart(row) for row in rows}
    shapes = list(dict.fromkeys((row["shape"], row["mask"]) for row in rows))
    lines = [[*shape, *(found.get((*shape, name), "") for name in names)] for shape in shapes]
    return table(["shape", "mask", *names], lines, left=2)
