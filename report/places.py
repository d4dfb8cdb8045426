"""Where things lie, the modules of `solutions/` and `kernels/`, and the one exception for what cannot be used."""

import importlib.util
import sys
from functools import cache
from pathlib import Path

REPORT = Path(__file__).resolve().parent
ROOT = REPORT.parent
SOLUTIONS, KERNELS = ROOT / "solutions", ROOT / "kernels"
RESULTS = REPORT / "results"
PUBLISHED = RESULTS / "h200"  # what the committed pages and figures are made of


class Refused(Exception):
    """Something that cannot be used, made or measured; the text is one sentence."""


class NotThere(Refused):
    """A solution, or words of one, that the report needs; the text says which."""


def find(module):
    """The path of a file of solutions/ or kernels/; raises NotThere."""
    for folder in (SOLUTIONS, KERNELS):
        if (folder / module).is_file():
            return folder / module
    raise NotThere(f"solutions/{module} is not there")


def source(module):
    """The text of such a file; raises NotThere."""
    return find(module).read_text(encoding="utf-8")


def load_anew(module, name):
    """The module of such a file, loaded by path under that name; raises NotThere."""
    spec = importlib.util.spec_from_file_location(name, find(module))
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded  # dataclasses look their module up
    spec.loader.exec_module(loaded)
    return loaded


@cache
def load(module):
    """The same, loaded once."""
    return load_anew(module, Path(module).stem)
