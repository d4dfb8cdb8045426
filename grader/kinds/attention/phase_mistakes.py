"""The catalogue of mistakes about phases: who sees whom is wrong by tile."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from grader.kinds.attention.case import Case
from grader.kinds.attention.known_mistakes import DIAGONAL, AttentionSpec, KnownMistake, Memory, with_zeros
from grader.kinds.attention.mask_mistakes import PHASES, SINKS, WINDOW


class Phases:
    """Where the reference's phases lie for tiles of this size, and who sees whom.

    Columns (Nq, 1), of each query's tile: start and end; first <= inside <= diagonal, where the window's edge, its
    inside and the diagonal begin; sink_end: the sink phase covers [0, sink_end). Rows (1, Nk): k, and `tile`, where its
    tile begins. Pairs (Nq, Nk): age, seen, and window_phases, True in tiles that the window's phases load.
    """

    def __init__(self, case: Case, q: torch.Tensor, k: torch.Tensor, BLOCK_Q: int, BLOCK_K: int):
        self.BLOCK_Q, self.BLOCK_K, self.window, self.sinks = BLOCK_Q, BLOCK_K, case.window, case.sinks or 0
        self.q, self.k, self.seen = q[:, None], k[None, :], case.visibility.mask(q, k)
        self.age, self.tile = self.q - self.k, self.round_down(self.k)
        self.start = self.q // BLOCK_Q * BLOCK_Q
        self.end, self.diagonal = self.start + BLOCK_Q, self.round_down(self.start)
        window = min(case.window, case.N) if case.window else 2 * case.N  # no window: none that cuts any tile
        self.oldest = (self.start - window + 1).clamp(min=0)  # key of the tile's first query
        self.first = self.round_down(self.oldest)
        self.inside = torch.minimum(self.round_up((self.end - window).clamp(min=0)), self.diagonal)
        self.sink_end = self.round_up(self.first.clamp(max=self.sinks))
        self.window_phases = (self.k >= self.first) & (self.k < self.end)

    def round_down(self, position: torch.Tensor) -> torch.Tensor:
        return position // self.BLOCK_K * self.BLOCK_K

    def round_up(self, position: torch.Tensor) -> torch.Tensor:
        return -(-position // self.BLOCK_K) * self.BLOCK_K


def by_tile(
    spec: AttentionSpec, case: Case, BLOCK_Q: int, BLOCK_K: int, known: bool, all_met: bool
) -> Iterator[KnownMistake]:
    """Masks and phases that are wrong by tile, for tiles of this size; known: it is not guessed.

    all_met: no tile with a visible pair was skipped. Else a mask that counts queries in their tile is not told: what it
    hides is what tiles on the diagonal hold that are skipped.
    """
    yield from past_the_end(spec, case, BLOCK_Q, BLOCK_K)
    rules = (*ANY_CAUSAL, *(WINDOWED if case.window else ()), *(WITH_SINKS if case.sinks else ()))
    rules += BY_ROWS if BLOCK_Q != BLOCK_K else ()  # the same as by keys where the tiles are square
    memory = Memory()
    for equals, question, section, weight in rules:
        if "whose mask counts queries from" in equals and not all_met:
            continue

        def rule(q, k, weight=weight):
            return weight(memory.recall("phases", (q, k), lambda: Phases(case, q, k, BLOCK_Q, BLOCK_K)))

        equals = equals.format(BLOCK_Q=BLOCK_Q, BLOCK_K=BLOCK_K, wider=(case.window or 0) + 1)
        changed = replace(spec, weight=rule)
        general = weight is WIDER[3] or (not known and BLOCK_Q != BLOCK_K)  # first the square guesses
        yield KnownMistake(equals, question, section, changed, by_nan=known, general=general)


def past_the_end(spec: AttentionSpec, case: Case, BLOCK_Q: int, BLOCK_K: int) -> Iterator[KnownMistake]:
    """A mask that hides no key of the future: the zeros past the end of the last tile are then seen too."""
    if not (extra := -case.num_keys % BLOCK_K):
        return

    def rule(q, k):
        return without_future(Phases(case, q, k, BLOCK_Q, BLOCK_K))

    def zeros(q):
        end = ((q // BLOCK_Q + 1) * BLOCK_Q).clamp(max=case.N)
        return (-(-end // BLOCK_K) * BLOCK_K - case.num_keys).clamp(min=0)

    equals = f"a causal mask by tiles of {BLOCK_K}: inside a tile the future is seen, {extra} zeros past the end too"
    yield KnownMistake(equals, BY_TOKENS, DIAGONAL, with_zeros(spec, zeros, rule))


def without_future(p: Phases) -> torch.Tensor:
    """Nothing of the future hidden in the tiles that are loaded."""
    return p.seen | ((p.age < 0) & (p.k < p.round_up(p.end)))


def count_in_tile(local_queries: bool, local_keys: bool) -> Callable:
    """The weight of a mask that counts queries, keys or both from the beginning of their tile, in the masked tiles."""

    def weight(p):
        key = p.k - p.tile if local_keys else p.k
        age = (p.q - p.start if local_queries else p.q) - key
        shown = (age >= 0) & ((age < p.window) | (key < p.sinks) if p.window else True)
        masked = (p.k >= p.first) & (p.k < p.round_up(p.end)) & ((p.k < p.inside) | (p.k >= p.diagonal))
        masked &= (p.k >= p.diagonal) if not p.window else True
        return torch.where(masked, shown, p.seen)

    return weight


BY_TOKENS = "which tiles need a mask by position, tokens against tokens, and is it applied there?"
OWN_KEY = "where does the last loop over keys end, and does it reach the query's own key?"
WHOSE_AGE = "from which query is the age of a key counted?"
SINK_TILE = "is the sink tile masked by token?"

# (equals, question, section, weight from the phases): what each query sees instead.
ANY_CAUSAL = (
    ("a causal mask by tiles of {BLOCK_K}: inside a tile the future is seen", BY_TOKENS, DIAGONAL,
     lambda p: p.seen | ((p.tile == p.round_down(p.q)) & (p.age < 0))),
    ("a causal mask that shows one key too many inside tiles of {BLOCK_K}",
     "does a query see the next key: `<` or `<=`?", DIAGONAL, lambda p: p.seen | ((p.age == -1) & (p.k < p.end))),
    ("attention without its diagonal tiles ({BLOCK_Q} queries, {BLOCK_K} keys)", OWN_KEY, PHASES,
     lambda p: p.seen & (p.k < p.diagonal)),
    ("attention whose phase without a mask leaves out its first tile of {BLOCK_K} keys",
     "where does that phase's loop begin?", PHASES,
     lambda p: p.seen & ((p.k < p.inside) | (p.k >= p.inside + p.BLOCK_K) | (p.k >= p.diagonal))),
    ("attention whose phase without a mask leaves out its last tile of {BLOCK_K} keys",
     "where does that phase's loop end, and the next begin?", PHASES,
     lambda p: p.seen & ((p.k < p.diagonal - p.BLOCK_K) | (p.k >= p.diagonal) | (p.k < p.inside))),
    ("attention without the phase that needs no mask (tiles of {BLOCK_K} keys)",
     "does that phase's loop run, and does the next phase go on with its acc, row_max and row_sum?", PHASES,
     lambda p: p.seen & ((p.k < p.inside) | (p.k >= p.diagonal))),
    ("attention that counts the diagonal tiles twice (tiles of {BLOCK_K} keys)",
     "which two phases load the same tile?", PHASES, lambda p: p.seen * (1 + (p.k >= p.diagonal).long())),
    *(
        (f"attention whose mask counts {what} from the beginning of their tile (tiles of {{BLOCK_K}} keys)",
         "is a position of the mask one in the sequence: what must be added to tl.arange?", DIAGONAL,
         count_in_tile("queries" in what, "keys" in what))
        for what in ("queries", "keys", "queries and keys")
    ),
)  # fmt: skip

BY_ROWS = (
    ("attention over the tiles of {BLOCK_K} keys that begin before its tile of {BLOCK_Q} queries",
     "which is the last tile that holds a key which some query of the tile sees?", PHASES,
     lambda p: p.seen & (p.tile < p.start)),
    ("attention whose future is not masked inside the tiles that are loaded ({BLOCK_Q} queries, {BLOCK_K} keys)",
     "which tiles need a mask by position, is it applied there, and are its conditions joined by `&`?", DIAGONAL,
     without_future),
    ("attention that ends where its tile of {BLOCK_Q} queries begins", OWN_KEY, PHASES,
     lambda p: p.seen & (p.k < p.start)),
)  # fmt: skip

# The same as a wider window by position wherever the tiles hold the key that is one too old: named only where not.
WIDER = ("a window of {wider} inside the tiles that are loaded", "how far back may keys be: `<` or `<=`?", WINDOW,
         lambda p: p.seen | ((p.age == p.window) & p.window_phases))  # fmt: skip

WINDOWED = (
    WIDER,
    ("attention whose keys too old for the window are not masked inside the tiles that are loaded",
     "which phase holds keys that some of its queries see and others do not?", WINDOW,
     lambda p: p.seen | ((p.age >= 0) & p.window_phases)),
    ("attention whose keys too old for the window are not masked in the tiles before the diagonal",
     "which tiles need no mask: those before the diagonal, or only those that every query sees?", WINDOW,
     lambda p: p.seen | ((p.age >= 0) & p.window_phases & (p.tile + p.BLOCK_K - 1 <= p.start))),
    ("a window whose tiles without a mask begin where the first query of the tile sees them whole",
     "which query of the tile is the first that a key becomes too old for?", WINDOW,
     lambda p: p.seen | ((p.age >= 0) & (p.k < p.diagonal) & (p.k >= p.round_up(p.oldest)))),
    ("a window that is counted from the first query of each tile of {BLOCK_Q}", WHOSE_AGE, WINDOW,
     lambda p: p.seen | ((p.age >= 0) & (p.k > p.start - p.window) & p.window_phases)),
    ("a window that is counted from the last query of each tile of {BLOCK_Q}", WHOSE_AGE, WINDOW,
     lambda p: p.seen & ((p.k > p.end - 1 - p.window) | (p.k < p.sinks))),
    ("a window whose first tile is counted in tiles: q_start // {BLOCK_K} - window // {BLOCK_K}",
     "the first key that the first query sees is a token: in which tile does it lie?", WINDOW,
     lambda p: p.seen & ((p.k >= (p.diagonal - p.round_down(p.window)).clamp(min=0)) | (p.k < p.sink_end))),
    ("a window whose first tile is rounded up (tiles of {BLOCK_K} keys)",
     "a window that begins inside a tile: does that tile hold keys that are seen?", WINDOW,
     lambda p: p.seen & ((p.k >= p.round_up(p.oldest)) | (p.k < p.sink_end))),
    ("a window whose first tile is that of the tile's last query",
     "which query of the tile looks back furthest?", WINDOW,
     lambda p: p.seen & ((p.k >= p.round_down((p.end - p.window).clamp(min=0))) | (p.k < p.sink_end))),
    ("a window without the tiles at its edge (tiles of {BLOCK_K} keys)",
     "which phase loads the tiles that only some of the queries see, and from which query does it begin?", PHASES,
     lambda p: p.seen & ((p.k < p.sink_end) | (p.k < p.first) | (p.k >= p.inside))),
)  # fmt: skip

WITH_SINKS = (
    ("attention whose sinks are seen only where the window's own tiles hold them (tiles of {BLOCK_K} keys)",
     "which phase loads the sinks of a query far from them, and are its row_max, row_sum and acc carried on?", SINKS,
     lambda p: p.seen & (p.k >= p.first)),
    ("attention that counts keys twice where the sink phase and the window load the same tile "
     "(tiles of {BLOCK_K} keys)",
     "where must the sink phase end when the window has already begun?", SINKS,
     lambda p: p.seen * (1 + ((p.k >= p.first) & (p.tile < p.sinks)).long())),
    ("sinks rounded up to whole tiles of {BLOCK_K}", SINK_TILE, SINKS,
     lambda p: p.seen | ((p.age >= 0) & (p.tile < p.sinks))),
    ("sinks rounded up to whole tiles of {BLOCK_K}, of which the window counts again what is no sink", SINK_TILE, SINKS,
     lambda p: ((p.age >= 0) & (p.tile < p.sinks)).long()
     + ((p.age >= 0) & (p.age < p.window) & (p.k >= p.sinks))),
    ("sinks that are visible to queries before them, inside the tiles that are loaded",
     "may a query see a sink that comes after it?", SINKS, lambda p: p.seen | ((p.k < p.sinks) & (p.k < p.end))),
    ("sinks without the last, partly filled tile of {BLOCK_K}", "how many tiles hold the sinks?", SINKS,
     lambda p: p.seen & ((p.k >= p.first) | (p.k < p.round_down(p.sinks)))),
)  # fmt: skip
