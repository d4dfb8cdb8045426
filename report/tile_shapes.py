"""Which tiles fit into shared memory: `report/TILE_SHAPES.md`, the kernels' own formula beside the compiler's figures.

    python -m report.tile_shapes            write the page
    python -m report.tile_shapes --check    exit 1 where it is not what formula and figures give

The formula is `shared_bytes` of each kernel's file. The figures are those of `shared_memory.csv`, which
`python -m report.shared_memory` compiles anew. Needs no GPU.
"""

import importlib.util
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from textwrap import fill

from grader.gpu.gpus import GPUS
from report.shared_memory import MODULES, ROOT, TARGETS, recorded

HERE = Path(__file__).parent
PAGE = HERE / "TILE_SHAPES.md"
ITEMSIZE = {"float16": 2, "float32": 4}
PADDING = 32  # bytes that the compiler adds to a row of p, at most, so that banks do not collide
LISTED = ("x1", "packed")

TEXT = """# Which tiles fit into shared memory

What a program of `solutions/x1_block_sparse.py` and of `solutions/packed_block_sparse.py` keeps in shared memory, by
the formula in its file (`shared_bytes`) and by Triton's compiler. Made by `python -m report.tile_shapes`; edit nothing
here. **Nothing was run**: the kernels were compiled as their wrappers launch them, with two stages, for GPUs that need
not be there, with triton {versions}.

A program may have {a100} bytes on an A100 (163 of its multiprocessor's 164 KB; 1 KB is the system's) and {h100}
on an H100 (227 of 228 KB). With tiles of block_q x block_k tokens and numbers of `size` bytes the formula adds up

| | A100, sm_80 | H100, sm_90 |
| --- | --- | --- |
| Q | size x D x block_q | the same |
| K and V | 2 x size x D x block_k | twice that |
| bits of a PARTIAL tile (X1) | block_q x block_k / 8 | the same |

**Q** is read once and stays. **K and V**: two stages mean that a tile is copied there while the one before is at work.
On an A100 the products (`mma.sync`) read their operands from registers: a tile that is in registers leaves its place to
the next, and one place is enough. On an H100 the tensor cores (`wgmma`) read shared memory itself, so the tile at work
keeps its place, and the next one needs another. `wgmma` takes block_q >= 64; smaller tiles are computed as on an A100.
**Bits**: the kernel loads a word of 32 bits for 32 pairs, the compiler copies the words ahead, and they are spread out
in registers: at 128 x 128 that is 2 KB. (A kernel that asks for one word for each pair, each word 32 times over, has
64 KB copied ahead for the same bits.) The packed form has no such tiles.

Bold: does not fit. Where the formula says so, the wrappers refuse before they launch, with both numbers; on AMD's GPUs,
where less is kept, they leave that to Triton.

{tables}
## Where the formula is off

{off}

With other numbers of stages, at 64 x 64, D = 128, float16 (compiler, bytes; the wrappers take two):

{stages}

One stage copies nothing ahead, and tiles may lie in one place after each other: the formula does not hold there. Each
further stage adds one K and V to the packed form. X1 gets one, and words of bits, with every second stage only: from
three stages on the compiler also copies the list's next entry ahead, a step of its own before the tile that it names
can be fetched.
"""


@cache
def formula_of(kernel):
    """`shared_bytes` of the kernel's file."""
    name = MODULES[kernel]
    spec = importlib.util.spec_from_file_location(name, ROOT / "solutions" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module.shared_bytes


def formula(row):
    """What the kernel's file says of a Row's tiles."""
    wgmma = row.target == "sm_90" and row.block_q >= 64
    return formula_of(row.kernel)(row.block_q, row.block_k, row.D, ITEMSIZE[row.dtype], wgmma)


def most(row):
    """The formula, and p on its way to the second product, with padded rows: no compiler here has taken more."""
    return formula(row) + row.block_q * (row.block_k * ITEMSIZE[row.dtype] + PADDING)


def tables(rows):
    """For each kernel a table: a line for each dtype, D and tile, formula and compiler for each GPU."""
    parts = []
    for kernel in LISTED:
        lines = [
            "| dtype | D | tile | A100: formula | compiler | H100: formula | compiler |",
            "| --- " * 3 + "| ---: " * 4 + "|",
        ]
        found = {(row.dtype, row.D, row.block_q, row.block_k, row.target): row for row in rows if row.kernel == kernel}
        for dtype, D, block_q, block_k in dict.fromkeys(key[:4] for key in found):
            of = [found[dtype, D, block_q, block_k, target] for target in TARGETS]
            cells = [in_table(value, row.target) for row in of for value in (formula(row), row.bytes)]
            lines.append(f"| {dtype} | {D} | {block_q} x {block_k} | {' | '.join(cells)} |")
        parts.append(f"## `{MODULES[kernel]}.py`\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def in_table(value, target):
    return f"**{value}**" if value > GPUS[target].shared_bytes else str(value)


def differences(rows):
    """Sentences on formula against compiler, as they were found."""
    exact = [row for row in rows if row.bytes == formula(row)]
    wgmma = [row for row in rows if row.target == "sm_90" and row.block_q >= 64]
    more = [row for row in rows if row.bytes > formula(row)]
    worst = max(more, key=lambda row: (row.bytes - formula(row)) / row.bytes)
    late = [row for row in more if formula(row) <= GPUS[row.target].shared_bytes < row.bytes]
    assert all(row in exact for row in wgmma)
    share = 100 * (worst.bytes - formula(worst)) / worst.bytes
    text = f"""Exact in {len(exact)} of {len(rows)} figures, all {len(wgmma)} with `wgmma` among them. In the other
        {len(more)} the compiler takes more, never less: p (size x block_q x block_k, rows padded by up to
        {PADDING} bytes) on its way from the layout of one product to that of the other. Where it is exact, p stays in
        registers or lies where another tile was. The most is {share:.0f} % of what the compiler takes
        ({worst.dtype}, D = {worst.D}, {worst.block_q} x {worst.block_k}). What the formula refuses fits in no figure;
        {len(late)} pass it and do not fit: Triton refuses those."""
    return fill(" ".join(text.split()), 120)


def stages_table(rows):
    """A line for each number of stages: the compiler's bytes for each kernel and GPU."""
    lines = ["| stages | X1: A100 | H100 | packed: A100 | H100 |", "| ---: " * 5 + "|"]
    found = {(row.num_stages, row.kernel, row.target): str(row.bytes) for row in rows}
    for stages in sorted({row.num_stages for row in rows}):
        cells = [found[stages, kernel, target] for kernel in LISTED for target in TARGETS]
        lines.append(f"| {stages} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page():
    rows = recorded()
    versions = sorted({row.triton for row in rows})
    newest = [row for row in rows if row.triton == versions[-1]]
    two = [row for row in newest if row.num_stages == 2]
    one_shape = [r for r in newest if (r.dtype, r.D, r.block_q, r.block_k) == ("float16", 128, 64, 64)]
    return TEXT.format(
        versions=said(versions, rows), a100=GPUS["sm_80"].shared_bytes, h100=GPUS["sm_90"].shared_bytes,
        tables=tables(two), off=differences(two), stages=stages_table(one_shape),
    )  # fmt: skip


def said(versions, rows):
    """The versions of Triton, and where the older ones give other figures than the newest."""
    newest = {replace(row, triton="", bytes=0): row.bytes for row in rows if row.triton == versions[-1]}
    others = [row for row in rows if newest.get(replace(row, triton="", bytes=0), row.bytes) != row.bytes]
    if len(versions) == 1:
        return versions[0]
    at_two = sum(row.num_stages == 2 for row in others)
    alike = f"gives {at_two} other figures" if at_two else "gives the same"
    return f"{versions[-1]} ({', '.join(versions[:-1])} {alike})"


def main(arguments):
    if arguments == ["--check"]:
        if PAGE.is_file() and PAGE.read_text() == page():
            return 0
        print(
            f"report/{PAGE.name} is not what formula and compiler give: `python -m report.tile_shapes` writes it anew"
        )
        return 1
    if arguments:
        print(f"the one option is --check; got {' '.join(arguments)}", file=sys.stderr)
        return 2
    PAGE.write_text(page())
    print(f"written: {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
