"""Shared memory that Triton's compiler gives to the kernels of X1 and the packed form, for GPUs that need not be here.

    python -m report shared_memory            compile all, a minute or two, and write shared_memory.csv
    python -m report shared_memory sm_80      print the rows of one GPU

Rows of another Triton than the one that is installed are kept. `pages/tile_shapes.py` makes a page of
them.
"""

import contextlib
import csv
import json
import os
import sys
import tempfile
from dataclasses import asdict, astuple, dataclass, fields

from grader.core.sandbox.child import ChildFailed, TrustedChild
from report.places import REPORT, ROOT, Refused, load

ROWS = REPORT / "shared_memory.csv"
TARGETS = ("sm_80", "sm_90")
MODULES = {"x1": "x1_block_sparse", "packed": "packed_block_sparse"}
TOKENS = 512
SECONDS = 600  # for all shapes and one GPU


@dataclass(frozen=True)
class Shape:
    """A kernel's tiles: `x1` or `packed`, of block_q x block_k tokens."""

    kernel: str
    dtype: str
    D: int
    block_q: int
    block_k: int
    num_stages: int = 2


@dataclass(frozen=True)
class Row(Shape):
    target: str = ""
    triton: str = ""
    bytes: int = 0


TILES = ((16, 32), (32, 64), (64, 64), (128, 64), (64, 128), (128, 128))
SHAPES = (
    *(Shape(kernel, "float16", D, *tile) for kernel in MODULES for D in (64, 128, 256) for tile in TILES),
    *(Shape(kernel, "float32", D, *tile) for kernel in MODULES for D in (64, 128) for tile in TILES[1:4]),
    *(Shape(kernel, "float16", 128, 64, 64, stages) for kernel in MODULES for stages in (1, 3, 4, 5, 7)),
)


def launch(shape):
    """Launch the kernel through its own wrapper, which does not ask whether the tiles fit."""
    import torch

    module = load(f"{MODULES[shape.kernel]}.py")
    module.check_shared_memory = lambda *arguments: None
    dtype, tile = getattr(torch, shape.dtype), (shape.block_q, shape.block_k)
    if shape.kernel == "x1":
        module.block_sparse_kernel = Staged(module.block_sparse_kernel, shape.num_stages)
        q = torch.zeros(2, 4, TOKENS, shape.D, dtype=dtype)
        mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
        module.block_sparse_attention(q, q, q, module.tiles_of_mask(mask, *tile))
    else:
        module.packed_block_sparse_kernel = Staged(module.packed_block_sparse_kernel, shape.num_stages)
        q = torch.zeros(TOKENS, 4, shape.D, dtype=dtype)
        cu_seqlens = torch.tensor([0, 200, TOKENS], dtype=torch.int32)
        module.packed_block_sparse_attention(q, q, q, cu_seqlens, cu_seqlens, is_causal=True, tile=tile)


class Staged:
    """A kernel that is launched with another num_stages than its wrapper asks for."""

    def __init__(self, kernel, num_stages):
        self.kernel = kernel.kernel if isinstance(kernel, Staged) else kernel
        self.num_stages = num_stages

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.kernel[grid](*args, **kwargs | {"num_stages": self.num_stages})


def compiled(shapes, target):
    """The Row of each shape, compiled for `target`; in a process that interprets nothing and compiles for no other."""
    import triton
    from triton.runtime.errors import OutOfResources

    from grader.gpu.gpus import GPUS
    from report.counting import compiling

    gpu, rows = GPUS[target], []
    with tempfile.TemporaryDirectory() as folder:
        compiling.get_ready(folder)
        for shape in shapes:
            fits_or_not = contextlib.suppress(OutOfResources)  # compiled by then
            with compiling.launches(gpu) as found, fits_or_not:
                launch(shape)
            rows.append(Row(*astuple(shape), target, triton.__version__, found.kernels[-1].shared_bytes))
    return rows


def in_children(shapes=SHAPES, targets=TARGETS):
    """The Rows of all shapes, compiled in a process for each target; raises Refused."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    rows = []
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(
                TrustedChild([sys.executable, "-m", "report.counting.shared_memory"], ROOT, environment)
            )
            for _ in targets
        ]
        for child, target in zip(children, targets, strict=True):
            child.send({"shapes": list(map(asdict, shapes)), "target": target}, SECONDS)
        try:
            for child in children:
                rows += (Row(**row) for row in child.receive(SECONDS)["rows"])
        except ChildFailed as failure:
            raise Refused(f"a process that compiles gave no figures: {failure}") from None
    return rows


def answer():
    """In such a process: what is asked on standard input, on what was standard output."""
    from report.measuring.serve import open_channel

    say = open_channel()
    asked = json.loads(sys.stdin.readline())
    rows = compiled([Shape(**shape) for shape in asked["shapes"]], asked["target"])
    say(rows=list(map(asdict, rows)))


def write(rows, file):
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(field.name for field in fields(Row))
    writer.writerows(map(astuple, rows))


def recorded():
    """The Rows that are committed."""
    of = {field.name: field.type for field in fields(Row)}
    with ROWS.open() as file:
        return [Row(**{name: of[name](value) for name, value in row.items()}) for row in csv.DictReader(file)]


def main(arguments):
    if arguments:
        if len(arguments) > 1 or arguments[0] not in TARGETS:
            print(f"one target is asked for, {' or '.join(TARGETS)}; got {' '.join(arguments)}", file=sys.stderr)
            return 2
        write(in_children(targets=arguments), sys.stdout)
        return 0
    fresh = in_children()
    kept = [row for row in recorded() if row.triton != fresh[0].triton] if ROWS.is_file() else []
    with ROWS.open("w") as file:
        write(sorted(kept + fresh, key=lambda row: row.triton), file)
    print(f"written: {ROWS}")
    return 0


if __name__ == "__main__":
    answer()
