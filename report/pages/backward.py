"""The fast backward pass beside its peers as a page, BACKWARD.md; blank where a peer has no such mask. No torch."""

import csv
from statistics import geometric_mean

from report.pages.steps import interval
from report.pages.tables import number, table
from report.pages.template import render
from report.places import PUBLISHED

PAGE, CSV, IDEAS = "BACKWARD.md", PUBLISHED / "backward.csv", PUBLISHED / "backward_ideas.csv"
PEERS = {"cudnn": "cuDNN", "flex": "FlexAttention", "x3": "X3"}
SHORT = "B=4 H=16 D=128 N=1024"  # one of those on which the host is what takes longest
LONG = 2048  # tokens, from which on the GPU and not the host sets the time


def files(path=CSV):
    """{path: text} of the page."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [
        [row["shape"], row["mask"], number(float(row["fast_us"])), row["tflops"],
         *(interval(row, f"over_{peer}") for peer in PEERS)]
        for row in rows
    ]  # fmt: skip
    head = ["shape", "mask", "us", "TFLOP/s", *(f"over {name}" for name in PEERS.values())]
    long = [row for row in rows if int(row["shape"].rpartition("=")[2]) >= LONG]
    means = {peer: geometric_mean(float(row[f"over_{peer}"]) for row in long if row[f"over_{peer}"]) for peer in PEERS}
    slower = [f"{row['shape']} {row['mask']}" for row in long if float(row["over_cudnn"] or 1) < 1]
    sinks = [
        [row["shape"], row["mask"], interval(row, "sinks_over"), interval(row, "learned_over")]
        for row in rows if row["sinks_over"] or row is rows[0] or row["shape"] == SHORT
    ]  # fmt: skip
    return {PAGE: render(
        PAGE, rows=table(head, lines, left=2), means=means, machine=rows[0], long=LONG, slower=", ".join(slower),
        sinks=table(["shape", "mask", "4 sinks", "learned sinks"], sinks, left=2), ideas=ideas(),
    )}  # fmt: skip


def told_apart(row):
    """`1.09`, in brackets where the 95 % interval includes 1."""
    text = f"{float(row['over']):.2f}"
    return f"({text})" if float(row["over_low"]) <= 1 <= float(row["over_high"]) else text


def ideas():
    """A table: a line for each shape, a column for each idea."""
    with open(IDEAS, newline="") as file:
        rows = list(csv.DictReader(file))
    names = list(dict.fromkeys(row["idea"] for row in rows))
    found = {(row["shape"], row["mask"], row["idea"]): told_apart(row) for row in rows}
    shapes = list(dict.fromkeys((row["shape"], row["mask"]) for row in rows))
    lines = [[*shape, *(found.get((*shape, name), "") for name in names)] for shape in shapes]
    return table(["shape", "mask", *names], lines, left=2)
