"""A closer look at a wrong backward pass: which pairs add to dv, dk and dq, and which one thing makes a case wrong.

With q = 0 or k = 0 every visible key of a query has the same probability. Columns of the identity then show what each
pair adds: in do to dv; in q to dk and in K to dq, where ds is what any one column of V makes of it.
"""

import time
from dataclasses import replace

import torch

from grader.core.protocol.messages import Outputs, RunSets
from grader.course import tensors
from grader.diagnosis.cause import Measured
from grader.kinds import contrast
from grader.kinds.attention.closer import with_line
from grader.kinds.attention.words import EQUAL
from grader.kinds.backward import gradients, implied, mistakes
from grader.kinds.backward.cases import OUTPUTS

SECONDS = 6.0  # for all of a problem's cases
CASES = 3  # the smallest that are wrong
MOST_TOKENS = 400
WIDTH = 128  # the head dim of what is measured: so many pairs of a row in one call
LARGE_SCORES = "what can grow too large with the scores: exp without its lse, or of a pair that should be hidden?"
MET_TWICE = "which two loops, or tiles, meet the same pairs: is each bound a multiple of its tile?"
WHICH_FACTOR = "which factor is missing, twice or of another head: lse, its base, or the scale?"
INFINITE = "which factor can be infinite: exp of a score without its lse, or what is loaded past the end?"
WHOLE = 64  # tokens: a multiple of most tiles
EXACT = 1e-3  # of what a pair adds
FAINT = 1e-3  # of the largest
MOST_TIMES = 100  # a factor beyond which something else is added


def look(kind, problem, cases, seed, results, submission):
    """Add what is measured to the diagnoses of wrong outputs."""
    wrong = [result for result in results if result.diagnosis and not result.facts.mismatch.unwritten]
    wrong.sort(key=lambda result: size(cases[result.case]))
    until, told = time.monotonic() + SECONDS, []
    for result in wrong[:CASES]:
        if time.monotonic() > until or result.diagnosis.causes:
            break
        case = cases[result.case]
        found = facts(kind, submission, case) or contrast.find(kind, submission, case, seed, changes(case))
        found = [with_line(fact, result.diagnosis.evidence["records"]) for fact in found]
        result.diagnosis.measured += found
        told += [result.case] if found else []
    for result in wrong if told else ():
        if not result.diagnosis.causes and not result.diagnosis.measured:
            result.diagnosis.shown_by = result.diagnosis.shown_by or told[0]


def size(case):
    return case.N == 1, case.N * case.N * case.B * case.Hq * case.D


# Which pairs ----------------------------------------------------------------------------------------------------------


def facts(kind, submission, case):
    """[Measured] on the pairs that count though hidden, or do not though visible, in dv and in dq."""
    if case.N > MOST_TOKENS:
        return []
    case, found = replace(case, D=WIDTH, dtype="float32", layout="contiguous", gradient="", values="normal"), []
    seen = gradients.seen_of(case, "cpu")
    p = seen.double() / seen.sum(1, keepdim=True)
    group = case.Hq // case.kv_heads
    value = torch.randn(case.N, generator=torch.Generator().manual_seed(0)).double()  # of each key, the column of V
    ds = p * (value - (p @ value)[:, None])
    of_dv, of_dk, of_dq = (weights(kind, submission, case, p, value, name) for name in ("dv", "dk", "dq"))
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


def call_sets(kind, submission, case, sets, output):
    """[that output, float64] of each set of tensors; None where there is none of its shape."""
    placed = [[tensors.place(each) for each in one] for one in sets]
    asked = [kind.request(submission.problem, case, one, submission.device) for one in placed]
    data = b"".join(files["inputs.bin"] for _, files in asked)
    reply = submission.run(RunSets(asked[0][0], len(sets)), {"inputs.bin": data}).reply
    if not isinstance(reply, Outputs) or len(reply.outputs) != len(OUTPUTS) * len(sets):
        return None
    found = tensors.read_outputs(submission.take_outputs(reply), reply.outputs)[OUTPUTS.index(output) :: len(OUTPUTS)]
    shape = dict(zip(OUTPUTS, (each[1] for each in kind.outputs(submission.problem, case)), strict=True))[output]
    return None if any(tuple(each.shape) != tuple(shape) for each in found) else [each.double() for each in found]


def columns(shape):
    """Tensors (B, H, N, WIDTH): each row has a 1 in a column of its own, in one of them."""
    N = shape[2]
    for start in range(0, N, WIDTH):
        count = min(WIDTH, N - start)
        found = torch.zeros(shape)
        found[:, :, start : start + count, :count] = torch.eye(count)
        yield found


def weights(kind, submission, case, p, value, name):
    """(B, H, N, N), queries first: what each pair adds to dv, dk or dq, where V has one column, `value`."""
    queries, keys = (case.B, case.Hq, case.N, WIDTH), (case.B, case.kv_heads, case.N, WIDTH)
    lse = torch.log(torch.count_nonzero(p, 1).float()).expand(queries[:3]).contiguous()
    do, v, o = torch.zeros(queries), torch.zeros(keys), torch.zeros(queries)
    do[..., 0], v[..., 0], o[..., 0] = 1.0, value.float(), (p @ value).float()
    zeros, none = torch.zeros(queries), torch.zeros(keys)
    sets = {
        "dv": lambda: [(do, zeros, none, none, zeros, lse) for do in columns(queries)],
        "dk": lambda: [(do, q, none, v, o, lse) for q in columns(queries)],
        "dq": lambda: [(do, zeros, k, v, o, lse) for k in columns(keys)],
    }[name]()
    found = call_sets(kind, submission, case, sets, name)
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
    for which, words, question in (
        (lost, f"{names} get no part from visible pairs", mistakes.WHO_SEES),
        (shown, f"{names} get a part from hidden pairs", mistakes.WHO_SEES),
    ):
        if not which.any():
            continue
        batch, head = which.flatten(2).any(-1).nonzero()[0].tolist()
        pairs = which[batch, head]
        rows = pairs.any(1).nonzero().flatten()
        first = int(rows[0])
        same = [int(row) for row in rows if torch.equal(pairs[row], pairs[first])]
        last = first
        while last + 1 in same:
            last += 1
        more = len(rows) - (last - first + 1)
        where = "" if which.flatten(2).any(-1).all() else f" of batch {batch}, head {head}"
        also = f" (and {more} more {mine} with others)" if more else ""
        said = f"{EQUAL}{words}{where}: {counted(mine, span(first, last))} with "
        said += f"{counted(theirs, spans(pairs[first]))}{also}."
        queries_first = pairs.T if mine == "keys" else pairs
        fact = Measured("pairs", said, question, mistakes.MASK)
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
    edges = torch.nn.functional.pad(row.int(), (1, 1)).diff()
    found = [span(a, b - 1) for a, b in zip((edges == 1).nonzero(), (edges == -1).nonzero(), strict=True)]
    return ", ".join(found[:3]) + (" ..." if len(found) > 3 else "")


def counted(what, numbers):
    """`key 3`, `keys 3-5` of `keys` and the numbers."""
    return f"{what.removesuffix('s') if numbers.isdecimal() else what} {numbers}"


def span(first, last):
    first, last = int(first), int(last)
    return str(first) if first == last else f"{first}-{last}"


# One thing changed ----------------------------------------------------------------------------------------------------


def changes(case):
    yield (replace(case, dtype="float32"), "dtype", "in float32", "which numbers are rounded to the input's dtype?",
           mistakes.SOFTMAX)  # fmt: skip
    yield (replace(case, layout="contiguous", gradient=""), "layout", "with dense tensors",
           "which stride of which tensor is taken?", mistakes.HEADS)  # fmt: skip
    yield (replace(case, values="normal"), "values", "with scores of ordinary size", LARGE_SCORES, mistakes.LSE)
    yield (replace(case, Hkv=case.Hq), "groups", "where each query head has its own K and V", mistakes.GROUP,
           mistakes.HEADS)  # fmt: skip
    yield (replace(case, B=1, Hq=1, Hkv=None), "heads", "with one batch and one head",
           "what moves from one head, or batch, to the next?", mistakes.HEADS)  # fmt: skip
    yield (replace(case, sinks=None), "sinks", "without sinks", mistakes.SINKS, mistakes.MASK)
    yield (replace(case, sinks=None, window=None), "window", "without a window", mistakes.WHO_SEES, mistakes.MASK)
    yield (replace(case, N=max(1, case.N // WHOLE) * WHOLE), "tail", "with whole tiles",
           "what lies past the end of the last tile?", mistakes.MASK)  # fmt: skip
    yield (replace(case, tiles=None), "tiles", "with the file's own tiles",
           "BLOCK_Q is the step of queries, BLOCK_K that of keys: which one stands in each place?",
           mistakes.MASK)  # fmt: skip
