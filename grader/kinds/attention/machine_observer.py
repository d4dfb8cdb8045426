"""Beside the machine: which tiles of keys a kernel visits. It explains and draws; no verdict depends on it.

A kernel visits a tile of keys where a dot (or a product, for kernels without tl.dot) multiplies it with a tile of
queries. Which loads a block comes from is read off the kernel's text: casts, transposes, reshapes and scaling keep it,
loops carry it on. The order of the loads plays no part. Copies of q, k and v in other tensors are not followed.
"""

import functools
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
import torch

from grader.core.machine.definitions import define
from grader.core.machine.observer import Observer

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
NOWHERE = -1  # the number of no event
MANY = 1 << 62


class Roots:
    """Of one kernel, by its text alone: which roles a value can have, "q", "k", "v" or "scores".

    roles: {name: roles}. told: {operation: the function of TileVisits that hears of it}; carried: {loop: names of what
    it carries that have a role}.
    """

    def __init__(self, function, inputs):
        self.definitions, self.inputs, self.roles = define(function), dict(inputs), defaultdict(set)
        while self.spread():
            pass
        self.told = {each: found for each in self.definitions.operands if (found := self.hearer(each))}
        self.carried = defaultdict(list)
        for loop, names in self.definitions.carried.items():
            self.carried[loop] += [name for name in names if self.roles[name] and name in self.definitions.chosen]

    def spread(self):
        """Go through the text once; True where a value got a new role."""
        before = sum(map(len, self.roles.values()))
        for operation, operands in self.definitions.operands.items():
            found = set()
            if operation.name in LOADS:
                found = {self.inputs.get(name) for name in self.definitions.back(operands[:1])} & {*INPUTS}
            elif operation.name in DOTS:
                found = {SCORES} if self.meet(operands[:2]) else set()
            elif operation.name.startswith(KEEPING):
                found = set().union(*(self.roles[name] for name in operands))
            for name in self.definitions.results[operation] if found else ():
                self.roles[name] |= found
        for name in (*self.definitions.chosen, *self.definitions.same):
            self.roles[name].update(*(self.roles[origin] for origin in self.definitions.origins(name)))
        return before < sum(map(len, self.roles.values()))

    def meet(self, names):
        """True where one of these values may be of queries and another of keys."""
        has = [{place for place, name in enumerate(names) if role in self.roles[name]} for role in "qk"]
        return bool(has[0] and has[1]) and len(has[0] | has[1]) > 1

    def hearer(self, operation):
        operands, results = self.definitions.operands[operation], self.definitions.results[operation]
        if operation.name in DOTS + PRODUCTS and self.meet(operands[:2]):
            return TileVisits.product
        if operation.name == "arith.select" and any(SCORES in self.roles[name] for name in operands[1:]):
            return TileVisits.choice
        if operation.name == "arith.addf" and any(SCORES in self.roles[name] for name in operands):
            return TileVisits.sum
        if operation.name in ("scf.for", "scf.if") and any(self.roles[name] for name in results):
            return TileVisits.results
        return None


find_roots = functools.lru_cache(maxsize=256)(Roots)


@dataclass
class Events:
    """Loads of q, k and v, and products of q and k, each of one program: columns with one number for each.

    An event's number is its place. role: of the load, or "scores"; program: of all launches; tokens `first` to `last`
    of `batch` and `head`; part: how much of the rows' width it holds, 1.0 for whole rows; lanes: its rows, those past
    the end included. Of scores, q and k: the numbers of the loads, and the kernel's line.
    """

    count: int = 0
    columns: dict = field(default_factory=lambda: defaultdict(list))

    def add(self, numbers, **columns):
        """numbers: how many events; a column is a tensor or one value for all. Returns the events' numbers."""
        for name in COLUMNS:
            value = columns.get(name, 0)
            self.columns[name].append(np.broadcast_to(np.asarray(value), numbers))
        self.count += numbers
        return torch.arange(self.count - numbers, self.count)

    def table(self):
        return {name: np.concatenate(parts) for name, parts in self.columns.items()}

    def roles(self):
        """Of all events, as a tensor."""
        if len(self.columns["role"]) > 1:
            self.columns["role"] = [np.concatenate(self.columns["role"])]
        return torch.from_numpy(np.ascontiguousarray(self.columns["role"][0]))


COLUMNS = ("role", "kernel", "program", "first", "last", "batch", "head", "part", "lanes", "q", "k", "line")
ROLES = {"q": 1, "k": 2, "v": 3, SCORES: 4}


class TileVisits(Observer):
    """The events of all launches; programs are numbered through all of them.

    latest: {name in the text: (programs,) the number of the event that each program's value comes of, or NOWHERE}.
    masked: numbers of events of scores on which a mask was put.
    """

    operations = (*DOTS, *PRODUCTS, "arith.select", "arith.addf", "scf.for", "scf.if")

    def __init__(self, inputs):
        self.events, self.masked, self.kernels, self.programs = Events(), [], [], 0

    def begin_launch(self, launch):
        inputs = tuple((name, value.buffer.input) for name, value in launch.arguments.items() if value.buffer)
        self.roots, self.latest, self.launch = find_roots(launch.module.functions[launch.kernel], inputs), {}, launch
        self.definitions, self.here = self.roots.definitions, (None, None)
        self.kernels.append(launch.kernel)

    def end_launch(self, launch):
        self.programs += launch.programs

    # What values come of ---------------------------------------------------------------------------------------------

    def event(self, name):
        """(programs,): of a value, as it is now; None where it comes of no load that counts."""
        if not self.roots.roles[name]:
            return None
        made, aliases = self.definitions.made.get(name), self.definitions.same.get(name)
        if name not in self.latest and made and made.name.startswith(KEEPING):
            return self.first_of(self.definitions.operands[made])
        return self.first_of(aliases) if aliases else self.latest.get(name)

    def first_of(self, names):
        """(programs,): of these values the first that comes of a load."""
        found = None
        for name in names:
            event = self.event(name)
            if event is not None:
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
        names = self.roots.carried.get(operation, ())
        chosen = [self.definitions.chosen[name] for name in names]
        found = [self.event(each.first if first else each.later) for each in chosen]
        for name, events in zip(names, found, strict=True):
            self.note(name, frame.numbers, None if events is None else events[frame.numbers])

    def results(self, operation, frame):
        """A loop that had no round leaves what it was given; a condition, what was made on its way."""
        if operation.name == "scf.for":
            low, high = (frame[name].data for name in operation.operands[1:3])
            first = low >= high
        else:
            first = frame[operation.operands[0]].data
        numbers, first = frame.numbers, first.expand(frame.count)
        for name in self.definitions.results[operation]:
            if self.roots.roles[name]:
                chosen = self.definitions.chosen[name]
                ways = [self.event(way) for way in (chosen.first, chosen.later)]
                one, other = (torch.tensor(NOWHERE) if way is None else way[numbers] for way in ways)
                self.note(name, numbers, torch.where(first, one, other))

    # Loads and products ----------------------------------------------------------------------------------------------

    def accessed(self, access):
        operation, frame, role = access.operation, access.frame, access.buffer.input
        if access.kind != "load":
            return
        (name,) = self.definitions.results.get(operation, ("",))
        if self.here != (operation, frame):
            self.note(name, frame.numbers, None)
        self.here = operation, frame  # a block of pointers may lie in several inputs
        if role not in INPUTS:
            return
        counts = access.counts()
        some = (counts > 0).nonzero().flatten()
        if not len(some):
            return
        first, last, batch, head = (column[some] for column in find_tokens(access))
        width = access.buffer.tensor.shape[-1]
        rows = last - first + 1  # lanes past the end may have been turned back to a row that is there
        events = self.events.add(
            len(some), role=ROLES[role], kernel=len(self.kernels) - 1, program=self.programs + frame.numbers[some],
            first=first, last=last, batch=batch, head=head, part=(counts[some] / (rows * width)).clamp(max=1.0),
            lanes=count_lanes(access.shape, width),
        )  # fmt: skip
        self.note(name, frame.numbers[some], events)

    def after(self, operation, frame):
        if hearer := self.roots.told.get(operation):
            hearer(self, operation, frame)

    def product(self, operation, frame):
        """Two blocks were multiplied: a visit where one is of q and the other of k."""
        a, b = map(self.event, self.definitions.operands[operation][:2])
        if a is None or b is None:
            return
        numbers, roles = frame.numbers, self.events.roles()
        a, b = a[numbers], b[numbers]
        of_a, of_b = (torch.where(x == NOWHERE, 0, roles[x.clamp(min=0)]) for x in (a, b))
        straight = (of_a == ROLES["q"]) & (of_b == ROLES["k"])
        turned = (of_a == ROLES["k"]) & (of_b == ROLES["q"])
        some = (straight | turned).nonzero().flatten()
        q, k = torch.where(straight, a, b)[some], torch.where(straight, b, a)[some]
        line = self.lines.kernel_line(operation.where) or 0
        program = self.programs + numbers[some]
        events = self.events.add(len(some), role=ROLES[SCORES], program=program, q=q, k=k, line=line)
        made = torch.full((frame.count,), NOWHERE)
        if operation.name in DOTS:  # a product has the role of neither
            made[some] = events
        else:
            made = torch.where(straight | turned, NOWHERE, torch.where(a == NOWHERE, b, a))
        self.note(*self.definitions.results[operation], numbers, made)

    # Masks -----------------------------------------------------------------------------------------------------------

    def choice(self, operation, frame):
        self.mask(operation, 0, (1, 2), frame, None)

    def sum(self, operation, frame):
        for term, block in ((0, 1), (1, 0)):
            if SCORES in self.roots.roles[self.definitions.operands[operation][block]]:
                data = frame[operation.operands[term]].data
                hides = data.reshape(data.shape[0], -1).amin(1) <= HIDES
                if bool(hides.any()):
                    self.mask(operation, term, (block,), frame, hides)

    def mask(self, operation, by, blocks, frame, hides):
        """Operand `by`, a condition or a term, may hide some keys of the scores among `blocks`, in programs where it
        `hides`.

        One value for a whole row, spread over its keys, hides none of them: it guards against -inf - -inf.
        """
        names, data = self.definitions.operands[operation], frame[operation.operands[by]].data
        shape, scores = self.definitions.types[names[by]].shape, self.first_of(names[block] for block in blocks)
        if scores is None or len(shape) < 2 or data.shape[-1] < shape[-1]:
            return
        scores = scores[frame.numbers]
        there = (scores != NOWHERE) & (self.events.roles()[scores.clamp(min=0)] == ROLES[SCORES])
        if (own := self.event(names[by])) is not None:
            there = there & (own[frame.numbers] == NOWHERE)
        self.masked.append(scores[there if hides is None else there & hides].numpy())

    # The report ------------------------------------------------------------------------------------------------------

    def report(self):
        """A record of each tile of queries in one program, as tile_visits.Visit reads it."""
        if not self.events.count:
            return []
        table = self.events.table()
        columns = {name: column.tolist() for name, column in table.items()}
        masked = set(np.concatenate(self.masked).tolist()) if self.masked else set()
        records = {}

        def record(q):
            key = tuple(columns[name][q] for name in ("program", "first", "last", "batch", "head"))
            return records.setdefault(key, Record(columns, q))

        order = np.lexsort((np.arange(self.events.count), table["program"]))
        for event in order[np.isin(table["role"][order], (ROLES["q"], ROLES[SCORES]))].tolist():
            if columns["role"][event] == ROLES["q"]:
                record(event)
            else:
                found, k = record(columns["q"][event]), columns["k"][event]
                found.visited[k] = columns["line"][event]
                if event in masked:
                    found.masked.add(k)
        return [each.plain(self.kernels) for each in records.values()]


OBSERVER = TileVisits


@dataclass
class Record:
    """One tile of queries in one program: the loads of keys that it visited, in order; maybe none.

    visited: {event of the keys: the kernel's line that led there: that of a call, or of the product itself}. masked:
    those on whose scores a mask was put.
    """

    columns: dict
    q: int
    visited: dict = field(default_factory=dict)
    masked: set = field(default_factory=set)

    def keys(self, k):
        """((batch, head), (first, last)) of keys."""
        columns = self.columns
        return (columns["batch"][k], columns["head"][k]), (columns["first"][k], columns["last"][k])

    def plain(self, kernels):
        tiles, columns, q = Counter(), self.columns, self.q
        for k in self.visited:
            tiles[self.keys(k)] += columns["part"][k]
        return {
            "kernel": kernels[columns["kernel"][q]],
            "program": columns["program"][q],
            "q": (columns["first"][q], columns["last"][q]),
            "batch": columns["batch"][q],
            "head": columns["head"][q],
            "tiles": [tokens for (_, tokens), parts in tiles.items() for _ in range(max(1, round(parts)))],
            "span": max((last - first + 1 for _, (first, last) in tiles), default=0),
            "lanes": max((columns["lanes"][k] for k in self.visited), default=0),
            "masked": sorted({self.keys(k)[1] for k in self.masked}),
            "key_heads": len({place for place, _ in tiles}),
            "stretches": self.stretches(),
        }

    def stretches(self):
        """[[line, first key, last key, masked]]: neighbouring tiles that one line visited one after the other."""
        found = []
        for k, line in self.visited.items():
            (_, (first, last)), masked = self.keys(k), k in self.masked
            part = self.columns["part"][k] < 1  # another part of the head dim
            if part and found and found[-1][0] == line and found[-1][1] <= first and last <= found[-1][2]:
                continue
            same = found and found[-1][0] == line and found[-1][3] == masked
            if same and found[-1][2] + 1 == first:
                found[-1][2] = last
            elif same and found[-1][1] - 1 == last:
                found[-1][1] = first
            else:
                found.append([line, first, last, masked])
        return found


def find_tokens(access):
    """(first token, last token, batch, head) of each program's live lanes: of the first lane's head.

    Where the lowest and the highest address have one head, so have all between. A tile of a flattened tensor can reach
    into the next head.
    """
    count, view = access.frame.count, access.buffer.view
    offsets, live = access.offsets, access.live
    if live is not None:
        offsets, live = torch.broadcast_tensors(offsets, live)
        low, high = (torch.where(live, offsets, other) for other in (MANY, -1))
    else:
        low = high = offsets
    low, high = low.reshape(len(low), -1).amin(1), high.reshape(len(high), -1).amax(1)
    batch, head, first = place_of(low, view)
    batch_there, head_there, last = place_of(high, view)
    if bool(((batch != batch_there) | (head != head_there))[high.expand(len(batch)) >= 0].any()):
        first, last, batch, head = of_the_first_head(access)
    return [column.expand(count) for column in (first, last, batch, head)]


def place_of(offsets, view):
    """(batch, head, token) of byte offsets."""
    left, found = offsets - view.start, [torch.zeros_like(offsets)] * 3
    for stride, _, dim in view.dims:
        if dim == 3:  # columns tell no place
            break
        found[dim] = torch.div(left, stride, rounding_mode="floor")
        left = left - found[dim] * stride
    return found


def of_the_first_head(access):
    """The same, lane by lane."""
    whole = access.frame.count, *access.shape
    offsets = access.offsets.expand(whole).reshape(whole[0], -1)
    live = torch.ones_like(offsets, dtype=torch.bool)
    if access.live is not None:
        live = access.live.expand(whole).reshape(whole[0], -1)
    batch, head, token = place_of(offsets, access.buffer.view)
    lane = live.to(torch.uint8).argmax(1, keepdim=True)
    batch_of_first, head_of_first = (index.gather(1, lane) for index in (batch, head))
    here = live & (batch == batch_of_first) & (head == head_of_first)
    first = torch.where(here, token, MANY).amin(1)
    return first, torch.where(here, token, -1).amax(1), batch_of_first[:, 0], head_of_first[:, 0]


def count_lanes(shape, width):
    """How many rows a block of this shape holds: one of its two sides, the other is the head dim."""
    sides = [side for side in shape if side > 1]
    if width in sides:
        sides.remove(width)
    return sides[0] if sides else 1
