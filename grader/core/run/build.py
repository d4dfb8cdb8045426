"""In the runner: kernels made of checked text alone, to be interpreted or compiled."""

import ast
import builtins
import collections
import functools
import io
import linecache
import math
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

import triton
import triton.language as tl
from torch.utils._pytree import tree_iter
from triton.runtime import interpreter

from grader.core.protocol.program import (
    Constexpr,
    Function,
    Kernel,
    KernelNumber,
    Module,
    NamedTuple,
    Opaque,
    Program,
    Refused,
    Tuple,
    Use,
    parts,
)
from grader.core.run.kernel_check import GLUON, LANGUAGE, LIBDEVICE, MATH, REWRITTEN_USE, check, is_field
from grader.core.run.replay import make_tuple, plain

KNOWN = {
    name: getattr(builtins, name)
    for name in ("range", "min", "max", "len", "float", "int", "isinstance", "print", "list", "tuple", "hasattr")
}


# And of what a constexpr function may call beside them.
OF_CONSTANTS = {
    name: getattr(builtins, name) for name in ("abs", "sum", "round", "divmod", "all", "any", "bool", "str")
}
GONE = "{} does not exist inside a kernel"


class Missing:
    """The value of a name that no kernel can use: it raises Refused when the kernel calls it or takes an attribute."""

    def __init__(self, sentence: str) -> None:
        self.__dict__["sentence"] = sentence

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise Refused(self.sentence)

    def __getattr__(self, name: str) -> NoReturn:
        raise Refused(self.sentence)

    __getitem__ = __getattr__


def python_names() -> dict[str, Any]:
    """{name: value} of Python's own names inside a kernel."""
    from grader.core.interpret.blocks import INSTEAD

    instead = {name: f": use {word}" for name, word in INSTEAD.items()}
    missing = {
        name: Missing(f"Python's `{name}` does not exist inside a kernel{instead.get(name, '')}")
        for name, value in vars(builtins).items()
        if name[0] != "_" and isinstance(value, types.BuiltinFunctionType | type)
    }  # fmt: skip
    return missing | KNOWN


def fields_of(program: Program) -> frozenset[str]:
    """The names in the NamedTuples that the program hands to kernels, or that kernels make."""
    every = parts([program.setup, program.steps, *(kernel.uses for kernel in program.kernels)])
    tuples = (part for part in every if isinstance(part, Tuple | NamedTuple))
    return frozenset(name for part in tuples for name in part.fields or ())


class Kernels:
    """The kernels of a program, each made once. interpreted: for the interpreter, else for the compiler.

    fields: names in the NamedTuples that launches hand over.
    """

    def __init__(self, kernels: list[Kernel], fields: frozenset[str], interpreted: bool) -> None:
        self.texts, self.fields, self.interpreted, self.python = kernels, fields, interpreted, python_names()
        self.made: dict[int, Any] = {}
        self.trees: dict[int, ast.Module] = {}
        self.codes: dict[int, types.CodeType] = {}

    def check(self) -> None:
        """Check every text, also of those that are never launched; raises Refused."""
        for i, kernel in enumerate(self.texts):
            self.trees[i] = check(kernel, self.fields)
        self.show_lines()

    def show_lines(self) -> None:
        """Let tracebacks find the submission's lines, as far as kernels reach."""
        files: dict[str, dict[int, str]] = {}
        for kernel in self.texts:
            lines = files.setdefault(kernel.file, {})
            for i, text in enumerate(kernel.source.split("\n")):
                lines[kernel.line + i] = text
        for name, lines in files.items():
            known = [lines.get(i + 1, "") + "\n" for i in range(max(lines))]
            linecache.cache[name] = len(known), None, known, name

    def __getitem__(self, number: int) -> Any:
        if number not in self.made:
            self.made[number] = self.make(number)
        return self.made[number]

    def make(self, number: int) -> Any:
        kernel = self.texts[number]
        if self.interpreted and kernel.kind == "gluon":
            raise Refused("Triton's interpreter runs no Gluon: this kernel needs a GPU", kernel.line)
        space = {name: self.outside(used) for name, used in kernel.uses.items()}
        space |= {"__name__": "submission", "__builtins__": self.python, "_grader_tl": tl, "_grader_field": field_of}
        if kernel.kind == "constexpr function":
            return self.constexpr_function(number, space)
        return self.for_interpreter(number, space) if self.interpreted else self.for_compiler(number, space)

    def outside(self, used: Use) -> Any:
        """The value that a name of a kernel's text means."""
        match used:
            case KernelNumber():
                return self[used.number]
            case Module():
                return module_named(used.name)
            case Function():
                return function_named(used.module, used.name)
            case Constexpr():
                return tl.constexpr(self.outside(used.value))
            case Tuple():
                return make_tuple(used, map(self.outside, used.items))
            case NamedTuple():
                return collections.namedtuple("Made", used.fields)
            case Opaque():
                return Missing(f"a kernel can call @triton.jit functions and triton.language, not a Python {used.type}")
        return plain(used)

    def constexpr_function(self, number: int, space: dict[str, Any]) -> Any:
        """What a kernel calls while it is compiled: the checked text as Python, which takes constants alone."""
        kernel = self.texts[number]
        space["__builtins__"] = self.python | OF_CONSTANTS
        exec(compile(ast.fix_missing_locations(Fields().visit(self.trees[number])), kernel.file, "exec"), space)
        function = space[kernel.name]

        @functools.wraps(function)
        def of_constants(*args: Any, **kwargs: Any) -> Any:
            if any(isinstance(value, tl.tensor) for value in tree_iter((args, kwargs))):
                raise Refused(f"{kernel.name} is a constexpr_function, which takes constants and no block", kernel.line)
            return function(*args, **kwargs)

        return triton.constexpr_function(of_constants)

    def for_interpreter(self, number: int, space: dict[str, Any]) -> Any:
        """The checked tree, rewritten as Triton's interpreter rewrites kernels; no text is parsed again."""
        kernel = self.texts[number]
        if number not in self.codes:
            self.codes[number] = self.compile(number)
        space |= {name: vars(interpreter)[name] for name in REWRITTEN_USE if name in vars(interpreter)}
        space |= {name: value for name, value in vars(interpreter).items() if name.startswith("_grader_")}
        exec(self.codes[number], space)
        function = space[kernel.name]
        function.__annotations__ = dict.fromkeys(kernel.constexprs, "tl.constexpr")
        made = interpreter.InterpretedFunction(function)
        made.rewritten_fn[function] = function
        return made

    def compile(self, number: int) -> types.CodeType:
        self.trees[number] = ast.fix_missing_locations(self.rewritten(self.texts[number], self.trees[number]))
        return compile(self.trees[number], self.texts[number].file, "exec")

    @staticmethod
    def rewritten(kernel: Kernel, tree: ast.Module) -> ast.Module:
        """A checked tree as Triton's interpreter rewrites kernels."""
        used = {name: used.name for name, used in kernel.uses.items() if isinstance(used, Function)}
        imported = {name: function for name, function in used.items() if function in LANGUAGE}
        tree = Patched(imported).visit(tree) if imported else tree
        return interpreter.FunctionRewriter.ast_transformer.visit(Fields().visit(tree))

    def for_compiler(self, number: int, space: dict[str, Any]) -> Any:
        """A JITFunction of the checked text: what Triton will parse is compared with the tree that was checked."""
        kernel = self.texts[number]
        checked: Any = self.trees[number].body[0]  # the one function that it is
        name = f"{number}/{kernel.file}"  # each kernel's own: its text begins where it began
        text = "\n" * (kernel.line - 1) + kernel.source
        linecache.cache[name] = len(text), None, io.StringIO(text).readlines(), name
        bare = f"def {kernel.name}({ast.unparse(checked.args)}):\n    pass\n"
        exec(compile("\n" * (kernel.line - 1) + bare, name, "exec"), space)
        function = space[kernel.name]
        function.__annotations__ = dict.fromkeys(kernel.constexprs, "tl.constexpr")
        made = decorator(kernel)(function)
        parsed = made.parse().body[0]
        parsed.decorator_list, parsed.returns = [], None
        for node in ast.walk(parsed):
            if isinstance(node, ast.arg):
                node.annotation = None
        if ast.dump(parsed) != ast.dump(checked):
            raise Refused("a kernel's text is not what Triton reads of it: has it a `def` in a text?", kernel.line)
        return made


def decorator(kernel: Kernel) -> Callable[[Any], Any]:
    if kernel.kind == "gluon":
        from triton.experimental import gluon

        return gluon.jit
    return lambda function: triton.jit(
        function, do_not_specialize=kernel.unspecialized or None, noinline=kernel.noinline or None
    )


class Patched(ast.NodeTransformer):
    """Names bound by `from triton.language import exp2` become attributes of it: the interpreter patches that alone."""

    def __init__(self, imported: dict[str, str]) -> None:
        self.imported = imported

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.imported or not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(
            ast.Attribute(ast.Name("_grader_tl", ast.Load()), self.imported[node.id], ast.Load()), node
        )


class Fields(ast.NodeTransformer):
    """`shape.rows` becomes _grader_field(shape, "rows"): such a name opens a NamedTuple and no other object."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if not is_field(node):
            return node
        return ast.copy_location(
            ast.Call(ast.Name("_grader_field", ast.Load()), [node.value, ast.Constant(node.attr)], []), node
        )


def field_of(value: Any, name: str) -> Any:
    """The field of a NamedTuple; raises AttributeError where the value is none or has no such field."""
    if isinstance(value, tuple) and name in getattr(value, "_fields", ()):
        return value[value._fields.index(name)]  # type: ignore[attr-defined]
    raise AttributeError(f"{type(value).__name__!r} object has no attribute {name!r}")


def module_named(name: str) -> Any:
    if name.endswith("libdevice"):
        from triton.language.extra import libdevice

        return libdevice
    if name.startswith(GLUON) and name in sys.modules:  # kernel_check.check has imported those that a kernel may use
        return sys.modules[name]
    known = {
        "triton": triton, "triton.language": tl, "triton.language.core": tl, "triton.language.math": tl.math,
        "math": math, "triton.language.extra": tl.extra,
    }  # fmt: skip
    return known.get(name) or Missing(f"the module {name} does not exist inside a kernel")


def function_named(module: str, name: str) -> Any:
    """A function of Triton's language that was imported by name."""
    if module.startswith(GLUON) and name[0] != "_":
        found = getattr(module_named(module), name, None)
        return found if getattr(found, "__module__", "").startswith("triton.") else Missing(GONE.format(name))
    if "libdevice" in module and name in LIBDEVICE:
        return getattr(module_named("libdevice"), name)
    for allowed, owner in ((LANGUAGE, tl), (MATH, tl.math)):
        if name in allowed:
            return getattr(owner, name)
    return Missing(GONE.format(name))
