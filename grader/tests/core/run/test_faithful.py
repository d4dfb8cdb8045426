"""The interpreter computes what a compiled kernel computes, or refuses what does not compile, with the line."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from grader.core.sandbox.submission import Submission
from grader.course import tensors
from grader.kinds.attention import inputs
from grader.kinds.attention.cases import Case
from grader.kinds.registry import PROBLEMS, handler_of
from grader.result import Outcome
from grader.tests.support import ROOT, grade_text, solution, thorough, triton_version

ARITHMETIC = Path(__file__).with_name("arithmetic.py")
HEAD = """
import torch, triton
import triton.language as tl

@triton.jit
def kernel(Q, O, n, D: tl.constexpr):
    row = tl.program_id(0)
    d = tl.arange(0, D)
    x = tl.load(Q + row * D + d)
"""
WRAPPER = """
    tl.store(O + row * D + d, y)

def flash_attention_forward(q, k, v, is_causal=False):
    o = torch.empty_like(q)
    kernel[(q.shape[2],)](q, o, q.shape[2], q.shape[3])
    return o
"""
CASE = Case("x", N=4, D=16)


def verdict(tmp_path, body):
    source = HEAD + textwrap.indent(textwrap.dedent(body), "    ") + WRAPPER
    (result,) = grade_text(tmp_path, "p3", source, cases=[CASE])
    return result


def computed(tmp_path, body, head=HEAD):
    """The mean of what the kernel wrote."""
    path = tmp_path / PROBLEMS["p3"].module
    path.write_text(head + textwrap.indent(textwrap.dedent(body), "    ") + WRAPPER, encoding="utf-8")
    submission = Submission(path, PROBLEMS["p3"], "cpu", 30)
    try:
        answer = handler_of(PROBLEMS["p3"], CASE).reply(submission, CASE, inputs.make(CASE, 0))
        assert answer.returned, answer
        (o,) = tensors.read_outputs(submission.take_outputs(answer.reply), answer.reply.outputs)
    finally:
        submission.close()
    return o.double().mean().item()


@pytest.mark.parametrize("mended", [True, thorough(False)])
def test_arithmetic_equals_torch(mended):
    """Every operation on random and special values; without the mending most differ, so the comparison can fail."""
    arguments = [sys.executable, "-W", "ignore", str(ARITHMETIC), *([] if mended else ["plain"])]
    run = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=ROOT)
    differing = [line for line in run.stdout.splitlines() if line.startswith("torch.")]
    assert differing == [] if mended else len(differing) > 15, run.stdout


@pytest.mark.parametrize(
    ("body", "share"),
    [
        ("y = tl.where((d > 3) and (d < 8), 1.0, 0.0)", 4 / 16),
        thorough("y = tl.where((d < 3) or (d > 11), 1.0, 0.0)", 7 / 16),
        ("y = tl.where(not (d < 5), 1.0, 0.0)", 11 / 16),
        ("y = tl.where((n > 3) and (d < 5) and not (d == 1), 1.0, 0.0)", 4 / 16),
        thorough("y = tl.where((D == 16) and (d < 5), 1.0, 0.0)", 5 / 16),
        thorough("y = tl.where((D != 16) and undefined, 1.0, 0.0) + d * 0", 0.0),
        ("y = max(d, 8) + 0.0", (8 * 9 + 9 + 10 + 11 + 12 + 13 + 14 + 15) / 16),
        thorough("y = min(d, 8.0)", (28 + 8 * 8) / 16),
        thorough("y = d * 0.0 + max(n, 3) + max(D, 99)", 103.0),
        ("y = d * 0.0\nif n > 3 and not n == 5:\n    y += 1.0", 1.0),
        thorough("y = (d + 1.0 if n > 3 else d) * 0.0 + 1.0", 1.0),
        ("y = d * 0.0\nm = n\nwhile m > 1 and m < 99:\n    m -= 1\n    y += 1.0", 3.0),
        thorough("y = d * 0.0\nif tl.max(d, 0) > 3:\n    y += 1.0", 1.0),
    ],
)
def test_blocks_mean_what_they_mean_compiled(body, share, tmp_path):
    assert computed(tmp_path, body) == pytest.approx(share)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("y = x\nif d > 3:\n    y = x + 1", "`if` needs one value, not a block of 16 int1"),
        thorough("y = (x + 1) if d > 3 else x", "`if` needs one value"),
        ("y = x\nwhile y > 3:\n    y -= 1", "`while` needs one value"),
        ("y = tl.where(d and d, 1, 0)", "`and` takes booleans, not a block of 16 int32"),
        thorough("y = tl.where(not d, 1, 0)", "`not` takes booleans"),
        ("y = abs(x)", "Python's `abs` does not exist inside a kernel: use tl.abs"),
        thorough("y = x + sum(x)", "use tl.sum"),
        ("y = x\nfor i in range(n):\n    if i > 2:\n        break", "`break` does not exist inside a kernel"),
        ("y = x + tl.sum(tl.arange(0, 12), 0)", "power of 2"),
        ("h = tl.zeros([16, 8], tl.float16)\ny = x + tl.sum(tl.sum(tl.dot(h, tl.trans(h)), 1), 0)", "K >= 16"),
    ],
)
def test_what_does_not_compile_is_refused(body, words, tmp_path):
    result = verdict(tmp_path, body)
    assert result.outcome is Outcome.CRASHED and words in result.sentence, result.sentence
    assert re.search(r"p3_flash_attention\.py:\d+(:| in) `", result.sentence), result.sentence


def test_chained_comparisons_as_this_triton_compiles_them(tmp_path):
    body = "y = tl.where(2 < d < 5, 1.0, 0.0)"
    if triton_version() < (3, 9):
        result = verdict(tmp_path, body)
        assert result.outcome is Outcome.CRASHED and "chained comparison does not compile" in result.sentence
    else:
        assert computed(tmp_path, body) == pytest.approx(2 / 16)


@pytest.mark.parametrize("name", ["interpreter_semantic", "_InterpreterComparison"])
def test_what_the_interpreter_puts_into_a_kernel_is_no_name_for_one(name, tmp_path):
    result = verdict(tmp_path, f"y = {name}(x)")
    assert result.outcome is Outcome.CRASHED and f"`{name}` is no name for a kernel" in result.sentence


def test_a_function_of_the_modules_own_named_like_pythons(tmp_path):
    own = "\n@triton.jit\ndef sum(x):\n    return tl.sum(x, 0)\n"
    assert computed(tmp_path, "y = d * 0.0 + sum(d)", HEAD.replace("\n@triton.jit", own + "\n@triton.jit", 1)) == 120


@pytest.mark.parametrize(
    "body",
    [
        "y = tl.load(Q + (row + 46341) * 46341 + d, mask=d < 0, other=0.0)",
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
        "s = (d + n) * 1103515245 + 12345\ny = tl.load(Q + (s & 15))",
        "y = tl.load(Q + (row.to(tl.int64) + 46341) * 46341 + d, mask=d < 0, other=0.0)",
        "s = (d.to(tl.uint32) + 7) * 2654435761\ny = tl.where(s > 7, 1.0, 0.0)",
    ],
)
def test_random_numbers_may_wrap(body, tmp_path):
    assert verdict(tmp_path, body).outcome is Outcome.WRONG


# Interpreters that lack a part, or go round it, and words of what is said then.
STRANGE = {
    "del builder.create_clampf": "has no InterpreterBuilder.create_clampf",
    "del interpreter._patch_lang": "has no triton.runtime.interpreter._patch_lang",
    "builder.create_fadd = lambda self, a, b: interpreter.TensorHandle(a.data + b.data, a.dtype)": "sums of bfloat16",
    "interpreter.FunctionRewriter.rewrite_ast = lambda self: self.fn": "max of blocks and `and` and `not`",
    "builder.create_make_range = None": "A kernel fails in triton",
    "pass": "",
}
ENABLE_IN_EACH = """
import json, os, sys
os.environ["TRITON_INTERPRET"] = "1"
from grader.core.interpret import semantics
import triton.runtime.interpreter as interpreter
builder = interpreter.InterpreterBuilder
for change in json.loads(sys.argv[1]):
    if os.fork() == 0:
        exec(change)
        try:
            semantics.enable()
            print()
        except semantics.Incompatible as error:
            print(str(error).replace(os.linesep, " "))
        sys.exit()
    os.wait()
"""


@pytest.mark.thorough
def test_an_interpreter_that_does_not_fit_is_said_to():
    arguments = [sys.executable, "-u", "-c", ENABLE_IN_EACH, json.dumps(list(STRANGE))]
    run = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=ROOT)
    for sentence, words in zip(run.stdout.splitlines(), STRANGE.values(), strict=True):
        assert words in sentence and bool(words) == ("3.6 to 3.9" in sentence), run.stdout


def test_bfloat16_prints_as_numbers(tmp_path):
    shown = "    assert False, f'{(q * 0 + 0.5)}'\n    o = acc / row_sum"
    source = solution("p3").replace("    o = acc / row_sum", shown)
    (result,) = grade_text(tmp_path, "p3", source, cases=[Case("x", N=4, D=16, dtype="bfloat16")])
    assert "AssertionError" in result.sentence and "0.5 0.5" in result.sentence, result.sentence


def test_a_default_that_is_a_call_of_a_call_is_refused_by_its_line(tmp_path):
    source = solution("p3").replace("MASKED: tl.constexpr", "MASKED: tl.constexpr = (lambda: 1)()", 1)
    assert source != solution("p3")
    (result,) = grade_text(tmp_path, "p3", source, names=["one token"])
    assert result.outcome is Outcome.CRASHED and "a default that keeps what a call left in it" in result.sentence
