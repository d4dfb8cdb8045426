"""Whose work is it? What a program does outside of its kernels, against what a wrapper needs to prepare and to merge.

The bounds separated honest programs from attention by PyTorch: over 311 honest files at most 8 multiply-adds, 9
elements of arithmetic and 10 moved for each element of q, over attention in disguise at least 129 and 50.
"""

LONG = 16  # N / D from which the bounds hold: attention costs N multiply-adds for each element of q, a merge does not
BOUNDS = {"products": 16, "arithmetic": 20, "moved": 32}  # for each element of q
SHORT = 32  # keys from which attention by PyTorch is told from a merge by what grows with N
WHAT = {"products": "multiply-adds", "arithmetic": "elements of arithmetic", "moved": "elements moved"}


def excess_volume(problem, case, volume):
    """Work of PyTorch beyond what the preparation and the merging of partial results take, on a long row."""
    q, found = case.B * case.Hq * case.N * case.D, []
    if volume["together"]:
        name, line = volume["together"]
        at = f" ({problem.module}:{line})" if line else ""
        found.append(f"PyTorch's {name} puts two of q, k and v together{at}, which is the kernel's work.")
    for kind, bound in bounds(case).items():
        if volume[kind] > bound * q:
            line = volume["lines"][kind]
            at = f", most of them at {problem.module}:{line}" if line else ""
            found.append(
                f"Outside of kernels PyTorch does {volume[kind]} {WHAT[kind]}{at}: {volume[kind] / q:.0f} for each "
                f"element of q, where preparing and merging take at most {bound}. Attention is the kernel's work."
            )
    return found


def bounds(case):
    """What is too much for each element of q. On a short row attention costs N multiply-adds, half of them causal."""
    if case.num_keys >= LONG * case.D:
        return BOUNDS
    if case.num_keys < SHORT:
        return {}
    return {kind: max(BOUNDS[kind], case.num_keys // 2) for kind in ("products", "arithmetic")}
