"""In the runner: the plain data of a program as values. Triton is imported only for what is Triton's."""

import torch
from program import Malformed


def triton_dtype(name):
    import triton.language as tl

    found = next((t for t in vars(tl).values() if isinstance(t, tl.dtype) and t.name == name), None)
    if found is None:
        raise Malformed(f"a Triton dtype {name}")
    return found


def plain(value):
    """A value of a program that is no tensor."""
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "constexpr":
        import triton.language as tl

        return tl.constexpr(plain(inner))
    made = {
        "f": lambda: float.fromhex(inner), "tuple": lambda: tuple(plain(i) for i in inner),
        "dtype": lambda: getattr(torch, inner), "enum": lambda: getattr(torch, inner),
        "triton_dtype": lambda: triton_dtype(inner),
        "value": lambda: plain(inner),
    }.get(kind)  # fmt: skip
    if made is None:
        raise Malformed(f"a value of the kind {kind} where it cannot be")
    return made()
