"""Draws the source of a random kernel. The same seed draws the same text.

Integers wrap, and shifts and divisions are by what the language defines. Floats are small whole numbers, bounded in the
text where they might grow, so that any order of additions gives the same bits. A program stores in a place of its own,
once for each store in the text; atomics on one place all do the same, and nobody reads what they return.
"""

import random

HEAD = '''"""Seed {seed}."""

import triton
import triton.language as tl

GRID = {grid}
M, N, SLOTS = {m}, {n}, {slots}


@triton.jit
def added(a, b):
    return a + b


@triton.jit
def larger(a, b):
    if a > b:
        r = a
    else:
        r = b
    return r


@triton.jit
def helper(a, b):
    {helper}


@triton.jit{noinline}
def ways_out(a, b):
    if a > b:
        return {first}
    if a % 3 == 1:
        return {second}
    return {third}


@triton.jit
def drawn(
    x, f, oi, ol, of, added_to, largest, flipped, float_added, n, k, M: tl.constexpr, N: tl.constexpr,
    SLOTS: tl.constexpr,
):
    p = tl.program_id(0) + tl.num_programs(0) * tl.program_id(1)
    oi += p * SLOTS * M * N
    ol += p * SLOTS * M * N
    of += p * SLOTS * M * N
    im = tl.arange(0, M)
    i = tl.arange(0, N)
'''
BOUND = 64  # of a float variable
MOST = 1 << 12  # of a float expression that is used further


class Drawing:
    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.two = self.random.random() < 0.4
        self.shapes = ("", "n", "m", "mn") if self.two else ("", "n")
        self.m, self.n = (self.random.choice([4, 8, 16]), self.random.choice([8, 16, 32])) if self.two else (1, 0)
        self.n = self.n or self.random.choice([16, 32, 64, 128])
        self.names: dict[tuple[str, str], list[str]] = {}
        self.slots = 0
        self.loops = 0
        self.lines: list[str] = []

    def text(self) -> str:
        pick = self.random.choice
        for elem in ("i32", "i64", "f32"):
            for shape in self.shapes:
                if elem != "i64" or shape in ("", "n"):
                    count = 1 if shape in ("m", "") else 2
                    self.names[elem, shape] = [f"{elem}_{shape or 's'}{j}" for j in range(count)]
        for (elem, shape), names in self.names.items():
            for name in names:
                self.lines.append(f"    {name} = {self.first(elem, shape)}")
        self.block("    ", self.random.randint(3, 6), depth=2, top=True)
        for (elem, shape), names in self.names.items():
            for name in names:
                self.store("    ", elem, shape, name)
        helpers = ["return a + b * 3", "return tl.where(a > b, a - b, b)", "return tl.minimum(a, b) ^ 5"]
        values = ["a", "b", "a - b", "a * 2 + 1", "b & 15", "-a"]
        head = HEAD.format(
            seed=self.seed, grid=pick([(1,), (3,), (8,), (4, 2), (2, 3)]), m=self.m, n=self.n, slots=self.slots,
            noinline=pick(["", "(noinline=True)"]), helper=pick(helpers), first=pick(values), second=pick(values),
            third=pick(values),
        )  # fmt: skip
        return head + "\n".join(self.lines) + "\n"

    def first(self, elem: str, shape: str) -> str:
        """A value to begin with, of this type and shape."""
        number = self.random.randint(1, 9)
        index = {"": "(p & 3)", "n": "i", "m": "im", "mn": "(im[:, None] * N + i[None, :])"}[shape]
        if elem == "f32":
            return f"tl.load(f + ({index} * {number} & 127))"
        value = self.random.choice([f"({index} * {number} + p)", f"tl.load(x + ({index} + {number} * p & 127))"])
        return value if elem == "i32" else f"{value}.to(tl.int64)"

    # Expressions -----------------------------------------------------------------------------------------------------

    def variable(self, elem: str, shape: str) -> str:
        return self.random.choice(self.names[elem, shape])

    def integer(self, elem: str, shape: str, depth: int) -> str:
        pick, again = self.random.choice, lambda: self.integer(elem, shape, depth - 1)
        if (elem, shape) not in self.names:
            return f"{self.integer('i32', shape, depth)}.to(tl.int64)"
        if depth <= 0:
            extra = {"": ["p", "n", "k"], "n": ["i"], "m": ["im"], "mn": []}[shape] if elem == "i32" else []
            return pick([*self.names[elem, shape], *self.names[elem, shape], *extra])
        way = self.random.randrange(14)
        if way < 4:
            return f"({again()} {pick('+-*&|^')} {self.lower(elem, shape, depth - 1)})"
        if way == 4:
            return f"({again()} {pick(['<<', '>>', '//', '%'])} {self.random.randint(1, 7)})"
        if way == 5:
            return f"({again()} {pick(['//', '%'])} (({again()} & 7) + 1))"
        if way == 6:
            return f"tl.{pick(['minimum', 'maximum'])}({again()}, {again()})"
        if way == 7:
            return f"tl.abs({again()} >> 3)"
        if way == 8:
            return self.either(shape, again(), again(), depth)
        if way == 9:
            if elem == "i64":
                return f"{self.integer('i32', shape, depth - 1)}.to(tl.int64)"
            return f"({self.floating(shape, depth - 1)[0]}).to(tl.int32)"
        if way == 10 and elem == "i32":
            return pick([f"helper({again()}, {again()})", self.load("x", shape, depth)])
        if way == 11 and elem == "i32" and shape == "":
            return f"ways_out({again()}, {again()})"
        if way == 12 and shape in ("n", "mn"):
            axis = len(shape) - 1
            return f"tl.cumsum({again()}, {axis}{pick(['', ', reverse=True'])})"
        return self.reduced(elem, shape, depth) or f"({again()} + {self.random.randint(-99, 99)})"

    def reduced(self, elem: str, shape: str, depth: int) -> str:
        """One number, or a line of a sheet, out of a block."""
        sheet = ["mn"] if self.two else []
        sources = {"": ["n", *sheet], "n": sheet, "m": sheet, "mn": []}[shape]
        sources = [source for source in sources if elem != "i64" or source == "n"]
        if not sources:
            return ""
        source = self.random.choice(sources)
        block = self.integer(elem, source, depth - 1) if elem != "f32" else self.floating(source, depth - 1)[0]
        axis = {("", "n"): "0", ("", "mn"): "None", ("n", "mn"): "0", ("m", "mn"): "1"}[shape, source]
        ways = [f"tl.{name}({block}, {axis})" for name in ("sum", "max", "min")]
        if elem != "f32":
            ways.append(f"tl.xor_sum({block}, {axis})")
        ways += [f"tl.reduce({block}, {axis}, {name})" for name in ("added", "larger")]
        return self.random.choice(ways)

    def lower(self, elem: str, shape: str, depth: int) -> str:
        """A second operand that is broadcast: a literal, a number, a line, or the same shape."""
        if self.random.random() < 0.3:
            return str(self.random.randint(1, 20))
        if shape == "mn" and self.random.random() < 0.5:
            line = self.random.choice("nm")
            return f"({self.integer(elem, line, depth)}){'[None, :]' if line == 'n' else '[:, None]'}"
        return self.integer(elem, self.random.choice([shape, ""]), depth)

    def floating(self, shape: str, depth: int) -> tuple[str, int]:
        """(text, how large it is at most)"""
        pick = self.random.choice
        if depth <= 0:
            return self.variable("f32", shape), BOUND
        a, x = self.floating(shape, depth - 1)
        b, y = self.floating(pick([shape, ""]) if shape != "mn" else shape, depth - 1)
        way = self.random.randrange(10)
        made, bound = f"({a} {pick('+-')} {b})", x + y
        if way in (2, 3):
            made, bound = f"({a} * {b})", x * y
        if way == 4:
            made, bound = f"tl.{pick(['minimum', 'maximum'])}({a}, {b})", max(x, y)
        if way == 5:
            made, bound = f"tl.abs({a})", x
        if way == 6:
            made, bound = self.either(shape, a, self.floating(shape, depth - 1)[0], depth), MOST
        if way == 7:
            made, bound = f"({self.integer('i32', shape, depth - 1)} & 63).to(tl.float32)", 63
        if way == 8:
            made, bound = self.load("f", shape, depth), BOUND
        if way == 9 and self.reduced("f32", shape, 0):
            made, bound = self.reduced("f32", shape, depth), MOST * self.m * self.n
        return (made, bound) if bound <= MOST else (f"tl.minimum(tl.maximum({made}, -64.0), 64.0)", BOUND)

    def either(self, shape: str, a: str, b: str, depth: int) -> str:
        condition = self.condition(shape, depth - 1)
        if shape == "" and self.random.random() < 0.6:
            return f"({a} if {condition} else {b})"
        return f"tl.where({condition}, {a}, {b})"

    def condition(self, shape: str, depth: int) -> str:
        if depth > 0 and self.random.random() < 0.35:
            a, b = self.condition(shape, depth - 1), self.condition(shape, depth - 1)
            if shape == "":
                return self.random.choice([f"({a} and {b})", f"({a} or {b})", f"(not {a})"])
            return self.random.choice([f"({a} & {b})", f"({a} | {b})", f"(~{a})"])
        sign = self.random.choice(["<", "<=", ">", ">=", "==", "!="])
        if self.random.random() < 0.3:
            return f"({self.floating(shape, depth)[0]} {sign} {self.random.randint(-9, 9)}.0)"
        remainder = f"{self.integer('i32', shape, depth)} % {self.random.randint(3, 99)}"
        return f"({remainder} {sign} {self.random.randint(0, 9)})"

    def load(self, base: str, shape: str, depth: int) -> str:
        """Of 256 numbers; what the mask leaves out may lie outside."""
        index = self.integer("i32", shape, min(depth - 1, 1))
        other = self.random.randint(-9, 9)
        if self.random.random() < 0.4:
            return f"tl.load({base} + ({index} & 255))"
        ask = f"({index} >= 0) & ({index} < 256)"
        return f"tl.load({base} + {index}, mask={ask}, other={other})"

    # Statements ------------------------------------------------------------------------------------------------------

    def block(self, indent: str, count: int, depth: int, top: bool = False) -> None:
        for _ in range(count):
            self.statement(indent, depth, top)

    def statement(self, indent: str, depth: int, top: bool) -> None:
        way = self.random.random()
        if depth and way < 0.18:
            self.conditional(indent, depth)
        elif depth and way < 0.36:
            self.loop(indent, depth)
        elif top and way < 0.42:
            self.lines.append(f"{indent}if {self.condition('', 1)}:")
            self.block(indent + "    ", 1, 0)
            self.lines.append(f"{indent}    return")
        elif way < 0.48:
            elem, shape = self.random.choice(list(self.names))
            self.store(indent, elem, shape, self.expression(elem, shape))
        elif way < 0.58:
            self.atomic(indent)
        else:
            elem, shape = self.random.choice(list(self.names))
            self.lines.append(f"{indent}{self.variable(elem, shape)} = {self.expression(elem, shape)}")

    def expression(self, elem: str, shape: str) -> str:
        depth = self.random.randint(1, 3)
        if elem != "f32":
            return self.integer(elem, shape, depth)
        made, bound = self.floating(shape, depth)
        return made if bound <= BOUND else f"tl.minimum(tl.maximum({made}, -64.0), 64.0)"

    def conditional(self, indent: str, depth: int) -> None:
        self.lines.append(f"{indent}if {self.condition('', 1)}:")
        self.block(indent + "    ", self.random.randint(1, 2), depth - 1)
        if self.random.random() < 0.3:
            self.lines.append(f"{indent}elif {self.condition('', 1)}:")
            self.block(indent + "    ", 1, depth - 1)
        if self.random.random() < 0.6:
            self.lines.append(f"{indent}else:")
            self.block(indent + "    ", self.random.randint(1, 2), depth - 1)

    def loop(self, indent: str, depth: int) -> None:
        self.loops += 1
        name, number = f"j{self.loops}", self.random.randint(1, 4)
        few = f"({self.integer('i32', '', 1)} & 3)"
        ways = [
            f"range({number})", f"range({few})", f"range(p, p + {few}, {self.random.randint(1, 2)})",
            f"range({number + 3}, 0, -{self.random.randint(1, 3)})", f"tl.range(0, {few}, num_stages=2)",
            f"tl.static_range({number})", f"range({few}, {few})", "",
        ]  # fmt: skip
        way = self.random.choice(ways)
        if way:
            self.lines.append(f"{indent}for {name} in {way}:")
            self.lines.append(f"{indent}    {self.variable('i32', '')} += {name}")
        else:
            condition = self.random.choice([f"{name} > 0", f"({name} > 0) and {self.condition('', 1)}"])
            self.lines.append(f"{indent}{name} = {few} + 1")
            self.lines.append(f"{indent}while {condition}:")
            self.lines.append(f"{indent}    {name} -= 1")
        self.block(indent + "    ", self.random.randint(1, 3), depth - 1)

    def store(self, indent: str, elem: str, shape: str, value: str) -> None:
        """Each store in the text has a slot of its own, so that no two lanes meet."""
        place = {"": "", "n": " + i", "m": " + im", "mn": " + im[:, None] * N + i[None, :]"}[shape]
        out = {"i32": "oi", "i64": "ol", "f32": "of"}[elem]
        mask = f", mask={self.condition(shape, 1)}" if self.random.random() < 0.4 else ""
        self.lines.append(f"{indent}tl.store({out} + {self.slots} * M * N{place}, {value}{mask})")
        self.slots += 1

    def atomic(self, indent: str) -> None:
        shape = self.random.choice(self.shapes)
        mask = f", mask={self.condition(shape, 1)}" if self.random.random() < 0.5 else ""
        index = f"({self.integer('i32', shape, 1)} & 31)"
        ways = ["atomic_add(added_to", "atomic_max(largest", "atomic_xor(flipped", "atomic_add(float_added"]
        way = self.random.choice(ways)
        value = self.integer("i32", shape, 1)
        if way.endswith("float_added"):
            value = f"(({value} & 7) - 3).to(tl.float32)"
        self.lines.append(f"{indent}tl.{way} + {index}, {value}{mask})")
