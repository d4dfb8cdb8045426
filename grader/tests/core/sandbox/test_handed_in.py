"""What the grader takes of a submission: no links, no pipes, nobody's child is root, and each text has a length."""

import os

import pytest

from grader.core.sandbox import handed_in, sandboxed_child
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.registry import PROBLEMS
from grader.result import Aspect, Facts, Outcome, Result
from grader.tests.support import grade_text, solution

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
ODD = {
    "a link to nowhere": lambda place: place.symlink_to("nowhere"),
    "a link to what never ends": lambda place: place.symlink_to("/dev/zero"),
    "a pipe": os.mkfifo,
    "a file too large": lambda place: place.write_bytes(bytes(handed_in.LARGEST + 1)),
}


@pytest.mark.parametrize("what", ODD)
def test_what_is_no_plain_file_is_not_read(what, tmp_path):
    ODD[what](tmp_path / "odd.py")
    (tmp_path / "p1.py").write_text("x = 1\n", "utf-8")
    assert handed_in.read_texts(tmp_path) == {"p1.py": "x = 1\n"}


@AS_ROOT
@pytest.mark.parametrize("what", ["a link to nowhere", "a mode for its owner alone"])
def test_no_file_of_a_submission_makes_its_child_root(what, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "p1.py").write_text("x = 1\n", "utf-8")
    if what == "a link to nowhere":
        (tmp_path / "odd.py").symlink_to("nowhere")
    else:
        (tmp_path / "p1.py").chmod(0o600)
    with handed_in.readable(tmp_path) as folder:
        assert folder != tmp_path and os.listdir(folder) == ["p1.py"]
        assert (folder / "p1.py").stat().st_mode & 0o004
    assert not folder.exists()


@AS_ROOT
def test_a_linked_module_is_said(tmp_path):
    (tmp_path / "elsewhere.py").write_text(solution("p1"), "utf-8")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "p1_naive_attention.py").symlink_to("../elsewhere.py")
    (result,) = grade(Request(folder, (PROBLEMS["p1"],), frozenset(["one token"]), "cpu", 0), 1)
    assert result.outcome is Outcome.NOT_RUN and "is a link, and none is followed" in result.sentence


@pytest.mark.parametrize("bytes_left", [0, 100])
def test_requests_that_nobody_reads_end_with_their_case(bytes_left):
    child = object.__new__(sandboxed_child.SandboxedChild)
    reading, child.requests = os.pipe()
    os.set_blocking(child.requests, False)
    filled = 0
    while True:
        try:
            filled += os.write(child.requests, bytes(4096))
        except BlockingIOError:
            break
    os.read(reading, bytes_left)
    child.send_line(b"x" * 10_000, 0.5)  # and comes back
    left = len(os.read(reading, 1 << 20))
    assert filled - bytes_left <= left <= filled, "a part of the request at most was written"
    os.close(reading)
    os.close(child.requests)


KERNEL = """
import triton, triton.language as tl

@triton.jit
def look(X):
    tl.store(X, tl.load(X + 1000000))

"""


@pytest.mark.parametrize("problem", ["p1", "p2"])
def test_no_kernel_runs_where_none_is_asked_for(problem, tmp_path):
    source = solution(problem).replace("import torch\n", f"import torch\n{KERNEL}", 1)
    start = source.index(":\n", source.index("(q, k, v, is_causal=False)")) + 2
    documented = source[start:].lstrip().startswith('"""')
    end = source.index('"""', source.index('"""', start) + 3) + 4 if documented else start
    source = f"{source[:end]}    look[(1,)](q)\n{source[end:]}"
    (result,) = grade_text(tmp_path, problem, source, names=["one token"])
    assert result.outcome is Outcome.WRONG and "is PyTorch alone" in result.sentence, result


@pytest.mark.parametrize("where", ["sentence", "facts"])
def test_whoever_writes_into_a_result_writes_clean_and_bounded_text(where):
    result = Result("p1", "one token", Aspect.CORRECT, Outcome.WRONG)
    text = "\x1b[2J\x07\x7f\u202e" + "x" * 1_000_000
    setattr(result, where, text if where == "sentence" else Facts(evidence=(text,)))
    kept = result.sentence if where == "sentence" else result.facts.evidence[0]
    assert kept.isprintable() and len(kept) < 3000
