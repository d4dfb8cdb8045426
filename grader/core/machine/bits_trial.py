"""Do a program's bits depend on what runs beside it? A trial of this processor, before any program is judged.

Libraries choose how to multiply, and how to add up, by shape and stride. What a program computes must be the same alone
and among others, or a grade would depend on the size of the launch.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from grader.core.machine import arithmetic, block_operations, combining

# (rows, depth, columns) of tiles: those of the course, the smallest that tl.dot takes, and odd ones between them.
TILES = (
    (16, 16, 16), (16, 64, 16), (64, 64, 32), (32, 128, 64), (128, 64, 128), (64, 256, 64), (1, 64, 16), (16, 32, 128),
)  # fmt: skip
BESIDE = (2, 7, 33)  # programs
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp2": torch.exp2, "exp": torch.exp, "log2": torch.log2, "log": torch.log, "sin": torch.sin, "cos": torch.cos,
    "tanh": torch.tanh, "erf": torch.erf, "rsqrt": torch.rsqrt,
}  # fmt: skip
PRECISION = 1e-5  # of a product of numbers near 1, relative: float32 has 1e-7, and 256 are added up


def check() -> str | None:
    """What is wrong with this machine, or None; products go one by one from here on where they must."""
    block_operations.Products.one_by_one = False
    if any(products_differ()):
        block_operations.Products.one_by_one = True
        if found := next(filter(None, products_differ()), None):
            return f"a product of two blocks ({found}) has other bits beside other programs, also if made alone"
    if found := wrong_product():
        return f"a product of two blocks ({found}) is wrong on this machine: is PyTorch's build for this processor?"
    for name, function in FUNCTIONS.items():
        if differs(arithmetic.steady(function)):
            return f"{name} has other bits beside other numbers"
    if sum_differs():
        return "a sum has other bits beside other sums"
    return None


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def products_differ() -> Iterator[str]:
    """The tiles whose product differs."""
    for rows, depth, columns in TILES:
        for programs in BESIDE:
            a, b = numbers(programs, rows, depth), numbers(programs, columns, depth).transpose(-1, -2)
            together = block_operations.multiply(a, b)
            some = [0, programs // 2, programs - 1]
            alone = torch.cat([block_operations.multiply(a[i : i + 1], b[i : i + 1]) for i in some])
            if not torch.equal(together[some], alone):
                yield f"{rows} x {depth} x {columns}"


def wrong_product() -> str:
    for rows, depth, columns in TILES:
        a, b = numbers(3, rows, depth), numbers(3, depth, columns)
        right = (a.double()[..., None] * b.double()[:, None]).sum(2)
        bound = PRECISION * (a.double().abs()[..., None] * b.double().abs()[:, None]).sum(2)
        if not bool(((block_operations.multiply(a, b).double() - right).abs() <= bound).all()):
            return f"{rows} x {depth} x {columns}"
    return ""


def differs(function: Callable[[Tensor], Tensor]) -> bool:
    """True where one number's result depends on the others, or on where it stands among them."""
    x = numbers(1201).abs() + 0.01
    together = function(x)
    turned = function(x.flip(0).contiguous()).flip(0)
    columns = function(x[:1200].view(40, 30).t()).t().reshape(-1)
    few = torch.cat([function(x[i : i + 1]) for i in range(0, 1201, 100)])
    return not (
        torch.equal(together, turned) and torch.equal(together[:1200], columns) and torch.equal(together[::100], few)
    )


def sum_differs() -> bool:
    x, add = numbers(9, 32, 64), combining.REDUCTIONS["arith.addf"]
    return any(
        not torch.equal(add(x, axis)[i : i + 1], add(x[i : i + 1].clone(), axis)) for axis in (1, 2) for i in range(9)
    )
