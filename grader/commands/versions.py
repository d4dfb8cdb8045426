"""The versions of torch and triton that the grader was tried with; any other is said to be untried."""

from importlib.metadata import PackageNotFoundError, version

# The oldest and the newest. `make test-matrix` tries each triton with torch 2.13; the solutions were also graded with
# torch 2.11 (triton 3.6) and 2.15 (triton 3.9).
TRIED = {"torch": ((2, 11), (2, 15)), "triton": ((3, 6), (3, 9))}


def find(name):
    """The version of an installed package, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def warning():
    """One line where something is untried, or None."""
    words = []
    for name, ((a, b), (c, d)) in TRIED.items():
        if (found := find(name)) and not (a, b) <= tuple(int(part) for part in found.split(".")[:2]) <= (c, d):
            words.append(f"{name} {found} is untried (tried: {a}.{b} to {c}.{d})")
    return f"{' and '.join(words)}: a verdict may be wrong or missing" if words else None
