"""A closer look at a wrong backward pass: which pairs add to dv, dk and dq.

With q = 0 or k = 0 every visible key of a query has the same probability. Columns of the identity then show what each
pair adds: in do to dv; in q to dk and in K to dq, where ds is what any one column of V makes of it.
"""

from dataclasses import replace

import torch

from grader.course import tensors
from grader.engine import contrast
from grader.engine.cause import Measured
from grader.engine.compare_values import ranges
from grader.engine.contrast import Contrast
from grader.engine.locate import show
from grader.kinds.attention.weights import identities, run_placed
from grader.kinds.attention.words import EQUAL
from grader.kinds.backward import implied, mistakes
from grader.kinds.backward.reference import OUTPUTS, seen_of

MOST_TOKENS = 400
WIDTH = 128  # the head dim of what is measured: so many pairs of a row in one call
MET_TWICE = "which two loops, or tiles, meet the same pairs: is each bound a multiple of its tile?"
WHICH_FACTOR = "which factor is missing, twice or of another head: lse, its base, or the scale?"
INFINITE = "which factor can be infinite: exp of a score without its lse, or what is loaded past the end?"
WHOLE = 64  # tokens: a multiple of most tiles
EXACT = 1e-3  # of what a pair adds
FAINT = 1e-3  # of the largest
MOST_TIMES = 100  # a factor beyond which something else is added


# Which pairs ----------------------------------------------------------------------------------------------------------


def facts(kind, submission, case):
    """[Measured] on the pairs that count though hidden, or do not though visible, in dv and in dq."""
    if case.N > MOST_TOKENS:
        return []
    case, found = replace(case, D=WIDTH, dtype="float32", layout="contiguous", gradient="", values="normal"), []
    seen = seen_of(case, "cpu")
    p = seen.double() / seen.sum(1, keepdim=True)
    group = case.Hq // case.kv_heads
    value = torch.randn(case.N, generator=torch.Generator().manual_seed(0)).double()  # of each key, the column of V
    ds = p * (value - (p @ value)[:, None])
    of_dv, of_dk, of_dq = (measure(kind, submission, case, p, value, name) for name in ("dv", "dk", "dq"))
    if of_dv is not None:
        found += tell("dv and dk", "keys", "query rows", of_dv.mT, p.T, seen.T, group)
    if of_dk is not None and not found:
        found += of_ds("dk", of_dk / group, p, value, seen) or tell(
            "dk", "keys", "query rows", of_dk.mT, ds.T, seen.T, group
        )
    if of_dq is not None:
        found += of_ds("dq", of_dq, p, value, seen) or tell("dq", "query rows", "keys", of_dq, ds, seen, 1)
    return found


def of_ds(name, got, p, value, seen):
    """[Measured] on the delta or dp that the ds (B, H, N, N) of the first wrong head implies."""
    return next((found for ds in got.flatten(0, 1) if (found := implied.look(name, ds, p, value, seen))), [])


def measure(kind, submission, case, p, value, name):
    """(B, H, N, N), queries first: what each pair adds to dv, dk or dq, where V has one column, `value`."""
    queries, keys = (case.B, case.Hq, case.N, WIDTH), (case.B, case.kv_heads, case.N, WIDTH)
    lse = torch.log(torch.count_nonzero(p, 1).float()).expand(queries[:3]).contiguous()
    do, v, o = torch.zeros(queries), torch.zeros(keys), torch.zeros(queries)
    do[..., 0], v[..., 0], o[..., 0] = 1.0, value.float(), (p @ value).float()
    zeros, none = torch.zeros(queries), torch.zeros(keys)
    sets = {
        "dv": lambda: [(do, zeros, none, none, zeros, lse) for do in identities(zeros)],
        "dk": lambda: [(do, q, none, v, o, lse) for q in identities(zeros)],
        "dq": lambda: [(do, zeros, k, v, o, lse) for k in identities(none)],
    }[name]()
    placed = [[tensors.place(each) for each in one] for one in sets]
    found = run_placed(kind, submission, case, placed, OUTPUTS.index(name))
    if found is None:
        return None
    found = torch.cat(found, -1)[..., : case.N] / (1.0 if name == "dv" else case.scale)
    return found if name == "dq" else found.mT


def tell(names, mine, theirs, got, expected, seen, times):
    """[Measured]: rows of `got` (B, H, N, N) that take nothing from what they see, or something from what is hidden.

    expected, seen: (N, N), rows likewise. times: how often each pair counts.
    """
    if not got.isfinite().all():
        row = int((~got.isfinite()).any(-1).any(0).any(0).nonzero()[0])
        said = f"{EQUAL}{names} of {mine} {row} and others are NaN or infinite."
        return [Measured("nan", said, INFINITE, mistakes.LSE)]
    sizes = expected.abs()
    clear = sizes > FAINT * sizes.max()  # the others tell nothing
    lost = seen & clear & (got.abs() < EXACT * sizes)
    shown = ~seen & (got.abs() > FAINT * sizes.max())
    found = []
    for which, part in ((lost, "no part from visible"), (shown, "a part from hidden")):
        if not which.any():
            continue
        batch, head = which.flatten(2).any(-1).nonzero()[0].tolist()
        pairs = which[batch, head]
        rows = pairs.any(1).nonzero().flatten()
        first = int(rows[0])
        _, last = ranges([row for row in rows.tolist() if torch.equal(pairs[row], pairs[first])])[0]
        more = len(rows) - (last - first + 1)
        where = "" if which.flatten(2).any(-1).all() else f" of batch {batch}, head {head}"
        also = f" (and {more} more {mine} with others)" if more else ""
        said = f"{EQUAL}{names} get {part} pairs{where}: {counted(mine, show([(first, last)]))} with "
        said += f"{counted(theirs, spans(pairs[first]))}{also}."
        queries_first = pairs.T if mine == "keys" else pairs
        fact = Measured("pairs", said, mistakes.WHO_SEES, mistakes.MASK)
        found.append(replace(fact, shown=(batch, head, queries_first)) if which is shown else fact)
    if not found:
        ratio = got / (expected.where(clear, torch.ones_like(expected)) * times)
        odd = clear & ((ratio - 1).abs() > EXACT)
        if odd.any() and bool((ratio[odd].abs() < MOST_TIMES).all()):
            batch, head, row, column = odd.nonzero()[0].tolist()
            factor = float(ratio[batch, head, row, column])
            whole = bool(((ratio - factor).abs() < EXACT)[:, :, clear].all())
            where = f"first of {mine} {row} with {theirs} {column}, batch {batch}, head {head}"
            if not whole and round(factor) > 1 and abs(factor - round(factor)) < EXACT:
                said = f"{EQUAL}{names} count some pairs {round(factor)} times, {where}."
                found.append(Measured("pairs", said, MET_TWICE, mistakes.MASK))
            else:
                name, all_pairs = (names.split()[0], " on all pairs") if whole else (names, "")
                said = f"{EQUAL}{name} gets {factor:.4g} times what it should{all_pairs}, {where}."
                found.append(Measured("factor", said, WHICH_FACTOR, mistakes.LSE))
    return found


def spans(row):
    """`0-15, 48-63` of booleans; at most three."""
    found = ranges(row.nonzero().flatten().tolist())
    return show(found[:3]) + " ..." * (len(found) > 3)


def counted(what, numbers):
    """`key 3`, `keys 3-5` of `keys` and the numbers."""
    return f"{what.removesuffix('s') if numbers.isdecimal() else what} {numbers}"


# One thing changed ----------------------------------------------------------------------------------------------------

LARGE_SCORES = "what can grow too large with the scores: exp without its lse, or of a pair that should be hidden?"
NEXT_HEAD = "what moves from one head, or batch, to the next?"
PAST_THE_END = "what lies past the end of the last tile?"
WHICH_TILE = "BLOCK_Q is the step of queries, BLOCK_K that of keys: which one stands in each place?"
CONTRASTS = (
    replace(contrast.DTYPE, read=mistakes.SOFTMAX),
    replace(contrast.LAYOUT, read=mistakes.HEADS, changes={"layout": "contiguous", "gradient": ""}),
    Contrast("with numbers of ordinary size", LARGE_SCORES, mistakes.LSE, {"values": "normal"}),
    Contrast("where each query head has its own K and V", mistakes.GROUP, mistakes.HEADS,
             {"Hkv": lambda case: case.Hq}),
    Contrast("with one batch and one head", NEXT_HEAD, mistakes.HEADS, {"B": 1, "Hq": 1, "Hkv": None}),
    Contrast("without sinks", mistakes.SINKS, mistakes.MASK, {"sinks": None}),
    Contrast("without a window", mistakes.WHO_SEES, mistakes.MASK, {"window": None, "sinks": None}),
    Contrast("with whole tiles", PAST_THE_END, mistakes.MASK, {"N": lambda case: max(1, case.N // WHOLE) * WHOLE}),
    Contrast("with the file's own tiles", WHICH_TILE, mistakes.MASK, {"tiles": None}),
)  # fmt: skip
