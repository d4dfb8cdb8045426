"""The fast backward pass: its kernel run by tests' own means, the small ones around it by PyTorch; graded on a GPU."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
import torch

from grader.engine import compare_values
from grader.kinds.backward import inputs, reference
from grader.kinds.backward.cases import CASES
from grader.tests.support import ROOT, in_interpreter, thorough, thorough_but
from kernels.tests.for_hopper import compile_for_hopper
from kernels.tests.gluon_on_cpu import kernels

pytest.importorskip("triton.experimental.gluon.nvidia.hopper")

# Bytes of a thread that the compiler spills
SPILLS = {"backward, 64": 180, "backward, 128": 340, "backward, 256": 0}


@pytest.mark.thorough
def test_it_compiles_for_a_hopper_gpu():
    for name, facts in compile_for_hopper(*SPILLS).items():
        assert facts["kernel"] == "fast_backward_kernel" and facts["tma"] and facts["setmaxnreg"], name
        assert facts["as_the_driver_is_told"], name
        assert facts["shared_bytes"] <= facts["shared_limit"] and "wgmma" in facts["matrix_instructions"], name
        assert facts["spill_bytes"] <= SPILLS[name], (name, facts)


class Plain:
    """A kernel of plain Triton: `kernel[grid](...)` calls a function of PyTorch in its place."""

    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        return self

    def __call__(self, *given, **options):
        self.function(*given)
        return self


def prepare(o, do, lse, rows, dq, sink_logits, of_logits, *others):
    first_s, delta = rows
    N, scale = o.shape[2], o.shape[3] ** 0.5
    first_s.fill_(1e30 * scale)
    delta.zero_()
    first_s[..., :N], delta[..., :N] = lse * scale, (o.float() * do.float()).sum(-1)
    dq.fill_(0.0 if others[-1] else float("nan"))
    if sink_logits is not None:
        of_logits.zero_()[..., 0] = -((sink_logits[:, None] - lse).exp() * delta[..., :N]).sum(-1)


def sinks(q, k, v, do, rows, dq, part_dk, part_dv, *sizes):
    """In one part; the others are 0."""
    first_s, delta = rows
    group, N, sink_size, scale = q.shape[1] // k.shape[1], q.shape[2], part_dk.shape[4], q.shape[3] ** -0.5
    k, v = (x[:, :, :sink_size].float().repeat_interleave(group, 1) for x in (k, v))
    p = ((q.float() @ k.mT - first_s[..., :N, None]) * scale).exp().tril()
    ds = p * (do.float() @ v.mT - delta[..., :N, None])
    dq.copy_(ds @ k)
    for part, each in (part_dk, (ds * scale).mT @ q.float()), (part_dv, p.mT @ do.float()):
        part.zero_()
        part[..., 0, :, :] = each.unflatten(1, (-1, group))


def sum_parts(part_dk, part_dv, dk, dv, *sizes):
    for part, each in (part_dk, dk), (part_dv, dv):
        each[:, :, : part.shape[4]] = part.sum((2, 3))


def finish(sums, dq, scale, *others):
    dq.copy_(sums * scale)


def with_plain_kernels(module):
    module.prepare_kernel, module.sinks_kernel = Plain(prepare), Plain(sinks)
    module.sum_parts_kernel, module.finish_kernel = Plain(sum_parts), Plain(finish)
    return module


@in_interpreter
def test_the_plain_kernels_around_it_in_the_interpreter():
    child = ROOT / "kernels" / "tests" / "backward_parts_child.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(child)], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    assert all(off < 1e-4 for off in json.loads(done.stdout).values()), done.stdout


@pytest.fixture(scope="module")
def on_cpu():
    return with_plain_kernels(kernels.import_on_cpu()["fast_backward"])


def attention_backward(module):
    return partial(kernels.run, module.attention_backward)


def wrong(function, case, seed=0):
    """{output: facts} of what is wrong in a case of x3."""
    do, q, k, v, o, lse = (each.tensor for each in inputs.make(case, seed))
    got = function(do, q, k, v, o, lse, case.causal, case.window, case.sinks or 0)
    right = reference.REFERENCE.expect(case, [do, q, k, v], dict.fromkeys(reference.OUTPUTS, q.dtype))
    pairs = zip(reference.OUTPUTS, got, strict=True)
    found = {name: compare_values.mismatch(each, right.values[name], right.allowed[name]) for name, each in pairs}
    return {name: facts for name, facts in found.items() if facts}


def of_x3(D):
    """The cases of x3 that it takes, with this head dim, short ones."""
    taken = [case for case in CASES if not (case.gpu or case.tiles or "far" in case.layout)]
    sizes = {"D": D, "dtype": "bfloat16"}
    return {case.name: replace(case, **sizes) for case in taken if case.num_keys <= 300 and "pairs" not in case.name}


QUICK = ["ragged tail", "no mask, ragged tail", "groups of 3", "window", "sinks and window", "expanded gradient"]


@pytest.mark.parametrize("D", [64, 128, 256])
@pytest.mark.parametrize("name", thorough_but(QUICK, list(of_x3(64))))
def test_it_passes_the_cases_of_x3_without_a_gpu(D, name, on_cpu):
    assert not wrong(attention_backward(on_cpu), of_x3(D)[name])


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("D", [64, thorough(128), thorough(256)])
@pytest.mark.parametrize(
    ("window", "causal"), [(None, False), (None, True), (1, True), (130, True), thorough(200, True)]
)
def test_many_tiles_of_queries_and_of_keys(D, window, causal, deterministic, on_cpu):
    """In order a program that would wait for a later one is an error here: programs run one after another."""
    case = replace(of_x3(D)["ragged tail"], N=391, Hq=4, Hkv=2, B=2, window=window, causal=causal)
    assert not wrong(partial(attention_backward(on_cpu), deterministic=deterministic), case)


IN_ORDER = "newest", "k_tile"  # words of what only a deterministic call does
MET = "mbarrier.wait(program.met.index(0), (i & 1) ^ 1)"


@pytest.mark.parametrize(
    ("D", "old", "new"),
    [
        (128, "p = mask(gl.exp2(scores * program.qk_scale), program, tile, q_start, k_pos)\n            dp",
         "p = gl.exp2(scores * program.qk_scale)\n            dp"),
        thorough(128, f"    {MET}  # a fresh", "    # a fresh"),
        thorough(128, f"    {MET}\n    ds", "    ds"),
        (128, "    tma.store_wait(0)  # the part before has left the buffer (it", "    # (it"),
        thorough(128, "    mbarrier.wait(program.met.index(0), i & 1)\n", ""),
        (128, "(k_pos >= program.sink_size), 0.0, float(\"-inf\"))\n    no_keys", "True, 0.0, -1e30)\n    no_keys"),
        thorough(128, "(OWN, ROWS).store((dk * program.scale)", "(OWN, ROWS).store((dk)"),
        thorough(128, "k_start // BLOCK_Q * BLOCK_Q", "(k_start // BLOCK_Q + 1) * BLOCK_Q"),
        (256, "mbarrier.wait(program.met.index(1), i & 1)", "pass"),
        thorough(256, "mbarrier.wait(program.met.index(2), i & 1)", "pass"),
        thorough(256, "mbarrier.wait(program.met.index(0), turns & 1)", "pass"),
        thorough(256, "dq, 2 * i + 1)", "dq, 2 * i)"),
        (128, "newest = gl.minimum(q_start + program.BLOCK_Q, program.N) - 1", "newest = program.N - 1"),
        (128, "k_tile = key_tiles - 1 - k_tile", "k_tile += 0"),
        (256, "(program.dq_empty.index(consumer), (n & 1) ^ 1)", "(program.dq_empty.index(consumer), n & 1)"),
    ],
)  # fmt: skip
def test_a_mistake_shows(D, old, new):
    module = with_plain_kernels(kernels.import_on_cpu((old, new))["fast_backward"])
    case = replace(of_x3(D)["sinks and window"], N=257, Hq=6, B=4)  # many programs: who goes on first is drawn in each
    given = {"deterministic": True} if any(word in old for word in IN_ORDER) else {}
    try:
        failed = bool(wrong(partial(attention_backward(module), **given), case))
    except Exception:
        failed = True
    assert failed


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"D": 32}, "8, 32"),
        ({"dtype": torch.float32}, "float32"),
        ({"lse": torch.float16}, "lse"),
        ({"sink_logits": torch.zeros(1)}, "sink_logits must be"),
    ],
)
def test_what_it_cannot_do_is_said(changes, words):
    from kernels import fast_backward

    D, dtype = changes.get("D", 64), changes.get("dtype", torch.float16)
    q = torch.zeros(1, 2, 8, D, dtype=dtype)
    lse = torch.zeros(1, 2, 8, dtype=changes.get("lse", torch.float32))
    with pytest.raises(ValueError, match=words):
        fast_backward.attention_backward(q, q, q, q, q, lse, sink_logits=changes.get("sink_logits"))


@pytest.fixture
def on_hopper():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs a Hopper GPU")
    from kernels import fast_backward

    return fast_backward


def draw(D, window=None, N=3000):
    """(do, q, k, v, o, lse) on the GPU."""
    from solutions import x3_backward

    q, do, k, v = (torch.randn(2, H, N, D, device="cuda", dtype=torch.bfloat16) for H in (8, 8, 2, 2))
    return do, q, k, v, *x3_backward.attention_forward(q, k, v, True, window)


@pytest.mark.gpu
@pytest.mark.parametrize("D", [64, 128, 256])
@pytest.mark.parametrize(("causal", "window", "sinks"), [(True, None, 0), (False, None, 0), (True, 700, 4)])
def test_in_order_a_hundred_runs_give_the_same_bits(D, causal, window, sinks, on_hopper):
    call = partial(on_hopper.attention_backward, *draw(D, window), causal, window, sinks, None, True)
    first = call()
    assert all(all(map(torch.equal, first, call())) for _ in range(100))


@pytest.mark.gpu
@pytest.mark.parametrize("D", [64, 128, 256])
def test_a_launch_that_is_kept_serves_streams_threads_and_graphs(D, on_hopper):
    given, other = draw(D), draw(D)
    backward = partial(on_hopper.attention_backward, deterministic=True)
    first, of_other = backward(*given), backward(*other)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        beside = backward(*given)
    torch.cuda.synchronize()
    assert all(map(torch.equal, first, beside))
    with ThreadPoolExecutor(1) as pool:  # a thread that has called nothing of CUDA's
        assert all(map(torch.equal, of_other, pool.submit(backward, *other).result()))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = backward(*given)
    for mine, new in zip(given, other, strict=True):
        mine.copy_(new)
    graph.replay()
    assert all(map(torch.equal, of_other, captured))
