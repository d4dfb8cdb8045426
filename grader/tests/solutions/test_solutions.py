"""The reference solutions: full points, other seeds, odd sizes, and a ValueError for every illegal argument."""

import importlib.util
import itertools

import pytest
import torch

from grader import score
from grader.kinds.attention.cases import Case
from grader.registry import PROBLEMS
from grader.result import Outcome
from grader.tests.support import SOLUTIONS, grade_text, solution, thorough

IDS = list(PROBLEMS)
TRITON_IDS = [id for id, problem in PROBLEMS.items() if problem.uses_triton]


@pytest.mark.parametrize(("id", "seed"), [*((id, 0) for id in IDS), thorough("p2", 7), thorough("p7", 7)])
def test_full_points(id, seed, tmp_path):
    results = grade_text(tmp_path, id, solution(id), seed=seed)
    assert [(r.case, r.sentence) for r in results if r.outcome is not Outcome.PASSED] == []
    assert score.total(results) == (PROBLEMS[id].points, PROBLEMS[id].points)


@pytest.mark.parametrize("id", ["p6", thorough("p7")])
def test_every_window_and_sinks(id, tmp_path):
    """Sizes around the edges of tiles (32 in the interpreter), where phases begin, end, meet and vanish."""
    sizes = itertools.product((31, 33, 95), (1, 2, 31, 32, 33, 64, 200), (0, 1, 32, 40) if id == "p7" else (None,))
    cases = [
        Case(f"{N} {window} {sinks}", N=N, D=16, dtype="float32", causal=True, window=window, sinks=sinks)
        for N, window, sinks in sizes
    ]
    results = grade_text(tmp_path, id, solution(id), cases=cases)
    assert [(r.case, r.sentence) for r in results if r.outcome is not Outcome.PASSED] == []


@pytest.mark.parametrize("id", ["p4", "p5"])
def test_full_attention_too(id, tmp_path):
    cases = [Case(f"{N}", N=N, D=16, dtype="float32", causal=False) for N in (1, 32, 33, 100)]
    results = grade_text(tmp_path, id, solution(id), cases=cases)
    assert [(r.case, r.sentence) for r in results if r.outcome is not Outcome.PASSED] == []


def load(id):
    spec = importlib.util.spec_from_file_location(id, SOLUTIONS / PROBLEMS[id].module)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, PROBLEMS[id].entry_point)


def zeros(*shape, dtype=torch.float16):
    return torch.zeros(shape, dtype=dtype)


ILLEGAL = {
    "three dimensions": ((zeros(2, 5, 16),) * 3, "(2, 5, 16)"),
    "no tokens": ((zeros(1, 2, 0, 16),) * 3, "(1, 2, 0, 16)"),
    "head dim": ((zeros(1, 2, 5, 24),) * 3, "D=24"),
    "k and v differ": ((zeros(1, 2, 5, 16), zeros(1, 2, 5, 16), zeros(1, 2, 6, 16)), "(1, 2, 6, 16)"),
    "batches differ": ((zeros(3, 2, 5, 16), zeros(1, 2, 5, 16), zeros(1, 2, 5, 16)), "(3, 2, 5, 16)"),
    "dtypes differ": (
        (zeros(1, 2, 5, 16), zeros(1, 2, 5, 16), zeros(1, 2, 5, 16, dtype=torch.float32)),
        "torch.float32",
    ),
    "float64": ((zeros(1, 2, 5, 16, dtype=torch.float64),) * 3, "torch.float64"),
}


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("what", ILLEGAL)
def test_illegal_tensors(id, what):
    tensors, offending = ILLEGAL[what]
    with pytest.raises(ValueError) as error:
        load(id)(*tensors)
    assert offending in str(error.value)


@pytest.mark.parametrize("id", TRITON_IDS)
def test_illegal_last_stride(id):
    transposed = zeros(1, 2, 16, 16).transpose(2, 3)
    with pytest.raises(ValueError, match="last stride must be 1"):
        load(id)(transposed, transposed, transposed)


@pytest.mark.parametrize(
    ("id", "heads", "arguments", "offending"),
    [
        ("p1", (2, 2), {"is_causal": True, "keys": 9}, "Nk=9"),
        ("p2", (2, 2), {"is_causal": True, "keys": 9}, "Nk=9"),
        ("p4", (4, 2), {}, "(1, 2, 5, 16)"),
        ("p5", (4, 3), {}, "Hkv=3"),
        ("p3", (2, 2), {"is_causal": True}, "is_causal=True"),
        ("p6", (2, 2), {"is_causal": False}, "is_causal=False"),
        ("p6", (2, 2), {"window_size": 0}, "window_size=0"),
        ("p7", (2, 2), {"window_size": -1}, "window_size=-1"),
        ("p7", (2, 2), {"sink_size": -1}, "sink_size=-1"),
    ],
)
def test_illegal_arguments(id, heads, arguments, offending):
    keys = arguments.pop("keys", 5) if "keys" in arguments else 5
    q, k = zeros(1, heads[0], 5, 16), zeros(1, heads[1], keys, 16)
    with pytest.raises(ValueError) as error:
        load(id)(q, k, k, **arguments)
    assert offending in str(error.value)


@pytest.mark.gpu
@pytest.mark.parametrize("id", TRITON_IDS)
def test_offsets_past_2_to_the_31(id):
    """The last head of a tensor of more than 2^31 elements: int32 offsets would read and write somewhere else."""
    B, H, N, D = 9, 16, 131072, 128
    big = torch.empty(B, H, N, D, dtype=torch.float16, device="cuda")
    q = big[:, :, :200]
    q.normal_()
    attend = load(id)
    got = attend(q, q, q)[-1:, -1:]
    last = q[-1:, -1:].contiguous()
    assert torch.equal(got, attend(last, last, last))
