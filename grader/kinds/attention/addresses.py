"""The addresses of an access outside its tensor, or into another program's rows -> what is wrong with them, in words.

The trace has each program's first address in each tensor. Which batch, head and rows a program works on, its loads of Q
say where those are whole, else its stores; what the other tensors are addressed with is compared with that.
"""

from collections import defaultdict

from grader.engine.cause import Measured
from grader.engine.locate import joined
from grader.kinds.attention.address_tables import AXES, find_owners, tables_of
from grader.kinds.attention.known_mistakes import POINTERS

MOST = 8  # heads in one sentence
KINDS = {
    "out-of-bounds load": "load", "out-of-bounds store": "store", "write of another program's element": "store",
}  # fmt: skip


def explain(case, trace, fault):
    """What the addresses are and what they should be, with a question; empty where they do not tell."""
    tables = {(table.name, kind): table for table, kind in tables_of(case, trace)}
    table = tables.get((fault.argument, KINDS.get(fault.kind)))
    if table is None or not fault.programs:
        return ""
    every, owners, terms = list(tables.values()), find_owners(case, tables), fault.terms
    return (
        wrong_row_step(case, table, every)
        or rows_past_the_end(tables, fault)
        or (wrong_heads(case, table, owners, every, terms) if owners else outside_place(table, fault))
        or wrong_rows(case, table, owners, fault, tables)
        or ""
    )


def of_a_wrong_output(case, trace, unwritten):
    """[Measured] that the addresses of a program without a fault tell. unwritten: elements of the output."""
    found = []
    for argument, at in trace.inside_rows.items():
        said = (
            f"In line {at.line} a tile of {argument} begins at column {at.column} of row {at.row}, "
            "not at the beginning of a row."
        )
        found.append(Measured("column", said, "by which stride do the pointers move from tile to tile?", POINTERS))
    stores = [table for table, kind in tables_of(case, trace) if kind == "store"]
    if unwritten and len(stores) == 1 and (said := who_writes(stores[0], trace.kernels)):
        found.append(Measured("unwritten", said, "which program is to write which rows of which head?", POINTERS))
    return found


def who_writes(table, totals):
    """What the programs write, where some rows are written by none. totals: of each kernel, as the trace has them."""
    places = {program: table.decode(first.first) for program, first in table.programs.items()}
    beyond = next((program for program, place in places.items() if not table.holds(place)), None)
    if beyond is not None and places[beyond]:
        batch, head, row = places[beyond]
        return f"Program {beyond} of the grid begins to write at row {row} of batch {batch}, head {head}: it has none."
    tall, ran = max(map(table.rows_of, table.programs.values())), sum(kernel.programs for kernel in totals.values())
    needed = table.sizes[0] * table.sizes[1] * -(-table.sizes[2] // tall)
    if len(places) != needed:
        batches, heads, rows = table.sizes
        return (
            f"{len(places)} of {ran} programs write {tall} rows each; {batches} x {heads} heads of {rows} rows are "
            f"{needed} such tiles."
        )
    return ""


# Strides --------------------------------------------------------------------------------------------------------------


def whose(step, tables, but):
    """`, which is V's stride from row to row`, of the tensors that have this stride; else empty. but: (name, axis)."""
    name, of_axis = but
    axes = ("row",) if of_axis == "row" else ("batch", "head")
    found = {}
    for table in sorted(tables, key=lambda table: table.name != name):
        for axis, stride in zip(AXES, table.strides, strict=True):
            if stride == step and (table.name, axis) != but and axis in axes:
                found.setdefault(axis, {})[f"{table.name}'s"] = True
    told = [f"{' and '.join(list(names)[:2])} stride from {axis} to {axis}" for axis, names in found.items()]
    return f", which is {' and '.join(told)}" if told else ""


def wrong_row_step(case, table, tables):
    own, first = table.strides[2], next(iter(table.programs.values()))
    steps = [step for step, size in zip(first.steps, first.block, strict=True) if size > 1]
    if table.sizes[2] == 1 or len(steps) != 2 or table.column not in steps:
        return ""
    if own in steps:
        wide = first.block[first.steps.index(table.column)]
        if wide == case.D or case.D not in first.block:
            return ""
        return (
            f"in your block of {' x '.join(map(str, first.block))} the side of {wide} moves along the columns of "
            f"{table.name}, of which there are {case.D}. Which index belongs to which axis?"
        )
    step = steps[1 - steps.index(table.column)]
    return (
        f"from one row to the next your addresses move by {step} elements{whose(step, tables, (table.name, 'row'))}; "
        f"{table.name}'s own stride is {own}. Which stride belongs there?"
    )


def wrong_heads(case, table, owners, tables, terms):
    """What the addresses say of batches and heads, for one tile of queries."""
    starts = defaultdict(dict)  # of each tile of queries
    for program, (batch, head, row) in owners.items():
        if program in table.programs:
            starts[row][batch, head] = table.programs[program].first
    start = max(starts.values(), key=len, default={})
    shared = table.sizes[1] == case.kv_heads and case.shares_heads
    group = case.Hq // case.kv_heads if shared else 1
    heads = [(head, start[0, head] - start[0, 0]) for head in range(case.Hq) if {(0, head), (0, 0)} <= set(start)]
    batches = [(batch, start[batch, 0] - start[0, 0]) for batch in range(case.B) if {(batch, 0), (0, 0)} <= set(start)]
    return axis_of_heads(case, table, heads, group, tables, terms) or axis_of_batches(table, batches, tables, terms)


def axis_of_heads(case, table, moved, group, tables, terms):
    """moved: [(query head, elements from those of head 0)] of batch 0. group: query heads that share a head of it."""
    own = table.strides[1]
    if all(offset == head // group * own for head, offset in moved):
        return ""
    moved = moved[:MOST]
    does = "write" if table.input is None else "read"
    other = next((t.strides[1] for t in tables if t.strides[1] != own and is_multiple(moved, t.strides[1], group)), 0)
    inside = own and all(offset % own == 0 and offset // own < case.Hq for _, offset in moved)
    if inside and not other:
        numbers, found = listed(head for head, _ in moved), listed(offset // own for _, offset in moved)
        wanted = listed(head // group for head, _ in moved)
        return (
            f"query heads {numbers} of batch 0 {does} {table.name} at heads {found}, and theirs are {wanted}. "
            f"{made(terms, own)}Which head belongs to a query head?"
        )
    apart = (offset // (head // group) for head, offset in moved if head >= group and offset != head // group * own)
    step = other or next(apart, moved[1][1])
    return (
        f"from one head to the next your addresses move by {step} elements{whose(step, tables, (table.name, 'head'))}; "
        f"{table.name}'s own stride is {own}. "
        f"{made(terms, step)}Which stride belongs there?"
    )


def is_multiple(moved, stride, group):
    return bool(stride) and all(offset == head // group * stride for head, offset in moved)


def axis_of_batches(table, moved, tables, terms):
    own = table.strides[0]
    wrong = next(((batch, offset) for batch, offset in moved if offset != batch * own), None)
    if wrong is None:
        return ""
    batch, offset = wrong
    if offset == 0:
        return f"for batch {batch} your addresses of {table.name} are those of batch 0. What moves with the batch?"
    name, step, place = table.name, offset // batch, table.decode(offset)
    other = whose(step, tables, (name, "batch"))
    if place and place[2] == 0 and not offset % batch:
        also = other.replace("which is", "at a distance that is also")
        return (
            f"for batch {batch}, head 0 your addresses of {name} are those of its batch {place[0]}, head {place[1]}"
            f"{also}. {made(terms)}How do you find a program's batch and head, and whose strides take it there?"
        )
    return (
        f"from one batch to the next your addresses move by {step} elements{other}; {name}'s own stride is {own}. "
        f"{made(terms)}Which stride, and which head, belong there?"
    )


def made(terms, stride=None):
    """`Line 32 adds `h * sh`, with h from line 30, where H is 2. `: what the text adds. stride: of the axis meant."""
    terms = [term for term in terms if term.stride == stride] or terms
    if not terms:
        return ""
    lines = sorted({term.line for term in terms})
    said = f"Line{'s' * (len(lines) > 1)} {joined(lines)} add{'s' * (len(lines) == 1)} " + joined(
        dict.fromkeys(f"`{term.text}`" for term in terms)
    )
    names = sorted({name for term in terms for name in term.names})
    made_in = sorted({line for term in terms for line in term.lines} - set(lines))
    if names and made_in:
        said += f", with {joined(names)} from line{'s' * (len(made_in) > 1)} {joined(made_in)}"
    values = {name: value for term in terms for name, value in term.values.items()}
    if values:
        said += f", where {joined(f'{name} is {value}' for name, value in values.items())}"
    return f"{said}. "


# Places ---------------------------------------------------------------------------------------------------------------


def outside_place(table, fault):
    """Where no tensor says which program has which head: where this one lies, by the tensor's own strides."""
    first = table.programs.get(tuple(fault.programs[-1]))
    place = table.decode(first.first) if first else None
    if place is None:
        return ""
    if table.holds(place):
        return in_a_loop(table, first, place, fault)
    batch, head, row = place
    batches, heads, rows = table.sizes
    where = f"batch {batch}, head {head}"
    if batches == 1 and table.strides[0] == heads * table.strides[1]:  # the same address
        where += f", which is batch {head // heads}, head {head % heads}"
    return (
        f"it begins at {where}, row {row}, of {batches} batch{'es' * (batches > 1)}, {heads} head{'s' * (heads > 1)} "
        f"and {rows} rows{along_the_axis(table, tuple(fault.programs[-1]))}. {made(fault.terms)}"
        "Which axis of the grid is which, and which head belongs to it?"
    )


def loop_past_the_end(case, trace, fault):
    """What is said where a program's first tile of a tensor lies inside, and a later one past its last row."""
    for table, kind in tables_of(case, trace):
        if (table.name, kind) == (fault.argument, KINDS.get(fault.kind)) and fault.programs:
            first = table.programs.get(tuple(fault.programs[-1]))
            place = table.decode(first.first) if first else None
            return in_a_loop(table, first, place, fault) if place and table.holds(place) else ""
    return ""


def in_a_loop(table, first, place, fault):
    begin = place[2] + (fault.at.first - first.first) // max(1, table.strides[2]) if fault.at else 0
    if begin >= table.sizes[2]:
        return past_the_end(table, begin)
    return across_the_end(table, begin) if fault.where == "end" and KINDS[fault.kind] == "load" else ""


def across_the_end(table, begin, first=False):
    """first: the program's first query, of a causal mask."""
    name, last = table.name, table.sizes[2] - 1
    where = f"the tile of key {first}, the first query's own" if first is not False else "that tile"
    return (
        f"the tile of {name} begins at row {begin}, and {name} ends with row {last}. A tile with rows that "
        "do not exist, or with hidden pairs, needs a phase that masks: is this load masked, or must this phase end "
        f"before {where}?"
    )


def along_the_axis(table, program):
    """`; along axis 1 of the grid the programs begin at heads 0, 2, 1, 3`, of batch 0, as far as they are decoded."""
    axis = next((axis for axis in (1, 2, 0) if program[axis]), None)
    if axis is None:
        return ""
    line = {place[axis]: first for place, first in table.programs.items()
            if all(place[other] == program[other] for other in range(3) if other != axis)}  # fmt: skip
    places = [table.decode(line[index].first) for index in sorted(line)[:MOST]]
    if not all(places) or len(places) < 2:
        return ""
    one_batch = len({batch for batch, *_ in places}) == 1
    told = listed(head for _, head, _ in places) if one_batch else listed(f"({b}, {h})" for b, h, _ in places)
    what = "heads" if one_batch else "(batch, head)"
    return f"; along axis {axis} of the grid programs begin at {what} {told}"


def wrong_rows(case, table, owners, fault, tables):
    """The tile of rows, where batch and head are right."""
    name, rows = table.name, table.sizes[2]
    if fault.kind.startswith("write of"):
        return shared_rows(table, owners, fault)
    program = tuple(fault.programs[-1])
    if program not in owners or not table.strides[2]:
        return ""
    batch, head, _ = owners[program]
    head = head // (case.Hq // table.sizes[1])
    begin, left = divmod(fault.at.first - batch * table.strides[0] - head * table.strides[1], table.strides[2])
    if left:
        return ""
    if begin >= rows:
        return past_the_end(table, begin, last_seen(case, owners[program][2], tables))
    if begin < 0:
        return f"its tile begins at row {begin}, before the first. Where does the loop begin?"
    if begin % (tall := table.rows_of(fault.at)):
        return (
            f"its tile begins at row {begin}, no multiple of its {tall} rows. Where does the loop begin, and by how "
            "much does it step?"
        )
    if fault.where == "end":
        if KINDS[fault.kind] != "store":
            return across_the_end(table, begin, case.causal and owners[program][2])
        ends = f"its tile begins at row {begin}, and {name} ends with row {rows - 1}. "
        return f"{ends}Is this store masked, and does its mask test the rows of its own addresses?"
    return ""


def past_the_end(table, begin, seen=""):
    name, rows = table.name, table.sizes[2]
    return f"the tile of {name} begins at row {begin}, and {name} has {rows} rows. {seen}Where does the loop end?"


def last_seen(case, first, tables):
    """`Queries 64-128 see keys up to 128. ` of the tile of queries that begins at row `first`, or empty."""
    q = next((table for table in tables.values() if table.input == "q"), None)
    if q is None or not (case.one_mask and case.causal) or first >= case.N:
        return ""
    last = min(first + q.rows_of(next(iter(q.programs.values()))), case.N) - 1
    who = f"Queries {first}-{last} see" if first < last else f"Query {first} sees"
    return f"{who} keys up to {last + case.num_keys - case.N}. "


def rows_past_the_end(tables, fault):
    """Where this program loads no row of Q that exists, and others do."""
    q = next((table for table in tables.values() if table.input == "q"), None)
    if q is None or not fault.programs or tuple(fault.programs[-1]) in q.programs:
        return ""
    return (
        f"this program loads no row of {q.name}: its tile of queries lies past the last row. How many programs "
        "belong on each axis of the grid, and which queries does each of them get?"
    )


def shared_rows(table, owners, fault):
    """Two programs that write the same rows."""
    first, second = (tuple(program) for program in (*fault.programs, *fault.programs)[:2])
    if first == second or not {first, second} <= set(table.programs):  # another launch's, say
        return ""
    if not {first, second} <= set(owners):
        return same_place(table, first, second, fault.terms)
    one, two = owners[first], owners[second]
    writes = table.decode(table.programs[second].first)
    if writes != two and writes is not None:
        return (
            f"program {second} has the queries from row {two[2]} of batch {two[0]}, head {two[1]}, and begins to write "
            f"{table.name} at row {writes[2]} of batch {writes[0]}, head {writes[1]}. Are they the same rows?"
        )
    if one == two:
        return (
            f"both compute the rows from {one[2]} of batch {one[0]}, head {one[1]}. Which program of the grid is to "
            "have which tile of which head?"
        )
    apart, tall = abs(one[2] - two[2]), table.rows_of(table.programs[first])
    if one[:2] == two[:2] and apart < tall:
        return f"their tiles of queries begin {apart} rows apart, and each has {tall} rows. How far apart must they be?"
    return ""


def same_place(table, first, second, terms):
    place, other = (table.decode(table.programs[program].first) for program in (first, second))
    if place != other:
        return before_the_first(table)
    if place is None:
        return ""
    batch, head, row = place
    return (
        f"both begin to write {table.name} at row {row} of batch {batch}, head {head}. {made(terms)}Which program of "
        "the grid is to have which tile of which head?"
    )


def before_the_first(table):
    """Where the first head has a tile before its first row, those of other heads lie in the head before."""
    program, first = min(table.programs.items(), key=lambda each: each[1].first)
    if first.first >= 0 or not table.strides[2]:
        return ""
    row = first.first // table.strides[2]
    return f"program {program} begins to write {table.name} at row {row}, before the first. Where do its rows begin?"


def listed(numbers):
    return ", ".join(map(str, numbers))
