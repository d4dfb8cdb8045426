"""Variables of a kernel by their names: rounds of loops, what loops carry, functions that a kernel calls."""

import torch

from grader.core import in_process
from grader.core.machine.variables import Variables

with in_process.machine():
    import triton
    import triton.language as tl

    @triton.jit
    def step(total, part):
        most = tl.max(part, 0)
        total = total + most
        return total

    @triton.jit
    def kernel(X, OUT, n, SIZE: tl.constexpr):
        at = tl.arange(0, SIZE) + tl.program_id(0)
        total, before = 0.0, tl.load(X + at)
        for start in range(0, n, SIZE):
            here = X + tl.minimum(start, n)
            x = tl.load(here + at)
            if start > 0:
                x = x * 2.0
            total = step(total, x) + 0 * tl.max(before, 0)
            before = x
        half = total / 2
        tl.store(OUT + tl.program_id(0), half)


def test_each_tile_has_what_it_leaves_in_the_variables_of_one_program():
    variables, x, out = Variables(1), torch.arange(9.0), torch.zeros(2)
    with in_process.machine([variables]):
        kernel[(2,)](x, out, 8, 4)
    before, one, two, after = variables.tiles
    assert variables.programs == 2 and before.values["at"].tolist() == [1, 2, 3, 4]
    assert [(tile.counter, tile.start) for tile in (one, two)] == [("start", 0), ("start", 4)]
    assert "here" not in one.values  # a pointer, of which a number is a part
    assert one.values["x"].tolist() == [1, 2, 3, 4] and two.values["x"].tolist() == [10, 12, 14, 16]
    assert torch.equal(two.values["before"], two.values["x"])  # a name for a value that another name has
    assert [tile.values["most"].item() for tile in (one, two)] == [4, 16]
    assert [tile.values["total"].item() for tile in (one, two)] == [4, 20]
    assert after.values == {"half": torch.tensor(10.0)}
