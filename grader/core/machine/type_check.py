"""Before anything runs: each name that an operation reads is there and has the type that the operation says.

What the check learns stays: each value gets a name of its own, and definitions.py says where it comes from.
"""

from grader.core.machine import hints
from grader.core.machine.definitions import Definitions, Names
from grader.core.machine.operation_table import TABLE
from grader.core.machine.text import Block, Function, Module, NotIR, Operation, Region, Types, at_place, need
from grader.core.protocol.program import Refused

FORMS = {name: entry.form for name, entry in TABLE.items()} | {
    "scf.for": "for", "scf.if": "if", "scf.while": "while", "scf.yield": "leave", "scf.condition": "condition",
    "tt.return": "leave", "tt.reduce.return": "leave", "tt.scan.return": "leave", "tt.map_elementwise.return": "leave",
    "cf.br": "branch", "cf.cond_br": "branches", "tt.call": "call",
}  # fmt: skip
END_OF = {"tt.reduce": "tt.reduce.return", "tt.scan": "tt.scan.return",
          "tt.map_elementwise": "tt.map_elementwise.return"}  # fmt: skip
YIELD, CONDITION, RETURN = "scf.yield", "scf.condition", "tt.return"
JUMPS = ("cf.br", "cf.cond_br")
ENDS = {RETURN, *JUMPS, YIELD, CONDITION, *END_OF.values()}
DEEP = 64  # calls in calls
HELD = 1 << 29  # bytes of all values that programs which run together make
Scope = dict[str, str]  # {name in the text: name of its own}


def check(module: Module, entry: str) -> None:
    """Raise NotIR where a name or a type does not fit; note the types of results, and what runs each operation."""
    if entry not in module.functions:
        raise NotIR(f"no function named {entry}")
    checker = Checker(module)
    for function in module.functions.values():
        checker.function(function)
    checker.find_recursion(entry, ())
    module.bytes, module.widest = checker.bytes, checker.widest


class Checker:
    """definitions: of the function that is checked. jumps: in it, to blocks that follow, and what these are given.

    bytes, widest: as a Module has them. width: how often one program runs what is checked, for elements of a block.
    """

    def __init__(self, module: Module) -> None:
        self.functions, self.locations = module.functions, module.locations
        self.calls: dict[str, set[str]] = {}
        self.ended = set[str]()
        self.bytes, self.widest, self.width = 0, 1, 1

    def function(self, function: Function) -> None:
        self.current, self.jumps = function, list[tuple[Block, Names]]()
        self.definitions = function.definitions = Definitions()
        self.calls[function.name] = set()
        if function.body.entry.arguments:
            raise NotIR("a function whose first block takes values")
        scope: Scope = {}
        self.name(function.arguments, function.types, scope)
        self.region(function.body, scope, "")
        for block, names in self.jumps:
            for argument, name in zip(block.arguments, names, strict=True):
                self.definitions.same.setdefault(argument, []).append(name)

    def find_recursion(self, name: str, above: tuple[str, ...]) -> None:
        if len(above) > DEEP:
            raise NotIR(f"more than {DEEP} functions that call each other")
        if name in above:
            raise NotIR(f"the function {name} calls itself: Triton has no recursion")
        for called in self.calls.get(name, set()) - self.ended:
            self.find_recursion(called, (*above, name))
        self.ended.add(name)

    def name(self, names: Names, types: Types, scope: Scope) -> Names:
        """Names of their own for values that are made here."""
        if len({*names}) < len(names) or not scope.keys().isdisjoint(names):
            raise NotIR(f"a name that is made twice: `{', '.join(names)[:80]}`")
        found = self.definitions.name(names, types)
        scope.update(zip(names, found, strict=True))
        return found

    # Blocks ----------------------------------------------------------------------------------------------------------

    def region(self, region: Region, scope: Scope, end: str) -> Types:
        """Check the blocks; returns the types that leave by `end`. end: "" in a function's body, which may branch.

        Of what it adds to `scope`, nothing stays.
        """
        if end and len(region.blocks) != 1:
            raise NotIR("blocks that jump inside a loop or a condition")
        outside, left = len(scope), Types()
        for at, block in enumerate(region.blocks):
            block.arguments = self.name(block.arguments, block.types, scope)
            operations = block.operations
            if end == YIELD and (not operations or operations[-1].name not in ENDS):
                operations.append(Operation(YIELD, (), (), (), {}, "", "", ""))  # which the text may leave out
            if not operations:
                raise NotIR("a block without operations")
            for operation in operations:
                if (operation.name in ENDS) != (operation is operations[-1]):
                    raise NotIR(f"`{operation.name}` in the wrong place")
                try:
                    left = self.operation(operation, scope, end, (at, region))
                except Refused as refused:
                    raise at_place(refused, operation.where, self.locations) from None
        while len(scope) > outside:
            scope.popitem()  # the last that came
        return left

    def operation(self, operation: Operation, scope: Scope, end: str, at: tuple[int, Region]) -> Types:
        """Check it; returns the types of its operands."""
        for name in operation.operands:
            if name not in scope:
                raise NotIR(f"a name that nothing has made: `{name}`")
        operation.function, types = self.current, self.definitions.types
        operation.operands = tuple(scope[name] for name in operation.operands)
        given = tuple(types[name] for name in operation.operands)
        if operation.name in ENDS:
            self.end(operation, given, end, at)
            return given
        in_table = operation.name in TABLE
        operation.made = (Checker.known if in_table else STRUCTURED[operation.name])(self, operation, given, scope)
        if len(operation.made) != len(operation.results):
            raise NotIR(f"`{operation.name}` with {len(operation.results)} results")
        sizes = [kind.elements * kind.dtype.itemsize for kind in operation.made]
        self.bytes, self.widest = self.bytes + self.width * sum(sizes), max(self.widest, *sizes, 1)
        if self.bytes > HELD:
            raise Refused(f"the blocks of one program take more than {HELD:,} bytes: unroll less")
        operation.results = self.name(operation.results, operation.made, scope)
        if in_table:
            self.definitions.made.update(dict.fromkeys(operation.results, operation))
        else:
            self.note_origins(operation)
        return given

    def end(self, operation: Operation, given: Types, end: str, at: tuple[int, Region]) -> None:
        name, (here, region) = operation.name, at
        said = given[1:] if name in ("cf.cond_br", CONDITION) else given
        need(operation.types == said, operation)
        if end or name not in (*JUMPS, RETURN):
            if name != end:
                raise NotIR(f"`{name}` in the wrong place")
        elif name == RETURN:
            if given != self.current.returns:
                raise NotIR("a function that returns other values than it says")
        else:
            need(name == "cf.br" or given[0].text == "i1", operation)
            targets = []
            for label, part in operation.prepared:
                there, names = region.places.get(label, 0), operation.operands[part]
                if there <= here or region.blocks[there].types != given[part]:
                    raise NotIR(f"a jump to {label}, which does not follow, or takes other values")
                targets.append((there, names))
                self.jumps.append((region.blocks[there], names))
            operation.prepared = targets

    # Operations ------------------------------------------------------------------------------------------------------

    def known(self, operation: Operation, given: Types, scope: Scope) -> Types:
        entry = TABLE[operation.name]
        made = operation.made = entry.rule(operation, given)
        for region in operation.regions:
            width, self.width = self.width, self.width * given[0].elements
            self.need_numbers(region, set())
            left = self.region(region, scope, END_OF[operation.name])
            self.width = width
            need(tuple(kind.text for kind in left) == tuple(kind.element for kind in made), operation)
        operation.run = hints.checking(entry.run, operation)
        return made

    def need_numbers(self, region: Region, seen: set[str]) -> None:
        """What runs for each element of a block has numbers alone, neither memory nor blocks; so has what it calls."""
        for inner in region.operations():
            need(all(kind.kind == "number" and not kind.shape for kind in inner.types), inner)
            self.bytes += 8 * self.width
            if inner.name == "tt.call" and inner.prepared in self.functions and inner.prepared not in seen:
                seen.add(inner.prepared)
                self.need_numbers(self.functions[inner.prepared].body, seen)

    def loop(self, operation: Operation, given: Types, scope: Scope) -> Types:
        low, high, step, *carried = given
        need(low.text in ("i32", "i64") and low == high == step, operation)
        need(operation.types == (*carried, low), operation)
        need(self.region(operation.regions[0], scope, YIELD) == (*carried,), operation)
        return (*carried,)

    def condition(self, operation: Operation, given: Types, scope: Scope) -> Types:
        need(given[0].text == "i1", operation)
        made = [self.region(region, scope, YIELD) for region in operation.regions]
        need(all(left == operation.types for left in made), operation)
        need(len(made) == 2 or not operation.types, operation)
        return operation.types

    def repeat(self, operation: Operation, given: Types, scope: Scope) -> Types:
        before, after = operation.regions
        need(operation.types[: len(given)] == given, operation)
        left = self.region(before, scope, CONDITION)
        need(left and left[0].text == "i1" and left[1:] == operation.types[len(given) :], operation)
        need(after.entry.types == left[1:], operation)
        need(self.region(after, scope, YIELD) == given, operation)
        return left[1:]

    def call(self, operation: Operation, given: Types, scope: Scope) -> Types:
        called = operation.prepared
        function = self.functions.get(called)
        if function is None or function.types != given:
            raise NotIR(f"a call of {called} with other arguments than it takes")
        need(operation.types == (*given, *function.returns), operation)
        self.calls[self.current.name].add(called)
        return function.returns

    def note_origins(self, operation: Operation) -> None:
        """Which values a loop's or a condition's may be."""
        choose, left = self.definitions.choose, [region.leave.operands for region in operation.regions]
        if operation.name == "scf.for":
            (body,), first = operation.regions, operation.operands[3:]
            choose(operation, body.entry.arguments[1:], first, left[0])
            choose(operation, operation.results, first, left[0])
        elif operation.name == "scf.if" and operation.results:
            choose(operation, operation.results, *left)
        elif operation.name == "scf.while":
            before, after = operation.regions
            choose(operation, before.entry.arguments, operation.operands, left[1])
            for names in (operation.results, after.entry.arguments):
                self.definitions.same |= {name: [origin] for name, origin in zip(names, left[0][1:], strict=True)}


STRUCTURED = {
    "scf.for": Checker.loop, "scf.if": Checker.condition, "scf.while": Checker.repeat, "tt.call": Checker.call,
}  # fmt: skip
