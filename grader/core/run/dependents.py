"""In the runner: how many elements depend on one row of an input, in a program without kernels.

The program runs twice, step by step, on inputs that differ in that row: what differs depends on it, in every tensor and
whatever its layout.
"""

import torch

from grader.core.protocol.messages import Call, Row
from grader.core.protocol.program import Input, Operation, Program
from grader.core.run.allocations import Allocations
from grader.core.run.replay import Replay, StoragePlace, place_inputs

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def most(program: Program, call: Call, data: bytearray) -> tuple[int, int]:
    """The most such elements that are alive at once, and the most in one storage.

    call: a messages.Call with a row; data: its inputs' bytes.
    """
    with torch.no_grad(), Allocations():  # what is not written yet is the same in both
        one, other = (begin(program, call, data, changed) for changed in (None, call.row))
        alive: dict[int, int] = {}
        together = largest = 0
        for step in program.steps:
            one.simple(step)  # type: ignore[arg-type]  # without a launch there is no choice
            other.simple(step)  # type: ignore[arg-type]
            alive = {number: count for number, count in alive.items() if number in one.places}
            for tensor in step.out if isinstance(step, Operation) else ():
                number = tensor.storage
                if not isinstance(program.storages[number], Input):
                    size = getattr(torch, tensor.dtype).itemsize
                    alive[number] = differing(one.places[number], other.places[number], size)
            together, largest = max(together, sum(alive.values())), max(largest, *alive.values(), 0)
    return together, largest


def begin(program: Program, call: Call, data: bytearray, changed: Row | None) -> Replay:
    """A Replay that has run all steps before the call. changed: the row that has other numbers."""
    flats, tensors = place_inputs(call.inputs, data, "cpu")
    if changed:
        part = tensors[changed.name][tuple(changed.index)]
        part.copy_(torch.randn(part.shape, generator=torch.Generator().manual_seed(1)))
    replay = Replay(program, "cpu", launch=None)
    replay.begin(flats)
    return replay


def differing(one: StoragePlace, other: StoragePlace, size: int) -> int:
    """How many elements of `size` bytes differ between two storages."""
    views = []
    for place in (one, other):
        flat = torch.empty(0, dtype=INTEGERS[size])
        views.append(flat.set_(place.storage, place.start // size, (place.bytes // size,), (1,)))
    return int((views[0] != views[1]).sum())
