"""From P4 to the fast form, one idea at a time: `report/STEPS.md` out of `results/h200/steps.csv` and the sweep.

    python -m report.steps            write the page
    python -m report.steps --check    exit 1 where the page is not what the files give

The rows of steps.csv are medians of single runs in which all forms and cuDNN took turns; a ratio is within its run.
"""

import argparse
import csv
import sys
from pathlib import Path

from report import measured
from report.table import BadTable

HERE = Path(__file__).parent
PAGE = HERE / "STEPS.md"
RESULTS = HERE / "results" / "h200"
LONG = "B=4 H=16 D=128 N=16384"

TEXT = """# From P4 to the fast form, one idea at a time

What each idea of `solutions/fast_attention.py` brings on an H200, float16. Made by `python -m report.steps`; edit
nothing here. Speeds are relative to cuDNN's attention in the same run: 1.00 is as fast, more is faster. The forms
took turns in an order that changed; medians of 9 to 21 calls, their spread was not kept. P3, P4 and the last line
come from the sweep (`BENCHMARKS.md`), where it was.

| B=4 H=16 N=16384 D=128 | causal | full |
| --- | ---: | ---: |
{ladder}

**Pointers.** P3 and P4 load tiles through blocks of pointers: a warp computes the addresses, and the program's
warps meet at a barrier for each tile. `make profile P=4` shows it: tensor cores busy 45 % of the time, and the
first wait of a warp is "for the program's other warps, at a barrier".

**Tensor descriptors** (`solutions/p4_with_descriptors.py`). One thread asks the copy engine for a whole tile. The
registers that held pointers are free, tiles of 128 x 64 with 4 warps fit twice on a multiprocessor, and while one
program computes its softmax the other's products use the tensor cores.

**A producer and a consumer, products under the softmax.** One warp only asks for tiles, so no barrier stops the
warps that compute. Within the consumer, the product of tile j's probabilities with V is still under way while tile
j + 1 goes through its softmax.

**Consumers that share tiles, each at its own pace.** Two groups of four warps read the same K and V, so each tile
is loaded once for 128 rows; when one is in its softmax, the other is in its products. What matters is *each at its
own pace*: the same eight warps as one group, which meet at every tile, lose all of it.

## What depends on the shape

- **Head dim 64**: the softmax is as long as the products, and three consumers hide more of it than two: {three:.2f}
  times as fast (B=8 H=12 N=16384 causal).
- **Short rows**: at 512 tokens a program is hardly begun when it ends. Three small programs on a multiprocessor,
  one consumer each, take {one:.1f} us, where two consumers take {two:.1f} and three {many:.1f} us (B=8 H=12 D=64,
  causal; cuDNN {cudnn:.1f} us).
- **Packed heads**: under a window a tile of 64 rows sees 64 + window - 1 keys if its rows are tokens of one head,
  but 16 + window - 1 if they are 16 tokens of four heads that share K and V: {pack128:.2f} times as fast at a
  window of 128, {pack1024:.2f} times at 1024 (H=32/8 D=128).
- **Sinks**: as a step of their own before the window's tiles, four sinks cost {sinks_first:+.1f} % at a window of
  1024. Loaded and multiplied beside tile 0, their softmax under its product, they cost {sinks_now:+.1f} % (in the
  sweep).

## What was tried and brought nothing

- Software pipelining written into the plain Triton kernel (scores of the next tile before this tile's softmax):
  Triton waits for every product that the loop carries, so nothing overlaps, and the registers cost more than was
  gained.
- `warp_specialize=True` on the plain kernel's loops: for this GPU, Triton 3.7 compiles the same code with and
  without it.
- Visiting heads in groups so that K and V stay in the L2 cache: within noise at 16k tokens, since all programs of a
  head run close together anyway.
"""


def rows():
    with open(RESULTS / "steps.csv", newline="") as file:
        return {(r["run"], r["shape"], r["mask"], r["form"]): r for r in csv.DictReader(file)}


def page():
    known = rows()
    swept = {(r.kernel, r.tier, r.q_len, r.causal, r.window, r.sinks, r.dtype): r for r in measured.load(RESULTS).rows}

    def us(run, shape, mask, form):
        return float(known[run, shape, mask, form]["median_us"])

    def to_cudnn(run, form):
        found = [known[run, LONG, mask, form] for mask in ("causal", "full")]
        return [float(r["cudnn_us"]) / float(r["median_us"]) for r in found]

    def in_sweep(kernels):
        tier = "B=4 H=16 D=128"
        return [
            swept["SDPA cuDNN", tier, 16384, causal, None, None, "float16"].ours  # paired, as in BENCHMARKS.md
            / swept[kernel, tier, 16384, causal, None, None, "float16"].ours
            for kernel, causal in zip(kernels, (True, False), strict=True)
        ]

    ladder = {
        "P4 and P3: pointers": in_sweep(("P4", "P3")),
        "tensor descriptors, two programs on a multiprocessor": to_cudnn("A", "descriptors"),
        "a producer, one consumer, products under the softmax": to_cudnn("B", "one consumer"),
        "two consumers that share tiles, in step": to_cudnn("B", "two consumers in step"),
        "two consumers that share tiles, each at its own pace": to_cudnn("B", "two consumers"),
        "the same in the sweep": in_sweep(("fast", "fast")),
    }
    short, long, gqa = "B=8 H=12 D=64 N=512", "B=8 H=12 D=64 N=16384", "B=1 H=32/8 D=128 N=16384"
    with_sinks, without = (
        swept["fast", f"B=1 H=32/8 D=128 window=1024 sinks={n}", 16384, True, 1024, n, "float16"].median_ms
        for n in (4, 0)
    )
    return TEXT.format(
        ladder="\n".join(f"| {form} | {causal:.2f} | {full:.2f} |" for form, (causal, full) in ladder.items()),
        three=us("B", long, "causal", "two consumers") / us("B", long, "causal", "three consumers"),
        one=us("B", short, "causal", "one consumer"),
        two=us("B", short, "causal", "two consumers"),
        many=us("B", short, "causal", "three consumers"),
        cudnn=float(known["B", short, "causal", "one consumer"]["cudnn_us"]),
        pack128=us("C", gqa, "window 128", "heads apart") / us("C", gqa, "window 128", "heads packed"),
        pack1024=us("C", gqa, "window 1024", "heads apart") / us("C", gqa, "window 1024", "heads packed"),
        sinks_first=100 * (us("D", gqa, "window 1024", "4 sinks first") / us("D", gqa, "window 1024", "no sinks") - 1),
        sinks_now=100 * (with_sinks / without - 1),
    )


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m report.steps", description="Write STEPS.md.")
    parser.add_argument("--check", action="store_true", help="only say whether the page is what the files give")
    check = parser.parse_args(argv).check
    try:
        text = page()
    except (OSError, BadTable) as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    if check:
        same = PAGE.is_file() and PAGE.read_text() == text
        if not same:
            print("report/STEPS.md is not what steps.csv and the sweep give: `python -m report.steps` writes it anew")
        return 0 if same else 1
    PAGE.write_text(text)
    print(f"written: {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
