"""Inside the child: the functions that the interpreter, PyTorch, Triton and the worker itself are made of, unchanged.

A submission has no reason to replace torch.allclose, a clock or a CUDA event. It would gain nothing, since the parent
judges raw bytes; that it tried is for the instructor to see. New names are nobody's business, nor is plain data.
"""

import os
import sys
import types

WATCHED = (
    "builtins", "gc", "inspect", "json", "linecache", "math", "numpy", "os", "socket", "time", "torch", "torch.cuda",
    "torch.nn.functional", "torch.testing", "triton", "triton.runtime.interpreter", "triton.runtime.jit",
    "triton.testing",
)  # fmt: skip
CLASSES = (
    ("torch", "Tensor"), ("torch.cuda", "Event"), ("torch.cuda", "Stream"), ("triton.runtime.jit", "JITFunction"),
    ("triton.runtime.interpreter", "GridExecutor"), ("triton.runtime.interpreter", "InterpreterBuilder"),
    ("triton.runtime.interpreter", "InterpretedFunction"), ("torch._C", "TensorBase"),
)  # fmt: skip
METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, property, staticmethod)
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, type, *METHODS)
HERE = os.path.dirname(os.path.abspath(__file__))


class Integrity:
    """What stood where before the submission was loaded; `changed` names what stands there no more."""

    def __init__(self):
        self.before = []  # (owner's title, where it stands, what would hide it there, its name, itself, its code)
        for title, places in owners():
            seen = set()
            for position, place in enumerate(places):
                for name, value in place.items():
                    if name not in seen and isinstance(value, FUNCTIONS):
                        code = getattr(value, "__code__", None)
                        self.before.append((title, place, places[:position], name, value, code))
                    seen.add(name)

    def changed(self):
        """Their names, sorted: `torch.allclose`."""
        return sorted(
            {
                f"{title}.{name}"
                for title, place, hiding, name, value, code in self.before
                if place.get(name) is not value
                or (code is not None and value.__code__ is not code)
                or (hiding and any(name in other for other in hiding))
            }
        )


def owners():
    """(title, [its own names and values, then those that it inherits]) of each module and class that is watched."""
    ours = {
        name: module for name, module in sys.modules.items()
        if os.path.dirname(getattr(module, "__file__", None) or "") == HERE
    }  # fmt: skip
    for name, module in ({name: sys.modules[name] for name in WATCHED if name in sys.modules} | ours).items():
        yield name, [vars(module)]
    for name, module in ours.items():
        for title, value in vars(module).items():
            if isinstance(value, type) and value.__module__ == name:
                yield f"{name}.{title}", [vars(value)]
    for module, name in CLASSES:
        if found := getattr(sys.modules.get(module), name, None):
            yield f"{module}.{name}", [vars(base) for base in found.__mro__[:-1]]
