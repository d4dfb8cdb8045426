"""Where the values of a kernel's text come from: each name's operation, or the names that it may be another one for.

Regions beside each other have values of one name. Here each value has a name of its own.
"""

from collections import ChainMap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from grader.core.machine.text import Block, Function, Module, Operation, Region, Type
from grader.core.machine.type_check import ENDS, loop_names, operands_of, targets_of, while_names

Names = tuple[str, ...]
Scope = ChainMap[str, str]  # a region's names, then those around it: no copy of them all for each region


@dataclass(frozen=True)
class Chosen:
    """A value that is one of two. by: the loop, which has `first` in its first round, or where it has none, and
    `later` from then on; or the condition, which has `first` where it holds."""

    by: Operation
    first: str
    later: str


@dataclass(eq=False)
class Definitions:
    """Of one function. operands, results: of each operation; carried: a loop's index and what it carries, a block's
    arguments. scopes: {operation: {name in the text: name}} of what can be read there. types: of all names.

    made: {name: what makes it}, but for loops, conditions and calls. chosen: {name: Chosen} of what a loop carries, and
    of results of loops and conditions. same: {name: names} of what else a block is given: it is one of these.
    """

    operands: dict[Operation, Names] = field(default_factory=dict)
    results: dict[Operation, Names] = field(default_factory=dict)
    carried: dict[Operation | Block, Names] = field(default_factory=dict)
    scopes: dict[Operation, Scope] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)
    made: dict[str, Operation] = field(default_factory=dict)
    chosen: dict[str, Chosen] = field(default_factory=dict)
    same: dict[str, list[str]] = field(default_factory=dict)

    def origins(self, name: str) -> Names:
        """The names that this value may be another one for."""
        if name in self.chosen:
            return self.chosen[name].first, self.chosen[name].later
        return tuple(self.same.get(name, ()))

    def back(self, names: Sequence[str]) -> Iterator[str]:
        """These names and all that they are made of, each once."""
        seen, left = set[str](), list(names)
        while left:
            name = left.pop()
            if name not in seen:
                seen.add(name)
                yield name
                left += self.operands[self.made[name]] if name in self.made else self.origins(name)

    # Reading the text ------------------------------------------------------------------------------------------------

    def name(self, names: Names, types: Sequence[Type], scope: Scope) -> Names:
        """Names of their own for values that are made here."""
        for name, kind in zip(names, types, strict=False):
            scope[name] = f"{name} {len(self.types)}" if name in self.types else name
            self.types[scope[name]] = kind
        return tuple(scope[name] for name in names)

    def read(self, region: Region, scope: Scope) -> Names:
        """All operations of a region; the values that leave it."""
        for block in region.blocks:
            self.carried[block] = self.name(block.arguments, block.types, scope)
        for block in region.blocks:
            for operation in block.operations:
                self.scopes[operation] = scope
                operands = self.operands[operation] = tuple(scope[name] for name in operands_of(operation))
                if operation.name in STRUCTURED:
                    STRUCTURED[operation.name](self, operation, operands, scope)
                    continue
                for inner in operation.regions:
                    self.read(inner, scope.new_child())
                results = self.results[operation] = self.name(operation.results, operation.made, scope)
                if operation.name.startswith("cf."):
                    for label, names in targets_of(operation):
                        target = region.blocks[region.places[label]]
                        for argument, name in zip(self.carried[target], names, strict=True):
                            self.same.setdefault(argument, []).append(scope[name])
                elif operation.name != "tt.call":
                    self.made |= dict.fromkeys(results, operation)
        last = region.blocks[-1].operations[-1:] if region.blocks else []
        return self.operands[last[0]] if last and last[0].name in ENDS else ()

    def loop(self, operation: Operation, operands: Names, scope: Scope) -> None:
        low, _, _, *first = operands
        index, names = loop_names(operation)
        inner, types = scope.new_child(), [self.types[name] for name in (low, *first)]
        carried = self.carried[operation] = self.name((index, *names), types, inner)
        later = self.read(operation.regions[0], inner)
        self.choose(operation, operation.results, operation.made, scope, first, carried[1:], later)

    def repeat(self, operation: Operation, operands: Names, scope: Scope) -> None:
        before, after = operation.regions
        inner, types = scope.new_child(), [self.types[name] for name in operands]
        names = self.carried[operation] = self.name(while_names(operation), types, inner)
        left, later = self.read(before, inner)[1:], self.read(after, scope.new_child())
        self.choose(operation, (), (), scope, operands, names, later)
        results = self.results[operation] = self.name(operation.results, operation.made, scope)
        for given in (results, self.carried[after.entry]):
            self.same |= {name: [origin] for name, origin in zip(given, left, strict=False)}

    def condition(self, operation: Operation, operands: Names, scope: Scope) -> None:
        ways = [self.read(region, scope.new_child()) for region in operation.regions]
        first, later = (ways * 2)[:2]
        self.choose(operation, operation.results, operation.made, scope, first, (), later)

    def choose(
        self, by: Operation, results: Names, types: Sequence[Type], scope: Scope, first: Sequence[str],
        names: Sequence[str], later: Names,
    ) -> None:  # fmt: skip
        self.results[by] = self.name(results, types, scope)
        for given in (self.results[by], names):
            self.chosen |= {name: Chosen(by, *pair) for name, *pair in zip(given, first, later, strict=False)}


STRUCTURED = {"scf.for": Definitions.loop, "scf.while": Definitions.repeat, "scf.if": Definitions.condition}


@lru_cache(maxsize=256)
def define(function: Function) -> Definitions:
    """The Definitions of a function that type_check.py has checked."""
    definitions, scope = Definitions(), Scope()
    definitions.name(function.arguments, function.types, scope)
    definitions.read(function.body, scope)
    return definitions


def function_of(module: Module, operation: Operation) -> Function:
    """The function whose operation it is."""
    return next(each for each in module.functions.values() if operation in define(each).operands)
