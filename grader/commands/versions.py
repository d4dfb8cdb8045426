"""The versions of torch and triton that the grader was tried with; any other is said to be untried."""

import importlib.metadata

# The oldest and the newest. `make test-matrix` tries each triton with torch 2.13; the solutions were also graded with
# torch 2.11 (triton 3.6) and 2.15 (triton 3.9).
TRIED = {"torch": ((2, 11), (2, 15)), "triton": ((3, 6), (3, 9))}


def find(name):
    """The version of an installed package, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def untried(name):
    """The words for a version that nobody tried, or None: `torch 2.16.0 is untried (tried: 2.11 to 2.15)`."""
    version = find(name)
    if version is None or name not in TRIED:
        return None
    oldest, newest = TRIED[name]
    if oldest <= tuple(int(part) for part in version.split(".")[:2]) <= newest:
        return None
    tried = " to ".join(dict.fromkeys(f"{major}.{minor}" for major, minor in TRIED[name]))
    return f"{name} {version} is untried (tried: {tried})"


def warning():
    """One line where something is untried, or None."""
    found = [words for words in map(untried, TRIED) if words]
    return f"{' and '.join(found)}: a verdict may be wrong or missing" if found else None
