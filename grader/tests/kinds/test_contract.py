"""The contract's classes meet in pairs in the cases; what is wrong inside it is rejected by some case."""

import pytest

from grader.engine import pairs
from grader.kinds.attention import contract, inputs
from grader.registry import EVERY
from grader.result import Outcome
from grader.tests.support import grade_text, solution, thorough_but

ATTENDS = {
    id: [case for case in (*EVERY[id].cases, *EVERY[id].memory_cases) if case.attends and not case.gpu]
    for id in contract.ASKED
}
GRADED = {id: [case for case in cases if case.fits_gpu] for id, cases in ATTENDS.items()}
ON_GPU = {id: [case for case in EVERY[id].cases if case.attends and case.gpu] for id in contract.ASKED}
TRITON = ["p3", "p4", "p5", "p6", "p7", "x1", "x3"]


@pytest.mark.parametrize("id", contract.ASKED)
def test_no_pair_of_classes_is_missing(id):
    assert contract.missing(id, GRADED[id]) == []


@pytest.mark.parametrize("id", contract.ASKED)
def test_a_case_taken_away_leaves_pairs_missing(id):
    """Here one that was added for its pairs."""
    added = next(case for case in reversed(GRADED[id]) if "pairs" in case.name)
    assert contract.missing(id, [case for case in GRADED[id] if case is not added])


@pytest.mark.parametrize("id", [id for id in contract.ASKED if id[0] == "p"])
def test_what_costs_too_much_in_the_interpreter_is_asked_on_a_gpu(id):
    assert contract.missing(id, ON_GPU[id], on_gpu=True) == []


@pytest.mark.parametrize("id", contract.ASKED)
def test_heads_and_batches_of_these_numbers(id):
    assert {case.Hq for case in GRADED[id]} >= {1, 2, 3, 5, 8, 9}
    assert {case.B for case in GRADED[id]} >= {1, 2, 5}  # 5: batch % 4 is another


@pytest.mark.parametrize("id", [*TRITON, "x4"])
def test_offsets_of_rows_heads_and_batches_pass_int32_in_one_case(id):
    (case,) = (case for case in EVERY[id].cases if not case.fits_gpu)
    given = dict(zip(EVERY[id].tensors, EVERY[id].kind.inputs(case, 0), strict=True))
    far = {}
    for name, placed in given.items():
        offsets = [(size - 1) * stride for size, stride in zip(placed.shape, placed.strides, strict=True)]
        far[name] = [dim for dim, offset in enumerate(offsets) if offset >= 2**31 > placed.strides[dim]]
    wanted = inputs.FAR[case.layout] if id != "x4" else {"k_cache": 1, "v_cache": 0}
    assert {name: far[name] for name in wanted} == {name: [dim] for name, dim in wanted.items()}


def test_a_value_of_no_class_is_named():
    case = EVERY["p3"].cases[0]
    with pytest.raises(ValueError, match=r"of no class, or of several: {'B': \[\]}"):
        pairs.classes_of(type(case)("none", B=0), contract.table("p3"))


# Wrong inside the contract: words of a solution, what stands there instead --------------------------------------------

LAUNCH = {"p3": "(triton.cdiv(N, BLOCK_Q), H, B)", "p4": "(triton.cdiv(N, BLOCK_Q), H, B)"} | dict.fromkeys(
    ("p5", "p6", "p7"), "(triton.cdiv(N, BLOCK_Q), Hq, B)"
)
EXTENDS = "*q.stride()[:3], *k.stride()[:3]"
GROUP, DOT, P1_SCORES = "Hq // k.shape[1]", "scores = tl.dot(q, tl.trans(k))", "k.float().transpose(-2, -1) * scale"
START = 'row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)'
ROWS = ".to(tl.int64)[:, None] * stride_"
FAR_ROWS = {id: next(case.layout[-1] for case in EVERY[id].cases if not case.fits_gpu) for id in LAUNCH}
HALF = "o = torch.empty_like(q)\n    q = torch.cat((q[..., :128], torch.zeros_like(q[..., 128:])), -1)"
CUT = "scores = tl.where(k_pos[None, :] < 1100, tl.dot(q, tl.trans(k)), float('-inf'))"
MISTAKES = {}
for id in ("p3", "p4", "p5", "p6", "p7"):
    heads = "Hq" if id in ("p5", "p6", "p7") else "H"
    MISTAKES |= {
        f"{id} four heads": (LAUNCH[id], LAUNCH[id].replace(f" {heads},", f" min({heads}, 4),")),
        f"{id} heads a power of two": (
            LAUNCH[id], LAUNCH[id].replace(f" {heads},", f" 1 << ({heads}.bit_length() - 1),"),
        ),
        f"{id} half of D = 256": ("o = torch.empty_like(q)", HALF),
        f"{id} 1100 tokens": (DOT, CUT),
        f"{id} row strides of 8": (EXTENDS, "*q.stride()[:3], *k.stride()[:2], k.stride(2) // 8 * 8"),
        f"{id} a maximum that begins at -30000": (START, START.replace('float("-inf")', "-30000.0")),
        f"{id} clamped scores": (
            DOT, f"{DOT} * qk_scale\n        scores = tl.minimum(tl.maximum(scores, -2e5), 6e4) / qk_scale",
        ),
        f"{id} head % 8": ("+ head * stride_qh", "+ head % 8 * stride_qh"),
        f"{id} batch % 4": ("Q += batch * stride_qb", "Q += batch % 4 * stride_qb"),
        f"{id} bfloat16 as float16": (DOT, "scores = tl.dot(q.to(tl.float16), tl.trans(k.to(tl.float16)))"),
        f"{id} rows in int32": (f"{ROWS}{FAR_ROWS[id]}n", f"[:, None] * stride_{FAR_ROWS[id]}n"),
        f"{id} heads in int32": ("tl.program_id(1).to(tl.int64)", "tl.program_id(1)"),
        f"{id} batches in int32": ("tl.program_id(2).to(tl.int64)", "tl.program_id(2)"),
    }  # fmt: skip
for id in ("p5", "p6", "p7"):
    MISTAKES |= {
        f"{id} groups of a power of two": (GROUP, f"triton.next_power_of_2({GROUP})"),
        f"{id} groups of Hq - Hkv": (GROUP, "max(1, Hq - k.shape[1])"),
    }
for id in ("p3", "p4", "p5", "p6", "p7"):
    seen = "k_pos[None, :] < N" if id == "p3" else "visible"
    MISTAKES[f"{id} hidden scores of -1e6"] = (
        f'tl.where({seen}, scores, float("-inf"))', f"tl.where({seen}, scores, -1e6 * 1.4427 / qk_scale)",
    )  # fmt: skip
MISTAKES |= {
    "p1 the mask of the first batch alone": (
        'scores = scores.masked_fill(future, float("-inf"))',
        'scores[0] = scores[0].masked_fill(future, float("-inf"))',
    ),
    "p1 half of D = 256": ("q.float() @ k.float()", "q.float()[..., :128] @ k.float()[..., :128]"),
    "p1 bfloat16 as float16": ("q.float() @ k.float()", "q.half().float() @ k.half().float()"),
    "p1 clamped scores": (P1_SCORES, f"{P1_SCORES}\n    scores = scores.clamp(-2e5, 6e4)"),
    "p1 hidden scores of -1e6": ('masked_fill(future, float("-inf"))', "masked_fill(future, -1e6)"),
    "p2 clamped scores": (
        "            # gap 3: the online update",
        "            scores = scores.clamp(-2e5, 6e4)\n            # gap 3: the online update",
    ),
    "p2 one maximum for all heads": ("scores.amax(dim=-1, keepdim=True)", "scores.amax(dim=(1, 3), keepdim=True)"),
    "p2 hidden scores of -1e6": ('masked_fill(k_pos > q_pos, float("-inf"))', "masked_fill(k_pos > q_pos, -1e6)"),
    "p4 128 keys without a mask": ("k_end = N\n", "k_end = tl.minimum(N, 128)\n"),
    "x3 keys past the end": ("visible = k_pos < N\n", "visible = k_pos < N + 1000\n"),
}  # fmt: skip
LOW, BF16 = ("lower", "lowest"), ("high", "lower", "lowest")
# What a case must have to show it; a few of these are run.
TELLS = {
    "four heads": lambda case: case.Hq > 4, "heads a power of two": lambda case: case.Hq & (case.Hq - 1),
    "half of D = 256": lambda case: case.D == 256 and case.values not in ("lower", "lowest", "high") and case.N > 1,
    "1100 tokens": lambda case: case.N > 1100,
    "row strides of 8": lambda case: case.layout == "odd rows" and case.N > 1,
    "a maximum that begins at -30000": lambda case: case.values in LOW,
    "clamped scores": lambda case: case.values in ("lowest", "high") and case.N > 1,
    "one maximum": lambda case: case.values == "uneven" and case.Hq > 1,
    "head % 8": lambda case: case.Hq > 8 and case.N > 1,
    "batch % 4": lambda case: case.B > 4 and case.N > 1,
    "bfloat16 as float16": lambda case: case.dtype == "bfloat16" and case.values in BF16 and case.N > 1,
    "rows": lambda case: not case.fits_gpu, "heads in": lambda case: not case.fits_gpu,
    "batches": lambda case: not case.fits_gpu,
    "groups": lambda case: case.kv_heads > 1 and case.Hq // case.kv_heads == 3,
    "hidden scores": lambda case: case.values == "lowest" and case.N > 1,
    "the mask": lambda case: case.causal and case.B > 1, "128 keys": lambda case: not case.causal and case.N > 128,
    "keys past": lambda case: not case.causal and case.values in LOW and case.N > 1,
}  # fmt: skip
SOME = 5  # cases of those that must show it


def telling(name):
    """The names of some cases that must show a mistake, those of the fewest scores."""
    tells = next(tells for words, tells in TELLS.items() if name[3:].startswith(words))
    found = sorted((case for case in ATTENDS[name[:2]] if tells(case)), key=lambda case: case.B * case.Hq * case.N**2)
    return [case.name for case in found[:SOME]]


QUICK = ["p1 the mask of the first batch alone", "p4 128 keys without a mask", "p5 groups of Hq - Hkv"]


@pytest.mark.parametrize("name", thorough_but(QUICK, MISTAKES))
def test_what_is_wrong_inside_the_contract_is_rejected(name, tmp_path):
    id, (was, now) = name[:2], MISTAKES[name]
    source = solution(id)
    assert was in source
    results = grade_text(tmp_path, id, source.replace(was, now), names=telling(name), hints=False)
    outcomes = {result.outcome for result in results}
    assert outcomes & {Outcome.WRONG, Outcome.UNSAFE, Outcome.CRASHED} and Outcome.GRADER_FAULT not in outcomes
