"""From the text of Triton's IR to data. Every line is matched whole, or the text is refused."""

import functools
import re
from typing import Any, NamedTuple

from grader.core.machine.text import (
    Block,
    Function,
    Module,
    NotIR,
    Operation,
    Region,
    Types,
    at_place,
    need,
    parse_type,
)
from grader.core.protocol.program import Refused

LARGEST = 4 << 20  # characters of a text
DEEPEST = 64  # regions in regions

VALUE = r"%[\w.$\-]+(?:#\d+)?"
TYPE = r"[\w!.<>]+"
ATTRIBUTES = r"(?: \{[^{}]*\})?"
STRING = r'"(?:[^"\\]|\\.)*"'
LABEL = r"\^\w+"
SYMBOL = rf"@(?:[\w.$\-]+|{STRING})"
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
        self.locations: dict[str, str] = {}
        for line in text.split("\n"):
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
        return Function(bare_name(matched["name"]), names, types, returns, body, line)

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
            return self.statement(place)
        except Refused as refused:
            raise at_place(refused, place, self.locations) from None

    def statement(self, place: str) -> Operation:
        line = self.next()
        written, results, rest = read_line(line)
        name = written.strip('"')
        form = self.forms.get(name)
        if form is None:
            raise Refused(f"the machine has no operation `{name}`: {REFUSED_BY_NAME.get(name, LIMIT)}")
        regions, quoted = REGIONS.get(form, 0), form in ("reduce", "elementwise")
        if regions:
            if not rest.endswith("{"):
                raise NotIR(f"an operation without its region: `{line[:80]}`")
            rest = rest[:-1] if quoted else rest[:-1].rstrip(" ")
        known = pieces(rest, form)
        if not known or quoted == (name == written):
            raise NotIR(f"`{name}` in a form that the machine does not know: `{line[:120]}`")
        operands, types, attributes, prepared, given = known
        made = Operation(name, results, operands, types, attributes, rest, line, place, prepared)
        for i in range(regions):
            made.regions.append(self.region())
            line = self.next()
            made.closing.append(line)
            if line not in CLOSING_AGAIN.get(form, ()):
                self.close(made, form, line)
                break
            need(i + 1 < regions, made)
        need(form != "while" or len(made.regions) == regions, made)
        if form in ("for", "if", "while"):
            entry, kinds = made.regions[0].entry, types[: len(given)]
            need(not entry.label and len(kinds) == len(given), made)
            entry.arguments, entry.types = given, (*kinds[-1:], *kinds[:-1]) if form == "for" else kinds
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


def split_arguments(text: str) -> tuple[tuple[str, ...], Types]:
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
    return matched["name"], result_names(matched["results"]), matched["rest"]


class Pieces(NamedTuple):
    """What stands behind an operation's name. given: names of what its first block is given."""

    operands: tuple[str, ...]
    types: Types
    attributes: dict[str, str]
    prepared: Any = None
    given: tuple[str, ...] = ()


@functools.lru_cache(maxsize=1 << 15)
def pieces(rest: str, form: str) -> Pieces | None:
    """None where it has another form than this."""
    if not FORMS[form].fullmatch(rest):
        return None
    bare, attributes, prepared = rest, dict[str, str](), None  # type: tuple[str, dict[str, str], Any]
    if form in ("print", "assert"):
        attributes["text"] = STRINGS.findall(rest)[0]
        bare = STRINGS.sub('""', rest)
    elif form == "call":
        prepared = bare_name(BARE_SYMBOL.findall(rest)[0])
        bare = BARE_SYMBOL.sub("", rest, count=1)
    if "{" in bare and (found := ATTRIBUTES_THERE.search(bare)):
        attributes |= parse_attributes(found[1])
        bare = bare[: found.start()] + bare[found.end() :]
    names = VALUES.findall(bare)
    if form in ("for", "if"):
        text = bare.partition(" -> ")[2] or bare.partition(" : ")[2]
    elif form in ("branch", "branches"):
        text = " ".join(re.findall(rf" : ({TYPES})\)", bare))
        prepared = find_targets(bare, 0 if form == "branch" else 1)
    else:
        text = bare.partition(" : ")[2]
    if form == "descriptor":  # written short: <f16>, <tensor<64x64xf16>>
        text = "!tt.ptr" + text.replace(", <", ", !tt.tensordesc<")
    text = VALUES.sub("", text).replace("->", ",").replace(" to ", ", ")
    types = tuple(map(parse_type, TYPE_LIST.findall(text)))
    if form == "for":
        index, low, high, step, *pairs = names
        return Pieces((low, high, step, *pairs[1::2]), types, attributes, None, (index, *pairs[::2]))
    if form == "while":
        return Pieces(tuple(names[1::2]), types, attributes, None, tuple(names[::2]))
    return Pieces(tuple(names), types, attributes, prepared)


def find_targets(text: str, start: int) -> list[tuple[str, slice]]:
    """[(label, which operands its block is given)] of a jump. start: the first of them."""
    found = []
    for label, names in re.findall(r"(\^\w+)(?:\(([^:]*) : [^)]*\))?", text):
        end = start + len(VALUES.findall(names))
        found.append((label, slice(start, end)))
        start = end
    return found


def bare_name(symbol: str) -> str:
    return symbol.lstrip("@").strip('"')


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
