"""The fast backward pass beside its peers as a page, BACKWARD.md; blank where a peer has no such mask. No torch."""

import csv
from statistics import geometric_mean

from report.pages.steps import interval
from report.pages.tables import number, table
from report.pages.template import render
from report.places import PUBLISHED

PAGE, CSV = "BACKWARD.md", PUBLISHED / "backward.csv"
PEERS = {"cudnn": "cuDNN", "flex": "FlexAttention", "x3": "X3"}
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
    return {PAGE: render(PAGE, rows=table(head, lines, left=2), means=means, machine=rows[0], long=LONG)}
