"""What is counted of a kernel's call, by formula (cost.py) or while it runs (traced.py)."""

from dataclasses import dataclass

SIZES = {"float16": 2, "bfloat16": 2, "float32": 4}  # bytes


@dataclass(frozen=True)
class Cost:
    """tiles: of keys that all programs visit; keys: in them, those past the end left out; programs: tiles of queries.

    dot_flops: two for each multiply and add, of whole tiles. exponentials: of p and alpha, elements. loaded, stored:
    bytes, as the programs ask for them: caches answer for most.
    """

    programs: int
    tiles: int
    keys: int
    dot_flops: int
    exponentials: int
    loaded: int
    stored: int
