"""x2's kind: an order of programs as a function, and what the kernel makes of it."""

import itertools
import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Annotated

from msgspec import Meta, Struct

from grader.core.sandbox.submission import Answer
from grader.engine.compare_values import bits
from grader.engine.kind import Kind
from grader.kinds.attention import catalogue, judging, tile_visits, work
from grader.kinds.attention.contrasts import CONTRASTS
from grader.kinds.program_order.cases import PLACES, PLAIN, PROBLEM, OrderCase
from grader.kinds.program_order.check_order import check_order
from grader.result import Cause, Facts, Outcome, Verdict

ORDER = "the order in which tiles run"
MOST_PROGRAMS = 4000  # of a size that is drawn
QUESTIONS = {
    "there are": "which numbers may a head and a tile have?",
    "never computed": "can two programs get the same tile?",
    "kv heads have all": "programs p and p + num_dies run on the same die: which heads do these two work on?",
    "tiles of keys to visit": "what does a tile cost, the first and the last, and which die gets the costly ones?",
    "runs before": "which tile of a head takes longest, and when should it start?",
}


class Orders(Struct):
    """What program_order returned for each size. came: the first that is no list of pairs, where there is one."""

    orders: list[list[tuple[int, int]] | None]
    came: Annotated[str, Meta(max_length=80)] = ""


@dataclass
class Ordered(Answer):
    """The Answer to a case that asks program_order, too."""

    found: Orders = field(default_factory=lambda: Orders([]))


class ProgramOrder(Kind):
    """A call of x2's kernel, compared with program_order or with a call on a single die."""

    problems, contrasts = (PROBLEM,), CONTRASTS
    inputs, request, right, outputs = judging.make_inputs, judging.request, judging.right, judging.outputs
    warm, drawn, size, explain_fault = judging.warm, judging.drawn, judging.size, judging.explain_fault
    diagnose, beyond_values, right_picture = judging.diagnose, judging.beyond_values, judging.right_picture
    check_cases, look_closer, tables = judging.check_cases, judging.look_closer, judging.show_tables
    small_case, example_sizes = judging.small_case, judging.sizes_shown
    known_mistakes, wasted = staticmethod(catalogue.every), staticmethod(work.wasted)
    first_difference = judging.first_difference

    def handler(self, case):
        return FUNCTION if isinstance(case, OrderCase) else self

    def reply(self, submission, case, placed):
        answer = super().reply(submission, case, placed)
        if case.like != PLACES or not answer.returned or not answer.reply.trace:
            return answer
        visits = tile_visits.read(answer.reply.trace)
        told, found = ask(submission, [seen_sizes(case, visits)] if visits else [])
        return Ordered(**vars(answer), found=found) if found else told

    def next_call(self, problem, case, placed, answers):
        return (replace(case, num_dies=1), placed) if case.like == PLAIN and len(answers) == 1 else None

    def compare(self, problem, case, outputs, right):
        first, second = (bits(each["o"]) for each in outputs)
        other = (first != second).nonzero().tolist()
        if not other:
            return None
        said = (
            f"{len(other)} elements have other bits than with num_dies=1, first at ({', '.join(map(str, other[0]))}): "
            "the order says which program computes a tile, and nothing else."
        )
        return Verdict(Outcome.WRONG, said)

    def judge(self, problem, case, placed, answer, device):
        verdict = super().judge(problem, case, placed, answer, device)
        asked = verdict.outcome is Outcome.PASSED and isinstance(answer, Ordered)
        wrong = asked and misplaced(case, tile_visits.read(answer.reply.trace), answer.found.orders)
        return replace(verdict, outcome=Outcome.WRONG, sentence=wrong) if wrong else verdict


class OrderFunction(Kind):
    """Calls of x2's program_order at the sizes of a case."""

    def inputs(self, case, seed):
        return draw_sizes(case, seed)

    def reply(self, submission, case, placed):
        told, found = ask(submission, placed)
        return Ordered(told.reply, found=found)

    def judge(self, problem, case, placed, answer, device):
        for size, order in itertools.zip_longest(placed, answer.found.orders[: len(placed)]):
            call = "program_order(num_tiles={}, num_heads={}, num_dies={}, heads_per_kv={})".format(*size)
            if order is None:
                said = f"{call} must be a list of (head, tile); it is {answer.found.came or 'missing'}."
                return Verdict(Outcome.WRONG, said)
            if wrong := check_order(order, *size):
                known = [(words, ask) for words, ask in QUESTIONS.items() if words in wrong]
                facts = Facts(question=known[0][1], causes=(Cause(*known[0], ORDER),)) if known else Facts()
                return Verdict(Outcome.WRONG, f"{call}: {wrong}.", facts)
        return Verdict(Outcome.PASSED)


FUNCTION, KIND = OrderFunction(), ProgramOrder()


def ask(submission, sizes):
    return submission.call_function("order", {"sizes": sizes}, Orders)


def draw_sizes(case, seed):
    """The sizes of an OrderCase: those that it names, and as many drawn as it asks for."""
    draw, drawn = random.Random(f"{seed} {case.name}"), []
    for _ in range(case.drawn):
        tiles, sharing, dies = draw.randint(1, 300), draw.choice((1, 1, 2, 4, 7)), draw.choice((2, 4, 6, 8, 8, 8))
        kv_heads = draw.randint(1, max(1, MOST_PROGRAMS // (tiles * sharing)))
        drawn.append((tiles, kv_heads * sharing, dies, sharing))
    return [*case.sizes, *sorted(drawn, key=lambda size: size[0] * size[1])]


# Where the kernel's programs were seen -------------------------------------------------------------------------------


def rows_of_a_tile(visits):
    return max(visit.q[1] - visit.q[0] + 1 for visit in visits)


def seen_sizes(case, visits):
    """program_order's arguments for the tiles that were visited."""
    return [-(-case.N // rows_of_a_tile(visits)), case.B * case.Hq, case.num_dies, case.Hq // case.kv_heads]


def misplaced(case, visits, orders):
    """A sentence where a program computes another tile than program_order gives it, else None.

    orders: [what it returned for the tiles that were visited].
    """
    if not visits:
        return "No program was seen to load a tile of queries: does it load them with tl.load or a descriptor?"
    sizes, rows, first = seen_sizes(case, visits), rows_of_a_tile(visits), min(visit.program for visit in visits)
    call, places = "program_order({}, {}, {}, {})".format(*sizes), orders[0] if len(orders) == 1 else None
    if places is None or len(places) != sizes[0] * sizes[1]:
        return f"{call} gives no list of {sizes[0] * sizes[1]} pairs (head, tile)."
    tiles_of = defaultdict(set)
    for visit in visits:
        tiles_of[visit.program - first].add((visit.batch * case.Hq + visit.head, visit.q[0] // rows))
    program, tiles = max(tiles_of.items(), key=lambda item: len(item[1]))
    if len(tiles) > 1:
        return (
            f"Program {program} computes {len(tiles)} tiles of queries; here each program computes one, that of "
            "`place`: launch as many programs as there are tiles."
        )
    for program, ((head, tile),) in sorted(tiles_of.items()):
        want = places[program] if program < len(places) else None
        if (head, tile) != want:
            said = f"tile {want[1]} of head {want[0]}" if want else "none: there are no more"
            return (
                f"Program {program} computes tile {tile} of head {head} (heads counted through all batches); "
                f"{call} gives it {said}. Does the kernel take its head and tile from "
                "`place`, asked with these same numbers?"
            )
    return None
