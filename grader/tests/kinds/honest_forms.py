"""How far right kernels are from the right answer, as part of what is allowed: the freedoms of an honest kernel.

python -m grader.tests.kinds.honest_forms [SEEDS] measures every case that needs no GPU at so many seeds, 20 if none
is given, and prints the table of docs/points.md.
"""

import itertools
import math
import multiprocessing
import sys
from collections import defaultdict
from dataclasses import dataclass, replace

import torch

from grader.kinds.attention import inputs, oracle
from grader.registry import EVERY, PROBLEMS

SEEDS = 20
PARTS = 8
WHOLE = 1 << 30
ORDERS = {
    "forward": lambda starts: starts,
    "backward": lambda starts: starts[::-1],
    "odd tiles first": lambda starts: starts[1::2] + starts[::2],
}


@dataclass(frozen=True)
class Form:
    """One way to write attention over tiles of `tile` keys. The last two are vices: see `accumulate`."""

    tile: int = 64
    order: str = "forward"
    base: str = "exp2"
    rounds_q: bool = False  # the scale goes into q before the product, in q's dtype
    rounds_p: bool = False  # probabilities are rounded to the dtype before their sum is taken
    acc_dtype: torch.dtype = torch.float32
    keeps_maximum: bool = True

    @property
    def name(self):
        words = [self.base] + ["q scaled in its dtype"] * self.rounds_q + ["p rounded before its sum"] * self.rounds_p
        return ", ".join(words)


TILES = ((16, "forward"), (48, "odd tiles first"), (64, "backward"), (128, "odd tiles first"), (WHOLE, "forward"))
FORMS = tuple(
    Form(*tile, base, rounds_q, rounds_p)
    for tile, base, rounds_q, rounds_p in itertools.product(TILES, ("exp", "exp2"), (False, True), (False, True))
)


def attend(q, k, v, mask, form, scale=None):
    """(o in the dtype of q, lse) by an online softmax that is written apart from oracle.compute_online."""
    group, dtype = q.shape[1] // k.shape[1], q.dtype
    power, unit = (torch.exp2, math.log2(math.e)) if form.base == "exp2" else (torch.exp, 1.0)
    scale = unit * (1.0 / math.sqrt(q.shape[-1]) if scale is None else scale)
    q = (q * scale).to(dtype).float() if form.rounds_q else q.float() * scale
    k, v = k.float().repeat_interleave(group, 1), v.float().repeat_interleave(group, 1)
    m = torch.full(q.shape[:3], -math.inf)
    l, acc = torch.zeros_like(m), torch.zeros(q.shape, dtype=form.acc_dtype)
    for start in ORDERS[form.order](list(range(0, k.shape[2], form.tile))):
        k_pos = torch.arange(start, min(start + form.tile, k.shape[2]))
        s = torch.einsum("bhqd,bhkd->bhqk", q, k[:, :, k_pos])
        s = torch.where(mask(torch.arange(q.shape[2]), k_pos), s, torch.tensor(-math.inf))
        here = s.max(-1).values
        new = torch.maximum(m, here) if form.keeps_maximum else here
        pivot = torch.where(new.isinf(), 0.0, new)
        p, alpha = power(s - pivot[..., None]), power(m - pivot)
        rounded = p.to(dtype).float()
        l = l * alpha + (rounded if form.rounds_p else p).sum(-1)
        part = torch.einsum("bhqk,bhkd->bhqd", rounded, v[:, :, k_pos])
        acc = (acc.float() * alpha[..., None] + part).to(form.acc_dtype)
        m = new
    seen = l > 0
    o = acc.float() * torch.where(seen, 1.0 / l, 0.0)[..., None]
    return o.to(dtype), torch.where(seen, m / unit + l.log(), -math.inf)


def tensors(case, seed=0):
    return tuple(placed.tensor for placed in inputs.make(case, seed))


def mask_of(case):
    """The mask of a case, for all batches and heads."""
    return case.visibility.mask


def share_used(case, seed):
    """{form: the largest error over what is allowed, of o and of lse} on the inputs of this seed."""
    q, k, v = tensors(case, seed)
    want = oracle.expect(q, k, v, case.visibility, scale=case.scale)
    found = {}
    for form in FORMS:
        o, lse = attend(q, k, v, mask_of(case), form, case.scale)
        off = torch.where(lse.double() == want.lse, 0.0, (lse.double() - want.lse).abs())
        found[form] = ((o.double() - want.o).abs() / want.allowed_o).max().item(), (off / want.allowed_lse).max().item()
    return found


def half_accumulator_fails(case, seed):
    """True where an accumulator in the dtype of q is rejected, whatever its tiles."""
    q, k, v = tensors(case, seed)
    want = oracle.expect(q, k, v, case.visibility, scale=case.scale)
    forms = (Form(tile, acc_dtype=q.dtype) for tile in (16, 32, 64, 128, WHOLE))
    outputs = (attend(q, k, v, mask_of(case), form, case.scale)[0].double() for form in forms)
    return all(bool((~((o - want.o).abs() <= want.allowed_o)).any()) for o in outputs)


def graded_cases(id):
    return [case for case in EVERY[id].cases if not case.gpu and case.attends]


def distinct_cases():
    """{case without what changes no value: the problems that ask it}."""
    found = defaultdict(set)
    for id in (*PROBLEMS, "x1"):
        for case in graded_cases(id):
            found[replace(case, left_out=(), tiles=None)].add(id)
    return found


def cases_of(seed):
    """A part of them for each seed, so that PARTS seeds have every case."""
    return {case: ids for i, (case, ids) in enumerate(distinct_cases().items()) if i % PARTS == seed % PARTS}


def measure(job):
    """(case, seed, share_used) of a job."""
    torch.set_num_threads(1)
    case, seed = job
    return case, seed, share_used(case, seed)


def main(seeds):
    cases = distinct_cases()
    rows, worst = defaultdict(lambda: [0.0, 0.0]), (0.0,)
    with multiprocessing.Pool() as pool:
        jobs = [(case, seed) for case in cases for seed in range(seeds)]
        for case, seed, found in pool.imap_unordered(measure, jobs, chunksize=4):
            for form, (o, lse) in found.items():
                row = rows[form.name, case.dtype]
                row[:] = max(row[0], o), max(row[1], lse if any(EVERY[id].returns_lse for id in cases[case]) else 0.0)
                worst = max(worst, (o, case.name, seed, str(form)))
        halves = [(id, seed) for id in PROBLEMS for seed in range(seeds)]
        missed = [job for job, fails in zip(halves, pool.starmap(some_case_fails, halves), strict=True) if not fails]
    print(f"{len(cases)} cases, {seeds} seeds, {len(FORMS)} forms; o at worst {worst}")
    print("| form | dtype | o | lse |\n|---|---|---|---|")
    for (name, dtype), (o, lse) in sorted(rows.items()):
        print(f"| {name} | {dtype} | {o:.2f} | {lse:.2f} |")
    print("a float16 accumulator passes every case of:", missed or "no problem at any seed")


def some_case_fails(id, seed):
    torch.set_num_threads(1)
    cases = sorted(graded_cases(id), key=lambda case: case.values != "offset")  # where it is likeliest
    return any(half_accumulator_fails(case, seed) for case in cases if case.dtype == "float16")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS)
