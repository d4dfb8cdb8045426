"""x2's replies judged: an order of programs as a function, and what the kernel made of it."""

import math
import random
from collections import defaultdict

import torch

from grader.diagnosis.diagnose import Cause
from grader.kinds.program_order.order_check import check_order
from grader.result import Outcome

ORDER = "the order in which tiles run"
WORDS = {2: torch.int16, 4: torch.int32}
MOST_PROGRAMS = 4000  # of a size that is drawn
QUESTIONS = {
    "there are": "which numbers may a head and a tile have?",
    "never computed": "can two programs get the same tile?",
    "kv heads have all": "programs p and p + num_dies run on the same die: which heads do these two work on?",
    "tiles of keys to visit": "what does a tile cost, the first and the last, and which die gets the dear ones?",
    "runs before": "which tile of a head takes longest, and when should it start?",
}


def sizes(case, seed):
    """The sizes of an OrderCase: those that it names, and as many drawn as it asks for."""
    draw, drawn = random.Random(f"{seed} {case.name}"), []
    for _ in range(case.drawn):
        tiles, sharing, dies = draw.randint(1, 300), draw.choice((1, 1, 2, 4, 7)), draw.choice((2, 4, 6, 8, 8, 8))
        kv_heads = draw.randint(1, max(1, MOST_PROGRAMS // (tiles * sharing)))
        drawn.append((tiles, kv_heads * sharing, dies, sharing))
    return [*case.sizes, *sorted(drawn, key=lambda size: size[0] * size[1])]


def of_function(asked, reply):
    """(outcome, sentence, facts) on program_order at each of the sizes that were asked for."""
    for size, order in zip(asked, reply["orders"], strict=False):
        call = "program_order(num_tiles={}, num_heads={}, num_dies={}, heads_per_kv={})".format(*size)
        if order is None:
            return Outcome.WRONG, f"{call} must be a list of (head, tile); it is {reply['came']}.", {}
        if wrong := check_order(order, *size):
            known = [(words, ask) for words, ask in QUESTIONS.items() if words in wrong]
            facts = {"question": known[0][1], "causes": [Cause(*known[0], ORDER)]} if known else {}
            return Outcome.WRONG, f"{call}: {wrong}.", {"size": size} | facts
    return Outcome.PASSED, "", {}


def of_kernel(case, reply, judged):
    """(outcome, sentence, facts) on a call of the kernel, which was `judged` as a kernel of the ladder is."""
    outcome, _, facts = judged
    if outcome is not Outcome.PASSED:
        return judged
    wrong = misplaced(reply) if "order" in reply else other_bits_told(reply) if "other_bits" in reply else None
    return (Outcome.WRONG, wrong, facts) if wrong else judged


def misplaced(reply):
    """A sentence where a program computes another tile than program_order gives it, else None."""
    if reply["order"] is None:
        return "No program was seen to load a tile of queries: does it load them with tl.load or a descriptor?"
    size, rows, places = (reply["order"][name] for name in ("sizes", "rows", "places"))
    call = "program_order({}, {}, {}, {})".format(*size)
    if places is None or len(places) != size[0] * size[1]:
        return f"{call} gives no list of {size[0] * size[1]} pairs (head, tile)."
    visits = reply["trace"]["visits"]
    heads, first = size[1] // batches_of(visits), min(visit["program"] for visit in visits)
    tiles_of = defaultdict(set)
    for visit in visits:
        tiles_of[visit["program"] - first].add((visit["batch"], visit["head"], visit["q"][0] // rows))
    program, tiles = max(tiles_of.items(), key=lambda item: len(item[1]))
    if len(tiles) > 1:
        return (
            f"Program {program} computes {len(tiles)} tiles of queries; here each program computes one, that of "
            "`place`: launch as many programs as there are tiles."
        )
    for visit in sorted(visits, key=lambda visit: visit["program"]):
        program, got = visit["program"] - first, [visit["batch"] * heads + visit["head"], visit["q"][0] // rows]
        want = places[program] if program < len(places) else None
        if got != want:
            said = f"tile {want[1]} of head {want[0]}" if want else "none: there are no more"
            return (
                f"Program {program} computes tile {got[1]} of head {got[0]} (heads counted through all batches); "
                f"{call} gives it {said}. Does the kernel take its head and tile from "
                "`place`, asked with these same numbers?"
            )
    return None


def batches_of(visits):
    return max(visit["batch"] for visit in visits) + 1


def seen_sizes(case, placed, trace):
    """{"sizes", "rows"}: program_order's arguments for the tiles that the trace saw; None where it saw no query."""
    rows = max((visit["q"][1] - visit["q"][0] + 1 for visit in trace["visits"]), default=0)
    if not rows:
        return None
    sizes = [-(-case.N // rows), case.B * case.Hq, case.num_dies, case.Hq // case.kv_heads]
    return {"sizes": sizes, "rows": rows}


def other_bits(first, second, shape):
    """[how many elements have other bits, the first such index] of two outputs' bytes; None where the sizes differ."""
    size = len(first) // max(1, math.prod(shape))
    if len(first) != len(second) or size not in (2, 4):
        return None
    other = torch.ne(*(torch.frombuffer(bytearray(b), dtype=WORDS[size]).view(shape) for b in (first, second)))
    return [int(other.sum()), *(other.nonzero()[0].tolist() if other.any() else ())]


def other_bits_told(reply):
    count, *at = reply["other_bits"] or [0]
    if not count:
        return None
    return (
        f"{count} elements have other bits than with num_dies=1, first at ({', '.join(map(str, at))}): the order says "
        "which program computes a tile, and nothing else."
    )
