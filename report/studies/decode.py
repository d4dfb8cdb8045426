"""The study of decode: the caches, what is asked of a kernel, the columns of its rows. Plain data, no torch."""

import math
import random
from dataclasses import dataclass

from report.measuring.rows import interval

CUDNN, COPY, X4, FAST = "cudnn", "copy", "x4", "fast"
OURS = {X4: "x4_decode.py", FAST: "fast_decode.py"}  # modules of solutions/; one that is not there has no rows
# mib: of keys and values that a new token sees, read once; gb_s: these over the median time. over_cudnn: how many times
# as fast as cuDNN's attention of the whole caches. of_copy: gb_s as a part of the copy's. over_plain: the time over the
# time of the same kernel's plain form. Each ratio is paired, with the ends of its 95 % interval.
RATIOS = ("over_cudnn", "of_copy", "over_plain")
COLUMNS = ("shape", "kernel", "form", "us", "mib", "gb_s", *(end for name in RATIOS for end in interval(name)),
           "host_us", "fault")  # fmt: skip
SEED = 40
COLD = 256 << 20  # bytes that all sets of caches together have at the least: five times the L2 of an H200
SHARES = 1, 2, 4  # programs on a multiprocessor, where a piece is a share of the cache
TILE = 128  # a piece has whole tiles


@dataclass(frozen=True)
class Form:
    """What is asked of a kernel; the plain form is one new token, full lengths, a dense cache, no window.

    page: tokens of a page, the pages in random order. sink: learned logits. new: new tokens. ragged: lengths drawn from
    1 to the full one. piece: tokens of a piece, in place of the kernel's own number.
    """

    name: str = ""
    page: int | None = None
    sink: bool = False
    window: int | None = None
    new: int = 1
    ragged: bool = False
    piece: int | None = None


PLAIN = Form()
PAGES = tuple(Form(f"pages of {page}", page=page) for page in (16, 64, 256))
SINK = Form("sink logit", sink=True)
WINDOW, NEW, RAGGED = Form("window 1024", window=1024), Form("4 new tokens", new=4), Form("ragged", ragged=True)


@dataclass(frozen=True)
class Shape:
    """Caches of B sequences of N tokens; Hq query heads over Hkv kv heads of D. forms: those beside the plain one."""

    B: int
    N: int
    forms: tuple[Form, ...] = (*PAGES, SINK)
    Hq: int = 32
    Hkv: int = 8
    D: int = 128

    @property
    def name(self):
        return f"B={self.B} H={self.Hq}/{self.Hkv} D={self.D} N={self.N}"

    def lengths(self, form):
        """The tokens of each sequence."""
        draw = random.Random(SEED)
        return [draw.randint(1, self.N) if form.ragged else self.N for _ in range(self.B)]

    def bytes(self, form):
        """Of keys and values that a new token sees, two bytes a number."""
        seen = (min(length, (form.window or length) + form.new - 1) for length in self.lengths(form))
        return 2 * self.Hkv * self.D * 2 * sum(seen)

    def sets(self):
        """How many sets of caches take turns: before one is read again, far more than the L2 holds was read."""
        return max(2, math.ceil(COLD / min(self.bytes(form) for form in (PLAIN, *self.forms))))

    def shares(self, multiprocessors, piece):
        """Forms with pieces of another size than `piece`, which give each multiprocessor one of SHARES programs."""
        splits = (max(1, programs * multiprocessors // (self.B * self.Hkv)) for programs in SHARES)
        found = dict.fromkeys(math.ceil(self.N / each / TILE) * TILE for each in splits)
        return [Form(f"pieces of {each}", piece=each) for each in found if each != piece]


SHAPES = (
    Shape(1, 16384), Shape(1, 131072), Shape(8, 16384, (*PAGES, SINK, WINDOW, NEW)), Shape(32, 4096),
    Shape(64, 8192, (*PAGES, SINK, RAGGED)),
)  # fmt: skip
TINY = (
    Shape(2, 96, (Form("pages of 16", page=16), SINK, Form("window 40", window=40), NEW, RAGGED), Hq=4, Hkv=2, D=16),
)
