"""Whether a mistake gives the student's output."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch

from grader.kinds.attention.known_mistakes import KnownMistake, Memory
from grader.kinds.attention.oracle import Expected

EXPLAINED = 0.25  # what a rounding mistake may leave unexplained of the error, as a ratio of norms
HALF = 0.5  # and what any other may: where all errors are near the allowance, many things fit by chance
NEARLY_ALL = 0.97  # of the elements must agree where float32 overflows: the threshold itself is fuzzy
SAMPLE = 8  # wrong rows, and right ones, that are asked first
LARGER = 1e-4  # what scores that are too large may make of the allowance
FEW = 1 / 7  # of the rows may see nothing where they hold what they like
MOST = 0.5  # of the sample must agree where something overflows


@dataclass(frozen=True)
class Part:
    """Some rows of P heads of the output, each (P, rows, D), float64.

    pairs (P, 2): batch and query head. rows: positions, None for all. wrong: where `got` is not right. memory: for the
    mistakes that are asked of this part.
    """

    pairs: torch.Tensor
    rows: torch.Tensor | None
    got: torch.Tensor
    right: torch.Tensor
    allowed: torch.Tensor
    memory: Memory | None

    @cached_property
    def wrong(self) -> torch.Tensor:
        return ~((self.got - self.right).abs() <= self.allowed)


@dataclass(frozen=True)
class Comparison:
    """o: what a mistake gives for a Part, in the output's dtype and then float64; near: where the output is that."""

    o: torch.Tensor
    near: torch.Tensor


class Matcher:
    """Compares mistakes with one output: some rows of the head that is most wrong, then that head, then all."""

    def __init__(self, got: torch.Tensor, expected: Expected):
        self.got, self.expected = got, expected
        wrong = ~((got.double() - expected.o).abs() <= expected.allowed_o)
        everywhere = torch.cartesian_prod(torch.arange(got.shape[0]), torch.arange(got.shape[1]))
        most = wrong.flatten(2).sum(2).flatten().argmax()
        rows, worst = wrong.flatten(0, 1)[most].any(1), everywhere[most : most + 1]
        self.sample = self.take(worst, torch.cat([spread_rows(rows), spread_rows(~rows)]).sort().values, Memory())
        self.parts = [self.take(worst, None, Memory())]
        self.parts += [self.take(everywhere, None, None)] if len(everywhere) > 1 else []

    def take(self, pairs: torch.Tensor, rows: torch.Tensor | None, memory: Memory | None) -> Part:
        batch, head = pairs.unbind(1)
        kept = slice(None) if rows is None else rows
        tensors = (self.got, self.expected.o, self.expected.allowed_o)
        got, right, allowed = (tensor[batch, head][:, kept].double() for tensor in tensors)
        return Part(pairs, rows, got, right, allowed, memory)

    def fits(self, mistake: KnownMistake) -> bool:
        if mistake.spec.by_row and not mistake.rounding and not self.may_fit(mistake):
            return False
        return all(self.agrees(mistake, part) for part in self.parts)

    def may_fit(self, mistake: KnownMistake) -> bool:
        """False where a few rows of the output are clearly not the mistake's."""
        found = self.compare(mistake, self.sample)
        return bool(found.near.all() if found.o.isfinite().all() else found.near.float().mean() >= MOST)

    def agrees(self, mistake: KnownMistake, part: Part) -> bool:
        """True where this part of the output is the mistake's, and not the right one."""
        found = self.compare(mistake, part)
        got, o, near, wrong = part.got, found.o, found.near, part.wrong
        told = wrong & ~((o - part.right).abs() <= part.allowed)
        if mistake.spec.only_masks:
            told &= ~o.isnan() | mistake.by_nan & (got.isnan() | (got == 0))
        if not told.any():
            return False
        finite = wrong & got.isfinite() & o.isfinite()
        rest, error = (got - o)[finite].norm(), (got - part.right)[finite].norm()
        if mistake.rounding:
            if (wrong & ~got.isnan()).sum() < MOST * wrong.sum():  # NaN equals many mistakes at once
                return False
            known = got.isfinite() & o.isfinite() | (near & ~o.isfinite())
            return bool(known.float().mean() >= NEARLY_ALL and rest <= EXPLAINED * error)
        if rest > HALF * error:
            return False
        if not o.isinf().any() and (mistake.spec.only_masks or o.isfinite().all()):
            return bool(near.all())
        return bool(near.float().mean() >= NEARLY_ALL and near[wrong].float().mean() >= NEARLY_ALL)

    def compare(self, mistake: KnownMistake, part: Part) -> Comparison:
        o, size = mistake.spec.answer(part.pairs, part.rows, part.memory)
        got, o = part.got, o.to(self.got.dtype).double()  # what overflows the output's dtype does so here
        near = (got == o) | ((got - o).abs() <= 2 * self.relative(mistake) * size + 1e-6)
        if not (finite := o.isfinite()).all():
            near = near & finite | (got == o) | (o.isnan() & got.isnan())
        if mistake.spec.only_masks and o.isnan().any():
            # A row that sees nothing is 0 / 0, or its guarded twin 0; a finite mask gives it anything at all.
            near |= o.isnan() & ((got == 0) | (o.isnan().float().mean() <= FEW))
        return Comparison(o, near)

    def relative(self, mistake: KnownMistake) -> float:
        """The allowance over the size of what is added up; scores that are larger are rounded more coarsely."""
        larger = mistake.spec.scale * math.sqrt(self.got.shape[3])
        return max(self.expected.relative, min(self.expected.relative * larger, LARGER))


def spread_rows(rows: torch.Tensor) -> torch.Tensor:
    """Up to SAMPLE positions, spread over those that are True."""
    found = rows.nonzero().flatten()
    return found[torch.linspace(0, len(found) - 1, min(SAMPLE, len(found))).long()]
