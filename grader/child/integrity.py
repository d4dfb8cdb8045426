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
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, type)
HERE = os.path.dirname(os.path.abspath(__file__))


class Integrity:
    """What stood where before the submission was loaded; `changed` names what stands there no more."""

    def __init__(self):
        ours = [
            name for name, module in sys.modules.items()
            if os.path.dirname(getattr(module, "__file__", None) or "") == HERE
        ]  # fmt: skip
        owners = [(name, sys.modules.get(name)) for name in (*WATCHED, *ours)]
        for module, name in CLASSES:
            owners.append((f"{module}.{name}", getattr(sys.modules.get(module), name, None)))
        self.before = [
            (title, vars(owner), name, value, getattr(value, "__code__", None))
            for title, owner in owners
            if owner is not None
            for name, value in vars(owner).items()
            if isinstance(value, FUNCTIONS)
        ]

    def changed(self, missing=object()):
        """Their names, sorted: `torch.allclose`."""
        return sorted(
            {
                f"{title}.{name}"
                for title, there, name, value, code in self.before
                if there.get(name, missing) is not value or getattr(value, "__code__", None) is not code
            }
        )
