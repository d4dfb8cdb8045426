"""Whether a mistake gives the student's output, and whether two of them together do."""

import itertools
import math
import time
from dataclasses import fields, replace

import torch

from grader.kinds.attention.known_mistakes import AttentionSpec
from grader.kinds.attention.softmax_mistakes import GUESSED

EXPLAINED = 0.25  # what a rounding mistake, or two mistakes, may leave unexplained of the error, as a ratio of norms
HALF = 0.5  # and what any other may: where all errors are near the allowance, many things fit by chance
NEARLY_ALL = 0.97  # of the elements must agree where float32 overflows: the threshold itself is fuzzy
TOGETHER = ", together with "
SAMPLE = 8  # wrong rows, and right ones, that are asked first
LARGER = 1e-4  # what scores that are too large may make of the allowance
FEW = 1 / 7  # of the rows may see nothing where they hold what they like
MOST = 0.5  # of the sample must agree where something overflows


class Matcher:
    """Hears one output: a few rows of the head that is most wrong, then that head, then all of them."""

    def __init__(self, got, expected):
        self.got, self.expected = got, expected
        wrong = ~((got.double() - expected.o).abs() <= expected.allowed_o)
        self.everywhere = torch.cartesian_prod(torch.arange(got.shape[0]), torch.arange(got.shape[1]))
        most = wrong.flatten(2).sum(2).flatten().argmax()
        self.probe = self.everywhere[most : most + 1]
        rows = wrong.flatten(0, 1)[most].any(1)
        self.sample = torch.cat([some(rows), some(~rows)]).sort().values

    def fits(self, mistake, left=HALF):
        """left: the most that may be left of the error, as a ratio of norms."""
        if mistake.spec.by_row and not mistake.rounding and not self.may_fit(mistake):
            return False
        groups = (self.probe, self.everywhere) if len(self.everywhere) > 1 else (self.probe,)
        return all(self.agrees(mistake, pairs, left) for pairs in groups)

    def may_fit(self, mistake):
        """False where a few rows of the output are clearly not the mistake's."""
        o, near = self.compared(mistake, self.probe, self.sample)
        return bool(near.all() if o.isfinite().all() else near.float().mean() >= MOST)

    def agrees(self, mistake, pairs, left):
        """True where the output of these pairs is the mistake's, and not the right one."""
        batch, head = pairs.unbind(1)
        got, right = self.got[batch, head].double(), self.expected.o[batch, head]
        allowed = self.expected.allowed_o[batch, head]
        o, near = self.compared(mistake, pairs)
        wrong = ~((got - right).abs() <= allowed)
        told = wrong & ~((o - right).abs() <= allowed)
        if mistake.spec.only_masks:
            told &= ~o.isnan() | (mistake.kind != "") & (got.isnan() | (got == 0))  # a guess needs numbers
        if not told.any():
            return False
        finite = wrong & got.isfinite() & o.isfinite()
        rest, error = (got - o)[finite].norm(), (got - right)[finite].norm()
        if mistake.rounding:
            if (wrong & ~got.isnan()).sum() < MOST * wrong.sum():  # NaN equals many mistakes at once
                return False
            known = got.isfinite() & o.isfinite() | (near & ~o.isfinite())
            return bool(known.float().mean() >= NEARLY_ALL and rest <= EXPLAINED * error)
        if rest > left * error:
            return False
        if not o.isinf().any() and (mistake.spec.only_masks or o.isfinite().all()):
            return bool(near.all())
        return bool(near.float().mean() >= NEARLY_ALL and near[wrong].float().mean() >= NEARLY_ALL)

    def compared(self, mistake, pairs, rows=None):
        """(o, near): what the mistake gives for these pairs, and where the output is that."""
        batch, head = pairs.unbind(1)
        o, size = mistake.spec.answer(pairs, rows)
        got = self.got[batch, head]
        o, got = o.to(got.dtype).double(), got.double()  # what overflows the output's dtype does so here
        got = got if rows is None else got[:, rows]
        near = (got == o) | (o.isnan() & got.isnan())
        near |= o.isfinite() & ((got - o).abs() <= 2 * self.relative(mistake) * size + 1e-6)
        if mistake.spec.only_masks and o.isnan().any():
            # A row that sees nothing is 0 / 0, or its guarded twin 0; a finite mask gives it anything at all.
            near |= o.isnan() & ((got == 0) | (o.isnan().float().mean() <= FEW))
        return o, near

    def relative(self, mistake):
        """The allowance over the size of what is added up; scores that are larger are rounded more coarsely."""
        larger = mistake.spec.scale * math.sqrt(self.got.shape[3])
        return max(self.expected.relative, min(self.expected.relative * larger, LARGER))


def some(rows):
    """Up to SAMPLE positions, spread over those that are True."""
    found = rows.nonzero().flatten()
    return found[torch.linspace(0, len(found) - 1, min(SAMPLE, len(found))).long()]


def two_at_once(tried, spec, judge, deadline):
    """Pairs of mistakes of different kinds, both at work: those that fit, as far as the time allows."""
    found = []
    simple = [mistake for mistake in tried if mistake.kind and not mistake.general]
    for first, second in itertools.combinations(simple, 2):
        kinds = {first.kind, second.kind}
        if len(kinds) == 1 or (GUESSED in kinds and "scale" not in kinds):
            continue
        if time.thread_time() > deadline:
            break
        changed = {
            field.name: getattr(second.spec, field.name)
            for field in fields(AttentionSpec)
            if getattr(second.spec, field.name) is not getattr(spec, field.name)
        }
        both = replace(
            first,
            equals=f"{first.equals}{TOGETHER}{second.equals}",
            question=f"{first.question} And: {second.question}",
            spec=replace(first.spec, **changed),
        )
        if judge.fits(both, EXPLAINED):
            found.append(both)
    return found
