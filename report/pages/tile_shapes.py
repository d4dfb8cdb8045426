"""Which tiles fit into shared memory, as a page, TILE_SHAPES.md: the kernels' formula beside the compiler's figures.

The formula is `shared_bytes` of each kernel's file. The figures are those of `shared_memory.csv`, which
`python -m report shared_memory` compiles anew. Needs no GPU.
"""

from dataclasses import replace
from textwrap import fill

from grader.gpu.gpus import GPUS
from report.counting.shared_memory import MODULES, TARGETS, recorded
from report.pages.tables import table
from report.pages.template import render
from report.places import load

PAGE = "TILE_SHAPES.md"
ITEMSIZE = {"float16": 2, "float32": 4}
PADDING = 32  # bytes that the compiler adds to a row of p, at most, so that banks do not collide


def files():
    """{path: text} of the page."""
    return {PAGE: page(recorded())}


def formula(row):
    """What the kernel's file says of a Row's tiles."""
    wgmma = row.target == "sm_90" and row.block_q >= 64
    shared_bytes = load(f"{MODULES[row.kernel]}.py").shared_bytes
    return shared_bytes(row.block_q, row.block_k, row.D, ITEMSIZE[row.dtype], wgmma)


def most(row):
    """The formula, and p on its way to the second product, with padded rows: no compiler here has taken more."""
    return formula(row) + row.block_q * (row.block_k * ITEMSIZE[row.dtype] + PADDING)


def tables(rows):
    """For each kernel a table: a line for each dtype, D and tile, formula and compiler for each GPU."""
    parts = []
    for kernel, module in MODULES.items():
        found = {(row.dtype, row.D, row.block_q, row.block_k, row.target): row for row in rows if row.kernel == kernel}
        lines = []
        for dtype, D, block_q, block_k in dict.fromkeys(key[:4] for key in found):
            of = [found[dtype, D, block_q, block_k, target] for target in TARGETS]
            cells = [in_table(value, row.target) for row in of for value in (formula(row), row.bytes)]
            lines.append([dtype, f"{D}", f"{block_q} x {block_k}", *cells])
        head = ["dtype", "D", "tile", "A100: formula", "compiler", "H100: formula", "compiler"]
        parts.append(f"## `{module}.py`\n\n{table(head, lines, left=3)}\n")
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
    padding = max((row.bytes - most(row)) / row.block_q for row in more) + PADDING
    share = 100 * (worst.bytes - formula(worst)) / worst.bytes
    text = f"""Exact in {len(exact)} of {len(rows)} figures, all {len(wgmma)} with `wgmma` among them. In the other
        {len(more)} the compiler takes more, never less: there p (size x block_q x block_k, rows padded by up to
        {padding:.0f} bytes) passes through shared memory, from the layout of one product to that of the other. Where
        the formula is exact, p stays in registers or lies where another tile was. The difference is at most
        {share:.0f} % of what the compiler takes ({worst.dtype}, D = {worst.D}, {worst.block_q} x {worst.block_k}). So
        what the formula refuses does not fit by the compiler's figures either. {len(late)} figures pass the formula and
        do not fit all the same: Triton refuses these."""
    return fill(" ".join(text.split()), 120)


def stages_table(rows):
    """A line for each number of stages: the compiler's bytes for each kernel and GPU."""
    found = {(row.num_stages, row.kernel, row.target): str(row.bytes) for row in rows}
    lines = [
        [f"{stages}", *(found[stages, kernel, target] for kernel in MODULES for target in TARGETS)]
        for stages in sorted({row.num_stages for row in rows})
    ]
    return table(["stages", "X1: A100", "H100", "packed: A100", "H100"], lines, left=0)


def page(rows):
    versions = sorted({row.triton for row in rows})
    newest = [row for row in rows if row.triton == versions[-1]]
    two = [row for row in newest if row.num_stages == 2]
    one_shape = [r for r in newest if (r.dtype, r.D, r.block_q, r.block_k) == ("float16", 128, 64, 64)]
    return render(
        PAGE, versions=said(versions, rows), a100=GPUS["sm_80"].shared_bytes, h100=GPUS["sm_90"].shared_bytes,
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
