"""What was read of the caches against what the new tokens see: facts for a diagnosis, and what is wasted."""

import itertools
import math
from collections import Counter

import msgspec
import torch
from msgspec import Struct

from grader.diagnosis.cause import Measured
from grader.diagnosis.compare_values import ranges
from grader.diagnosis.locate import show
from grader.kinds.attention.known_mistakes import HEADS, TAILS
from grader.kinds.decode.mistakes import EMPTY, GROUP, IN_PAGES, MASK, MERGE, PAGES
from grader.kinds.moved_rows import POINTERS
from grader.result import Waste

NOBODY = -1  # as observer.py has it
REST = 128  # tokens beyond either end of what is seen: the rest of a tile
FEW_ROWS = 16  # of a tile: so many are taken together by any kernel
LOADED = 1.25  # times what is needed
TORCH = 4.0  # elements that PyTorch may touch or make, for each of the parts of pieces of FEWEST tokens
FEWEST = 16
NAMES = {"k_cache": "keys", "v_cache": "values"}
PAST = "which positions exist: does the mask of this load know the length of this program's sequence?"
BEFORE = "which is the first key that a new token sees, and does the mask of this load know it?"
WHOSE = "which entry of which row of block_table has the page of this token? Is it asked only for keys that are seen?"
NOBODY_WROTE = "which pieces of this row does the merge load, and did a program of the first kernel store each of them?"
GRID = "does the grid have a program for each tile of rows: query heads of a group times new tokens?"
EITHER = "K and V each have strides of their own: by whose strides, and at which kv head, is this address made?"
SEES_NONE = "a row that sees no key gives 0: which program stores that, and does it come as far as its store?"
OLDEST = "which is the first key that a new token sees, and how long is the window where window_size is None?"
LOST = "which pieces does a sequence have, where does each begin and end, and does the mask show all of it?"


class Line(Struct, frozen=True):
    """programs: (place, [(sequence, kv head, first, last)]) of the keys or values that each program reads there; of a
    page that no sequence has (NOBODY, kv head, page, page)."""

    kernel: str
    line: int
    input: str
    programs: list[tuple[tuple[int, int, int], list[tuple[int, int, int, int]]]]

    @property
    def stretches(self):
        return sorted({stretch for _, found in self.programs for stretch in found})


def find(trace):
    """The Lines of a trace that read keys or values."""
    return msgspec.json.decode(trace.own, type=list[Line] | None) or [] if trace else []


def readers(lines, name):
    """{(sequence, kv head): {program's place: {key}}} of the keys or values that programs read."""
    found = {}
    for line in (line for line in lines if line.input == name):
        for place, stretches in line.programs:
            for sequence, head, first, last in stretches:
                if sequence != NOBODY:
                    keys = found.setdefault((sequence, head), {}).setdefault(place, set())
                    keys.update(range(first, last + 1))
    return found


# Facts ---------------------------------------------------------------------------------------------------------------


def facts(case, lines, nan):
    """[Measured]: what is read and seen by no new token, where that makes the output NaN, else what is seen and never
    read."""
    return (needless(case, lines) if nan else []) or missing(case, lines) or doubled(case, lines)


def unwritten(case, trace, found):
    """[Measured] where an element holds what new memory is filled with: it was never stored, or made of such memory."""
    if not found.unwritten:
        return []
    shape = [case.B, case.Hq, case.Nq, case.D]
    size = math.prod(shape) * getattr(torch, case.dtype).itemsize
    named = {each.argument for each in trace.addresses if each.kind == "store" and each.shape == shape} if trace else ()
    kernels = trace.kernels.values() if trace else ()
    stored = [count for kernel in kernels for name, count in kernel.stored.items() if not named or name in named]
    batch, head, token, _ = found.first
    row = f"o of query head {head}, sequence {batch}, new token {token}"
    if size in stored:
        said = f"Every element is stored, but {row} is made of memory that no program wrote."
        return [Measured("unwritten", said, NOBODY_WROTE, MERGE)]
    if case.lengths[batch] - case.Nq + token < 0:
        return [Measured("unwritten", f"No program stores {row}, which sees no key.", SEES_NONE, EMPTY)]
    return [Measured("unwritten", f"No program stores {row}.", GRID, POINTERS)]


def needless(case, lines):
    for each in sorted(lines, key=lambda line: line.input == "k_cache"):  # a value that is NaN spoils what it meets
        for sequence, _, first, last in each.stretches:
            what = f"Line {each.line} reads "
            if sequence == NOBODY:
                said = f"{what}{NAMES[each.input]} of page {first}, where nothing is that a new token sees."
                return [Measured("reads", said, WHOSE, PAGES, line=each.line)]
            length = case.lengths[sequence]
            if last >= length:
                keys = f"{NAMES[each.input]} {show([(max(first, length), last)])} of sequence {sequence}"
                said = f"{what}{keys}, which has {length} tokens."
                return [Measured("reads", said, PAST, TAILS, line=each.line)]
            if first < (seen := case.first_key(length)):
                keys = f"{NAMES[each.input]} {show([(first, min(seen - 1, last))])} of sequence {sequence}"
                said = f"{what}{keys}; the first key that a new token sees is {seen}."
                return [Measured("reads", said, BEFORE, MASK, line=each.line)]
    return []


def missing(case, lines):
    """[Measured]: keys or values that are seen and that no program reads; the question is that of which they are."""
    lost = {name: lost_of(case, lines, name) for name in NAMES}
    found = next(filter(None, lost.values()), None)
    if found is None:
        return []
    said, parts, whole_head, oldest = found
    if None in lost.values():
        return [Measured("lost", said, EITHER, POINTERS)]
    if whole_head:
        return [Measured("lost", said, GROUP, HEADS)]
    if case.page is not None and parts > 1:
        return [Measured("lost", said, IN_PAGES, PAGES)]
    return [Measured("lost", said, OLDEST, MASK) if oldest else Measured("lost", said, LOST, MERGE)]


def lost_of(case, lines, name):
    """(sentence, in how many stretches the first that are lost lie, whether a kv head is lost whole, whether only its
    oldest keys are), or None."""
    read = readers(lines, name)
    for b, length in enumerate(case.lengths if read else ()):
        first = case.first_key(length)
        for head in range(case.Hkv):
            lost = sorted(set(range(first, length)).difference(*read.get((b, head), {}).values()))
            if lost:
                parts = ranges(lost)
                said = f"No program reads the {NAMES[name]} {show(parts)} of sequence {b}"
                said += f", kv head {head}" * (case.Hkv > 1)
                said = f"{said}; a new token sees keys {first} to {length - 1}."
                whole = len(lost) == length - first
                others = any(sequence == b for sequence, _ in read)
                return said, len(parts), whole and others, len(parts) == 1 and lost[0] == first and not whole
    return None


def doubled(case, lines):
    """Keys that two programs of one kv head read, where one tile of rows has all rows: they count twice."""
    if case.group * case.Nq > FEW_ROWS:
        return []
    for (sequence, head), programs in sorted(readers(lines, "k_cache").items()):
        times = Counter(itertools.chain(*programs.values()))
        if twice := sorted(key for key, count in times.items() if count > 1):
            said = f"Two programs read the keys {show(ranges(twice))} of sequence {sequence}, kv head {head}."
            return [Measured("twice", said, LOST, MERGE)]
    return []


# Waste ---------------------------------------------------------------------------------------------------------------


def wasted(case, reply) -> Waste | None:
    """The Waste where kernels load more of the cache than is seen, or PyTorch does the kernels' work, else None."""
    sentence, costs = by_torch(case, reply.wrapper), {}
    if reply.trace:
        loaded = max(reply.trace.costs.inputs.get(name, 0) for name in NAMES) / case.D
        costs = {"keys_loaded": loaded, "keys_needed": case.needed}
        least = min(reply.trace.costs.inputs.get(name, 0) for name in NAMES) / case.D
        sentence = copied(case, least) or sentence or loads_too_much(case, loaded, find(reply.trace))
    return Waste(sentence, costs) if sentence else None


def copied(case, loaded):
    if loaded or not case.needed:
        return ""
    return (
        "The kernels read keys or values from a copy of the cache, and copying a cache costs more than attending to "
        "it. Read it where it is."
    )


def skipped(case, trace):
    """A sentence where every value is right, though keys or values that are seen were not all read, else ""."""
    loaded = min(trace.costs.inputs.get(name, 0) for name in NAMES) / case.D if trace else case.needed
    if not 0 < loaded < case.needed:
        return ""
    lost = missing(case, find(trace))
    return f"The values are right only because these keys count for little here. {lost[0].sentence}" if lost else ""


def loads_too_much(case, loaded, lines):
    times = math.ceil(case.group * case.Nq / FEW_ROWS)
    allowed = times * (LOADED * case.needed + 2 * REST * case.B * case.Hkv)
    if loaded <= allowed:
        return ""
    seen = f"In all heads together the kernels load {loaded:.0f} keys where the new tokens see {case.needed}"
    if before := next((fact for fact in needless(case, lines) if fact.question == BEFORE), None):
        return f"{seen}. {before.sentence}"
    rows = [(case.group, "query heads of a group"), (case.Nq, "new tokens")]
    if several := " and ".join(f"the {count} {name}" for count, name in rows if count > 1):
        return f"{seen}: {several} see the same keys. Load a tile of them once for all."
    return f"{seen}: load each key once."


def by_torch(case, costs):
    """A sentence where PyTorch does more outside of the kernels than preparing and merging take, else ""."""
    parts = case.B * case.Hq * case.Nq * case.D * (math.ceil(case.tokens / FEWEST) + FEWEST)
    for what, does in (("multiply_adds", "does {} multiply-adds"), ("made", "makes tensors of {} numbers")):
        cost = getattr(costs, what)
        if cost > TORCH * parts:
            line = costs.lines[what].line
            at = f", most of it in line {line}" if line else ""
            return f"Outside of kernels PyTorch {does.format(cost)}{at}: attention is the kernels' work."
    return ""
