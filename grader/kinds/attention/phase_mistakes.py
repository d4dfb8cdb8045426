"""The catalogue of mistakes about phases: who sees whom is wrong by tile."""

from dataclasses import dataclass, replace

import torch

from grader.kinds.attention.known_mistakes import DIAGONAL, KnownMistake, with_zeros
from grader.kinds.attention.mask_mistakes import PHASES, SINKS, WINDOW


@dataclass(frozen=True)
class Phases:
    """Where the phases of each query's tile lie, as columns (Nq, 1), and who sees whom, (Nq, Nk).

    first <= inside <= diagonal < end as in the reference: the window's edge, its inside, the diagonal. sinks: the sink
    phase covers [0, sinks).
    """

    start: torch.Tensor
    first: torch.Tensor
    inside: torch.Tensor
    diagonal: torch.Tensor
    end: torch.Tensor
    sinks: torch.Tensor
    age: torch.Tensor
    k: torch.Tensor
    seen: torch.Tensor

    def window_phases_whole(self, BLOCK_K):
        """True in tiles that the window's phases load, to the end of the last of them."""
        return (self.k >= self.first) & (self.k < -(-self.end // BLOCK_K) * BLOCK_K)

    @property
    def window_phases(self):
        """True in tiles that the window's phases load."""
        return (self.k >= self.first) & (self.k < self.end)


def phases(case, q, k, BLOCK_Q, BLOCK_K):
    """The reference's phases for tiles of this size."""
    q, k = q[:, None], k[None, :]
    start = q // BLOCK_Q * BLOCK_Q
    window = min(case.window, case.N) if case.window else 2 * case.N  # no window: none that cuts any tile
    diagonal = start // BLOCK_K * BLOCK_K
    first = (start - window + 1).clamp(min=0) // BLOCK_K * BLOCK_K
    oldest_for_all = (start + BLOCK_Q - window).clamp(min=0)
    inside = torch.minimum(-(-oldest_for_all // BLOCK_K) * BLOCK_K, diagonal)
    sinks = -(-first.clamp(max=case.sinks or 0) // BLOCK_K) * BLOCK_K
    seen = case.visibility.mask(q[:, 0], k[0])
    return Phases(start, first, inside, diagonal, start + BLOCK_Q, sinks, q - k, k, seen)


def by_tile(spec, case, BLOCK_Q, BLOCK_K, known):
    """Masks and phases that are wrong by tile, for tiles of this size; known: it is not guessed."""
    yield from past_the_end(spec, case, BLOCK_Q, BLOCK_K)
    rules = (*ANY_CAUSAL, *(WINDOWED if case.window else ()), *(WITH_SINKS if case.sinks else ()))
    rules += BY_ROWS if BLOCK_Q != BLOCK_K else ()  # the same as by keys where the tiles are square
    for equals, question, section, weight in rules:

        def rule(q, k, weight=weight):
            return weight(phases(case, q, k, BLOCK_Q, BLOCK_K), case, BLOCK_Q, BLOCK_K)

        equals = equals.format(BLOCK_Q=BLOCK_Q, BLOCK_K=BLOCK_K, wider=(case.window or 0) + 1)
        changed, kind = replace(spec, weight=rule), "mask" if known else ""
        yield KnownMistake(equals, question, section, changed, kind=kind, general=weight is WIDER[3])


def past_the_end(spec, case, BLOCK_Q, BLOCK_K):
    """A mask that hides no key of the future: the zeros past the end of the last tile are then seen too."""
    extra = -case.num_keys % BLOCK_K
    if not extra:
        return

    def rule(q, k):
        p = phases(case, q, k, BLOCK_Q, BLOCK_K)
        return p.seen | ((p.age < 0) & (p.k < -(-p.end // BLOCK_K) * BLOCK_K))

    def zeros(q):
        end = ((q // BLOCK_Q + 1) * BLOCK_Q).clamp(max=case.N)
        return (-(-end // BLOCK_K) * BLOCK_K - case.num_keys).clamp(min=0)

    yield KnownMistake(
        f"a causal mask by tiles of {BLOCK_K}: inside a tile the future is seen, {extra} zeros past the end too",
        "which tiles need a mask by position, tokens against tokens, and is it applied there?", DIAGONAL,
        with_zeros(spec, zeros, rule),
    )  # fmt: skip


def by_place_in_tile(local_queries, local_keys):
    """The weight of a mask that counts queries, keys or both from the beginning of their tile, in the masked tiles."""

    def weight(p, case, BQ, BK):
        q = p.age + p.k
        age = (q - p.start if local_queries else q) - (p.k % BK if local_keys else p.k)
        shown = (age >= 0) & ((age < case.window) if case.window else True)
        if case.sinks:
            shown |= (age >= 0) & ((p.k % BK if local_keys else p.k) < case.sinks)
        masked = p.window_phases_whole(BK) & ((p.k < p.inside) | (p.k >= p.diagonal))
        if not case.window:
            masked &= p.k >= p.diagonal
        return torch.where(masked, shown, p.seen)

    return weight


# (equals, question, section, weight from the phases): what each query sees instead.
ANY_CAUSAL = (
    (
        "a causal mask by tiles of {BLOCK_K}: inside a tile the future is seen",
        "which tiles need a mask by position, tokens against tokens, and is it applied there?", DIAGONAL,
        lambda p, case, BQ, BK: p.seen | ((p.k // BK == (p.k + p.age) // BK) & (p.age < 0)),
    ),
    (
        "a causal mask that shows one key too many inside tiles of {BLOCK_K}",
        "does a query see the next key: `<` or `<=`?", DIAGONAL,
        lambda p, case, BQ, BK: p.seen | ((p.age == -1) & (p.k < p.end)),
    ),
    (
        "attention without its diagonal tiles ({BLOCK_Q} queries, {BLOCK_K} keys)",
        "where does the last phase end, and does it reach the query's own key?", PHASES,
        lambda p, case, BQ, BK: p.seen & (p.k < p.diagonal),
    ),
    (
        "attention whose phase without a mask leaves out its first tile of {BLOCK_K} keys",
        "where does that phase's loop begin?", PHASES,
        lambda p, case, BQ, BK: p.seen & ((p.k < p.inside) | (p.k >= p.inside + BK) | (p.k >= p.diagonal)),
    ),
    (
        "attention whose phase without a mask leaves out its last tile of {BLOCK_K} keys",
        "where does that phase's loop end, and the next begin?", PHASES,
        lambda p, case, BQ, BK: p.seen & ((p.k < p.diagonal - BK) | (p.k >= p.diagonal) | (p.k < p.inside)),
    ),
    (
        "attention without the phase that needs no mask (tiles of {BLOCK_K} keys)",
        "does that phase's loop run at all?", PHASES,
        lambda p, case, BQ, BK: p.seen & ((p.k < p.inside) | (p.k >= p.diagonal)),
    ),
    (
        "attention that counts the diagonal tiles twice (tiles of {BLOCK_K} keys)",
        "which two phases load the same tile?", PHASES,
        lambda p, case, BQ, BK: p.seen * (1 + (p.k >= p.diagonal).long()),
    ),
    *(
        (
            f"attention whose mask counts {what} from the beginning of their tile (tiles of {{BLOCK_K}} keys)",
            "is a position of the mask one in the sequence: what must be added to tl.arange?", DIAGONAL,
            by_place_in_tile("queries" in what, "keys" in what),
        )
        for what in ("queries", "keys", "queries and keys")
    ),
)  # fmt: skip

BY_ROWS = (
    (
        "attention over the tiles of {BLOCK_K} keys that begin before its tile of {BLOCK_Q} queries",
        "which is the last tile that holds a key which some query of the tile sees?", PHASES,
        lambda p, case, BQ, BK: p.seen & (p.k // BK * BK < p.start),
    ),
    (
        "attention whose future is not masked inside the tiles that are loaded ({BLOCK_Q} queries, {BLOCK_K} keys)",
        "which tiles need a mask by position, is it applied there, and are its conditions joined by `&`?", DIAGONAL,
        lambda p, case, BQ, BK: p.seen | ((p.age < 0) & (p.k < -(-p.end // BK) * BK)),
    ),
    (
        "attention that ends where its tile of {BLOCK_Q} queries begins",
        "where does the last phase end, and does it reach the query's own key?", PHASES,
        lambda p, case, BQ, BK: p.seen & (p.k < p.start),
    ),
)  # fmt: skip

# The same as a wider window by position wherever the tiles hold the key that is one too old: named only where not.
WIDER = (
    "a window of {wider} inside the tiles that are loaded", "how old may a key be: `<` or `<=`?", WINDOW,
    lambda p, case, BQ, BK: p.seen | ((p.age == case.window) & p.window_phases),
)  # fmt: skip

WINDOWED = (
    WIDER,
    (
        "attention whose keys too old for the window are not masked inside the tiles that are loaded",
        "which phase holds keys that some of its queries see and others do not?", WINDOW,
        lambda p, case, BQ, BK: p.seen | ((p.age >= 0) & p.window_phases),
    ),
    (
        "attention whose keys too old for the window are not masked in the tiles before the diagonal",
        "which tiles need no mask: those before the diagonal, or only those that every query sees?", WINDOW,
        lambda p, case, BQ, BK: p.seen
        | ((p.age >= 0) & p.window_phases & (p.k // BK * BK + BK - 1 <= p.start)),
    ),
    (
        "a window whose tiles without a mask begin where the first query of the tile sees them whole",
        "which query of the tile is the first that a key becomes too old for?", WINDOW,
        lambda p, case, BQ, BK: p.seen
        | ((p.age >= 0) & (p.k < p.diagonal) & (p.k >= -(-(p.start - case.window + 1).clamp(min=0) // BK) * BK)),
    ),
    (
        "a window that is counted from the first query of each tile of {BLOCK_Q}",
        "from which query is the age of a key counted?", WINDOW,
        lambda p, case, BQ, BK: p.seen | ((p.age >= 0) & (p.k > p.start - case.window) & p.window_phases),
    ),
    (
        "a window that is counted from the last query of each tile of {BLOCK_Q}",
        "from which query is the age of a key counted?", WINDOW,
        lambda p, case, BQ, BK: p.seen & ((p.k > p.start + BQ - 1 - case.window) | (p.k < (case.sinks or 0))),
    ),
    (
        "a window whose first tile is counted in tiles: q_start // {BLOCK_K} - window // {BLOCK_K}",
        "the first key that the first query sees is a token: in which tile does it lie?", WINDOW,
        lambda p, case, BQ, BK: p.seen
        & ((p.k >= (p.start // BK - case.window // BK).clamp(min=0) * BK) | (p.k < p.sinks)),
    ),
    (
        "a window whose first tile is rounded up (tiles of {BLOCK_K} keys)",
        "a window that begins inside a tile: does that tile hold keys that are seen?", WINDOW,
        lambda p, case, BQ, BK: p.seen
        & ((p.k >= -(-(p.start - case.window + 1).clamp(min=0) // BK) * BK) | (p.k < p.sinks)),
    ),
    (
        "a window whose first tile is that of the tile's last query",
        "which query of the tile looks back furthest?", WINDOW,
        lambda p, case, BQ, BK: p.seen
        & ((p.k >= (p.start + BQ - case.window).clamp(min=0) // BK * BK) | (p.k < p.sinks)),
    ),
    (
        "a window without the tiles at its edge (tiles of {BLOCK_K} keys)",
        "which phase loads the tiles that only some of the queries see, and from which query does it begin?", PHASES,
        lambda p, case, BQ, BK: p.seen & ((p.k < p.sinks) | (p.k < p.first) | (p.k >= p.inside)),
    ),
    (
        "a window measured in tiles of {BLOCK_K}", "is the window a number of tokens or of tiles?", WINDOW,
        lambda p, case, BQ, BK: (p.age >= 0)
        & (((p.k + p.age) // BK - p.k // BK <= case.window // BK) | (p.k < (case.sinks or 0))),
    ),
)  # fmt: skip

WITH_SINKS = (
    (
        "attention whose sinks are seen only where the window's own tiles hold them (tiles of {BLOCK_K} keys)",
        "which phase loads the sinks of a query far from them, and are its row_max, row_sum and acc carried on?", SINKS,
        lambda p, case, BQ, BK: p.seen & (p.k >= p.first),
    ),
    (
        "attention that counts keys twice where the sink phase and the window load the same tile "
        "(tiles of {BLOCK_K} keys)",
        "where must the sink phase end when the window has already begun?", SINKS,
        lambda p, case, BQ, BK: p.seen
        * (1 + ((p.k >= p.first) & (p.k < -(-min(case.sinks, case.N) // BK) * BK)).long()),
    ),
    (
        "sinks rounded up to whole tiles of {BLOCK_K}", "is the sink tile masked by token?", SINKS,
        lambda p, case, BQ, BK: p.seen | ((p.age >= 0) & (p.k // BK * BK < case.sinks)),
    ),
    (
        "sinks rounded up to whole tiles of {BLOCK_K}, of which the window counts again what is no sink",
        "is the sink tile masked by token?", SINKS,
        lambda p, case, BQ, BK: ((p.age >= 0) & (p.k // BK * BK < case.sinks)).long()
        + ((p.age >= 0) & (p.age < case.window) & (p.k >= case.sinks)),
    ),
    (
        "sinks that are visible to queries before them, inside the tiles that are loaded",
        "may a query see a sink that comes after it?", SINKS,
        lambda p, case, BQ, BK: p.seen | ((p.k < case.sinks) & (p.k < p.end)),
    ),
    (
        "sinks without the last, partly filled tile of {BLOCK_K}", "how many tiles hold the sinks?", SINKS,
        lambda p, case, BQ, BK: p.seen & ((p.k >= p.first) | (p.k < case.sinks // BK * BK)),
    ),
)  # fmt: skip
