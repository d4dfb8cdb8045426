"""The most elements that one program has in blocks at once: from the text alone."""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from grader.core.machine.definitions import define
from grader.core.machine.text import Block, Function, Module, Operation, Type
from grader.core.protocol.program import Refused

# What compilers never keep: numbers known beforehand, and numbers that stand elsewhere spread over a block.
SPREAD = {"tt.splat", "tt.expand_dims", "tt.broadcast"}
FREE = {"arith.constant", "ub.poison", "tt.make_range", *SPREAD}
COPIED = 3_000_000  # names, where blocks that jump go on with the same values


def elements_of(kind: Type) -> int:
    return 0 if kind.kind == "descriptor" else kind.elements


@lru_cache(maxsize=256)
def most_held(module: Module, name: str) -> int:
    """Of one program of this function, with what it calls."""
    return Liveness(module, module.functions[name]).most


class Liveness:
    """Goes through a function backwards: a value lives from what makes it to the last operation that reads it.

    live: what lives where it is now; size: its elements; most: the most of them anywhere. came: what came to life in
    this block. roots: {value that is spread over a block: the one that holds its numbers}.
    """

    def __init__(self, module: Module, function: Function) -> None:
        definitions, self.module, self.most, self.copied = define(function), module, 0, 0
        self.weights = {name: elements_of(kind) for name, kind in definitions.types.items()}
        self.roots: dict[str, str] = {}
        for name, made in definitions.made.items():
            if made.name in FREE:
                self.weights[name] = 0
            if made.name in SPREAD:
                (origin,) = made.operands
                self.roots[name] = self.roots.get(origin, origin)
        self.body(function.body.blocks)

    def body(self, blocks: list[Block]) -> None:
        """The blocks of the function, each after those that it jumps to."""
        jumps = [[at for at, _ in each.operations[-1].prepared or ()] for each in blocks]
        left = Counter(at for targets in jumps for at in targets)
        before: dict[int, tuple[set[str], int]] = {}
        for here in reversed(range(len(blocks))):
            self.live, self.size, self.came = set[str](), 0, list[str]()
            for at in jumps[here]:
                left[at] -= 1
                names, size = before[at] if left[at] else before.pop(at)
                if not left[at] and len(names) > len(self.live):  # go on with the larger set, which nobody else needs
                    names, self.live, self.size = self.live, names, size
                self.copied += len(names)
                if self.copied > COPIED:
                    raise Refused("the kernel returns in too many places: this is a limit of the grader")
                self.begin(names)
            self.block(blocks[here])
            before[here] = self.live, self.size

    def begin(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.live:
                self.live.add(name)
                self.came.append(name)
                self.size += self.weights[name]

    def end(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self.live:
                self.live.discard(name)
                self.size -= self.weights[name]

    def block(self, block: Block) -> None:
        for operation in reversed(block.operations):
            self.operation(operation)
        self.end(block.arguments)

    def operation(self, operation: Operation) -> None:
        """What a loop reads of outside lives while it runs; of a condition's ways, each has what it reads itself."""
        self.end(operation.results)
        outside, called = set[str](), 0
        if operation.name in ("scf.for", "scf.while"):
            self.begin(self.read_inside(operation))
        if operation.name.startswith("scf."):
            start = len(self.came)
            for region in operation.regions:
                self.block(region.entry)
                found = [name for name in self.came[start:] if name in self.live]
                del self.came[start:]
                self.end(found)
                outside.update(found)
        elif operation.name == "tt.call":
            called = most_held(self.module, operation.prepared)
        self.begin((*outside, *self.used(operation)))
        results = sum(map(self.weights.__getitem__, operation.results))
        self.most = max(self.most, self.size + max(called, results))

    def used(self, operation: Operation) -> list[str]:
        return [self.roots.get(name, name) for name in operation.operands]

    def read_inside(self, operation: Operation) -> set[str]:
        """What the regions read, but for what they make."""
        read, made = set[str](), set[str]()
        for region in operation.regions:
            made.update(region.entry.arguments)
            for inner in region.operations():
                read.update(self.used(inner))
                made.update(inner.results, *(each.entry.arguments for each in inner.regions))
        return read - made
