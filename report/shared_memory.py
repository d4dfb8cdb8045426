"""Shared memory that Triton's compiler gives to the kernels of X1 and the packed form, for GPUs that need not be here.

    python -m report.shared_memory            compile all, a minute or two, and write shared_memory.csv
    python -m report.shared_memory sm_80      print the rows of one GPU

Rows of another Triton than the one that is installed are kept. `tile_shapes.py` makes a page of the rows.
"""

import contextlib
import csv
import importlib
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROWS = Path(__file__).parent / "shared_memory.csv"
TARGETS = ("sm_80", "sm_90")
MODULES = {"x1": "x1_block_sparse", "packed": "packed_block_sparse"}
TOKENS = 512


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

    module = importlib.import_module(MODULES[shape.kernel])
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
    sys.path.insert(0, str(ROOT / "solutions"))  # where the modules lie
    import triton
    from triton.runtime.errors import OutOfResources

    from grader.gpu.gpus import GPUS
    from report import compiling

    gpu, rows = asdict(GPUS[target]), []
    with tempfile.TemporaryDirectory() as folder:
        compiling.get_ready(folder)
        for shape in shapes:
            fits_or_not = contextlib.suppress(OutOfResources)  # compiled by then
            with compiling.launches(gpu) as found, fits_or_not:
                launch(shape)
            rows.append(Row(*astuple(shape), target, triton.__version__, found.kernels[-1]["shared_bytes"]))
    return rows


def write(rows, file):
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(field.name for field in fields(Row))
    writer.writerows(map(astuple, rows))


def read(lines):
    """The Rows of a CSV's lines."""
    of = {field.name: field.type for field in fields(Row)}
    return [Row(**{name: of[name](value) for name, value in row.items()}) for row in csv.DictReader(lines)]


def recorded():
    """The Rows that are committed."""
    with ROWS.open() as file:
        return read(file)


def in_children(targets=TARGETS):
    """The Rows of all shapes, compiled in a process for each target."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "report.shared_memory"]
    children = [
        subprocess.Popen([*command, target], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for target in targets
    ]
    rows = []
    for child in children:
        printed, _ = child.communicate()
        if child.returncode:
            raise SystemExit(child.returncode)
        rows += read(printed.splitlines())
    return rows


def main(arguments):
    if arguments:
        if len(arguments) > 1 or arguments[0] not in TARGETS:
            print(f"one target is asked for, {' or '.join(TARGETS)}; got {' '.join(arguments)}", file=sys.stderr)
            return 2
        write(compiled(SHAPES, arguments[0]), sys.stdout)
        return 0
    fresh = in_children()
    kept = [row for row in recorded() if row.triton != fresh[0].triton] if ROWS.is_file() else []
    with ROWS.open("w") as file:
        write(sorted(kept + fresh, key=lambda row: row.triton), file)
    print(f"written: {ROWS}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
