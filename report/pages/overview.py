"""The overview as a page, OVERVIEW.md: each pass beside its peers, of the rows of five other pages. No torch."""

from report.pages.measured import read_words
from report.pages.steps import interval
from report.pages.tables import number, table
from report.pages.template import render
from report.places import PUBLISHED

PAGE = "OVERVIEW.md"
PEERS = {"SDPA cuDNN": "cuDNN", "FlashAttention-4": "FlashAttention-4", "FlexAttention": "FlexAttention"}
# Of the forward: batch, query heads, kv heads, head dim, tokens, causal, window.
FORWARD = (
    (4, 16, 16, 128, 16384, True, 0), (4, 16, 16, 128, 16384, False, 0), (4, 16, 16, 128, 1024, True, 0),
    (8, 12, 12, 64, 16384, True, 0), (2, 24, 24, 256, 16384, True, 0), (1, 32, 8, 128, 16384, True, 1024),
    (1, 32, 8, 64, 16384, True, 4096),
)  # fmt: skip
BACKWARD = (
    ("B=4 H=16 D=128 N=8192", "causal"), ("B=4 H=16 D=128 N=8192", "full"), ("B=4 H=16 D=128 N=2048", "causal"),
    ("B=4 H=16 D=64 N=8192", "causal"), ("B=1 H=32/8 D=128 N=16384", "window 1024"),
    ("B=2 H=8 D=256 N=8192", "causal"),
)  # fmt: skip
BLOCK_SPARSE = (("documents", 16384, 128), ("documents", 16384, 64), ("random FCP", 16384, 64), ("random FP", 2048, 64))
PACKED = (("local 128", 784), ("local with global 128", 577), ("random 0.5 128", 1025))


def files():
    """{path: text} of the page."""
    lines = [*forward(), *backward(), *decode(), *block_sparse(), *packed()]
    ends = [[ends_of(cell) for cell in line[4:] if cell] for line in lines]
    lost = [any(high < 1 for _, high in each) for each in ends]
    even = [not slower and any(low <= 1 <= high for low, high in each) for each, slower in zip(ends, lost, strict=True)]
    head = ["pass", "shape", "mask", "ours, TFLOP/s", *(f"over {name}" for name in PEERS.values())]
    facts = {"lost": sum(lost), "even": sum(even), "count": len(lines), "packed": len(PACKED)}
    return {PAGE: render(PAGE, rows=table(head, lines, left=3), **facts)}


def ends_of(cell):
    """(0.96, 1.01) of `0.99 (0.96 to 1.01)`: the interval as it is shown."""
    low, high = cell.partition("(")[2].rstrip(")").split(" to ")
    return float(low), float(high)


def forward():
    rows = [row for row in read_words(PUBLISHED / "sweep.csv") if row["dtype"] == "float16" and row["status"] == "ok"]
    for batch, heads, kv_heads, D, tokens, causal, window in FORWARD:
        wanted = {
            "batch": batch, "heads": heads, "kv_heads": kv_heads, "head_dim": D, "q_len": tokens, "k_len": tokens,
            "causal": "yes" if causal else "no", "window": window or "", "sinks": 0 if window else "",
        }  # fmt: skip
        of = {row["kernel"]: row for row in rows if all(row[name] == str(value) for name, value in wanted.items())}
        group = f"{heads}/{kv_heads}" if heads > kv_heads else heads
        mask = f"window {window}" if window else "causal" if causal else "full"
        ratios = (interval(of[kernel], "ours") if kernel in of else "" for kernel in PEERS)
        speed = number(float(of["fast"]["tflops"]))
        yield ["forward", f"B={batch} H={group} D={D} N={tokens}", mask, speed, *ratios]


def backward():
    rows = {(row["shape"], row["mask"]): row for row in read_words(PUBLISHED / "backward.csv")}
    for shape, mask in BACKWARD:
        row = rows[shape, mask]
        yield ["backward", shape, mask, row["tflops"], interval(row, "over_cudnn"), "", interval(row, "over_flex")]


def decode():
    """One new token over a full cache. Its speed is the memory's: DECODE.md has bandwidths."""
    for row in read_words(PUBLISHED / "decode.csv"):
        if (row["kernel"], row["form"]) == ("fast", ""):
            yield ["decode", row["shape"], "one new token", "", interval(row, "over_cudnn", digits=3), "", ""]


def block_sparse():
    rows = {
        (row["pattern"], int(row["n"]), int(row["block"])): row
        for row in read_words(PUBLISHED / "block_sparse.csv") if row["kernel"] == "fast"
    }  # fmt: skip
    for pattern, tokens, block in BLOCK_SPARSE:
        row = rows[pattern, tokens, block]
        shape, mask = f"B=1 H=8 D=64 N={tokens}", f"{pattern}, blocks of {block}"
        ratios = (interval(row, "over_cudnn"), "", interval(row, "over_flex"))
        yield ["block-sparse", shape, mask, number(float(row["tflops"])), *ratios]


def packed():
    rows = {(row["kernel"], int(row["tokens"])): row for row in read_words(PUBLISHED / "packed.csv")
            if (row["batch"], row["heads"], row["head_dim"]) == ("8", "12", "64")}  # fmt: skip
    for kernel, tokens in PACKED:
        row, (pattern, _, block) = rows[kernel, tokens], kernel.rpartition(" ")
        mask = f"{pattern}, blocks of {block}"
        speed = number(float(row["tflops"]))
        yield ["packed", f"8 images, H=12 D=64 N={tokens}", mask, speed, interval(row, "over_cudnn"), "", ""]
