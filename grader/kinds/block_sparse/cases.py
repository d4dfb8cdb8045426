"""x1, block-sparse attention, as plain data: what is asked of its builders and of its kernel, for no points."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from grader.course.problem import Problem
from grader.kinds.attention import rows
from grader.kinds.attention.case import Case
from grader.kinds.attention.cases import OBSERVER
from grader.kinds.attention.masks import Visibility
from grader.kinds.block_sparse import patterns, tile_map
from grader.kinds.block_sparse.patterns import CAUSAL, EMPTY, FULL, PARTIAL, Blocks, Documents, Interleaved, Maps

NAMES = {"F": "FULL", "C": "CAUSAL", "P": "PARTIAL"}  # of the letters in a picture


@dataclass(frozen=True)
class SparseCase(Case):
    """A question to x1's kernel, which is given the lists of tiles.

    of: the mask, of patterns.py. block: rows and keys of a tile. softmax_scale: None for the default.
    """

    of: object = Visibility()
    block: tuple[int, int] = (32, 32)
    softmax_scale: float | None = None
    one_mask: ClassVar[bool] = False
    tile_letters: ClassVar[bool] = True

    def letters(self, visibility):
        """The kind of each tile of the grid: {"letters": {"block": [rows, keys], "rows": [str], "names"}}."""
        kinds = tile_map.cut(visibility, self.N, self.num_keys, *self.block).kinds
        rows = ["".join(patterns.LETTERS[kind] for kind in row) for row in kinds.tolist()]
        return {"letters": {"block": list(self.block), "rows": rows, "names": NAMES}}

    @property
    def visibility(self):
        return self.of

    def seen_at(self, batch, head):
        return self.of.at(batch, head) if isinstance(self.of, Maps) else self.of

    @property
    def maps(self):
        """(batches, heads) of the masks; 1 where all share one."""
        return (len(self.of.masks), len(self.of.masks[0])) if isinstance(self.of, Maps) else (1, 1)

    @property
    def scale(self):
        return super().scale if self.softmax_scale is None else self.softmax_scale

    @property
    def arguments(self):
        return {} if self.softmax_scale is None else {"softmax_scale": self.softmax_scale}

    def describe(self, seed):
        extra = "" if self.softmax_scale is None else f" softmax_scale={self.softmax_scale}"
        return super().describe(seed).replace(",", f"{extra}, {self.of}, tiles {self.block[0]}x{self.block[1]},", 1)


@dataclass(frozen=True)
class BuilderCase(SparseCase):
    """A question to one of x1's two builders: the lists of a mask, as a predicate or as booleans."""

    builder: str = "tiles_of_predicate"
    attends: ClassVar[bool] = False

    def describe(self, seed):
        sizes = f"B={self.maps[0]} H={self.maps[1]} Nq={self.N} Nk={self.num_keys}"
        return f"{self.builder}, {sizes}, {self.of}, tiles {self.block[0]}x{self.block[1]}"


def ask_for_mask(name, **fixed):
    return BuilderCase(name, builder="tiles_of_mask", **fixed)


EVERY_KIND = Blocks(
    ((CAUSAL, PARTIAL, FULL, EMPTY), (EMPTY, CAUSAL, PARTIAL, FULL), (PARTIAL, FULL, EMPTY, CAUSAL)), 32
)
ROWS_OF_NOTHING = Blocks(((EMPTY,) * 3, (PARTIAL, EMPTY, EMPTY), (FULL, CAUSAL, EMPTY)), 32)
TRIANGLES = Blocks(((EMPTY, FULL, CAUSAL), (CAUSAL, EMPTY, FULL), (FULL, CAUSAL, EMPTY)), 32)
THREE = (FULL, CAUSAL, PARTIAL)
LATE = Documents((40, 56))  # of tiles of 32, rows 40 to 63 see nothing in their first
NEVER = Blocks(((EMPTY, EMPTY), (PARTIAL, FULL)), 48)  # rows 32 to 47 share a tile with others, and see nothing at all
COMPILED = Interleaved((500, 700, 500, 348))
LONG = Interleaved((700, 1300, 1095, 500, 500))
random_blocks, local = patterns.random_blocks, patterns.local
MANY = random_blocks(32, 64, THREE, 1)
TEXT = Interleaved((33, 40, 27))
PAGES = Documents((40, 23, 37))
FOUR_HEADS = (Visibility(True), PAGES, EVERY_KIND, Visibility(True, 20, 3))
BY_HEAD, BY_BATCH = Maps((FOUR_HEADS,)), Maps(((TEXT,), (PAGES,)))
BY_BOTH = Maps((FOUR_HEADS, (TEXT, Visibility(True, 40), ROWS_OF_NOTHING, Documents((64, 32)))))

LISTS = (
    BuilderCase("lists of tiles that look alike", N=32, Nk=320, of=patterns.LookAlikes()),
    BuilderCase("lists of documents", N=100, of=PAGES),
    BuilderCase("lists of images between text", N=100, of=TEXT),
    BuilderCase("lists of a causal mask", N=200, of=Visibility(True), block=(64, 64)),
    BuilderCase("lists of every kind of tile", N=96, Nk=128, of=EVERY_KIND),
    BuilderCase("lists of a ragged end", N=83, Nk=83, of=Visibility(True)),
    BuilderCase("lists of more queries than keys", N=96, Nk=83, of=Visibility(True)),
    BuilderCase("lists of a window, tiles that are not square", N=150, of=Visibility(True, 40, 3), block=(16, 64)),
    BuilderCase("lists of a mask that shows nothing", N=70, of=Blocks(((EMPTY,),), 70)),
    BuilderCase("lists of one token", N=1, of=Visibility(True)),
    ask_for_mask("lists of booleans", N=90, Nk=110, of=TEXT),
    ask_for_mask("lists of a map for each head", N=96, Nk=96, of=BY_HEAD),
    ask_for_mask("lists of a map for each batch and head", N=90, Nk=96, of=BY_BOTH),
)
KERNEL = (
    SparseCase("dense", Hq=2, N=128, of=patterns.dense(4, 32)),
    SparseCase("causal", Hq=2, N=128, of=Visibility(True)),
    SparseCase("documents", B=2, Hq=2, N=100, of=PAGES),
    SparseCase("images between text", B=2, Hq=2, N=100, of=TEXT),
    SparseCase("window and sinks", Hq=2, N=150, of=Visibility(True, 40, 3)),
    SparseCase("every kind of tile", Hq=2, N=96, Nk=128, of=EVERY_KIND),
    SparseCase("triangles away from the diagonal", N=96, of=TRIANGLES),
    SparseCase("random FULL and PARTIAL tiles", Hq=2, N=160, D=16, of=random_blocks(5, 32, (FULL, PARTIAL), 3)),
    SparseCase("random tiles of three kinds", Hq=2, N=192, D=16, dtype="float32", of=random_blocks(6, 32, THREE, 4)),
    SparseCase("local, of a vision transformer", Hq=3, N=196, D=16, of=local(14, 14), block=(32, 32)),
    SparseCase("local and global, with a CLS token", Hq=3, N=197, D=16, of=patterns.local_and_global(7, 32)),
    SparseCase("strided", Hq=2, N=160, D=16, of=patterns.strided(5, 32)),
    SparseCase("more keys than queries", Hq=2, N=70, Nk=128, of=EVERY_KIND),
    SparseCase("more queries than keys", Hq=2, N=96, Nk=70, of=random_blocks(3, 32, (FULL, PARTIAL), 2)),
    SparseCase("heads that share K and V", B=2, Hq=6, Hkv=2, N=83, D=16, of=Visibility(True)),
    SparseCase("a map for each head", B=2, Hq=4, Hkv=2, N=96, D=32, of=BY_HEAD),
    SparseCase("a map for each batch", B=2, Hq=4, Hkv=2, N=100, D=64, of=BY_BATCH),
    SparseCase("a map for each batch and head", B=2, Hq=4, Hkv=1, N=96, D=16, of=BY_BOTH),
    SparseCase("tiles of 64 x 64", N=200, D=64, of=Visibility(True), block=(64, 64), softmax_scale=0.2),
    SparseCase("tiles of 32 x 64", Hq=2, N=150, of=TEXT, block=(32, 64)),
    SparseCase("tiles of 16 x 32", Hq=2, N=100, D=16, of=random_blocks(4, 32, THREE, 6), block=(16, 32)),
    SparseCase("tiles of 128 x 64", N=200, D=16, of=Blocks(((FULL, CAUSAL), (PARTIAL, FULL)), 128), block=(128, 64)),
    SparseCase("rows that see nothing in their first tile", Hq=2, N=96, of=LATE),
    SparseCase("rows that see nothing", Hq=2, N=96, of=NEVER),
    SparseCase("a row of tiles that is empty", Hq=2, N=96, of=ROWS_OF_NOTHING),
    SparseCase("nothing is visible", N=70, D=16, of=Blocks(((EMPTY,),), 70)),
    SparseCase("one token", N=1, of=Visibility(True)),
    SparseCase("fewer tokens than a tile", Hq=2, N=7, D=16, dtype="float32", of=Documents((3, 4))),
    SparseCase("softmax_scale given", Hq=2, N=83, of=PAGES, softmax_scale=0.3),
    SparseCase("head dim 128", N=100, D=128, of=PAGES, block=(32, 64), softmax_scale=0.05),
    SparseCase("heads interleaved", B=2, Hq=4, N=70, D=16, layout="interleaved", of=TEXT),
    SparseCase("slice of a larger buffer", B=2, Hq=2, N=50, layout="slice", of=PAGES),
    SparseCase("q, k and v each with another layout", B=2, Hq=2, N=70, D=16, dtype="float32", layout="mixed", of=TEXT),
    SparseCase("poison past the end", Hq=2, N=50, layout="poisoned tail", of=PAGES),
    SparseCase("scores falling along the keys", N=150, values="falling", of=Visibility(True, 100)),
    SparseCase("scores rising along the keys", N=150, values="rising", of=Visibility(True, 100)),
    SparseCase("rows of very different size", N=70, values="uneven", of=TEXT),
    SparseCase("values with a large offset", N=300, D=16, values="offset", of=local(5, 64, 2), block=(64, 64)),
    SparseCase("float32", Hq=2, N=100, D=16, dtype="float32", of=TEXT),
    SparseCase("bfloat16", Hq=2, N=100, dtype="bfloat16", of=PAGES),
    SparseCase("4096 tokens", Hq=4, Hkv=2, N=4096, D=128, of=Documents((1500, 900, 1696)), block=(64, 64), gpu=True),
    SparseCase("4095 tokens in bfloat16", Hq=4, N=4095, D=64, dtype="bfloat16", of=LONG, block=(128, 64), gpu=True),
    SparseCase("2048 tokens, random tiles", B=2, Hq=4, N=2048, D=128, of=MANY, block=(64, 64), gpu=True),
    SparseCase("float32, ragged", Hq=2, N=333, D=128, dtype="float32", of=Visibility(True, 100), gpu=True),
)  # fmt: skip


def read_mask(text):
    """`full`, `causal`, `causal 40 3` (its window and sinks), `documents 2 5`, `interleaved 16 16 32`."""
    kind, *sizes = text.split()
    sizes = tuple(map(int, sizes))
    if kind in SEGMENTS:
        return SEGMENTS[kind](sizes)
    return Visibility(kind == "causal", *sizes)


SEGMENTS = {"documents": Documents, "interleaved": Interleaved}
# The long row's images make all four kinds of tiles of 128 x 64, also in its first half.
(PAIRS,) = rows.read_table(__file__, SparseCase, {"of": read_mask}).values()

PROBLEM = Problem(
    "x1", "block-sparse attention", "x1_block_sparse.py", "block_sparse_attention",
    "block_sparse_attention(q, k, v, tiles, softmax_scale=None) -> (o, lse)",
    (*LISTS, *KERNEL, *PAIRS), returns_lse=True, takes=("tiles", "softmax_scale"),
    beside=Path(__file__).with_name("beside.py"), observer=OBSERVER,
    compile_case=SparseCase("compiles", B=2, N=2048, Hq=16, Hkv=4, D=128, of=COMPILED, block=(64, 64)),
)  # fmt: skip
