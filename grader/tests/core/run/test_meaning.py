"""A kernel means what it means compiled, and what does not compile is refused in words, with its line."""

import re

import pytest

from grader.kinds.attention.cases import Case
from grader.result import Outcome
from grader.tests.support import grade_text, solution, triton_version

# Of one token v is the answer.
MODULE = """
import torch, triton
import triton.language as tl
{before}
@triton.jit
def kernel(V, O, n, D: tl.constexpr):
    row = tl.program_id(0)
    d = tl.arange(0, D)
    x = tl.load(V + row * D + d)
    {body}
    tl.store(O + row * D + d, {stored})

def flash_attention_forward(q, k, v, is_causal=False):
    o = torch.empty_like(v)
    kernel[(1,)](v, o, 4, 16)
    return o
"""


def verdict(folder, body, stored="x + y * 0.0", before=""):
    text = MODULE.format(body=body.replace("\n", "\n    "), stored=stored, before=before)
    (result,) = grade_text(folder, "p3", text, cases=[Case("x", N=1, D=16)])
    return result


@pytest.mark.parametrize(
    ("body", "total"),
    [
        ("y = tl.where((d > 3) and (d < 8), 1.0, 0.0)", 4),
        ("y = tl.where((n > 3) and (d < 5) and not (d == 1), 1.0, 0.0)", 4),
        ("y = tl.where((D != 16) and undefined, 1.0, 0.0) + d * 0", 0),
        ("y = max(d, 8) + min(d, 8.0)", 248),
        ("y = d * 0.0\nm = n\nwhile m > 1 and m < 99:\n    m -= 1\n    y += 1.0", 48),
        ("y = d * 0.0\nif tl.max(d, 0) > 3 and not n == 5:\n    y += 1.0", 16),
        ("y = d * 0.0 + sum(d)", 1920),
    ],
)
def test_blocks_mean_what_they_mean_compiled(body, total, tmp_path):
    own = "@triton.jit\ndef sum(x):\n    return tl.sum(x, 0)\n"  # named like Python's
    result = verdict(tmp_path, body, f"tl.where(tl.sum(y, 0) == {total}, x, 0.0)", own)
    assert result.outcome is Outcome.PASSED, result.sentence


REFUSED = [
    ("y = x\nif d > 3:\n    y = x + 1", "take one number, and this is a whole block: choose with tl.where"),
    ("y = (x + 1) if d > 3 else x", "needs one value, not a block of 16 int1: choose element by element with tl.where"),
    ("y = x\nwhile y > 3:\n    y -= 1", "needs one value, not a block of 16 int1"),
    ("y = tl.where(d and d, 1, 0)", "`and`, `or` and `not` take booleans: compare first"),
    ("y = tl.where(not d, 1, 0)", "take booleans: compare first"),
    ("y = abs(x)", "Python's `abs` does not exist inside a kernel: use what tl has"),
    ("y = x\nfor i in range(n):\n    if i > 2:\n        break", "`break` does not exist inside a kernel"),
    ("y = x + tl.sum(tl.arange(0, 12), 0)", "power of 2"),
    ("h = tl.zeros([16, 8], tl.float16)\ny = x + tl.sum(tl.sum(tl.dot(h, tl.trans(h)), 1), 0)", "K >= 16"),
]
if triton_version() < (3, 9):
    REFUSED.append(("y = tl.where(2 < d < 5, 1.0, 0.0)", "write (a <= b) & (b < c)"))


@pytest.mark.parametrize(("body", "words"), REFUSED)
def test_what_does_not_compile_is_refused(body, words, tmp_path):
    result = verdict(tmp_path, body)
    assert result.outcome is Outcome.CRASHED and words in result.sentence, result.sentence
    assert re.search(r"p3_flash_attention\.py:\d+(:| in) `", result.sentence), result.sentence


@pytest.mark.parametrize(
    "body",
    [
        "y = tl.load(V + (row + 46341) * 46341 + d, mask=d < 0, other=0.0)",
        "y = tl.where(row + n + 2147483640 + d > 5, 1.0, 0.0)",
        "y = x\nfor i in range(tl.minimum((n << 30) + n, 3)):\n    y = x + 1",
        "y = tl.where((d[:, None] + 2147483640 < d[None, :]), 1.0, 0.0)\ny = tl.sum(y, 0)",
    ],
)
def test_int32_overflow_is_unsafe(body, tmp_path):
    result = verdict(tmp_path, body)
    assert result.outcome is Outcome.UNSAFE and "pass 2^31" in result.sentence, result.sentence
    assert "p3_flash_attention.py:" in result.sentence and "`" in result.sentence


@pytest.mark.parametrize(
    "body",
    [
        "y = tl.rand(n, row * D + d)",
        "s = (d + n) * 1103515245 + 12345\ny = tl.where((s >> 16) & 1 == 0, 1.0, 0.0)",
        "s = (d + n) * 1103515245 + 12345\ny = tl.load(V + (s & 15))",
        "y = tl.load(V + (row.to(tl.int64) + 46341) * 46341 + d, mask=d < 0, other=0.0)",
        "s = (d.to(tl.uint32) + 7) * 2654435761\ny = tl.where(s > 7, 1.0, 0.0)",
    ],
)
def test_random_numbers_may_wrap(body, tmp_path):
    result = verdict(tmp_path, body)
    assert result.outcome is Outcome.PASSED, result.sentence


def test_bfloat16_prints_as_numbers(tmp_path):
    source = solution("p3").replace(
        "    o = acc / row_sum", '    tl.device_print("q", q * 0 + 0.5)\n    o = acc / row_sum'
    )
    (result,) = grade_text(tmp_path, "p3", source, cases=[Case("x", N=4, D=16, dtype="bfloat16")])
    assert result.outcome is Outcome.PASSED and "0.5" in result.printed, result
