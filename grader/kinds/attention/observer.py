"""Beside the machine: which tiles of keys a kernel visits. It explains and draws; no verdict depends on it.

A kernel visits a tile of keys where a dot (or a product, for kernels without tl.dot) multiplies it with a tile of
queries. Which loads a block comes from is read off the kernel's text: casts, transposes, reshapes and scaling keep it,
loops carry it on. The order of the loads plays no part. Copies of q, k and v in other tensors are not followed.
"""

import functools
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch

from grader.core.machine.definitions import define
from grader.core.machine.observer import Observer
from grader.core.machine.rows import touched_rows

HIDES = -1e4  # a term that is added to scores and has this or less is a mask
DOTS = ("tt.dot",)
PRODUCTS = ("arith.mulf", "math.fma")
KEEPING = (
    "arith.", "math.", "tt.trans", "tt.reshape", "tt.expand_dims", "tt.broadcast", "tt.cat", "tt.join", "tt.split",
    "tt.fp_to_fp", "tt.bitcast", "tt.clampf", "tt.precise_", "tt.approx_", "tt.extern_elementwise",
)  # fmt: skip
LOADS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")
INPUTS = ("q", "k", "v")
SCORES = "scores"
NOWHERE = 0  # the number of no event


class Sources:
    """Of one kernel, by its text alone: the loads and products that each value may hold the numbers of.

    A product, and what a loop or a condition chooses, is a source itself: what it comes of shows when it runs.
    """

    def __init__(self, function):
        self.function, self.definitions, self.known = function, define(function), {}

    def find(self, name):
        """The names of a value's sources, in their order."""
        if name not in self.known:
            made, origins = self.definitions.made.get(name), self.definitions.same.get(name, ())
            if made and made.name.startswith(KEEPING):
                origins = made.operands
            itself = name in self.definitions.chosen or (made and made.name in LOADS + DOTS + PRODUCTS)
            every = (source for origin in origins for source in self.find(origin))
            self.known[name] = (name,) if itself else tuple(dict.fromkeys(every))
        return self.known[name]


find_sources = functools.lru_cache(maxsize=256)(Sources)


class Event(NamedTuple):
    """A load of q, k or v, or a product of q and k, of one program.

    role: of the load, or that of "scores"; program: of all launches; tokens `first` to `last` of `batch` and `head`;
    part: how much of the rows' width it holds, 1.0 for whole rows; lanes: its rows, those past the end included. Of
    scores, q and k: the numbers of the loads, and the kernel's line. masked: of keys, where a mask was put on scores.
    """

    role: int = 0
    kernel: int = 0
    program: int = 0
    first: int = 0
    last: int = 0
    batch: int = 0
    head: int = 0
    part: float = 0.0
    lanes: int = 0
    q: int = 0
    k: int = 0
    line: int = 0
    masked: bool = False

    @property
    def tokens(self):
        return self.first, self.last

    @property
    def place(self):
        return self.batch, self.head


ROLES = {"q": 1, "k": 2, "v": 3, SCORES: 4}


class Events:
    """Columns of Events; an event's number is its place. roles: of all events; that of NOWHERE, no event, is 0."""

    def __init__(self):
        self.parts, self.roles = [], torch.zeros(0, dtype=torch.int8)
        self.add(1)

    def add(self, numbers, **fields):
        """numbers: how many events; a field is a tensor or one value for all. Returns the events' numbers."""
        event = Event(**fields)
        self.parts.append([x.numpy() if isinstance(x, torch.Tensor) else np.full(numbers, x) for x in event])
        self.roles = torch.cat([self.roles, torch.full((numbers,), event.role, dtype=torch.int8)])
        return torch.arange(len(self.roles) - numbers, len(self.roles))

    def rows(self):
        """[Event]"""
        columns = (np.concatenate(parts).tolist() for parts in zip(*self.parts, strict=True))
        return [Event(*row) for row in zip(*columns, strict=True)]


class TileVisits(Observer):
    """The events of all launches; programs are numbered through all of them.

    latest: {name in the text: (programs,) the number of the event that each program's value comes of, or NOWHERE}.
    masked: numbers of events of scores on which a mask was put.
    """

    operations = (*DOTS, *PRODUCTS, "arith.select", "arith.addf", "scf.for", "scf.if")

    def __init__(self, inputs):
        self.events, self.masked, self.kernels, self.programs = Events(), set(), [], 0

    def begin_launch(self, launch):
        self.sources, self.latest, self.launch = find_sources(launch.module.functions[launch.kernel]), {}, launch
        self.definitions, self.here = self.sources.definitions, (None, None)
        self.kernels.append(launch.kernel)

    def end_launch(self, launch):
        self.programs += launch.programs

    # What values come of ---------------------------------------------------------------------------------------------

    def event(self, *names):
        """(programs,): of these values, as they are now, the first that comes of a load; None where none does."""
        found = None
        for source in (source for name in names for source in self.sources.find(name)):
            if (event := self.latest.get(source)) is not None:
                found = event if found is None else torch.where(found == NOWHERE, event, found)
        return found

    def note(self, name, numbers, events):
        """These programs' value of this name comes of these events from now on."""
        if name not in self.latest:
            if events is None:
                return
            self.latest[name] = torch.full((self.launch.programs,), NOWHERE)
        self.latest[name][numbers] = NOWHERE if events is None else events

    def begin_round(self, operation, frame, first):
        known = self.definitions.chosen if operation.function is self.sources.function else {}
        chosen = {name: known[name] for name in operation.regions[0].entry.arguments if name in known}
        found = {name: self.event(each.first if first else each.later) for name, each in chosen.items()}
        for name, events in found.items():
            self.note(name, frame.numbers, None if events is None else events[frame.numbers])

    def results(self, operation, frame):
        """A loop that had no round leaves what it was given; a condition, what was made on its way."""
        if operation.name == "scf.for":
            low, high = (frame[name].data for name in operation.operands[:2])
            first = low >= high
        else:
            first = frame[operation.operands[0]].data
        numbers, first = frame.numbers, first.expand(frame.count)
        for name in operation.results:
            chosen = self.definitions.chosen[name]
            ways = [self.event(way) for way in (chosen.first, chosen.later)]
            one, other = (torch.tensor(NOWHERE) if way is None else way[numbers] for way in ways)
            self.note(name, numbers, torch.where(first, one, other))

    # Loads and products ----------------------------------------------------------------------------------------------

    def accessed(self, access):
        operation, frame, role = access.operation, access.frame, access.buffer.input
        if access.kind != "load":
            return
        name = operation.results[0] if operation.function is self.sources.function else ""
        if self.here != (operation, frame):
            self.note(name, frame.numbers, None)
        self.here = operation, frame  # a block of pointers may lie in several inputs
        if role not in INPUTS:
            return
        counts = access.counts
        some = (counts > 0).nonzero().flatten()
        if not len(some):
            return
        first, last, batch, head = find_tokens(access)
        width = access.buffer.tensor.shape[-1]
        rows = last - first + 1  # lanes past the end may have been turned back to a row that is there
        events = self.events.add(
            len(some), role=ROLES[role], kernel=len(self.kernels) - 1, program=self.programs + frame.numbers[some],
            first=first, last=last, batch=batch, head=head, part=(counts[some] / (rows * width)).clamp(max=1.0),
            lanes=count_lanes(access.shape, width),
        )  # fmt: skip
        self.note(name, frame.numbers[some], events)

    def after(self, operation, frame):
        if operation.function is not self.sources.function:  # of a function that the kernel calls
            return
        if operation.name in DOTS + PRODUCTS:
            self.product(operation, frame)
        elif operation.name == "arith.select":
            self.mask(operation, 0, (1, 2), frame)
        elif operation.name == "arith.addf":
            self.mask(operation, 0, (1,), frame)
            self.mask(operation, 1, (0,), frame)
        else:
            self.results(operation, frame)

    def product(self, operation, frame):
        """Two blocks were multiplied: a visit where one is of q and the other of k."""
        names, numbers = operation.operands, frame.numbers
        made = None if operation.name in DOTS else self.event(*names)
        if made is not None:
            made = made[numbers]
        a, b = map(self.event, names[:2])
        if a is not None and b is not None:
            a, b = a[numbers], b[numbers]
            of_a, of_b = self.events.roles[a], self.events.roles[b]
            straight = (of_a == ROLES["q"]) & (of_b == ROLES["k"])
            turned = (of_a == ROLES["k"]) & (of_b == ROLES["q"])
            some = (straight | turned).nonzero().flatten()
            events = self.events.add(
                len(some), role=ROLES[SCORES], program=self.programs + numbers[some],
                q=torch.where(straight, a, b)[some], k=torch.where(straight, b, a)[some],
                line=self.lines.kernel_line(operation.where) or 0,
            )  # fmt: skip
            if made is None:
                made = torch.full((frame.count,), NOWHERE)
            made[some] = events if operation.name in DOTS else NOWHERE  # a product has the role of neither
        self.note(*operation.results, numbers, made)

    def mask(self, operation, by, blocks, frame):
        """Operand `by`, a condition or a term, may hide some keys of the scores among `blocks`.

        One value for a whole row, spread over its keys, hides none of them: it guards against -inf - -inf.
        """
        names, data = operation.operands, frame[operation.operands[by]].data
        shape, scores = self.definitions.types[names[by]].shape, self.event(*(names[block] for block in blocks))
        if scores is None or len(shape) < 2 or data.shape[-1] < shape[-1]:
            return
        scores = scores[frame.numbers]
        there = self.events.roles[scores] == ROLES[SCORES]
        if (own := self.event(names[by])) is not None:
            there = there & (own[frame.numbers] == NOWHERE)
        if operation.name == "arith.addf" and there.any():
            there = there & (data.reshape(len(data), -1).amin(1) <= HIDES)
        self.masked.update(scores[there].tolist())

    # The report ------------------------------------------------------------------------------------------------------

    def report(self):
        """A record of each tile of queries in one program, as tile_visits.Visit reads it."""
        events, records = self.events.rows(), {}
        for number in sorted(range(len(events)), key=lambda number: events[number].program):
            event = events[number]
            if event.role in (ROLES["q"], ROLES[SCORES]):
                q = event if event.role == ROLES["q"] else events[event.q]
                _, visited = records.setdefault((q.program, q.tokens, q.place), (q, {}))
                if event is not q:
                    k = visited.get(event.k, events[event.k])
                    visited[event.k] = k._replace(line=event.line, masked=k.masked or number in self.masked)
        return [self.describe(q, list(visited.values())) for q, visited in records.values()]

    def describe(self, q, visited):
        """q: an Event of the tile of queries. visited: the loads of keys that it visited, in order; maybe none. Their
        line is the kernel's that led there: that of a call, or of the product itself."""
        tiles = Counter()
        for k in visited:
            tiles[k.place, k.tokens] += k.part
        return {
            "kernel": self.kernels[q.kernel],
            "program": q.program,
            "q": q.tokens,
            "batch": q.batch,
            "head": q.head,
            "tiles": [tokens for (_, tokens), parts in tiles.items() for _ in range(max(1, round(parts)))],
            "span": max((last - first + 1 for _, (first, last) in tiles), default=0),
            "lanes": max((k.lanes for k in visited), default=0),
            "masked": sorted({k.tokens for k in visited if k.masked}),
            "key_heads": len({place for place, _ in tiles}),
            "stretches": find_stretches(visited),
        }


OBSERVER = TileVisits


def find_stretches(visited):
    """[[line, first key, last key, masked]]: neighbouring tiles that one line visited one after the other."""
    found = []
    for k in visited:
        part = k.part < 1  # another part of the head dim
        if part and found and found[-1][0] == k.line and found[-1][1] <= k.first and k.last <= found[-1][2]:
            continue
        same = found and found[-1][0] == k.line and found[-1][3] == k.masked
        if same and found[-1][2] + 1 == k.first:
            found[-1][2] = k.last
        elif same and found[-1][1] - 1 == k.last:
            found[-1][1] = k.first
        else:
            found.append([k.line, k.first, k.last, k.masked])
    return found


def find_tokens(access):
    """(first token, last token, batch, head) of each program with live lanes: of the first lane's head.

    A tile of a flattened tensor can reach into the next head.
    """
    numbers, rows = touched_rows(access)
    _, heads, tokens, _ = access.buffer.tensor.shape
    _, program, counts = numbers.unique_consecutive(return_inverse=True, return_counts=True)
    head, token = rows // tokens, rows % tokens
    head_of_first = head[counts.cumsum(0) - counts]
    here = head == head_of_first[program]
    nothing = torch.zeros_like(head_of_first)
    first, last = (
        nothing.scatter_reduce(0, program[here], token[here], end, include_self=False) for end in ("amin", "amax")
    )
    return first, last, head_of_first // heads, head_of_first % heads


def count_lanes(shape, width):
    """How many rows a block of this shape holds: one of its two sides, the other is the head dim."""
    sides = [side for side in shape if side > 1]
    if width in sides:
        sides.remove(width)
    return sides[0] if sides else 1
