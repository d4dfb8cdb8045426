"""What the output of a warm-up often equals instead: each mistake as the step that it replaces."""

import math

import torch

from grader.engine.mistakes import about
from grader.kinds.warm_ups.cases import TILE, TILE_ROWS

TAIL = "notebooks/03_first_triton_kernel.ipynb: Masks"
LOOP = "notebooks/03_first_triton_kernel.ipynb: A loop over tiles"
STABLE = "notebooks/02_online_softmax.ipynb: Why the maximum?"
LANES = "what does a lane past the end of the row hold, and what is its exp: which `other` adds nothing?"
AXES = "a block of rows x columns: which axis is left when the sum of each row is made?"
OVERFLOW = "what is exp of 400 in float32, and of -400? What may be taken off every number of a row?"


def out(of):
    return {"out": of}


def with_zeros(x):
    """The sums of rows that go on with zeros up to a power of two."""
    padded = torch.nn.functional.pad(x.x, (0, -x.x.shape[1] % (1 << (x.x.shape[1] - 1).bit_length())))
    return padded.softmax(1)[:, : x.x.shape[1]]


def over_the_tile(x):
    """Each number over the sum of its column in its tile of rows; where some of these do not exist, that is NaN."""
    count = len(x.p)
    p = torch.nn.functional.pad(x.p, (0, 0, 0, -count % TILE_ROWS), value=math.nan if count > TILE_ROWS else 0.0)
    tiles = p.view(-1, TILE_ROWS, p.shape[1])
    return (tiles / tiles.sum(1, keepdim=True)).flatten(0, 1)[:count]


def one_maximum(x):
    """Where a row is far below another of its tile, exp of all its numbers is 0 in float32, and its sum too."""
    p = torch.cat([torch.exp((tile - tile.max()).float()) for tile in x.x.split(TILE_ROWS)])
    return (p / p.sum(1, keepdim=True)).double()


def no_maximum(x):
    p = x.x.float().exp()
    return (p / p.sum(1, keepdim=True)).double()


EVERY = {
    "w2": (
        *about("what does the loop carry from one tile to the next?", LOOP,
            ("the sum of the last tile of each row alone",
             out(lambda x: x.x[:, (x.case.columns - 1) // TILE * TILE :].sum(1)))),
        *about("what moves from one step of the loop to the next?", LOOP,
            ("the sum of the first tile, taken again for each tile",
             out(lambda x: x.x[:, :TILE].sum(1) * -(-x.case.columns // TILE)))),
        *about("by what is a sum divided?", TAIL, ("the mean of each row", out(lambda x: x.x.mean(1)))),
        *about("is each tile added up?", TAIL, ("the largest number of each row", out(lambda x: x.x.amax(1)))),
        *about("does the loop end where the row does?", TAIL,
            ("the sum of each row without its last, ragged tile",
             out(lambda x: x.x[:, : x.case.columns // TILE * TILE].sum(1)))),
    ),
    "w3": (
        *about(LANES, TAIL,
            ("the softmax of rows that go on past their end with zeros, or any number whose exp is not 0",
             out(with_zeros))),
        *about(OVERFLOW, STABLE, ("a softmax from which no maximum was taken off", out(no_maximum))),
        *about("what must the numbers of a row add up to?", STABLE,
            ("exp of each row that is not divided by its sum", out(lambda x: x.p))),
        *about(AXES, STABLE,
            ("exp of each row over the sums down the columns of a tile", out(over_the_tile)),
            ("a softmax with one maximum for all rows of a tile", out(one_maximum)),
            ("the softmax of each column of a tile of rows",
             out(lambda x: torch.cat([tile.softmax(0) for tile in x.x.split(TILE_ROWS)]))),
            ("the softmax of all rows together", out(lambda x: x.x.flatten().softmax(0).view(x.x.shape)))),
        *about("exp2(x) is not exp(x): what must x be multiplied by?", STABLE,
            ("a softmax with 2 for a base", {"p": lambda x: x.less.exp2()})),
    ),
}  # fmt: skip
