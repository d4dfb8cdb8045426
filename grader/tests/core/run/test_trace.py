"""The trace itself: what is legal, what is a fault, and that a kernel computes the same with and without it."""

import textwrap

import pytest

from grader.kinds.attention.cases import Case
from grader.result import Outcome
from grader.tests.support import grade_text

HEAD = """
import torch, triton
import triton.language as tl
"""
# A kernel that computes nothing of use; what it is asked here is what it touches.
TOUCH = """
@triton.jit
def touch(Q, O, n, D: tl.constexpr):
    row = tl.program_id(0)
    d = tl.arange(0, D)
    {body}

def flash_attention_forward(q, k, v, is_causal=False):
    o = torch.empty_like(q)
    {before}
    touch[({grid},)](q, o, q.shape[2], q.shape[3])
    return o
"""
COPY = "tl.store(O + row * D + d, tl.load(Q + row * D + d))"


def verdict(tmp_path, body, before="pass", grid="q.shape[2]", case=None):
    source = HEAD + TOUCH.format(body=textwrap.indent(textwrap.dedent(body), "    ").strip(), before=before, grid=grid)
    return verdict_of(tmp_path, source.removeprefix(HEAD), case or Case("x", N=5, D=16))


def verdict_of(tmp_path, source, case):
    (result,) = grade_text(tmp_path, "p3", HEAD + source, cases=[case])
    return result


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (COPY.replace("row * D + d))", "row * D + d + 1))"), "reads 1 elements outside Q"),
        (COPY.replace("Q + row", "Q - 16 + row"), "reads 16 elements outside Q"),
        (COPY.replace("Q + row", "Q + (1 << 33) + row"), "reads 80 elements outside Q"),
        (COPY.replace("O + row * D", "O + row * D + D"), "writes 16 elements outside O"),
        (COPY.replace("O + row * D", "O - row * D"), "outside O"),
        (COPY.replace("O + row * D + d", "O + row * D + d // 2"), "writes 40 elements of O twice in one store"),
        (COPY.replace("O + row * D", "O"), "writes 64 elements of O that another program has written"),
        (COPY.replace("Q + row", "O + (row + n - 1) % n") + "\n" + COPY, "elements of O that another program"),
        (COPY.replace("Q + row", "O + (row + 1) % n") + "\n" + COPY, "elements of O that another program"),
        ("x = tl.load(O + d)\nif row == n - 1:\n    tl.store(O + d, x)", "elements of O that another program reads"),
        ("tl.atomic_add(O + d, tl.load(Q + d))\nif row == n - 1:\n    tl.store(O + D + d, tl.load(O + d))",
         "elements of O that another program"),
        ("tl.atomic_add(O + row * D + D + d, tl.load(Q + row * D + d))", "updates 16 elements outside O"),
    ],
)  # fmt: skip
def test_faults(body, words, tmp_path):
    result = verdict(tmp_path, body)
    assert result.outcome is Outcome.UNSAFE and words in result.sentence, result.sentence
    assert "p3_flash_attention.py:" in result.sentence and "`" in result.sentence


@pytest.mark.parametrize(
    "body",
    [
        COPY,
        COPY.replace("d))", "d, mask=d < 16, other=0.0))"),
        "tl.store(O + row * D + d, tl.load(Q + row * D + d + 99999, mask=d < 0, other=0.0))",
        "tl.atomic_add(O + d, tl.load(Q + row * D + d))",
        COPY + "\ntl.store(O + row * D + d, tl.load(O + row * D + d) + 1.0)",
    ],
)
def test_no_fault(body, tmp_path):
    assert verdict(tmp_path, body).outcome is Outcome.WRONG  # it is no attention, but it is safe


STEP = """
@triton.jit
def kernel(Q, K, O, n, D: tl.constexpr, B: tl.constexpr):
    d, at = tl.arange(0, D), tl.arange(0, B)
    q = tl.load(Q + at[:, None] * D + d[None, :])
    acc = tl.zeros([B, D], tl.float32)
    for start in range(0, n, B):
        k = tl.load(K + (start + at)[:, None] * D + d[None, :])
        scores = tl.dot(q, tl.trans(k)) * 0.5
        row = tl.max(scores, 1)
        {mask}
        p = tl.where(row[:, None] == float("-inf"), 0.0, tl.exp(scores - row[:, None]))  # of a row, and no mask
        acc += tl.dot(p.to(k.dtype), k)
    tl.store(O + at[:, None] * D + d[None, :], acc.to(O.dtype.element_ty))

def flash_attention_forward(q, k, v, is_causal=False):
    o = torch.empty_like(q)
    kernel[(1,)](q, k, o, q.shape[2], q.shape[3], 16)
    return o
"""


@pytest.mark.parametrize(
    ("mask", "masked"),
    [
        ("pass", []),
        ('scores = tl.where(at[None, :] + start <= at[:, None], scores, float("-inf"))', [[0, 15], [16, 31]]),
        ('if start == 16:\n            scores = tl.where(at[None, :] < 4, scores, float("-inf"))', [[16, 31]]),
        ('scores += tl.where((at + start)[None, :] < n, 0.0, float("-inf"))', []),  # nothing is hidden by it
        ('scores += tl.where(at[None, :] <= at[:, None], 0.0, float("-inf"))', [[0, 15], [16, 31]]),
        ("scores += tl.where(at[:, None] < 99, 1.0, 0.0)", []),
    ],
)
def test_a_mask_on_the_scores_is_seen(mask, masked, tmp_path):
    result = verdict_of(tmp_path, STEP.replace("{mask}", mask), Case("x", N=32, D=16))
    assert result.facts.picture["visits"]["bands"][0]["masked"] == masked, result.sentence


def test_an_input_is_not_written_even_where_it_is_put_back(tmp_path):
    result = verdict(tmp_path, "x = tl.load(Q + d)\ntl.store(Q + d, x + 1.0)\ntl.store(Q + d, x)")
    assert result.outcome is Outcome.UNSAFE and "wrote into its input q" in result.sentence, result.sentence


def test_undefined_lanes_matter_only_where_they_are_used(tmp_path):
    used = COPY.replace("d))", "d, mask=d < 9))")
    result = verdict(tmp_path, used)
    assert result.outcome is Outcome.UNSAFE and "uses values of Q that its mask left undefined" in result.sentence
    hidden = "x = tl.load(Q + row * D + d, mask=d < 9)\ntl.store(O + row * D + d, tl.where(d < 9, x, 0.0))"
    assert verdict(tmp_path, hidden).outcome is Outcome.WRONG


def test_poison_between_the_heads_is_outside(tmp_path):
    """The storage goes on after the last token of a head; the tensor does not."""
    body = "tl.store(O + row * D + d, tl.load(Q + (row + 1) * D + d))"
    result = verdict(tmp_path, body, case=Case("x", N=5, D=16, layout="poisoned tail"))
    assert result.outcome is Outcome.UNSAFE and "reads 16 elements outside Q" in result.sentence


def test_a_larger_buffer_of_ones_own_may_be_read(tmp_path):
    """Padding in the wrapper: what lies around a view of a submission's own buffer is its own."""
    before = "wide = torch.zeros(q.shape[2] + 9, q.shape[3], dtype=q.dtype); o = wide[3:-6]; q = q.contiguous()"
    body = COPY.replace("d))", "d) + tl.load(O - 3 * D + d) + tl.load(O + (n + 5) * D + d))")
    result = verdict(tmp_path, body, before=before)
    assert result.outcome is Outcome.WRONG and "shape" in result.sentence


@pytest.mark.parametrize("added", ["tl.load(Q + row * D + d)", "tl.load(Q + row * D + d) + tl.zeros([D], tl.float32)"])
def test_atomics_without_a_mask_add_to_every_element(added, tmp_path):
    """Of one token v is the answer."""
    body = f"tl.atomic_add(O + row * D + d, tl.zeros([D], tl.float32))\n    tl.atomic_add(O + row * D + d, {added})"
    source = TOUCH.format(body=body, before="o.zero_(); q = v", grid="1")
    assert verdict_of(tmp_path, source, Case("x", N=1, D=16, dtype="float32")).outcome is Outcome.PASSED


@pytest.mark.parametrize("asked", ["tl.atomic_add(Q + d, tl.zeros([D], tl.float32))", "tl.atomic_add(Q, 0.0) + d"])
def test_what_an_atomic_returns_of_other_programs_is_no_number(asked, tmp_path):
    result = verdict(tmp_path, f"tl.store(O + row * D + d, {asked})",
                     before="q = q.float() * 0", case=Case("x", N=5, D=16, dtype="float32"))  # fmt: skip
    assert "NaN" in result.sentence, result.sentence


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("@triton.jit\ndef", "\f\n@triton.jit\ndef"),
        ("    row = tl", "    # a separator\u2028of lines\n    row = tl"),
        ("n, D: tl", "_grader_one_value, D: tl"),
        ("    row = tl", '    if hasattr(n, "__index__"):\n        n = 1\n    row = tl'),
    ],
)
def test_names_and_lines_of_a_kernel(was, now, tmp_path):
    """Whatever is Triton is legal."""
    source = TOUCH.format(body=COPY, before="q = v", grid="1")
    assert was in source
    result = verdict_of(tmp_path, source.replace(was, now, 1), Case("x", N=1, D=16))
    assert result.outcome is Outcome.PASSED, result.sentence
