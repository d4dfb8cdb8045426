"""What a kernel reads of its inputs against what is needed: facts for a diagnosis, what is wasted, and a picture."""

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from grader import failures
from grader.engine.cause import Measured
from grader.engine.compare_values import ranges
from grader.engine.locate import show
from grader.result import Waste

LOADED = 1.25  # times the rows that are needed
ASKS = {
    "past": ("where does the input end, and does the mask of this load know it?", ""),
    "before": ("which is the first row that is needed, and does the mask of this load know it?", ""),
    "lost": ("which rows does each program load, and does the grid have a program for all of them?", ""),
    "twice": ("where does the part of one program end, and that of the next begin?", ""),
}
MOST_PROGRAMS = 16  # in a picture
NOWHERE = -1


class Line(Struct, frozen=True):
    """What one line of a kernel reads of an input, as row_log.py found it: (place of a program, [(first row, last row,
    step)])."""

    kernel: str
    line: int
    input: str
    programs: list[tuple[tuple[int, int, int], list[tuple[int, int, int]]]]


@dataclass(frozen=True)
class Reads:
    """What a right kernel reads, and what to ask one that reads otherwise.

    needed(case): {input: booleans by its axes but the last dim}, which rows an output depends on; what makes the output
    NaN where it is read needlessly stands last. index(case, input, rows): (rows, axes) of the numbers of rows in
    memory, NOWHERE in the first column for what belongs to nothing; None: as they lie. once(case): whether no row may
    be read by two programs. times(case): how often it may be loaded; None: that is not judged. advice(case): what to do
    where it is loaded more. spare: rows that may be loaded beside each stretch that is needed. poisons(case): whether
    what is not needed is NaN. asks(case): {what is wrong: (question, section)}, of those of ASKS and of "nowhere", "one
    input", "whole" (nothing is read of one index of the second of three axes), "scattered", "first"; "lost" is asked
    where one of these is not there.
    """

    needed: Callable[[Any], dict[str, Any]]
    asks: Callable[[Any], dict[str, tuple[str, str]]] = lambda case: ASKS
    index: Callable[[Any, str, np.ndarray], np.ndarray] | None = None
    once: Callable[[Any], bool] = lambda case: False
    times: Callable[[Any], int] | None = None
    advice: Callable[[Any], str] = lambda case: "load each once"
    spare: int = 0
    poisons: Callable[[Any], bool] = lambda case: True


class Log:
    """The reads of one run of a case. rows: {input: [(line, (kernel, *place of the program), rows, their index)]}.

    axes: {input: names of the dims but the last; that of the last of them names what is read}. shapes: {input: shape}.
    loaded: {input: how many rows the kernels load}.
    """

    def __init__(self, reads, case, axes, shapes, lines, loads):
        self.reads, self.case, self.shapes = reads, case, shapes
        self.needed = {name: np.asarray(rows, dtype=bool) for name, rows in reads.needed(case).items()}
        if unnamed := self.needed.keys() - axes.keys():
            raise ValueError(f"the kind's `axes` must name the dims of {min(unnamed)!r}, which its `reads` needs")
        self.axes = {name: axes[name] for name in self.needed}
        self.loaded = {name: loads.get(name, 0) / shapes[name][-1] for name in self.needed}
        self.asks = reads.asks(case)
        self.rows = {name: [] for name in self.needed}
        for each in (line for line in lines if line.input in self.needed):
            for place, parts in each.programs:
                rows = np.concatenate([np.arange(first, last + 1, step) for first, last, step in parts])
                program = each.kernel, *place
                self.rows[each.input].append((each.line, program, rows, self.index(each.input, rows)))

    def index(self, name, rows):
        if self.reads.index:
            return self.reads.index(self.case, name, rows)
        return np.stack(np.unravel_index(rows, self.shapes[name][:-1]), 1)

    def measured(self, said, ask, line=None):
        return Measured(ask, said, *self.asks.get(ask, self.asks["lost"]), line=line)

    def read(self, name):
        """Booleans as `needed`: which rows some program reads."""
        found = np.zeros_like(self.needed[name])
        for *_, index in self.rows[name]:
            found[tuple(index[index[:, 0] != NOWHERE].T)] = True
        return found

    def words(self, name, place, numbers):
        """`keys 30-31 of sequence 0, kv head 1`; numbers: of the last axis."""
        *axes, what = self.axes[name]
        sizes = self.needed[name].shape
        where = [f"{axis} {at}" for axis, at, size in zip(axes, place, sizes[:-1], strict=True) if size > 1]
        of = f" of {', '.join(where)}" * bool(where)
        return f"{what}{'s' * (len(numbers) > 1)} {show(ranges(numbers))}{of}"

    def where_needed(self, name, place):
        """`, where keys 40-59 are needed`."""
        numbers = np.flatnonzero(self.needed[name][place]).tolist()
        if not numbers:
            return ", where none is needed"
        what, many = self.axes[name][-1], len(numbers) > 1
        return f", where {what}{'s' * many} {show(ranges(numbers))} {'are' if many else 'is'} needed"


def read_log(trace):
    """The Lines of a trace."""
    return msgspec.json.decode(trace.own, type=list[Line] | None) or [] if trace else []


# Facts ---------------------------------------------------------------------------------------------------------------


def facts(log, nan):
    """[Measured]: what is read and not needed, where that makes the output NaN, else what is needed and never read."""
    return (needless(log) if nan and log.reads.poisons(log.case) else []) or missing(log) or doubled(log)


def needless(log):
    for name in reversed(log.needed):
        for line, found in itertools.groupby(log.rows[name], key=lambda row: row[0]):
            rows, index = (np.concatenate(parts) for parts in list(zip(*found, strict=True))[2:])
            if (nobody := index[:, 0] == NOWHERE).any():
                at = ", ".join(map(str, np.unravel_index(rows[nobody].min(), log.shapes[name][:-1])))
                said = f"Line {line} reads {name}[{at}], which belongs to nothing that is needed."
                return [log.measured(said, "nowhere", line)]
            vain = index[~log.needed[name][tuple(index.T)]]
            if len(vain):
                place = min(map(tuple, vain[:, :-1].tolist()))
                numbers = sorted(set(vain[(vain[:, :-1] == place).all(1), -1].tolist()))
                needed = np.flatnonzero(log.needed[name][place])
                past = [n for n in numbers if not len(needed) or n > needed[-1]]
                said = f"Line {line} reads {log.words(name, place, past or numbers)}{log.where_needed(name, place)}."
                return [log.measured(said, "past" if past else "before", line)]
    return []


def missing(log):
    """[Measured]: what is needed and no program reads, of the inputs of which something is read."""
    lost = {name: log.needed[name] & ~read for name in log.needed if (read := log.read(name)).any()}
    name = next((name for name, rows in lost.items() if rows.any()), None)
    if name is None:
        return []
    place = tuple(np.argwhere(lost[name].any(-1))[0].tolist())
    needed, numbers = log.needed[name][place], np.flatnonzero(lost[name][place]).tolist()
    whole = len(numbers) == needed.sum()
    if not all(rows.any() for rows in lost.values()):
        ask = "one input"
    elif whole and log.read(name)[place[:1]].any():
        ask = "whole"
    elif len(ranges(numbers)) > 1:
        ask = "scattered"
    else:
        ask = "first" if numbers[0] == needed.argmax() and not whole else "lost"
    said = f"No program reads {log.words(name, place, numbers)}{log.where_needed(name, place)}."
    return [log.measured(said, ask)]


def doubled(log):
    """What two programs read, where that counts twice."""
    name = next(iter(log.needed))
    judged = log.reads.once(log.case) and log.loaded[name] > log.needed[name].sum()  # else each has a part of a row
    for place in np.ndindex(log.needed[name].shape[:-1]) if judged else ():
        times = Counter(itertools.chain(*programs_at(log, name, place).values()))
        if twice := sorted(number for number, count in times.items() if count > 1):
            return [log.measured(f"Two programs read {log.words(name, place, twice)}.", "twice")]
    return []


def programs_at(log, name, place):
    """{place of a program: {number of the last axis}} of what is read at this place of the other axes."""
    found = {}
    for _, program, _, index in log.rows[name]:
        if len(numbers := index[(index[:, :-1] == place).all(1), -1]):
            found.setdefault(program, set()).update(numbers.tolist())
    return found


# Work ----------------------------------------------------------------------------------------------------------------


def skipped(log):
    """[Measured] where every value is right, though what is needed was not all read."""
    return missing(log) if all(log.loaded.values()) else []


def wasted(log, by_torch):
    """The Waste where kernels load a copy of an input or far more than is needed, else None. by_torch: a sentence on
    work that PyTorch does in their place, or ""."""
    most = {name: LOADED * rows.sum() + log.reads.spare * rows.any(-1).sum() for name, rows in log.needed.items()}
    most = {name: log.reads.times(log.case) * rows for name, rows in most.items() if rows} if log.reads.times else {}
    if not most:
        return Waste(by_torch, {}) if by_torch else None
    name = max(most, key=lambda name: log.loaded[name] / most[name])
    needed, what = int(log.needed[name].sum()), log.axes[name][-1]
    costs = {"rows_loaded": log.loaded[name], "rows_needed": needed}
    if unread := next((each for each in most if not log.loaded[each]), None):
        return Waste(
            f"The kernels read {log.axes[unread][-1]}s from a copy of {unread}, and copying it costs more than the "
            "work on it. Read it where it is.", costs,
        )  # fmt: skip
    if by_torch or log.loaded[name] <= most[name]:
        return Waste(by_torch, costs) if by_torch else None
    seen = f"All programs together load {log.loaded[name]:.0f} {what}s where {needed} are needed"
    vain = needless(log)
    before = vain and vain[0].kind == "before"
    return Waste(f"{seen}. {vain[0].sentence}" if before else f"{seen}: {log.reads.advice(log.case)}.", costs)


# Pictures ------------------------------------------------------------------------------------------------------------


def draw(log):
    """{"strips": {"of", "size", "what", "needed", "rows"}} of the place that tells most; {} where nothing was read.

    of: `sequence 0, kv head 1`. size: numbers along the last axis. needed: [first, last]. rows: [[label, [[kind, first,
    last]]]], a row for each program that reads there, "seen" or "extra"; the last has what is "missing".
    """
    with failures.harmless("a picture"):
        read = (name for name in log.needed if log.rows[name])
        found = [strip(log, name, place) for name in read for place in np.ndindex(log.needed[name].shape[:-1])]
        return {"strips": max(found, key=telling)} if found else {}
    return {}


def strip(log, name, place):
    needed, programs = log.needed[name][place], programs_at(log, name, place)
    wanted = set(np.flatnonzero(needed).tolist())
    kernels = {kernel for kernel, *_ in programs}
    chosen = sorted(programs, key=lambda program: (programs[program] <= wanted, program))[:MOST_PROGRAMS]
    rows = [
        [called(*program, kernels), [*spans("seen", keys & wanted), *spans("extra", keys - wanted)]]
        for program, keys in ((program, programs[program]) for program in sorted(chosen))
    ]
    rows += [[f"{len(programs) - MOST_PROGRAMS} more", []]] * (len(programs) > MOST_PROGRAMS)
    lost = spans("missing", wanted.difference(*programs.values()))
    every = wanted.union(*programs.values())
    *axes, what = log.axes[name]
    return {
        "of": ", ".join(f"{axis} {at}" for axis, at in zip(axes, place, strict=True)), "what": what,
        "size": max(every, default=0) + 1, "needed": [min(wanted, default=0), max(wanted, default=0)],
        "rows": rows + [["no program", lost]] * bool(lost),
    }  # fmt: skip


def called(kernel, x, y, z, kernels):
    """`program 3, 0, 1`, or `program 3` of a flat grid; with the kernel's name where there are several."""
    place = f"{x}, {y}, {z}" if y or z else f"{x}"
    return f"{kernel} {place}" if len(kernels) > 1 else f"program {place}"


def spans(kind, numbers):
    return [[kind, first, last] for first, last in ranges(sorted(numbers))]


def telling(strip):
    """What is read in vain or not at all first, then many keys."""
    outside = sum(last - first + 1 for _, parts in strip["rows"] for kind, first, last in parts if kind != "seen")
    return outside, strip["needed"][1]
