"""What the output of a warm-up often equals instead: each mistake as the output that it gives, of x in float32."""

import math

import torch

from grader.kinds.kind import KnownMistake
from grader.kinds.warm_ups.cases import TILE, TILE_ROWS

TAIL = "notebooks/03_first_triton_kernel.ipynb: Masks"
LOOP = "notebooks/03_first_triton_kernel.ipynb: A loop over tiles"
STABLE = "notebooks/02_online_softmax.ipynb: Why the maximum?"
LANES = "what does a lane past the end of the row hold, and what is its exp: which `other` adds nothing?"
AXES = "a block of rows x columns: which axis is left when the sum of each row is made?"
OVERFLOW = "what is exp of 400 in float32, and of -400? What may be taken off every number of a row?"


def last_tile(case, x):
    return x[:, (case.columns - 1) // TILE * TILE :].sum(1)


def first_tile_again(case, x):
    return x[:, :TILE].sum(1) * -(-case.columns // TILE)


def padded(x, number):
    """Rows that go on with this number up to a power of two."""
    columns = x.shape[1]
    return torch.nn.functional.pad(x, (0, (1 << (columns - 1).bit_length()) - columns), value=number)


def with_zeros(case, x):
    return padded(x, 0.0).softmax(1)[:, : x.shape[1]]


def without_maximum(case, x):
    p = x.exp()
    return p / p.sum(1, keepdim=True)


def down_the_columns(case, x):
    return torch.cat([tile.softmax(0) for tile in x.split(TILE_ROWS)])


def exp_of(case, x):
    return torch.exp(x - x.amax(1, keepdim=True))


def over_the_tile(case, x):
    """Each number over the sum of its column in its tile of rows; where some of these do not exist, that is NaN."""
    p = exp_of(case, x)
    p = torch.nn.functional.pad(p, (0, 0, 0, -len(x) % TILE_ROWS), value=math.nan if len(x) > TILE_ROWS else 0.0)
    tiles = p.view(-1, TILE_ROWS, x.shape[1])
    return (tiles / tiles.sum(1, keepdim=True)).flatten(0, 1)[: len(x)]


def with_one_maximum(case, x):
    """Where a row is far below another of its tile, exp of all its numbers is 0, and its sum too."""
    p = torch.cat([torch.exp(tile - tile.max()) for tile in x.split(TILE_ROWS)])
    return p / p.sum(1, keepdim=True)


def with_exp2(case, x):
    p = torch.exp2(x - x.amax(1, keepdim=True))
    return p / p.sum(1, keepdim=True)


EVERY = {
    "w2": (
        KnownMistake(
            "the sum of the last tile of each row alone", "what does the loop carry from one tile to the next?",
            last_tile, LOOP,
        ),
        KnownMistake(
            "the sum of the first tile, taken again for each tile", "what moves from one step of the loop to the next?",
            first_tile_again, LOOP,
        ),
        KnownMistake(
            "the mean of each row", "by what is a sum divided?", lambda case, x: x.mean(1), TAIL,
        ),
        KnownMistake(
            "the largest number of each row", "is each tile added up?", lambda case, x: x.amax(1), TAIL,
        ),
        KnownMistake(
            "the sum of each row without its last, ragged tile", "does the loop end where the row does?",
            lambda case, x: x[:, : case.columns // TILE * TILE].sum(1), TAIL,
        ),
    ),
    "w3": (
        KnownMistake("the softmax of rows that go on past their end with zeros, or any number whose exp is not 0",
                     LANES, with_zeros, TAIL),
        KnownMistake("a softmax from which no maximum was taken off", OVERFLOW, without_maximum, STABLE),
        KnownMistake("exp of each row that is not divided by its sum", "what must the numbers of a row add up to?",
                     exp_of, STABLE),
        KnownMistake("exp of each row over the sums down the columns of a tile", AXES, over_the_tile, STABLE),
        KnownMistake("a softmax with one maximum for all rows of a tile", AXES, with_one_maximum, STABLE),
        KnownMistake("the softmax of each column of a tile of rows", AXES, down_the_columns, STABLE),
        KnownMistake("the softmax of all rows together", AXES,
                     lambda case, x: x.flatten().softmax(0).view(x.shape), STABLE),
        KnownMistake("a softmax with 2 for a base", "exp2(x) is not exp(x): what must x be multiplied by?",
                     with_exp2, STABLE),
    ),
}  # fmt: skip
