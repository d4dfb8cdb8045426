"""How far what the machine made lies from what a GPU made."""

from dataclasses import dataclass

import torch

from grader.tests.core.machine.entries import BITS, Entry


@dataclass(frozen=True)
class Difference:
    """elements: how many differ. ulps, absolute: by how much at most. over: how many are over the tolerance."""

    elements: int = 0
    ulps: float = 0.0
    absolute: float = 0.0
    over: int = 0
    example: str = ""

    def __str__(self) -> str:
        if not self.elements:
            return "same bits"
        over = f", {self.over} OVER {self.example}" if self.over else ""
        return f"{self.elements} differ, {self.ulps:.3g} ulps, {self.absolute:.3g}{over}"


def difference(entry: Entry, machine: list[torch.Tensor], gpu: list[torch.Tensor]) -> Difference:
    """The worst of all tensors."""
    parts = [of_tensor(entry, mine, theirs) for mine, theirs in zip(machine, gpu, strict=True)]
    return Difference(
        sum(part.elements for part in parts),
        max((part.ulps for part in parts), default=0.0),
        max((part.absolute for part in parts), default=0.0),
        sum(part.over for part in parts),
        next((part.example for part in parts if part.over), ""),
    )


def of_tensor(entry: Entry, mine: torch.Tensor, theirs: torch.Tensor) -> Difference:
    mine, theirs = mine.flatten(), theirs.flatten()
    if mine.dtype is torch.bool:
        mine, theirs = mine.to(torch.int8), theirs.to(torch.int8)
    code = BITS[mine.element_size()]
    differ = mine.view(code) != theirs.view(code)
    is_float = mine.dtype.is_floating_point
    if is_float:
        a, b = mine.double(), theirs.double()
        differ &= ~(a.isnan() & b.isnan())
    if not differ.any():
        return Difference()
    places = torch.nonzero(differ).flatten()
    mine, theirs = mine[places], theirs[places]
    if is_float:
        a, b = mine.double(), theirs.double()
        absolute = (a - b).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
        ulps = torch.where(a.isnan() | b.isnan(), torch.inf, ulps_between(mine, theirs))
    else:
        absolute = (mine.double() - theirs.double()).abs()
        ulps = absolute.clamp(min=1.0)
    over = (ulps > entry.ulps) & (absolute > entry.absolute)
    if not is_float or not (entry.ulps or entry.absolute):  # then the sign of a zero counts too
        over[:] = True
    example = ""
    if over.any():
        worst = int(torch.nonzero(over).flatten()[0])
        example = f"[{int(places[worst])}]: {mine[worst].item()}, GPU {theirs[worst].item()}"
    return Difference(len(places), float(ulps.max()), float(absolute.max()), int(over.sum()), example)


def ulps_between(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """How many floats of their type lie between them, as float64; both zeros are one."""
    least = -(1 << (8 * a.element_size() - 1))
    x, y = (each.view(BITS[each.element_size()]).to(torch.int64) for each in (a, b))
    x, y = (torch.where(each < 0, least - each, each) for each in (x, y))
    return torch.where((x < 0) == (y < 0), (x - y).abs().double(), x.double().abs() + y.double().abs())
