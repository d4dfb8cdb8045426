"""In the runner: is what came a program at all? Every field checked, so that nothing later meets a surprise.

A program: {"version": 1, "storages", "kernels", "setup", "stale", "steps", "returns", "several"}.
- storages: {"kind", "bytes"}. kinds: "input" with "name" (an argument of the call), "old" (an input of a call before,
  or made of one: its numbers are gone), "made" by a step, "constant" with "data" in hexadecimal, "unseen" (no operation
  made it).
- a step: {"op", "overload", "namespace", "args", "kwargs", "out", "line"}, {"launch": a kernel's number, "number",
  "grid", "args", "options", "line", "expressions"}, {"choices": [{"config", "steps"}], "line"}, or {"free": storages
  that are let go of}.
- kernels: {"name", "file", "line", "source", "constexprs", "uses", "gluon", "noinline", "unspecialized"}.
- returns: tensors, or {"type"} of what is none. setup: steps before the call. stale: storages that an earlier call left
  something in.
- a tensor: {"t": [storage, dtype, sizes, strides, offset]}, in elements.
"""

import json

DTYPES = {
    "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "bool", "float8_e4m3fn", "float8_e5m2",
}  # fmt: skip
KINDS = {"input": {"name": str}, "old": {}, "made": {}, "constant": {"data": str}, "unseen": {"line": (int, None)}}
LARGEST = 1 << 45
TEXT = 1 << 17  # characters of a kernel
NAME = 200  # characters of a name: it is shown
DEPTH = 8
RETURNS = 64  # values


class Malformed(Exception):
    """It is no program: nothing of it is run."""


class Refused(Exception):
    """Triton's compiler would not take this; the text says what, line: where in the submission's file."""

    def __init__(self, text, line=None):
        super().__init__(text)
        self.line = line


def read(data):
    """The program in these bytes of JSON; raises Malformed."""
    try:
        program = json.loads(data)
    except (ValueError, RecursionError):
        raise Malformed("it is no JSON") from None
    return checked(program)


def checked(program):
    fields = {
        "version": int, "storages": list, "kernels": list, "setup": list, "stale": list, "steps": list, "returns": list,
        "several": bool,
    }  # fmt: skip
    having(program, fields, "a program")
    need(program["version"] == 1, "another version")
    for storage in program["storages"]:
        check_storage(storage)
    check = Checker(len(program["storages"]), len(program["kernels"]))
    for i, kernel in enumerate(program["kernels"]):
        check.kernel(kernel, i)
    for step in (*program["setup"], *program["steps"]):
        check.step(step, choices=True)
    inputs = {i for i, storage in enumerate(program["storages"]) if storage["kind"] == "input"}
    for step in flat(program["setup"]):
        need(not inputs & {tensor[0] for tensor in tensors_in(step)}, "a step before the call with the call's inputs")
    for number in program["stale"]:
        check.whole(number, check.storages - 1)
    need(len(program["returns"]) <= RETURNS and (program["returns"] or program["several"]), "what is returned")
    for returned in program["returns"]:
        if type(returned) is dict and "t" in returned:
            check.tensor(returned)
        else:
            having(returned, {"type": str}, "what is returned")
    return program


def need(condition, what):
    if not condition:
        raise Malformed(what)


def having(value, fields, what):
    """`value` is an object with exactly these fields of these types."""
    need(type(value) is dict and value.keys() == fields.keys(), f"{what} has other fields")
    for name, kinds in fields.items():
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        kinds = tuple(type(None) if kind is None else kind for kind in kinds)
        need(type(value[name]) in kinds, f"{what} has no {name}")


def check_storage(storage):
    need(type(storage) is dict and storage.get("kind") in list(KINDS), "an unknown kind of storage")
    having(storage, {"kind": str, "bytes": int} | KINDS[storage["kind"]], "a storage")
    need(0 <= storage["bytes"] <= LARGEST, "a storage of an impossible size")
    if "data" in storage:
        try:
            size = len(bytes.fromhex(storage["data"]))
        except ValueError:
            size = -1
        need(size == storage["bytes"], "a constant whose data are not all there")


class Checker:
    """Checks parts of a program that has so many storages and kernels."""

    def __init__(self, storages, kernels):
        self.storages, self.kernels = storages, kernels

    def whole(self, value, most=LARGEST, least=0):
        need(type(value) is int and least <= value <= most, "a number out of its range")

    def line(self, step):
        need(step["line"] is None or (type(step["line"]) is int and 0 <= step["line"] < 1 << 24), "a line")

    def tensor(self, value):
        need(type(value) is dict and value.keys() == {"t"} and type(value["t"]) is list, "a tensor")
        need(len(value["t"]) == 5, "a tensor")
        storage, dtype, sizes, strides, offset = value["t"]
        self.whole(storage, self.storages - 1)
        need(type(dtype) is str and dtype in DTYPES, "an unknown dtype")
        need(type(sizes) is list and type(strides) is list and len(sizes) == len(strides) <= 16, "a shape")
        for number in (*sizes, *strides, offset):
            self.whole(number)

    def value(self, value, depth=0):
        """An argument: a plain value, a list, or an object with one field that says what it is."""
        need(depth < DEPTH, "values too deep")
        if value is None or type(value) in (bool, int):
            need(type(value) is not int or -(1 << 64) < value < 1 << 64, "a number out of its range")
        elif type(value) is str:
            need(len(value) < TEXT, "a text too long")
        elif type(value) is list:
            for inner in value:
                self.value(inner, depth + 1)
        else:
            need(type(value) is dict and len(value) == 1, "a value")
            ((kind, inner),) = value.items()
            self.tagged(kind, inner, depth)

    def tagged(self, kind, inner, depth):
        if kind == "t":
            self.tensor({"t": inner})
        elif kind in ("tuple", "values"):
            need(type(inner) is list, "a tuple")
            self.value(inner, depth + 1)
        elif kind == "f":
            try:
                float.fromhex(inner)
            except (ValueError, TypeError, OverflowError):
                need(False, "a float")
        elif kind in ("dtype", "enum", "triton_dtype", "opaque", "module"):
            need(type(inner) is str and len(inner) < NAME, "a name")
        elif kind == "function":
            need(type(inner) is list and len(inner) == 2 and all(type(i) is str for i in inner), "a function")
        elif kind == "device":
            need(inner == 0 and type(inner) is int, "a device")
        elif kind == "kernel":
            self.whole(inner, self.kernels - 1)
        elif kind in ("constexpr", "value"):
            self.value(inner, depth + 1)
        elif kind in ("descriptor", "gluon_descriptor"):
            need(type(inner) is list and len(inner) == 5 + (kind != "descriptor"), "a descriptor")
            need(type(inner[-1]) is str, "a descriptor")
            if kind == "gluon_descriptor":
                self.layout(inner[4])
            self.tensor(inner[0])
            for numbers in inner[1:4]:
                need(type(numbers) is list and 1 <= len(numbers) <= 5, "a descriptor")
                for number in numbers:
                    self.whole(number, 1 << 40)
        else:
            need(False, "a value of an unknown kind")

    def layout(self, layout):
        """[name, [[field, plain value], ...]] of a shared layout."""
        need(type(layout) is list and len(layout) == 2 and layout[0] == "NVMMASharedLayout", "a layout")
        need(type(layout[1]) is list and len(layout[1]) < 20, "a layout")
        for field in layout[1]:
            need(type(field) is list and len(field) == 2 and type(field[0]) is str, "a layout")
            self.value(field[1])

    def named(self, values):
        need(type(values) is dict and len(values) < 1000, "arguments")
        need(all(len(name) < NAME for name in values), "an argument's name")
        for value in values.values():
            self.value(value)

    def kernel(self, kernel, place):
        fields = {
            "name": str, "file": str, "line": int, "source": str, "constexprs": list, "uses": dict, "gluon": bool,
            "noinline": bool, "unspecialized": list,
        }  # fmt: skip
        having(kernel, fields, "a kernel")
        need(len(kernel["source"]) < TEXT and kernel["name"].isidentifier(), "a kernel's text")
        need(len(kernel["name"]) < NAME, "a kernel's name")
        need(len(kernel["file"]) < NAME and "/" not in kernel["file"] and "\0" not in kernel["file"], "a kernel's file")
        self.whole(kernel["line"], 1 << 20, 1)
        for name in (*kernel["constexprs"], *kernel["unspecialized"]):
            need(type(name) is str and len(name) < NAME, "a parameter")
        self.named(kernel["uses"])
        need(all(type(used) is dict for used in kernel["uses"].values()), "what a kernel uses")
        for used in kernels_in(kernel["uses"]):
            need(used < place, "a kernel that uses a later one")  # so that none calls itself

    def step(self, step, choices=False):
        need(type(step) is dict, "a step")
        if "free" in step:
            having(step, {"free": list}, "what is freed")
            for number in step["free"]:
                self.whole(number, self.storages - 1)
            return
        if "choices" in step and choices:
            having(step, {"choices": list, "line": (int, None)}, "a choice")
            need(1 <= len(step["choices"]) <= 1000, "a choice")
            for choice in step["choices"]:
                having(choice, {"config": str, "steps": list}, "a choice")
                need(len(choice["config"]) < TEXT, "a choice")
                for inner in choice["steps"]:
                    self.step(inner)
                need(any("launch" in inner for inner in choice["steps"]), "a choice without a launch")
        elif "op" in step:
            fields = {
                "op": str, "overload": str, "namespace": str, "args": list, "kwargs": dict, "out": list,
                "line": (int, None),
            }  # fmt: skip
            having(step, fields, "an operation")
            need(all(len(step[name]) < NAME for name in ("op", "overload", "namespace")), "an operation's name")
            self.value(step["args"])
            self.named(step["kwargs"])
            for out in step["out"]:
                need(out is None or type(out) is dict, "an output")
                if out is not None:
                    self.tensor(out)
        else:
            self.launch(step)
        self.line(step)

    def launch(self, step):
        fields = {
            "launch": int, "number": int, "grid": list, "args": dict, "options": dict, "line": (int, None),
            "expressions": dict,
        }  # fmt: skip
        having(step, fields, "a launch")
        self.whole(step["launch"], self.kernels - 1)
        self.whole(step["number"])
        need(len(step["grid"]) == 3, "a grid")
        for size in step["grid"]:
            self.whole(size, 1 << 31)
        self.named(step["args"])
        self.named(step["options"])
        need(len(step["expressions"]) < 1000, "expressions")
        need(all(type(text) is str and len(text) < TEXT for text in step["expressions"].values()), "expressions")


def kernels_in(value):
    """The numbers of the kernels in plain data."""
    if isinstance(value, dict):
        if "kernel" in value and type(value["kernel"]) is int:
            yield value["kernel"]
        for inner in value.values():
            yield from kernels_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from kernels_in(inner)


def tensors_in(value):
    """The tensors in plain data that was checked, as [storage, dtype, sizes, strides, offset]."""
    if isinstance(value, dict):
        if "t" in value and isinstance(value["t"], list):
            yield value["t"]
        else:
            for inner in value.values():
                yield from tensors_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from tensors_in(inner)


def flat(steps):
    """The operations and launches among the steps, of a choice those of all."""
    for step in steps:
        branches = [choice["steps"] for choice in step["choices"]] if "choices" in step else [[step]]
        for inner in (inner for branch in branches for inner in branch):
            if "free" not in inner:
                yield inner


def resolved(program, chosen):
    """The program as it ran: of each choice the branch that was taken. chosen: {place among all steps: branch}."""

    def taken(steps, first):
        branches = (s["choices"][chosen[at]]["steps"] if "choices" in s else [s] for at, s in enumerate(steps, first))
        return [step for branch in branches for step in branch]

    setup = program["setup"]
    return program | {"setup": taken(setup, 0), "steps": taken(program["steps"], len(setup))}
