"""A kv head and its query heads, which can be judged without the others: what is compared of a timed call."""

from dataclasses import replace


def parts(kind, problem, case):
    """Kind.parts: each kv head of each batch as a case; every tensor is (B, H, ...), of query heads or of kv heads."""
    shapes = [*kind.shapes(case), *(shape for _, shape, _ in kind.outputs(problem, case))]
    heads = case.kv_heads
    part = replace(case, B=1, Hq=case.Hq // heads, Hkv=1)
    return [
        (part, [[[b, b + 1], [H * head // heads, H * (head + 1) // heads]] for _, H, *_ in shapes])
        for b in range(case.B)
        for head in range(heads)
    ]
