"""The text of Triton's IR as data: functions, blocks, operations. Every line is matched whole, or the text is refused.

What `print_module` gives is what was parsed, without locations and comments: one text, one meaning. Only that print is
ever handed to a compiler. Method: MLIR's textual form (MLIR Language Reference), as far as Triton's front end has it.
"""

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

from grader.core.protocol.program import Refused

LARGEST = 4 << 20  # characters of a text
DEEPEST = 64  # regions in regions
LONGEST = 200  # characters of a type
WIDEST = 1 << 20  # elements of a block: Triton's own limit

DTYPES = {
    "i1": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "f8E4M3FN": torch.float8_e4m3fn, "f8E5M2": torch.float8_e5m2, "index": torch.int64,
}  # fmt: skip

VALUE = r"%[\w.$\-]+(?:#\d+)?"
TYPE = r"[\w!.<>]+"
ATTRIBUTES = r"(?: \{[^{}]*\})?"
STRING = r'"(?:[^"\\]|\\.)*"'
LABEL = r"\^\w+"
SYMBOL = rf"@(?:[\w.$\-]+|{STRING})"


class NotIR(Refused):
    """The text is none that Triton's front end writes. at_place says where."""


def at_place(refused: Refused, where: str, locations: dict[str, str]) -> Refused:
    """The same exception, which now has this place unless it has one."""
    if not getattr(refused, "where", ""):
        refused.where, refused.locations = where, locations  # type: ignore[attr-defined]
    return refused


@dataclass(frozen=True)
class Type:
    """A scalar, or a block with a `shape`. element: a key of DTYPES, or that of what a pointer points to.

    kind: "number", "pointer" or "descriptor"; a descriptor's shape is that of its block. pointee: the dtype in memory.
    """

    text: str
    kind: str
    shape: tuple[int, ...]
    element: str

    @functools.cached_property
    def dtype(self) -> torch.dtype:
        """Of the tensor that holds the value: an address is an int64."""
        return DTYPES[self.element] if self.kind == "number" else torch.int64

    @functools.cached_property
    def pointee(self) -> torch.dtype:
        return torch.int64 if self.element.startswith("!tt.ptr<") else DTYPES[self.element]

    @functools.cached_property
    def elements(self) -> int:
        return math.prod(self.shape)

    def with_element(self, element: str) -> "Type":
        """The same shape, of other numbers."""
        return parse_type(f"tensor<{'x'.join(map(str, self.shape))}x{element}>" if self.shape else element)


@functools.lru_cache(maxsize=4096)
def parse_type(text: str) -> Type:
    """The Type of this text; raises NotIR."""
    if len(text) > LONGEST:
        raise NotIR(f"a type of {len(text)} characters")
    shape: tuple[int, ...] = ()
    element, kind = text, "number"
    if matched := re.fullmatch(r"!tt\.tensordesc<(.*)>", text, re.ASCII):
        inner = matched[1] if matched[1].startswith("tensor<") else f"tensor<{matched[1]}>"
        block = parse_type(re.sub(r"x[su]i(\d+)>", r"xi\1>", inner))
        return Type(text, "descriptor", block.shape, block.element)
    if matched := re.fullmatch(r"tensor<((?:\d+x)+)(.*)>", text, re.ASCII):
        shape, element = tuple(int(size) for size in matched[1].split("x") if size), matched[2]
        if any(size & (size - 1) or not size for size in shape):
            raise NotIR(f"a block of {' x '.join(map(str, shape))}: each size must be a power of 2")
        if math.prod(shape) > WIDEST:
            raise NotIR(f"a block of {' x '.join(map(str, shape))} elements: Triton takes at most {WIDEST}")
    if matched := re.fullmatch(r"!tt\.ptr<(.*)>", element):
        element, kind = matched[1], "pointer"
        if element.startswith("!tt.ptr<"):
            parse_type(element)
            return Type(text, kind, shape, element)
    if element not in DTYPES:
        raise NotIR(f"the machine has no type `{element[:60]}`")
    return Type(text, kind, shape, element)


@dataclass(eq=False)
class Operation:
    """One operation. operands, results: names of values. types: all in its text, in order. text: the print of it.

    attributes: {name: text of its value}. line: of the text, from 0; where: its location's name, or "".
    """

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    types: tuple[Type, ...]
    attributes: dict[str, str]
    body: str
    line: int
    where: str
    regions: list["Region"] = field(default_factory=list)
    closing: list[str] = field(default_factory=list)  # the lines that end its regions
    made: tuple[Type, ...] = ()  # types of the results, which type_check.py finds
    execute: object = None


def need(condition: object, operation: Operation) -> None:
    """Raise NotIR where the condition does not hold."""
    if not condition:
        raise NotIR(f"`{operation.name}` with operands or types that do not fit: `{operation.body.strip()[:100]}`")


@dataclass(eq=False)
class Block:
    """A label, the values that it is given, and operations, of which the last leaves it."""

    label: str
    arguments: tuple[str, ...]
    types: tuple[Type, ...]
    operations: list[Operation]


@dataclass(eq=False)
class Region:
    """The blocks of an operation's body; the first is where it begins."""

    blocks: list[Block]

    @property
    def entry(self) -> Block:
        return self.blocks[0]

    @functools.cached_property
    def places(self) -> dict[str, int]:
        """{label: which block it is}."""
        return {block.label: place for place, block in enumerate(self.blocks)}


@dataclass(eq=False)
class Function:
    """A function of the module. opening: the print of its first line."""

    name: str
    arguments: tuple[str, ...]
    types: tuple[Type, ...]
    returns: tuple[Type, ...]
    body: Region
    opening: str


@dataclass(eq=False)
class Module:
    """functions by name; locations: {name: text}, for whoever asks where something stands. bytes: of all values that
    one program makes, each once (type_check.py)."""

    functions: dict[str, Function]
    locations: dict[str, str]
    bytes: int = 0


# Forms ---------------------------------------------------------------------------------------------------------------

FLAGS = r"(?: overflow<[\w, ]+>)?(?: fastmath<[\w, ]+>)?"
ROUNDING = r"(?: (?:to_nearest_even|downward|upward|toward_zero|to_nearest_away))?"
ATTRIBUTE_VALUE = (
    rf"(?:{STRING}|-?[\w.+\-]+|#tt\.cache_policy<[\w =,]*>|dense<[\w.\-, \[\]]*>|array<i\d+(?:: ?-?\d+(?:, ?-?\d+)*)?>)"
)
ATTRIBUTE = re.compile(rf"([\w.]+)(?: = ({ATTRIBUTE_VALUE})(?: : {TYPE})?)?(?:, |$)", re.ASCII)
LISTED = rf"(?:{VALUE}(?:, {VALUE})*)?"
TYPES = rf"(?:{TYPE}(?:, {TYPE})*)?"
TARGET = rf"{LABEL}(?:\({VALUE}(?:, {VALUE})* : {TYPES}\))?"
MEMORY = r"(?: cacheModifier = \w+)?(?: evictionPolicy = \w+)?"

FORMS = {
    name: re.compile(form + r"\Z", re.ASCII)
    for name, form in {
        "constant": rf"(?: (?:dense<[^<>\s]*>|-?[\w.+\-]+))(?: : {TYPE})?",
        "none": rf" : {TYPE}",
        "axis": rf" [xyz]{ATTRIBUTES} : {TYPE}",
        "range": rf" \{{end = \d{{1,10}} : i32, start = \d{{1,10}} : i32(?:, [^{{}}]*)?\}} : {TYPE}",
        "same": rf" {VALUE}(?:, {VALUE})*{FLAGS}{ATTRIBUTES} : {TYPE}",
        "compare": rf" \w+, {VALUE}, {VALUE}{FLAGS}{ATTRIBUTES} : {TYPE}",
        "select": rf" {VALUE}, {VALUE}, {VALUE}{ATTRIBUTES} : {TYPE}(?:, {TYPE})?",
        "cast": rf" {VALUE}(?:, rounding = \w+)?{ROUNDING}{FLAGS}{ATTRIBUTES} : {TYPE} (?:to|->) {TYPE}",
        "change": rf" {VALUE}(?:, {VALUE})*(?: allow_reorder)?(?: efficient_layout)?{ATTRIBUTES} : {TYPE} -> {TYPE}",
        "clamp": rf" {VALUE}, {VALUE}, {VALUE}, propagateNan = \w+{ATTRIBUTES} : {TYPE}",
        "pointer": rf" {VALUE}, {VALUE}{ATTRIBUTES} : {TYPE}, {TYPE}",
        "memory": rf" {VALUE}(?:, {VALUE})*{MEMORY}{ATTRIBUTES} : {TYPE}",
        "atomic": rf" (?:\w+, )+{VALUE}(?:, {VALUE})+{ATTRIBUTES} : \({TYPES}\) -> {TYPE}",
        "atomic load": rf" \w+, \w+, {VALUE}(?:, {VALUE})*{ATTRIBUTES} : \({TYPES}\) -> {TYPE}",
        "atomic store": rf" \w+, \w+, {VALUE}, {VALUE}(?:, {VALUE})?{ATTRIBUTES} : {TYPE}",
        "dot": rf" {VALUE}, {VALUE}, {VALUE}(?:, inputPrecision = \w+)?{ATTRIBUTES} : {TYPE} \* {TYPE} -> {TYPE}",
        "extern": rf" {VALUE}(?:, {VALUE})*{ATTRIBUTES} : \({TYPES}\) -> {TYPE}",
        "scaled": rf" {VALUE}(?: scale {VALUE})?, {VALUE}(?: scale {VALUE})?, {VALUE} lhs = \w+ rhs = \w+{ATTRIBUTES}"
                  rf" : {TYPE}(?:, {TYPE})? \* {TYPE}(?:, {TYPE})? -> {TYPE}",
        "gather": rf" {VALUE}\[{VALUE}\]{ATTRIBUTES} : \({TYPE}, {TYPE}\) -> {TYPE}",
        "print": rf" {STRING}{ATTRIBUTES}(?: : {LISTED} : {TYPES})?",
        "assert": rf" {VALUE}, {STRING}{ATTRIBUTES} : {TYPE}",
        "assume": rf" {VALUE}{ATTRIBUTES} : i1",
        "barrier": rf"(?: \w+)*{ATTRIBUTES}",
        "leave": rf"(?: {VALUE}(?:, {VALUE})* : {TYPES})?",
        "condition": rf"\({VALUE}\)(?: {VALUE}(?:, {VALUE})* : {TYPES})?",
        "branch": rf" {TARGET}",
        "branches": rf" {VALUE}, {TARGET}, {TARGET}",
        "call": rf" {SYMBOL}\({LISTED}\){ATTRIBUTES} : \({TYPES}\) -> (?:\({TYPES}\)|{TYPE})",
        "descriptor": rf" {VALUE}, \[{LISTED}\], \[{LISTED}\]{ATTRIBUTES} : {TYPES}",
        "described load": rf" {VALUE}\[{LISTED}\]{MEMORY}{ATTRIBUTES} : {TYPE} -> {TYPE}",
        "described store": rf" {VALUE}\[{LISTED}\], {VALUE}{ATTRIBUTES} : {TYPE}, {TYPE}",
        "described reduce": rf" \w+, {VALUE}\[{LISTED}\], {VALUE}{ATTRIBUTES} : {TYPE}, {TYPE}",
        "described gather": rf" {VALUE}\[{VALUE}, {VALUE}\]{ATTRIBUTES} : \({TYPES}\) -> {TYPE}",
        "described scatter": rf" {VALUE}\[{VALUE}, {VALUE}\], {VALUE}{ATTRIBUTES} : {TYPES}",
        # with regions: the line up to `{`
        "for": rf"(?: unsigned)? {VALUE} = {VALUE} to {VALUE} step {VALUE}"
               rf"(?: iter_args\({VALUE} = {VALUE}(?:, {VALUE} = {VALUE})*\) -> \({TYPES}\))?(?:  ?: {TYPE})?",
        "if": rf" {VALUE}(?: -> \({TYPES}\))?",
        "while": rf"(?: \({VALUE} = {VALUE}(?:, {VALUE} = {VALUE})*\))? : \({TYPES}\) -> (?:\({TYPES}\)|{TYPE})",
        "reduce": rf"\({LISTED}\) <\{{axis = \d : i32(?:, reverse = (?:true|false))?\}}> \(",
        "elementwise": rf"\({LISTED}\) <\{{pack = \d{{1,4}} : i32\}}> \(",
    }.items()
}  # fmt: skip

STATEMENT = re.compile(
    r"(?:(?P<results>%[\w.$\-]+(?::\d{1,4})?(?:, %[\w.$\-]+)*) = )?"
    r"(?P<name>[a-z]\w*\.[\w.]+|\"[a-z]\w*\.[\w.]+\")(?P<rest>.*)",
    re.ASCII,
)
VALUES = re.compile(VALUE, re.ASCII)
TYPE_LIST = re.compile(TYPE, re.ASCII)
LOCATION = re.compile(r" loc\((#loc\d*|unknown)\)\Z", re.ASCII)
INNER_LOCATION = re.compile(r" loc\((?:[^()\"]|\"[^\"]*\"|\((?:[^()\"]|\"[^\"]*\")*\))*\)", re.ASCII)
OPENING = re.compile(
    rf"tt\.func (?:public |private )?(?P<name>{SYMBOL})\((?P<arguments>.*?)\)(?: -> (?P<returns>\({TYPES}\)|{TYPE}))?"
    r"(?: attributes \{noinline = (?:true|false)\})? \{",
    re.ASCII,
)
ARGUMENT = re.compile(rf"(%[\w.$\-]+): ({TYPE})(?: \{{[^{{}}]*\}})?(?:, |\Z)", re.ASCII)
BLOCK = re.compile(rf"(?P<label>{LABEL})(?:\((?P<arguments>.*)\))?:(?:  // .*)?", re.ASCII)
BARE_SYMBOL = re.compile(SYMBOL, re.ASCII)
ATTRIBUTES_THERE = re.compile(r"\{([^{}]*)\}", re.ASCII)
STRINGS = re.compile(STRING, re.ASCII)
REGIONS = {"for": 1, "if": 2, "while": 2, "reduce": 1, "elementwise": 1}  # the most that an operation has, by form


def parse(text: str, forms: dict[str, str]) -> Module:
    """The Module of this text; raises NotIR. forms: {name of an operation: a key of FORMS}."""
    if len(text) > LARGEST:
        raise NotIR(f"the kernel's IR has {len(text):,} characters; the machine takes {LARGEST:,}: unroll less")
    parser = Parser(text, forms)
    functions: dict[str, Function] = {}
    while (line := parser.peek()) is not None:
        if line in ("module {", "}"):
            parser.next()
            continue
        function = parser.function()
        if function.name in functions:
            raise NotIR(f"two functions of the name {function.name}")
        functions[function.name] = function
    return Module(functions, parser.locations)


class Parser:
    """Goes through the lines, each without its location."""

    def __init__(self, text: str, forms: dict[str, str]) -> None:
        self.forms, self.at, self.depth = forms, 0, 0
        self.lines: list[str] = []
        self.where: list[str] = []
        self.numbers: list[int] = []
        self.locations: dict[str, str] = {}
        for number, line in enumerate(text.split("\n")):
            line = line.strip()
            if line.startswith("#loop"):  # hints to LLVM, named by loops
                continue
            if line.startswith("#loc"):
                name, _, place = line.partition(" = ")
                self.locations[name] = place
                continue
            line, place = line.replace(', "constant">', ">"), ""  # a pointer that is only read through
            if matched := LOCATION.search(line):
                line, place = line[: matched.start()], matched[1]
            if line.startswith(("tt.func ", "^")):
                line = INNER_LOCATION.sub("", line)
            if line:
                self.lines.append(line)
                self.where.append(place)
                self.numbers.append(number)

    def peek(self) -> str | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def next(self) -> str:
        if self.at >= len(self.lines):
            raise NotIR("the text ends inside a region")
        self.at += 1
        return self.lines[self.at - 1]

    def function(self) -> Function:
        line = self.next()
        matched = OPENING.fullmatch(line)
        if not matched:
            raise NotIR(f"no function of Triton's: `{line[:80]}`")
        names, types = split_arguments(matched["arguments"])
        returns = tuple(map(parse_type, TYPE_LIST.findall((matched["returns"] or "").strip("()"))))
        body = self.region()
        if self.next() != "}":
            raise NotIR("a function that does not end")
        return Function(matched["name"].lstrip("@").strip('"'), names, types, returns, body, line)

    def region(self) -> Region:
        """The blocks up to the line that begins with `}`, which stays."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise NotIR(f"more than {DEEPEST} loops and conditions in each other")
        blocks = [Block("", (), (), [])]
        while not (line := self.peek() or "").startswith("}"):
            if not line:
                raise NotIR("the text ends inside a region")
            if line.startswith("^"):
                self.next()
                matched = BLOCK.fullmatch(line)
                if not matched:
                    raise NotIR(f"no block: `{line[:80]}`")
                names, types = split_arguments(matched["arguments"] or "")
                block = Block(matched["label"], names, types, [])
                if not blocks[0].label and not blocks[0].operations and len(blocks) == 1:
                    blocks = [block]
                else:
                    blocks.append(block)
            elif line.startswith("//"):
                self.next()
            else:
                blocks[-1].operations.append(self.operation())
        self.depth -= 1
        if len({block.label for block in blocks}) < len(blocks):
            raise NotIR("two blocks of one label")
        return Region(blocks)

    def operation(self) -> Operation:
        place = self.where[self.at]
        try:
            return self.statement(self.numbers[self.at], place)
        except Refused as refused:
            raise at_place(refused, place, self.locations) from None

    def statement(self, number: int, place: str) -> Operation:
        line = self.next()
        name, results, rest = read_line(line)
        form = self.forms.get(name)
        if form is None:
            raise Refused(f"the machine has no operation `{name}`: {REFUSED_BY_NAME.get(name, LIMIT)}")
        regions = REGIONS.get(form, 0)
        if regions:
            if not rest.endswith("{"):
                raise NotIR(f"an operation without its region: `{line[:80]}`")
            rest = rest[:-1].rstrip(" ") if form not in ("reduce", "elementwise") else rest[:-1]
        if not (known := pieces(rest, form)):
            raise NotIR(f"`{name}` in a form that the machine does not know: `{line[:120]}`")
        made = Operation(name, results, *known, rest, number, place)
        for i in range(regions):
            made.regions.append(self.region())
            line = self.next()
            made.closing.append(line)
            if line not in CLOSING_AGAIN.get(form, ()):
                self.close(made, form, line)
                break
            need(i + 1 < regions, made)
        need(form != "while" or len(made.regions) == regions, made)
        return made

    def close(self, made: Operation, form: str, line: str) -> None:
        """The last line of an operation with regions; a reduction has its types there. Its place stands there too."""
        made.where = made.where or self.where[self.at - 1]
        if form in ("reduce", "elementwise"):
            matched = CLOSING_TYPES.fullmatch(line)
            if not matched:
                raise NotIR(f"no end of a reduction: `{line[:80]}`")
            made.types = tuple(parse_type(text) for text in TYPE_LIST.findall(line[1:].replace("->", ",")))
        elif not CLOSING.fullmatch(line):
            raise NotIR(f"no end of a region: `{line[:80]}`")


CLOSING = re.compile(r"\}(?: attributes)?" + ATTRIBUTES, re.ASCII)
CLOSING_TYPES = re.compile(rf"\}}\) : \({TYPES}\) -> (?:\({TYPES}\)|{TYPE})", re.ASCII)
CLOSING_AGAIN = {"if": ("} else {",), "while": ("} do {",)}
LIMIT = "this is a limit of the grader, and no fault of the kernel's"
REFUSED_BY_NAME = {
    "tt.elementwise_inline_asm": "inline assembly means nothing without the GPU that it is for",
}  # fmt: skip


def split_arguments(text: str) -> tuple[tuple[str, ...], tuple[Type, ...]]:
    """(names, types) of `%a: T, %b: U`; attributes of an argument are hints, which change no value."""
    found, at = [], 0
    while at < len(text):
        matched = ARGUMENT.match(text, at)
        if not matched:
            raise NotIR(f"no list of arguments: `{text[:80]}`")
        found.append((matched[1], parse_type(matched[2])))
        at = matched.end()
    return tuple(name for name, _ in found), tuple(kind for _, kind in found)


def result_names(text: str | None) -> tuple[str, ...]:
    """`%a:2` gives %a#0 and %a#1."""
    names: list[str] = []
    for each in (text or "").split(", ") if text else ():
        name, _, count = each.partition(":")
        if count and not 0 < int(count) <= 1000:
            raise NotIR(f"{count} results of one operation")
        names += [f"{name}#{i}" for i in range(int(count))] if count else [name]
    return tuple(names)


# The texts of a problem's cases have most lines in common: each is taken apart once.
@functools.lru_cache(maxsize=1 << 15)
def read_line(line: str) -> tuple[str, tuple[str, ...], str]:
    """(name, results, what stands behind the name) of an operation."""
    matched = STATEMENT.fullmatch(line)
    if not matched:
        raise NotIR(f"no operation: `{line[:80]}`")
    return matched["name"].strip('"'), result_names(matched["results"]), matched["rest"]


@functools.lru_cache(maxsize=1 << 15)
def pieces(rest: str, form: str) -> tuple[tuple[str, ...], tuple[Type, ...], dict[str, str]] | None:
    """(operands, types, attributes) of what stands behind an operation's name; None where that has another form."""
    if not FORMS[form].fullmatch(rest):
        return None
    strings = STRINGS.findall(rest) if form in ("print", "assert") else []
    bare = STRINGS.sub('""', rest) if strings else rest
    attributes: dict[str, str] = {}
    if "{" in bare and (found := ATTRIBUTES_THERE.search(bare)):
        attributes = parse_attributes(found[1])
        bare = bare[: found.start()] + bare[found.end() :]
    if strings:
        attributes["text"] = strings[0]
    operands = tuple(VALUES.findall(bare))
    if form == "call":
        bare = BARE_SYMBOL.sub("", bare)
    if form in ("for", "if"):
        types = bare.partition(" -> ")[2] or bare.partition(" : ")[2]
    elif form in ("branch", "branches"):
        types = " ".join(re.findall(rf" : ({TYPES})\)", bare))
    else:
        types = bare.partition(" : ")[2]
    if form == "descriptor":  # written short: <f16>, <tensor<64x64xf16>>
        types = "!tt.ptr" + types.replace(", <", ", !tt.tensordesc<")
    types = VALUES.sub("", types).replace("->", ",").replace(" to ", ", ")
    return operands, tuple(map(parse_type, TYPE_LIST.findall(types))), attributes


def parse_attributes(text: str) -> dict[str, str]:
    """{name: value as text, "" where there is none}."""
    found, at = {}, 0
    while at < len(text):
        matched = ATTRIBUTE.match(text, at)
        if not matched:
            raise NotIR(f"attributes that the machine does not know: `{text[:80]}`")
        if matched[1] in found:
            raise NotIR(f"an attribute that is there twice: `{text[:80]}`")
        found[matched[1]] = matched[2] or ""
        at = matched.end()
    return found


def print_module(
    module: Module, entry: str = "", attributes: Mapping[str, str] | None = None,
    place: Callable[[Operation], str] = lambda operation: "",
) -> str:  # fmt: skip
    """The text that was parsed, and nothing else. attributes: {argument of `entry`: what stands behind its type}.

    place(operation): its location as text.
    """

    def lines_of(region: Region, indent: str) -> Iterator[str]:
        for block in region.blocks:
            if block.label:
                given = ", ".join(f"{n}: {t.text}" for n, t in zip(block.arguments, block.types, strict=True))
                yield f"{indent[:-2]}{block.label}{f'({given})' if given else ''}:"
            for operation in block.operations:
                yield from lines(operation, indent)

    def lines(operation: Operation, indent: str) -> Iterator[str]:
        made = f"{', '.join(results_of(operation.results))} = " if operation.results else ""
        quoted = f'"{operation.name}"' if operation.body.endswith("> (") else operation.name
        opens = "" if not operation.regions else "{" if operation.body.endswith("(") else " {"
        at = place(operation)
        yield f"{indent}{made}{quoted}{operation.body}{opens or at}"
        for number, (region, closing) in enumerate(zip(operation.regions, operation.closing, strict=True), 1):
            yield from lines_of(region, indent + "  ")
            yield indent + closing + (at if number == len(operation.regions) else "")

    text = ["module {"]
    for function in module.functions.values():
        opening = function.opening
        for name, kind in zip(function.arguments, function.types, strict=True) if function.name == entry else ():
            if attributes and name in attributes:
                opening = opening.replace(f"{name}: {kind.text}", f"{name}: {kind.text} {attributes[name]}", 1)
        text += [f"  {opening}", *lines_of(function.body, "    "), "  }"]
    return "\n".join([*text, "}"]) + "\n"


def results_of(names: tuple[str, ...]) -> list[str]:
    """`%a#0` and `%a#1` are written `%a:2`."""
    counts: dict[str, int] = {}
    for name in names:
        base = name.partition("#")[0]
        counts[base] = counts.get(base, 0) + 1
    return [f"{base}:{count}" if f"{base}#0" in names else base for base, count in counts.items()]


def operations_in(region: Region) -> Iterator[Operation]:
    """All of them, those of inner regions included."""
    for block in region.blocks:
        for operation in block.operations:
            yield operation
            for inner in operation.regions:
                yield from operations_in(inner)
