"""The fast form and the step before it: run by tests' own means or compiled without a GPU, graded on a Hopper GPU."""

import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch

from grader.engine import compare_values
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.kinds.attention import inputs, oracle
from grader.kinds.attention.masks import Visibility
from grader.registry import PROBLEMS
from grader.result import Outcome
from grader.tests.support import KERNELS, ROOT, thorough, thorough_but
from kernels import tile_plan
from kernels.tests.for_hopper import compile_for_hopper
from kernels.tests.gluon_on_cpu import kernels

pytest.importorskip("triton.experimental.gluon.nvidia.hopper")
DTYPES = ("float16", "bfloat16")
LADDER = ("p3", "p4", "p5", "p6", "p7")


@pytest.fixture(scope="module")
def fast():
    from kernels import fast_attention

    return fast_attention


@pytest.fixture(scope="module")
def on_cpu():
    return kernels.import_on_cpu()["fast_attention"]


# Bytes of a thread that the compiler spills, all of them outside of the inner loop
SPILLS = {"long, 64": 240, "long, 256": 16}
SHORT_ONES, LONG_ONES = ["full", "causal", "window", "many sinks, long"], ["long, 64", "long, 128", "long, 256"]


@pytest.mark.parametrize("masks", [["few sinks"], thorough(SHORT_ONES), thorough(LONG_ONES)])
def test_it_compiles_for_a_hopper_gpu(masks):
    found = compile_for_hopper(*masks)
    assert list(found) == masks
    for name, facts in found.items():
        assert facts["kernel"] == "fast_attention_kernel" and facts["tma"] and facts["setmaxnreg"], name
        assert facts["shared_bytes"] <= facts["shared_limit"] and "wgmma" in facts["matrix_instructions"], name
        assert facts["spill_bytes"] <= SPILLS.get(name, 0), name


def test_registers_and_barriers_fit_a_multiprocessor(fast):
    known = {form for forms in tile_plan.FORMS.values() for form in forms}
    for _, consumers, _, programs in known | {*tile_plan.WINDOWS.values(), *tile_plan.SHORT.values()}:
        at_launch, registers = fast.registers_for(consumers, programs)
        assert at_launch % 8 == registers % 8 == 0 and registers <= 255
        assert programs * at_launch * 128 * (consumers + 1) <= 65536
        assert 128 * (consumers * registers + fast.FOR_PRODUCER.value) <= at_launch * 128 * (consumers + 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dtype": torch.float32}, "float32"),
        ({"D": 48}, "D=48"),
        ({"Hkv": 3}, "Hq=4, Hkv=3"),
        ({}, "got cpu, cpu, cpu"),
    ],
)
def test_what_it_cannot_do_is_said(fast, arguments, words):
    D, Hkv, dtype = arguments.get("D", 64), arguments.get("Hkv", 2), arguments.get("dtype", torch.float16)
    q, k = torch.zeros(1, 4, 8, D, dtype=dtype), torch.zeros(1, Hkv, 8, D, dtype=dtype)
    with pytest.raises(ValueError, match=words):
        fast.flash_attention_forward(q, k, k)


def faults(attention, problem, device):
    """What is wrong in the cases of the ladder: each in float16 or bfloat16, the others in float16 instead."""
    failed = {}
    for case in PROBLEMS[problem].cases:
        if device == "cpu" and case.gpu:
            continue
        placed = inputs.make(case if case.dtype in DTYPES else replace(case, dtype="float16"), seed=0)
        q, k, v = (replace(each, base=each.base.to(device)).tensor for each in placed)
        o = attention(q, k, v, case.causal, case.window, case.sinks or 0)
        expected = oracle.expect(q, k, v, case.visibility)
        if facts := compare_values.mismatch(o, expected.o, expected.allowed_o):
            failed[case.name] = facts
    return failed


@pytest.mark.parametrize("problem", thorough_but(["p3"], LADDER))
def test_it_passes_the_cases_of_the_ladder_without_a_gpu(problem, on_cpu):
    assert not faults(partial(kernels.run, on_cpu.flash_attention_forward), problem, "cpu")


@pytest.mark.parametrize(
    ("D", "form"), [(128, 0), (128, 1), (256, 0), (64, 2), thorough(64, 0), thorough(64, 1), thorough(64, 3)]
)
@pytest.mark.parametrize(
    ("N", "causal", "window", "sinks", "group"),
    [(450, False, None, 0, 1), (450, True, None, 0, 2), (400, True, 150, 40, 4), (200, True, 1024, 9, 8)],
)
@pytest.mark.parametrize("multiprocessors", [2, thorough(132)])
def test_many_tiles_for_a_program(D, form, N, causal, window, sinks, group, multiprocessors, on_cpu, monkeypatch):
    """Forms for all rows, and q, k and v in one buffer: 2 tiles a program and more; on 132 multiprocessors one."""
    monkeypatch.setattr(tile_plan, "forms", lambda *_: {[*tile_plan.FORMS[D]][form]: (1, 0)})
    torch.manual_seed(0)
    all_heads = torch.randn(2 if group < 8 else 1, N, group + 2, D).bfloat16().transpose(1, 2)
    q, k, v = all_heads[:, :group], all_heads[:, group : group + 1], all_heads[:, group + 1 :]
    arguments = q, k, v, causal, window, sinks
    o = kernels.run(on_cpu.flash_attention_forward, *arguments, multiprocessors=multiprocessors)
    expected = oracle.expect(q, k, v, Visibility(causal, window, sinks))
    assert compare_values.mismatch(o, expected.o, expected.allowed_o) is None


@pytest.mark.parametrize("logits", [None, (0.0, 3.0, -2.0, 40.0)])
@pytest.mark.parametrize(("D", "window", "sinks"), [(64, None, 0), (128, 70, 3), thorough(256, 70, 40)])
def test_lse_and_learned_sinks(D, window, sinks, logits, on_cpu):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, 200, D).bfloat16() for heads in (4, 2, 2))
    logits = None if logits is None else torch.tensor(logits)
    o, lse = kernels.run(on_cpu.flash_attention_forward, q, k, v, True, window, sinks, logits, True)
    expected = oracle.expect(q, k, v, Visibility(True, window, sinks))
    with_sinks = expected.lse if logits is None else torch.logaddexp(expected.lse, logits.double()[:, None])
    part = (expected.lse - with_sinks).exp()[..., None]  # of a row's weight, that its keys keep
    assert (lse - with_sinks).abs().max() < 1e-4
    assert ((o - expected.o * part).abs() <= expected.allowed_o * part + 1e-4).all()


@pytest.mark.parametrize("D", [128, thorough(64), thorough(256)])
@pytest.mark.parametrize("sinks", [0, thorough(4)])
def test_pivots_that_become_too_low_are_raised(D, sinks, on_cpu):
    """Exponentials that grow 2^18 times from one tile to the next older one, in some rows; in others 24 times."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 600, D).half() for _ in range(3))
    q[..., 0] = torch.where(torch.arange(600) % 3 == 0, 4.0, 1.0)
    k[..., 0] = torch.arange(600, 0, -1).half() * (0.05 * D**0.5)
    window = 400 if sinks else None
    o = kernels.run(on_cpu.flash_attention_forward, q, k, v, True, window, sinks)
    expected = oracle.expect(q, k, v, Visibility(True, window, sinks))
    assert compare_values.mismatch(o, expected.o, expected.allowed_o) is None


@pytest.mark.parametrize("where", "qk")
def test_nan_is_not_hidden(where, on_cpu):
    """One NaN in token 300 of head 0: the rows that see it are NaN, the others are not."""
    given = {name: torch.randn(1, 2, 400, 64).half() for name in "qkv"}
    given[where][0, 0, 300, 5] = float("nan")
    nan = kernels.run(on_cpu.flash_attention_forward, *given.values(), True).isnan()
    rows = nan.any(-1)
    assert rows[0, 0, 300] and not rows[0, 1].any() and not rows[0, 0, :300].any()
    assert rows[0, 0, 301:].all() == (where != "q")


def test_an_illegal_stride_is_refused_also_where_a_copy_would_be_made(on_cpu):
    q = torch.zeros(1, 1, 8, 64, 3, dtype=torch.float16)[..., 1]  # starts 2 bytes after a multiple of 16
    assert q.data_ptr() % 16 and q.stride(3) == 3
    with pytest.raises(ValueError, match="the last stride must be 1"):
        kernels.run(on_cpu.flash_attention_forward, q, q, q)


@pytest.mark.gpu
@pytest.mark.parametrize("problem", LADDER)
def test_it_passes_the_cases_of_the_ladder(problem, fast):
    """D = 256 and thousands of tokens included."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs a Hopper GPU")
    assert not faults(fast.flash_attention_forward, problem, "cuda")


@pytest.mark.gpu
def test_what_is_kept_of_a_call_serves_other_tensors_streams_graphs_and_gpus(fast):
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs a Hopper GPU")

    def draw(device="cuda"):
        return [torch.randn(2, 4, 300, 64, dtype=torch.float16, device=device) for _ in range(3)]

    def fault(o, q, k, v):
        expected = oracle.expect(q, k, v, replace(PROBLEMS["p4"].cases[0], N=300, D=64, causal=True).visibility)
        return compare_values.mismatch(o, expected.o, expected.allowed_o)

    given, other = draw(), draw()
    assert not fault(fast.flash_attention_forward(*given), *given)
    kept = len(fast.LAUNCHES.kept)
    assert not fault(fast.flash_attention_forward(*other), *other) and len(fast.LAUNCHES.kept) == kept
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        beside = fast.flash_attention_forward(*given)
    torch.cuda.synchronize()
    assert not fault(beside, *given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = fast.flash_attention_forward(*given)
    for mine, new in zip(given, other, strict=True):
        mine.copy_(new)
    graph.replay()
    torch.cuda.synchronize()
    assert not fault(captured, *other)
    for index in range(torch.cuda.device_count()):
        there = draw(f"cuda:{index}")
        assert not fault(fast.flash_attention_forward(*there), *there)


@pytest.mark.gpu
def test_it_does_not_hang(tmp_path):
    """A thousand launches of programs so short that their barriers are hardly initialised when they are used."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs a Hopper GPU")
    script = tmp_path / "many.py"
    script.write_text(
        f"import sys, torch\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from kernels.fast_attention import flash_attention_forward as fast\n"
        "for D in (64, 128):\n    q = torch.randn(1, 32, 4096, D, dtype=torch.bfloat16, device='cuda')\n"
        "    for _ in range(500):\n        fast(q, q[:, :8], q[:, 8:16], True, 128, 0)\n"
        "torch.cuda.synchronize()\n",
        "utf-8",
    )
    assert subprocess.run([sys.executable, script], timeout=90).returncode == 0


@pytest.mark.parametrize("problem", thorough_but(["p4"], ["p3", "p4", "p5"]))
def test_the_step_before_it_is_right(problem, tmp_path):
    """P4 with descriptors, in the interpreter: the cases of the ladder that its head dims and dtypes allow."""
    path, known = KERNELS / "p4_with_descriptors.py", PROBLEMS[problem]
    cases = tuple(c for c in known.cases if c.D == 64 and c.dtype in DTYPES and c.layout == "contiguous" and not c.gpu)
    asked = replace(known, module=path.name, cases=cases, speed_case=None, counts_work=False)
    text = path.read_text("utf-8").replace("is_causal=True):", f"is_causal={problem != 'p3'}):")
    (tmp_path / path.name).write_text(text, "utf-8")
    names = frozenset(case.name for case in cases)
    results = grade(Request(tmp_path, (asked,), names, "cpu", 0), lanes=1)
    assert cases and [(r.case, r.sentence) for r in results if r.outcome is not Outcome.PASSED] == []
