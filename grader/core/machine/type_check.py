"""Before anything runs: each name that an operation reads is there and has the type that the operation says."""

import re

from grader.core.machine import hints
from grader.core.machine.operation_table import TABLE
from grader.core.machine.text import Function, Module, NotIR, Operation, Region, Type, at_place, need, operations_in
from grader.core.protocol.program import Refused

FORMS = {name: entry.form for name, entry in TABLE.items()} | {
    "scf.for": "for", "scf.if": "if", "scf.while": "while", "scf.yield": "leave", "scf.condition": "condition",
    "tt.return": "leave", "tt.reduce.return": "leave", "tt.scan.return": "leave", "tt.map_elementwise.return": "leave",
    "cf.br": "branch", "cf.cond_br": "branches", "tt.call": "call",
}  # fmt: skip
ENDS = {"tt.return", "cf.br", "cf.cond_br", "scf.yield", "scf.condition", "tt.reduce.return", "tt.scan.return",
        "tt.map_elementwise.return"}  # fmt: skip
END_OF = {"scf.for": "scf.yield", "scf.if": "scf.yield", "tt.reduce": "tt.reduce.return", "tt.scan": "tt.scan.return",
          "tt.map_elementwise": "tt.map_elementwise.return"}  # fmt: skip
DEEP = 64  # calls in calls
HELD = 1 << 29  # bytes of all values that programs which run together make
Scope = dict[str, Type]


def check(module: Module, entry: str) -> None:
    """Raise NotIR where a name or a type does not fit; note the types of results, and make what runs each operation."""
    if entry not in module.functions:
        raise NotIR(f"no function named {entry}")
    checker = Checker(module)
    for function in module.functions.values():
        checker.function(function)
    checker.find_recursion(entry, ())
    module.bytes = checker.bytes


class Checker:
    def __init__(self, module: Module) -> None:
        self.functions, self.locations = module.functions, module.locations
        self.calls: dict[str, set[str]] = {}
        self.current: Function | None = None
        self.ended, self.bytes, self.width = set[str](), 0, 1

    def function(self, function: Function) -> None:
        self.current = function
        self.calls[function.name] = set()
        self.region(function.body, fresh({}, function.arguments, function.types), "", function.returns)

    def find_recursion(self, name: str, above: tuple[str, ...]) -> None:
        if len(above) > DEEP:
            raise NotIR(f"more than {DEEP} functions that call each other")
        if name in above:
            raise NotIR(f"the function {name} calls itself: Triton has no recursion")
        for called in self.calls.get(name, set()) - self.ended:
            self.find_recursion(called, (*above, name))
        self.ended.add(name)

    def region(
        self, region: Region, scope: Scope, end: str, returns: tuple[Type, ...] | None, given: Scope | None = None
    ) -> tuple[Type, ...]:
        """Check the blocks; returns the types that leave by `end`. end: "" in a function's body, which may branch.

        given: what it is given beside its first block's arguments. Of what it adds to `scope`, nothing stays.
        """
        outside = len(scope)
        left = self.blocks(region, scope, end, returns, given or {})
        while len(scope) > outside:
            scope.popitem()  # the last that came
        return left

    def blocks(
        self, region: Region, scope: Scope, end: str, returns: tuple[Type, ...] | None, given: Scope
    ) -> tuple[Type, ...]:
        if end and len(region.blocks) != 1:
            raise NotIR("blocks that jump inside a loop or a condition")
        scope |= given
        left: tuple[Type, ...] = ()
        for at, block in enumerate(region.blocks):
            scope |= fresh(scope, block.arguments, block.types)
            if not block.operations and end == "scf.yield":
                return ()
            if not block.operations:
                raise NotIR("a block without operations")
            for place, operation in enumerate(block.operations):
                is_last = place + 1 == len(block.operations)
                if (operation.name in ENDS) != is_last and not (is_last and end == "scf.yield"):
                    raise NotIR(f"`{operation.name}` in the wrong place")
                types = tuple(self.find(name, scope) for name in operands_of(operation))
                try:
                    if operation.name in ENDS:
                        left = self.end(operation, types, end, (at, region), returns)
                    else:
                        scope |= self.made_by(operation, types, scope)
                except Refused as refused:
                    raise at_place(refused, operation.where, self.locations) from None
        return left

    def made_by(self, operation: Operation, given: tuple[Type, ...], scope: Scope) -> Scope:
        """The types of an operation's results, by name."""
        operation.made = self.operation(operation, given, scope)
        if len(operation.made) != len(operation.results):
            raise NotIR(f"`{operation.name}` with {len(operation.results)} results")
        self.bytes += self.width * sum(kind.elements * kind.dtype.itemsize for kind in operation.made)
        if self.bytes > HELD:
            raise Refused(f"the blocks of one program take more than {HELD:,} bytes: unroll less")
        return fresh(scope, operation.results, operation.made)

    @staticmethod
    def find(name: str, scope: Scope) -> Type:
        if name not in scope:
            raise NotIR(f"a name that nothing has made: `{name}`")
        return scope[name]

    def end(
        self, operation: Operation, given: tuple[Type, ...], end: str, at: tuple[int, Region],
        returns: tuple[Type, ...] | None,
    ) -> tuple[Type, ...]:  # fmt: skip
        name = operation.name
        said = given[1:] if name in ("cf.cond_br", "scf.condition") else given
        need(operation.types == said, operation)
        if name in ("cf.br", "cf.cond_br"):
            if end:
                raise NotIR("a jump inside a loop or a condition")
            places = dict(zip(operands_of(operation)[len(given) - len(said) :], said, strict=True))
            for label, names in targets_of(operation):
                here, region = at
                there = region.places.get(label, 0)
                if there <= here or region.blocks[there].types != tuple(places[n] for n in names):
                    raise NotIR(f"a jump to {label}, which does not follow, or takes other values")
            need(name == "cf.br" or given[0].text == "i1", operation)
            return ()
        if name == "tt.return":
            if end or given != returns:
                raise NotIR("a function that returns other values than it says")
            return given
        if name != end:
            raise NotIR(f"`{name}` in the wrong place")
        return given

    def operation(self, operation: Operation, given: tuple[Type, ...], scope: Scope) -> tuple[Type, ...]:
        name = operation.name
        if name in TABLE:
            entry = TABLE[name]
            operation.made = entry.rule(operation, given)
            need(len(operation.made) == len(operation.results), operation)
            for region in operation.regions:
                width, self.width = self.width, self.width * given[0].elements
                self.need_numbers(region, set())
                left = self.region(region, scope, END_OF[name], None)
                self.width = width
                need(tuple(kind.text for kind in left) == tuple(kind.element for kind in operation.made), operation)
            operation.execute = hints.checking(entry.make(operation), operation)
            return operation.made
        return {"scf.for": self.loop, "scf.if": self.condition, "scf.while": self.repeat, "tt.call": self.call}[name](
            operation, given, scope
        )

    def need_numbers(self, region: Region, seen: set[str]) -> None:
        """What runs for each element of a block has numbers alone, neither memory nor blocks; so has what it calls."""
        for inner in operations_in(region):
            need(all(kind.kind == "number" and not kind.shape for kind in inner.types), inner)
            self.bytes += 8 * self.width
            called = callee(inner) if inner.name == "tt.call" else ""
            if called in self.functions and called not in seen:
                seen.add(called)
                self.need_numbers(self.functions[called].body, seen)

    def loop(self, operation: Operation, given: tuple[Type, ...], scope: Scope) -> tuple[Type, ...]:
        low, high, step, *carried = given
        need(low.kind == "number" and low.element in ("i32", "i64") and not low.shape, operation)
        need(low == high == step, operation)
        index, names = loop_names(operation)
        inner = fresh(scope, (index, *names), (low, *carried))
        left = self.region(operation.regions[0], scope, "scf.yield", None, inner)
        need(left == tuple(carried) and operation.types[: len(carried)] == tuple(carried), operation)
        return tuple(carried)

    def condition(self, operation: Operation, given: tuple[Type, ...], scope: Scope) -> tuple[Type, ...]:
        need(given[0].text == "i1", operation)
        made = [self.region(region, scope, "scf.yield", None) for region in operation.regions]
        need(all(left == operation.types for left in made), operation)
        need(len(made) == 2 or not operation.types, operation)
        return operation.types

    def repeat(self, operation: Operation, given: tuple[Type, ...], scope: Scope) -> tuple[Type, ...]:
        before, after = operation.regions
        names = while_names(operation)
        count = len(given)
        need(operation.types[:count] == given and len(names) == count, operation)
        left = self.region(before, scope, "scf.condition", None, fresh(scope, names, given))
        need(left and left[0].text == "i1" and left[1:] == operation.types[count:], operation)
        need(after.entry.types == left[1:], operation)
        need(self.region(after, scope, "scf.yield", None) == given, operation)
        return left[1:]

    def call(self, operation: Operation, given: tuple[Type, ...], scope: Scope) -> tuple[Type, ...]:
        called = callee(operation)
        function = self.functions.get(called)
        if function is None or function.types != given:
            raise NotIR(f"a call of {called} with other arguments than it takes")
        need(operation.types == (*given, *function.returns), operation)
        assert self.current
        self.calls[self.current.name].add(called)
        return function.returns


def fresh(scope: Scope, names: tuple[str, ...], types: tuple[Type, ...]) -> Scope:
    """The types of names that are made here."""
    if len({*names}) < len(names) or not scope.keys().isdisjoint(names):
        raise NotIR(f"a name that is made twice: `{', '.join(names)[:80]}`")
    return dict(zip(names, types, strict=True))


def operands_of(operation: Operation) -> tuple[str, ...]:
    """The names that an operation reads: of a loop's line, those that stand on the right."""
    if operation.name == "scf.for":
        _, low, high, step, *pairs = operation.operands
        return (low, high, step, *pairs[1::2])
    return operation.operands[1::2] if operation.name == "scf.while" else operation.operands


def loop_names(operation: Operation) -> tuple[str, tuple[str, ...]]:
    """(the index of a loop, the names that it carries)."""
    index, _, _, _, *pairs = operation.operands
    return index, tuple(pairs[::2])


def while_names(operation: Operation) -> tuple[str, ...]:
    return operation.operands[::2]


def targets_of(operation: Operation) -> list[tuple[str, tuple[str, ...]]]:
    """[(label, values)] of a jump."""
    found = re.findall(r"(\^\w+)(?:\(([^:]*) : [^)]*\))?", operation.body)
    return [(label, tuple(names.split(", ")) if names else ()) for label, names in found]


def callee(operation: Operation) -> str:
    matched = re.search(r'@("?)([\w.$\-]+|[^"]+)\1\(', operation.body)
    return matched[2] if matched else ""
