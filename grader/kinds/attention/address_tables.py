"""The first addresses of each program in each tensor, by batch, head and row."""

from dataclasses import dataclass

AXES = ("batch", "head", "row")


@dataclass(frozen=True)
class Table:
    """The first accesses of one kind to one tensor. sizes, strides: of (B, H, N), in elements.

    input: the call's input that it is, or None. programs: {place in the grid: its observed.Access}.
    """

    name: str
    input: str | None
    sizes: tuple
    strides: tuple
    column: int
    programs: dict

    def decode(self, offset):
        """(batch, head, row) of an offset, or None where no whole row begins there; may lie outside."""
        left, place = offset, [0, 0, 0]
        one_head = self.sizes[1] == 1 and self.strides[1] >= self.sizes[2] * self.strides[2]
        used = [axis for axis in range(3) if self.sizes[axis] > 1 or axis == 2 or (axis == 1 and one_head)]
        for axis in sorted(used, key=lambda axis: -self.strides[axis]):
            place[axis], left = divmod(left, max(1, self.strides[axis]))
        return tuple(place) if left == 0 and offset >= 0 else None

    def holds(self, place):
        return place is not None and all(index < size for index, size in zip(place, self.sizes, strict=True))

    def rows_of(self, block):
        """How many rows a block has, by the axis that steps from row to row; 1 where none does."""
        rows = [size for size, step in zip(block.block, block.steps, strict=True) if step == self.strides[2]]
        return rows[0] if rows else 1


def tables_of(case, trace):
    """(Table, kind of access) of every tensor that has batches, heads and rows, however it is flattened."""
    for each in trace.addresses:
        shape, strides = each.shape, each.strides
        heads = case.kv_heads if each.input in ("k", "v") else case.Hq
        if len(shape) == 3 and shape[0] == case.B * heads:
            shape, strides = [case.B, heads, *shape[1:]], [heads * strides[0], *strides]
        if len(shape) == 4:
            programs = {program.place: program.at for program in each.programs}
            table = Table(each.argument, each.input, tuple(shape[:3]), tuple(strides[:3]), strides[3], programs)
            yield table, each.kind


def find_owners(case, tables):
    """{program: (batch, query head, first row)} by the first tensor of queries that is addressed as it should be."""
    size = (case.B, case.Hq, case.N)
    candidates = [table for table in tables.values() if table.input == "q"]
    candidates += [table for (_, kind), table in tables.items() if kind == "store" and table.sizes == size]
    for table in candidates:
        places = {program: table.decode(first.first) for program, first in table.programs.items()}
        heads = {place[:2] for place in places.values() if place}
        if all(map(table.holds, places.values())) and len(heads) == case.B * case.Hq:
            return places
    return {}
