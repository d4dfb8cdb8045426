"""x2's kind: an order of programs as a function, and what the kernel makes of it."""

import random
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from msgspec import Meta, Struct

from grader.core.sandbox.submission import Answer
from grader.engine.kind import Kind
from grader.kinds.attention import tile_visits
from grader.kinds.attention.kind import Attention
from grader.kinds.program_order.cases import PROBLEM, OrderCase
from grader.kinds.program_order.check_order import check_order
from grader.result import Cause, Facts, Outcome, Verdict

ORDER = "the order in which tiles run"
WORDS = {2: torch.int16, 4: torch.int32}
MOST_PROGRAMS = 4000  # of a size that is drawn
QUESTIONS = {
    "there are": "which numbers may a head and a tile have?",
    "never computed": "can two programs get the same tile?",
    "kv heads have all": "programs p and p + num_dies run on the same die: which heads do these two work on?",
    "tiles of keys to visit": "what does a tile cost, the first and the last, and which die gets the costly ones?",
    "runs before": "which tile of a head takes longest, and when should it start?",
}


class ProgramOrder(Attention):
    """A call of x2's kernel, compared with program_order or with a call on a single die."""

    problems = (PROBLEM,)

    def handler(self, case):
        return FUNCTION if isinstance(case, OrderCase) else self

    def reply(self, submission, case, placed):
        answer = super().reply(submission, case, placed)
        if not answer.returned:
            return answer
        found = OrderedAnswer(answer.reply, answer.program, answer.data, answer.more)
        if case.like == "program_order" and answer.reply.trace:
            found.seen = seen_order(case, answer.reply.trace)
            if found.seen:
                told, orders = ask_for_orders(submission, [found.seen.sizes])
                if orders is None:
                    return told
                found.seen.places = (orders.orders or [None])[0]
        return found

    def next_call(self, problem, case, placed, answers):
        if case.like == "the plain order":
            return None if len(answers) > 1 else (replace(case, num_dies=1), placed)
        return super().next_call(problem, case, placed, answers)

    def compare(self, problem, case, outputs, right):
        said = case.like == "the plain order" and tell_other_bits(*(each["o"] for each in outputs))
        return Verdict(Outcome.WRONG, said) if said else None

    def judge(self, problem, case, placed, answer, device):
        verdict = super().judge(problem, case, placed, answer, device)
        if verdict.outcome is not Outcome.PASSED:
            return verdict
        wrong = None
        if case.like == "program_order" and answer.reply.trace:
            wrong = misplaced(answer.seen, tile_visits.read(answer.reply.trace))
        return replace(verdict, outcome=Outcome.WRONG, sentence=wrong) if wrong else verdict


class OrderFunction(Kind):
    """Calls of x2's program_order at the sizes of a case."""

    def inputs(self, case, seed):
        return draw_sizes(case, seed)

    def reply(self, submission, case, placed):
        answer, orders = ask_for_orders(submission, placed)
        return OrdersAnswer(answer.reply, orders=orders)

    def judge(self, problem, case, placed, answer, device):
        for size, order in zip(placed, answer.orders.orders, strict=False):
            call = "program_order(num_tiles={}, num_heads={}, num_dies={}, heads_per_kv={})".format(*size)
            if order is None:
                return Verdict(Outcome.WRONG, f"{call} must be a list of (head, tile); it is {answer.orders.came}.")
            if wrong := check_order(order, *size):
                known = [(words, ask) for words, ask in QUESTIONS.items() if words in wrong]
                facts = Facts(question=known[0][1], causes=(Cause(*known[0], ORDER),)) if known else Facts()
                return Verdict(Outcome.WRONG, f"{call}: {wrong}.", facts)
        return Verdict(Outcome.PASSED)


FUNCTION, KIND = OrderFunction(), ProgramOrder()


class Orders(Struct):
    """What program_order returned for each size. came: the first that is no list of pairs, where there is one."""

    orders: list[list[tuple[int, int]] | None]
    came: Annotated[str, Meta(max_length=80)] = ""


@dataclass
class OrdersAnswer(Answer):
    orders: Orders | None = None


@dataclass
class SeenOrder:
    """program_order's arguments for the tiles that were seen, the rows of a tile, and what it returns for them."""

    sizes: list[int]
    rows: int
    places: list[tuple[int, int]] | None = None


@dataclass
class OrderedAnswer(Answer):
    """seen: None where no program was seen to load queries."""

    seen: SeenOrder | None = None


def ask_for_orders(submission, sizes):
    return submission.call_function("order", {"sizes": sizes}, Orders)


def draw_sizes(case, seed):
    """The sizes of an OrderCase: those that it names, and as many drawn as it asks for."""
    draw, drawn = random.Random(f"{seed} {case.name}"), []
    for _ in range(case.drawn):
        tiles, sharing, dies = draw.randint(1, 300), draw.choice((1, 1, 2, 4, 7)), draw.choice((2, 4, 6, 8, 8, 8))
        kv_heads = draw.randint(1, max(1, MOST_PROGRAMS // (tiles * sharing)))
        drawn.append((tiles, kv_heads * sharing, dies, sharing))
    return [*case.sizes, *sorted(drawn, key=lambda size: size[0] * size[1])]


def misplaced(seen, visits):
    """A sentence where a program computes another tile than program_order gives it, else None.

    seen: the SeenOrder, or None. visits: the Visits.
    """
    if seen is None:
        return "No program was seen to load a tile of queries: does it load them with tl.load or a descriptor?"
    size, rows, places = seen.sizes, seen.rows, seen.places
    call = "program_order({}, {}, {}, {})".format(*size)
    if places is None or len(places) != size[0] * size[1]:
        return f"{call} gives no list of {size[0] * size[1]} pairs (head, tile)."
    batches, first = max(visit.batch for visit in visits) + 1, min(visit.program for visit in visits)
    heads = size[1] // batches
    tiles_of = defaultdict(set)
    for visit in visits:
        tiles_of[visit.program - first].add((visit.batch, visit.head, visit.q[0] // rows))
    program, tiles = max(tiles_of.items(), key=lambda item: len(item[1]))
    if len(tiles) > 1:
        return (
            f"Program {program} computes {len(tiles)} tiles of queries; here each program computes one, that of "
            "`place`: launch as many programs as there are tiles."
        )
    for visit in sorted(visits, key=lambda visit: visit.program):
        program, got = visit.program - first, (visit.batch * heads + visit.head, visit.q[0] // rows)
        want = places[program] if program < len(places) else None
        if got != want:
            said = f"tile {want[1]} of head {want[0]}" if want else "none: there are no more"
            return (
                f"Program {program} computes tile {got[1]} of head {got[0]} (heads counted through all batches); "
                f"{call} gives it {said}. Does the kernel take its head and tile from "
                "`place`, asked with these same numbers?"
            )
    return None


def seen_order(case, trace):
    """The SeenOrder of the tiles that the trace saw, without places; None where it saw no query."""
    rows = max((visit.q[1] - visit.q[0] + 1 for visit in tile_visits.read(trace)), default=0)
    if not rows:
        return None
    return SeenOrder([-(-case.N // rows), case.B * case.Hq, case.num_dies, case.Hq // case.kv_heads], rows)


def tell_other_bits(first, second):
    """A sentence where the bits of two outputs are not the same, else ""."""
    other = torch.ne(*(each.view(WORDS[each.element_size()]) for each in (first, second)))
    if not other.any():
        return ""
    at = ", ".join(map(str, other.nonzero()[0].tolist()))
    return (
        f"{int(other.sum())} elements have other bits than with num_dies=1, first at ({at}): the order says which "
        "program computes a tile, and nothing else."
    )
