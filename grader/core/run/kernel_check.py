"""In the runner: is a kernel's text what Triton's compiler takes? Nothing else of a submission runs in this process.

What is allowed is a list: kinds of syntax, names of the language, attributes of its values. Text is compared as a tree,
and that tree is what is executed.
"""

import ast
import functools
import sys
from collections.abc import Iterable
from typing import Any

import triton.language as tl

from grader.core.protocol.program import Kernel, Module, Refused
from grader.core.run.operations import names
from grader.core.worker.refusals import IN_TRITON, INSTEAD, WORDS

SYNTAX = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For,
    ast.While, ast.If, ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.Assert, ast.BoolOp, ast.BinOp, ast.UnaryOp,
    ast.Compare, ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.List,
    ast.Constant, ast.IfExp, ast.JoinedStr, ast.FormattedValue, ast.Starred, ast.ListComp, ast.comprehension,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
NOT_FOR_KERNELS = {
    "core", "math", "extra", "standard", "random", "semantic", "tensor", "inline_asm_elementwise", "map_elementwise",
    "condition", "str_to_ty", "target_info", "builtin", "ir", "inspect", "triton", "TypeVar", "Any", "wraps",
    "List", "T",
}  # fmt: skip
LANGUAGE = {name for name in (*tl.__all__, "cdiv", "squeeze", "unsqueeze", "ravel") if hasattr(tl, name)}
LANGUAGE = LANGUAGE - NOT_FOR_KERNELS | {"tensor", "to_tensor"}
MATH = {name for name in dir(tl.math) if name[0] != "_"} - NOT_FOR_KERNELS
LIBDEVICE = names(
    "exp exp2 exp10 fast_expf fast_exp2f log log2 log10 fast_logf fast_log2f rsqrt sqrt fma pow tanh abs ceil floor "
    "div_rn fast_dividef ffs isnan isinf rint round trunc"
)
MODULES = {
    "triton.language": LANGUAGE, "triton.language.core": LANGUAGE, "triton.language.math": MATH,
    "triton": {"cdiv", "next_power_of_2"}, "math": {"pi", "e", "inf", "log2", "log", "sqrt", "exp", "ceil", "floor"},
    "libdevice": LIBDEVICE, "triton.language.extra": set(), "triton.language.extra.cuda": {"gdc_wait"},
}  # fmt: skip
ATTRIBUTES = {name for name in dir(tl.tensor) if name[0] != "_"} | names(
    "dtype shape type element_ty scalar value values numel primitive_bitwidth load store gather scatter is_floating "
    "is_fp16 is_bf16 is_fp32 is_fp64 is_fp8 is_int is_int32 is_int64 is_ptr is_block block_shape strides itemsize "
    "is_int_unsigned is_int_signed int_bitwidth is_standard_floating"
)
# Attributes of what a kernel can hold: no field of a NamedTuple opens them.
OF_OBJECTS = {
    name for kind in (tl.tensor, tl.constexpr, tl.dtype, str, int, float, tuple) for name in dir(kind)
} | names("handle data fn base values run name src cache")
F_STRING = 'an f-string inside a kernel shows only a tl.constexpr, as {D}: print takes values apart, print("D", D)'
NUMBERS = ("float", "int", "bool", "constexpr")  # the functions that make one
GLUON = "triton.experimental.gluon.language"
# Names of the interpreter's that its rewriting puts into a kernel: the second since triton 3.9, for `a < b < c`.
REWRITTEN_USE = ("interpreter_semantic", "_InterpreterComparison")


def check(kernel: Kernel, fields: Iterable[str] = ()) -> ast.Module:
    """The syntax tree of a kernel's text, decorators and annotations gone; raises Refused.

    fields: of the NamedTuples that the program's launches hand over.
    """
    try:
        tree = ast.parse("\n" * (kernel.line - 1) + kernel.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Refused("a kernel's text is no function", kernel.line) from None
    if kernel.kind == "gluon":
        import triton.experimental.gluon.language.nvidia.hopper  # noqa: F401
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef) or tree.body[0].name != kernel.name:
        raise Refused("a kernel's text is no single function", kernel.line)
    function = tree.body[0]
    function.decorator_list, function.returns = [], None
    for argument in (node for node in ast.walk(function.args) if isinstance(node, ast.arg)):
        argument.annotation = None
    if function.args.vararg or function.args.kwarg or function.args.kwonlyargs or function.args.posonlyargs:
        raise Refused("a kernel's parameters are plain names: no * and no **", function.lineno)
    for default in function.args.defaults:
        if any(isinstance(node, ast.List | ast.ListComp) or is_made(node) for node in ast.walk(default)):
            raise Refused("a default that keeps what a call left in it does not exist inside a kernel", default.lineno)
    Check(kernel, function, fields).all()
    return tree


@functools.cache
def is_allowed(kind: type[ast.AST]) -> bool:
    """True for a kind of node that kernels may have."""
    return issubclass(kind, SYNTAX)


class Check:
    """Walks over one function. fields: of NamedTuples, names that may stand behind a dot."""

    def __init__(self, kernel: Kernel, function: ast.FunctionDef, fields: Iterable[str] = ()) -> None:
        self.kernel, self.function = kernel, function
        self.judged: set[int] = set()
        self.gluon, self.fields = kernel.kind == "gluon", set(fields) - OF_OBJECTS
        self.nodes = list(ast.walk(function))
        self.own = {node.arg for node in self.nodes if isinstance(node, ast.arg)}
        # What an assertion says goes to nobody in the kernel.
        said = [n.msg for n in self.nodes if isinstance(n, ast.Assert) and n.msg]
        self.shown = {inner for text in said for inner in ast.walk(text)}
        stored = (n for n in self.nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))
        self.own |= {node.id for node in stored}

    def all(self) -> None:
        for node in self.nodes:
            line = getattr(node, "lineno", None)
            nested = isinstance(node, ast.FunctionDef) and node is not self.function
            table = isinstance(node, ast.Dict) and self.kernel.kind == "constexpr function"
            if nested or not (is_allowed(type(node)) or table):  # type: ignore[arg-type]
                raise Refused(f"`{WORDS.get(type(node), type(node).__name__)}` does not exist inside a kernel", line)
            if isinstance(node, ast.Attribute) and id(node) not in self.judged:
                self.attribute(node, line)
            if isinstance(node, ast.Name) and id(node) not in self.judged:
                self.name(node, line)
            if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name | ast.Attribute):
                raise Refused("a kernel calls functions by their names", line)
            if isinstance(node, ast.FormattedValue) and not (self.is_constant(node.value) or node in self.shown):
                raise Refused(F_STRING, line)
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "arange":
                self.counts_from_a_constant(node, line)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("print", "hasattr"):
                self.of_python(node, line)
            if isinstance(node, ast.arg | ast.keyword) and node.arg and is_reserved(node.arg):
                raise Refused(f"`{node.arg}` is no name for a kernel", line)

        for node in self.nodes:  # now that attributes are told apart
            if isinstance(node, ast.Call) and (getattr(node.func, "id", None) in self.own or is_field(node.func)):
                called = ast.unparse(node.func)
                raise Refused(f"`{called}` is a value: a kernel calls functions by their own names", node.lineno)

    def is_constant(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id in self.kernel.constexprs)

    def counts_from_a_constant(self, node: ast.Call, line: int | None) -> None:
        """Raise Refused for tl.arange(k_start, ...): the interpreter knows the number of a loop, the compiler not."""
        loops = (each for each in ast.walk(self.function) if isinstance(each, ast.For))
        counted = {each.target.id for each in loops if isinstance(each.target, ast.Name) and is_range(each.iter)}
        if any(isinstance(each, ast.Name) and each.id in counted for each in ast.walk(node)):
            raise Refused(
                "tl.arange counts between numbers that are known when the kernel is compiled: begin at 0, and add what "
                "the loop counts to the block",
                line,
            )

    def of_python(self, call: Any, line: int | None) -> None:
        """Raise Refused where print or hasattr does what they do in Python alone."""
        if call.func.id == "print" and call.keywords:
            raise Refused("print takes values alone inside a kernel", line)
        names = [getattr(text, "value", None) for text in call.args[1:]]
        if call.func.id == "hasattr" and not (names and {*names} <= ATTRIBUTES | self.fields):
            raise Refused("hasattr asks for an attribute that a kernel's values have, by its name", line)

    def find_module(self, name: str) -> str | None:
        """The module that a name of the text means, or None."""
        used = self.kernel.uses.get(name)
        return used.name if isinstance(used, Module) else None

    def attribute(self, node: ast.Attribute, line: int | None) -> None:
        """`tl.math.exp2`, `O.dtype.element_ty`: modules first, each with a list of its own, then values."""
        chain: list[Any] = [node]
        base = node.value
        while isinstance(base, ast.Attribute):
            chain, base = [base, *chain], base.value
        self.judged |= {id(link) for link in chain}
        module = self.find_module(base.id) if isinstance(base, ast.Name) else None
        if module:
            self.judged.add(id(base))
            chain = self.in_module(module, chain, line)
        for link in chain:
            link.is_field = link.attr in self.fields - ATTRIBUTES
            if link.attr not in ATTRIBUTES | self.fields and not (self.gluon and link.attr[0] != "_"):
                instead = INSTEAD.get(link.attr, "")
                raise Refused(f"`.{link.attr}` is no attribute that a kernel has{instead and ': ' + instead}", line)
            if not isinstance(link.ctx, ast.Load):
                raise Refused(f"a kernel cannot assign to `.{link.attr}`", line)

    def in_module(self, module: str, chain: list[Any], line: int | None) -> list[Any]:
        """What is left of the chain behind the modules."""
        while chain and known_module(f"{module}.{chain[0].attr}"):
            module, chain = f"{module}.{chain[0].attr}", chain[1:]
        name = chain[0].attr if chain else ""
        if module.startswith(GLUON) and self.gluon and name and name[0] != "_":
            return chain[1:]
        short = "libdevice" if module.endswith("libdevice") else module
        if name not in MODULES.get(short, ()):
            instead = IN_TRITON.get(name) or (f"tl.{name} does" if name in LANGUAGE else "")
            raise Refused(f"`{module}.{name}` does not exist inside a kernel{instead and ': ' + instead}", line)
        return chain[1:]

    def name(self, node: ast.Name, line: int | None) -> None:
        if is_reserved(node.id):
            raise Refused(f"`{node.id}` is no name for a kernel", line)
        if self.find_module(node.id):
            raise Refused(f"`{node.id}` is a module: a kernel can use what is in it, not the module", line)


def is_reserved(name: str) -> bool:
    """True for a name of Python's or of the interpreter's own."""
    return name.startswith(("__", "_grader")) or name in REWRITTEN_USE


def is_field(node: ast.AST) -> bool:
    """True for an attribute that no value of the language has: it is one of a NamedTuple's, or there is none."""
    return getattr(node, "is_field", False)


def known_module(name: str) -> bool:
    return name in MODULES or name.endswith(".libdevice") or (name.startswith(GLUON) and name in sys.modules)


def is_made(node: ast.AST) -> bool:
    """True for a call in a default whose value a kernel could change, as list() is; a number cannot be changed."""
    called: Any = node.func if isinstance(node, ast.Call) else None
    return called is not None and (getattr(called, "id", "") or getattr(called, "attr", "")) not in NUMBERS


def is_range(call: ast.AST) -> bool:
    """True for `range(...)` and `tl.range(...)`, which run when the kernel does; tl.static_range is unrolled before."""
    return isinstance(call, ast.Call) and "range" in (getattr(call.func, "id", ""), getattr(call.func, "attr", ""))
