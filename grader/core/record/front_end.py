"""Beside the submission: a kernel as Triton's IR (TTIR), which Triton's own front end makes without a GPU.

Method: what triton.compile does first. The IR does not say which integers 16 divides: that changes no value.
"""

import ast
import contextlib
import io
import os
import re
import threading
import traceback
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from triton import language
from triton._C.libtriton import ir, passes
from triton.compiler.code_generator import CodeGenerator
from triton.compiler.errors import CompilationError
from triton.runtime.jit import JITCallable

from grader.core.protocol.program import IR, Kernel
from grader.core.record.record import CannotRecord
from grader.core.worker import refusals, replies

FOLDERS = re.compile(r'loc\("[^"]*/([^"/]*)":')
MOST_SAID = 2000  # characters of an exception
LATER = {"num_stages", "num_ctas", "maxnreg"}  # options that only later stages of the compiler read
parse = lru_cache(maxsize=1000)(ast.parse)  # the front end visits a tree many times, and leaves it as it is


class FrontEnd:
    """Makes the IR of each specialisation once, in one context. kernels: the list of a recorder, which it extends."""

    def __init__(self, kernels: list[Kernel]) -> None:
        self.kernels, self.context = kernels, None
        self.numbers, self.texts = dict[str, tuple[int, Any]](), dict[Kernel, int]()
        self.lock = threading.RLock()  # a context serves one thread

    def lower(self, function: Any, signature: dict[str, Any], device: Any, constants: Any, options: Any) -> int:
        """The number in `kernels` of a JITFunction's IR, for what Triton asks JITFunction._do_compile to compile."""
        relevant = {name: value for name, value in vars(options).items() if name not in LATER}
        key = repr(
            (identity(function), signature, [(path, identity(each)) for path, each in constants.items()], relevant)
        )
        with self.lock:
            if key not in self.numbers:
                made = self.make(function, signature, device, constants, options)
                number = self.texts.setdefault(made, len(self.kernels))
                self.kernels += [made][: number == len(self.kernels)]
                self.numbers[key] = number, constants  # which stay alive: a key may hold the address of one
            return self.numbers[key][0]

    def make(self, function: Any, signature: dict[str, Any], device: Any, constants: Any, options: Any) -> Kernel:
        _, _, target, backend, _ = function.device_caches[device]
        if self.context is None:
            self.context = ir.context()
            ir.load_dialects(self.context)
            backend.load_dialects(self.context)
        source = function.ASTSource(function, signature, constants, {})
        functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
        with verified():
            module = source.make_ir(target, options, functions, modules, self.context)
        manager = ir.pass_manager(self.context)
        passes.common.add_inliner(manager)
        if hasattr(passes.ttir, "add_rewrite_tensor_pointer"):  # until triton 3.8
            passes.ttir.add_rewrite_tensor_pointer(manager)
        manager.run(module, "grader")
        text, file = FOLDERS.sub(r'loc("\1":', str(module)), os.path.basename(function.fn.__code__.co_filename)
        if len(text) > IR:
            what = f"the kernel {function.__name__} has {len(text)} characters of IR, and at most {IR} are taken"
            raise CannotRecord(f"{what}: unroll less", line_of(function))
        return Kernel(module.get_entry_func_name(), file, line_of(function), text)


@language.core.builtin
def print_values(*values: Any, hex: Any = False, _semantic: Any = None) -> Any:
    """tl.device_print, whose text may be missing."""
    text = getattr(values[0], "value", values[0]) if values else ""
    values = values if isinstance(text, str) and values else ("", *values)
    return language.core.device_print(*values, hex=hex, _semantic=_semantic)


def identity(value: Any) -> Any:
    """What has the same repr where the IR of a kernel that uses the value is the same."""
    if isinstance(value, JITCallable):
        try:
            key = value.cache_key
        except Exception as error:
            forget_keys(error)
            raise
        outside = [(name, identity(used)) for (name, _), (used, _) in value.used_global_vals.items()]
        return value.fn.__code__.co_filename, key, outside
    if isinstance(value, tuple):
        return type(value).__name__, *map(identity, value)
    return value


def forget_keys(error: BaseException) -> None:
    """Have what raised while Triton computed a key raise again: Triton leaves a key that is none."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if isinstance(frame.f_locals.get("self"), JITCallable):
            frame.f_locals["self"].hash = None


def line_of(function: Any) -> int:
    """The line of its `def`."""
    return function.starting_line_number + "".join(function.raw_src).count("\n") - function.src.count("\n")


def arguments_of_ir(name: str, form: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """(name, value) of the arguments of the IR that one of a launch becomes. form: its type in Triton's signature."""
    if isinstance(form, tuple):
        for place, (inner, each) in enumerate(zip(form, value, strict=True)):
            yield from arguments_of_ir(f"{name}.{place}", inner, each)
    elif form != "constexpr":
        yield name, value
        for sizes in ("shape", "strides") if form.startswith("tensordesc") else ():
            yield from ((f"{name}.{sizes}.{axis}", size) for axis, size in enumerate(getattr(value, sizes)))


class DoesNotLower(Exception):
    """What the front end said of a kernel, without the piece of its text that Triton adds. line: in the student's file.

    cause: the exception that Triton made its own of, or its own.
    """

    def __init__(self, text: str, line: int | None, cause: BaseException) -> None:
        super().__init__(text)
        self.line, self.cause = line, cause

    def in_words(self, source: str) -> tuple[str, str]:
        """(the name of an exception, a sentence) for the student. source: the line."""
        text = str(self)[:MOST_SAID]
        words = refusals.in_words(self.cause, source) or (text and refusals.in_plain_words(text))
        return type(self.cause).__name__ if words in text else "DoesNotCompile", words


class DoesNotVerify(RuntimeError):
    """Triton's front end took a kernel, and made IR of it that is none. file, line: where."""

    def __init__(self, text: str, file: str, line: int) -> None:
        super().__init__(text)
        self.file, self.line = file, line


@contextlib.contextmanager
def verified() -> Iterator[None]:
    """Raise DoesNotVerify where Triton's C++ prints what is wrong with the IR, and its Python all of the IR."""
    printed, kept, wrong = io.StringIO(), os.dup(2), None
    with os.fdopen(os.memfd_create("said"), "w+b") as file:
        os.dup2(file.fileno(), 2)
        try:
            with contextlib.redirect_stdout(printed), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of `and` on blocks, of names that Triton will drop
                yield
        except RuntimeError as error:
            said = os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace")
            if wrong := re.search(r"^(.*):(\d+):\d+: error: (.*)$", said, re.MULTILINE):
                raise DoesNotVerify(wrong[3], wrong[1], int(wrong[2])) from error
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            print("" if wrong else printed.getvalue(), end="")


def find_refusal(error: BaseException, module: str) -> DoesNotLower | None:
    """What the front end said, where an exception came of that. module: the student's file, in tracebacks."""
    chain: list[Any] = replies.find_causes(error)
    while isinstance(chain[-1], CompilationError) and chain[-1].__suppress_context__ and chain[-1].__context__:
        chain += replies.find_causes(chain[-1].__context__)  # Triton raises `from None`: it shows the cause as text
    for link in chain:
        if isinstance(link, DoesNotVerify):
            return DoesNotLower(str(link), link.line if link.file == module else None, link)
    lines = [line for link in chain if (line := line_in(link, module))]
    own = [place for place, link in enumerate(chain) if isinstance(link, CompilationError)]
    if not own:
        return DoesNotLower(str(chain[-1]), lines[-1], chain[-1]) if lines else None
    inner = chain[own[-1]]
    caused = inner.__cause__ or (inner.__suppress_context__ and inner.__context__)
    cause = caused or inner
    return DoesNotLower(str(cause if caused else inner.error_message or ""), lines[-1] if lines else None, cause)


def line_in(error: BaseException, module: str) -> int | None:
    """The line of the module at which the front end was when it raised, or None."""
    line, function = None, None
    for frame, at in traceback.walk_tb(error.__traceback__):
        owner, node = frame.f_locals.get("self"), frame.f_locals.get("node")
        function = owner.jit_fn if isinstance(owner, CodeGenerator) else function
        function = owner if isinstance(owner, JITCallable) and frame.f_code.co_name != "run" else function
        if function and frame.f_code.co_filename == module:  # a constexpr function, which Python runs
            line = at
        elif function and node and hasattr(node, "lineno") and function.fn.__code__.co_filename == module:
            line = line_of(function) + node.lineno - 1
    return line
