"""In the runner, interpreted: `and`, `or`, `not`, `if`, `while`, `max` and the like mean what they mean compiled.

The interpreter runs a kernel as Python, where the truth of a block is always True. Compiled, `and`, `or` and `not` work
element by element, a condition must be one value, and some of Python does not exist. Kernels are rewritten so that
these places ask the functions below; what they do was read off kernels that triton 3.7 compiled.
"""

import ast
import builtins
from collections.abc import Callable
from typing import Any, NoReturn

import triton
import triton.language as tl
import triton.runtime.interpreter as interpreter
from triton.compiler.code_generator import CodeGenerator

from grader.core.interpret.patches import add, replace

KNOWN = CodeGenerator.builtin_namespace  # the functions of Python that compiled kernels know
INSTEAD = {"abs": "tl.abs", "sum": "tl.sum", "pow": "tl.exp2 and tl.log2", "bool": "x != 0"}


class DoesNotCompile(Exception):
    """The interpreter would run it and no GPU would: the text is a sentence for the student."""


def enable() -> None:
    ours = {"join": join, "negate": negate, "one_value": one_value, "refuse": refuse, "known": known}
    for name, function in ours.items():  # the interpreter copies its globals into the kernel's module
        add(interpreter, f"_grader_{name}", function)
    replace(interpreter, "_patch_lang_tensor", transpose_by_the_builder)
    replace(interpreter.FunctionRewriter, "ast_transformer", lambda old: rewriter(type(old))())
    from triton.backends.nvidia.compiler import min_dot_size

    smallest = {"min_dot_size": min_dot_size(None)}
    replace(interpreter.interpreter_builder, "codegen_fns", lambda known: known | smallest)


def transpose_by_the_builder(patch: Callable[..., Any]) -> Callable[..., None]:
    """block.T as tl.trans(block), which it is when compiled: a trace of the builder sees it then."""

    def patched(tensor: Any, *scope: Any) -> None:
        patch(tensor, *scope)
        tensor.T = property(lambda block: tl.trans(block))

    return patched


# What stands in the rewritten kernels --------------------------------------------------------------------------------


def is_block(value: Any) -> bool:
    return isinstance(value, tl.tensor) and value.type.is_block() and value.handle.data.size > 1


def describe(block: tl.tensor) -> str:
    return f"{' x '.join(str(size) for size in block.type.shape)} {block.dtype}"


def join(word: str, *parts: Callable[[], Any]) -> Any:
    """`and` or `or`: tensors are all evaluated and joined element by element; what is known when compiled ends it."""
    tensors = []
    for part in parts:
        value = part()
        if isinstance(value, tl.tensor):
            tensors.append(truth(value, word))
        elif bool(value) == (word == "or"):
            return value
    if not tensors:
        return value
    joined = tensors.pop()
    while tensors:
        joined = tensors.pop() & joined if word == "and" else tensors.pop() | joined
    return joined


def truth(value: tl.tensor, word: str) -> tl.tensor:
    """A tensor of int1. A scalar may be of any type: an argument of 1 is a constant when compiled, of 0 it is not."""
    if value.dtype == tl.int1:
        return value
    if is_block(value):
        raise DoesNotCompile(f"`{word}` takes booleans, not a block of {describe(value)}: compare it first.")
    return value != 0


def negate(value: Any) -> Any:
    if not is_block(value):
        return not value
    return ~truth(value, "not")


def one_value(word: str, value: Any) -> Any:
    if is_block(value):
        raise DoesNotCompile(
            f"`{word}` needs one value, not a block of {describe(value)}: choose element by element with tl.where, or "
            "reduce the condition first."
        )
    return value


def refuse(sentence: str) -> NoReturn:
    raise DoesNotCompile(sentence)


def known(function: Any) -> Any:
    """A function that is called by name: Python's own where compiled kernels know it, any other as it is."""
    name = getattr(function, "__name__", "")
    if getattr(builtins, name, None) is not function:
        return function
    if name not in KNOWN:
        instead = f": use {INSTEAD[name]}." if name in INSTEAD else "."
        raise DoesNotCompile(f"Python's `{name}` does not exist inside a kernel{instead}")
    if name == "range":
        return whole_range
    if name not in ("max", "min"):
        return function

    def of_tensors(*values: Any) -> Any:
        if any(isinstance(value, tl.tensor) for value in values):
            return KNOWN[name](*values, _semantic=interpreter.interpreter_semantic)
        return function(*values)

    return of_tensors


def whole_range(*bounds: Any) -> range:
    """range; what the interpreter would round is a float, and compiled it is none."""
    if any(isinstance(bound, tl.tensor) and bound.dtype.is_floating() for bound in bounds):
        raise TypeError("'float' object cannot be interpreted as an integer")
    return range(*bounds)


# Rewriting -----------------------------------------------------------------------------------------------------------


def call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(f"_grader_{name}", ast.Load()), list(arguments), [])


def later(value: ast.expr) -> ast.Lambda:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(nothing, value)


def rewriter(base: Any) -> Any:
    """A transformer of kernels that does what the interpreter's own does, and asks the functions above."""
    chains_compile = hasattr(base, "visit_Compare")  # since triton 3.9, which also visits what is assigned

    class Rewriter(base):
        def visit_Assign(self, node: ast.Assign) -> Any:
            if not chains_compile:
                node.value = self.visit(node.value)
            return super().visit_Assign(node)

        def visit_BoolOp(self, node: ast.BoolOp) -> Any:
            if any(isinstance(inner, ast.NamedExpr) for inner in ast.walk(node)):  # it would bind inside the lambda
                return self.generic_visit(node)
            self.generic_visit(node)
            word = ast.Constant("and" if isinstance(node.op, ast.And) else "or")
            return ast.copy_location(call("join", word, *map(later, node.values)), node)

        def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
            self.generic_visit(node)
            return ast.copy_location(call("negate", node.operand), node) if isinstance(node.op, ast.Not) else node

        def visit_Call(self, node: ast.Call) -> Any:
            self.generic_visit(node)
            if isinstance(node.func, ast.Name) and hasattr(builtins, node.func.id):
                node.func = ast.copy_location(call("known", node.func), node.func)
            return node

        def visit_condition(self, node: ast.If | ast.While | ast.IfExp) -> Any:
            self.generic_visit(node)
            word = ast.Constant("while" if isinstance(node, ast.While) else "if")
            node.test = ast.copy_location(call("one_value", word, node.test), node.test)
            return node

        visit_If = visit_While = visit_IfExp = visit_condition

        def visit_Compare(self, node: ast.Compare) -> Any:
            if len(node.ops) == 1 or chains_compile:
                return super().visit_Compare(node) if chains_compile else self.generic_visit(node)
            sentence = f"A chained comparison does not compile (triton {triton.__version__}): write (a < b) & (b < c)."
            return ast.copy_location(call("refuse", ast.Constant(sentence)), node)

        def visit_leap(self, node: ast.Break | ast.Continue) -> Any:
            word = type(node).__name__.lower()
            if hasattr(CodeGenerator, f"visit_{type(node).__name__}"):
                return self.generic_visit(node)
            sentence = f"`{word}` does not exist inside a kernel: let the loop's bounds decide."
            return ast.copy_location(ast.Expr(call("refuse", ast.Constant(sentence))), node)

        visit_Break = visit_Continue = visit_leap

    return Rewriter
