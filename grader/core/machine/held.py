"""The most elements that one program has in blocks at once: from the text alone."""

from collections.abc import Iterable
from functools import lru_cache

from grader.core.machine.definitions import Definitions, define
from grader.core.machine.text import Module, Operation, Region, Type
from grader.core.machine.type_check import callee, targets_of

# What compilers never keep: numbers known beforehand, and numbers that stand elsewhere spread over a block.
FREE = {
    "arith.constant", "ub.poison", "tt.make_range", "tt.splat", "tt.expand_dims", "tt.broadcast",
}  # fmt: skip
SPREAD = {"tt.splat", "tt.expand_dims", "tt.broadcast"}


def elements_of(kind: Type) -> int:
    return 0 if kind.kind == "descriptor" else kind.elements


@lru_cache(maxsize=256)
def most_held(module: Module, name: str) -> int:
    """Of one program of this function, with what it calls."""
    function = module.functions[name]
    return Liveness(module, define(function)).region(function.body, frozenset())[0]


class Liveness:
    """Goes through a function backwards: a value lives from what makes it to the last operation that reads it."""

    def __init__(self, module: Module, definitions: Definitions) -> None:
        self.module, self.definitions = module, definitions
        self.weights = {
            name: 0 if self.is_free(name) else elements_of(kind) for name, kind in definitions.types.items()
        }

    def region(self, region: Region, after: frozenset[str]) -> tuple[int, frozenset[str]]:
        """(most elements at once, what lives before it). after: what lives when it is left."""
        most, before = 0, dict[str, frozenset[str]]()
        for block in reversed(region.blocks):
            live = after
            for operation in reversed(block.operations):
                if operation.name.startswith("cf."):
                    live = live.union(*(before.get(label, ()) for label, _ in targets_of(operation)))
                here, live = self.operation(operation, live)
                most = max(most, here)
            live = before[block.label] = live.difference(self.definitions.carried[block])
        return most, live if region.blocks else after

    def operation(self, operation: Operation, after: frozenset[str]) -> tuple[int, frozenset[str]]:
        """The same of one operation. What a loop reads of outside lives while it runs."""
        used, results = self.used(operation), self.definitions.results[operation]
        rest = after.difference(results)
        live, most = rest | used, 0
        if operation.name.startswith("scf."):
            inside = rest if operation.name == "scf.if" else rest | self.read_inside(operation)
            for region in operation.regions:
                here, before = self.region(region, inside)
                most, live = max(most, here), live | before.difference(self.definitions.carried.get(operation, ()))
        elif operation.name == "tt.call":
            most = self.sum(rest | used) + most_held(self.module, callee(operation))
        return max(most, self.sum(live.union(results))), live

    def used(self, operation: Operation) -> frozenset[str]:
        return frozenset(map(self.root, self.definitions.operands[operation]))

    def read_inside(self, operation: Operation) -> frozenset[str]:
        """What the regions read, but for what they make."""
        read, made = set[str](), set(self.definitions.carried.get(operation, ()))
        for region in operation.regions:
            for block in region.blocks:
                made.update(self.definitions.carried[block])
                for inner in block.operations:
                    read |= self.used(inner) | self.read_inside(inner)
                    made.update(self.definitions.results[inner])
        return frozenset(read - made)

    def root(self, name: str) -> str:
        """The value that holds the numbers of one that is spread over a block."""
        made = self.definitions.made.get(name)
        while made and made.name in SPREAD:
            (name,) = self.definitions.operands[made]
            made = self.definitions.made.get(name)
        return name

    def is_free(self, name: str) -> bool:
        made = self.definitions.made.get(name)
        return made is not None and made.name in FREE

    def sum(self, names: Iterable[str]) -> int:
        return sum(map(self.weights.__getitem__, names))
