"""Beside the submission: its module loaded, and its entry point found."""

import importlib.util
import inspect
import os
import sys


class BadModule(Exception):
    """The module has no entry point of the right form; the text is a sentence for the student."""


def load(path, entry_point, tensors, arguments):
    """The entry point of the module at `path`; BadModule where it is missing or cannot be called as it will be."""
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    function = getattr(module, entry_point, None)
    if not callable(function):
        raise BadModule(f"{os.path.basename(path)} has no function named {entry_point}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function
    try:
        signature.bind(*tensors, **dict.fromkeys(arguments))
    except TypeError as error:
        call = ", ".join([*tensors, *(f"{argument}=..." for argument in arguments)])
        raise BadModule(f"{entry_point}{signature} cannot be called as {entry_point}({call}): {error}") from None
    return function
