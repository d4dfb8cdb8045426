"""What a GPU's compiler would say is said without a GPU, with the student's line; a fault of ours costs nothing."""

import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest

from grader import score
from grader.core.sandbox import bubblewrap, pool, server
from grader.core.sandbox.texts import quoted
from grader.core.worker import refusals
from grader.engine.aspects import subject_of
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.gpu import compiling
from grader.gpu.gpus import GPUS
from grader.registry import EVERY, PROBLEMS
from grader.render import gradescope
from grader.result import Aspect, CompileRow, Outcome
from grader.tests.support import SUBMISSIONS, running, solution, thorough, thorough_but

FIRST = "        k_pos = k_start + tl.arange(0, BLOCK_K)\n"
LOOP = "    for k_start in range(start, end, BLOCK_K):\n"
GRID = "    if INTERPRETED:\n        return TILES_INTERPRETER\n"
ASKED = subject_of(PROBLEMS["p3"])
TRITON_CACHE = Path(os.path.expanduser("~"), ".triton")


def inserted(*lines):
    """P3's solution with these lines in its kernel, at the beginning of each tile."""
    return solution("p3").replace(FIRST, FIRST + "".join(f"        {line}\n" for line in lines), 1)


def changed(old, new):
    source = solution("p3")
    assert old in source
    return source.replace(old, new)


def attempt(folder, source, target="sm_80", problem="p3", seconds=60):
    """What came of the source as the module of a problem, compiled for one GPU."""
    problem = PROBLEMS[problem]
    path = folder / problem.module
    path.write_text(source, "utf-8")
    return compiling.attempt(subject_of(problem), path, GPUS[target], seconds)


# What students write ------------------------------------------------------------------------------------------------

BROKEN = {
    "if on a block": (inserted("if row_max > 5.0:", "    row_max *= 1.0"), "this is a whole block", "if row_max"),
    "chained comparison": (
        changed("tl.where(k_pos[None, :] < N, scores", "tl.where(0 <= k_pos[None, :] < N, scores"),
        "write (a <= b) & (b < c)", "0 <= k_pos",
    ),
    "tiles too small": (changed(GRID, "    return (32, 8, 4, 1)\n"), "too small: it needs M >= 1", "acc = tl.dot("),
    "tiles of no power of two": (inserted("pos = tl.arange(0, 48)"), "must be a power of 2", "pos = tl.arange"),
    "a size that is no constant": (inserted("pos = tl.arange(0, N)"), "a `tl.constexpr` argument", "pos = tl.arange"),
    "math of Python": (inserted("size = math.sqrt(N)"), "a function of Python is called", "size = math.sqrt(N)"),
    "float of Python": (inserted("size = float(N)"), "a function of Python is called", "size = float(N)"),
    "torch": (inserted("zero = torch.zeros(1)"), "a kernel cannot call `zeros`", "zero = torch.zeros"),
    "a global": (inserted("scale = LOG2_E"), "write LOG2_E = tl.constexpr(...)", "scale = LOG2_E"),
    "a name that is not there": (inserted("top = row_maxx"), "row_maxx is not defined", "top = row_maxx"),
    "a debugger": (inserted("breakpoint()"), "no debugger stops in a kernel", "breakpoint()"),
    "no such function": (
        inserted("top = tl.expp(row_max)"), "`triton.language.expp` does not exist inside a kernel", "top = tl.expp",
    ),
    "set in one branch only": (
        inserted("for j in range(0, N):", "    if j == 0:", "        first = j", "    last = first"),
        "first is not defined here: give it a value before the loop", "last = first",
    ),
    "f-string": (inserted('print(f"k {k_start}")'), "an f-string inside a kernel shows only", "print(f"),
    "break": (inserted("for j in range(0, N):", "    if j > 5:", "        break"), "`break` does not exist", "break"),
    "return in a loop": (
        inserted("for j in range(0, N):", "    if j > 5:", "        return acc, row_max, row_sum"),
        "`return`", "",
    ),
    "try": (
        inserted("try:", "    j = 1", "except Exception:", "    j = 2"), "`try` does not exist inside a kernel", "try:",
    ),
    "a block changed in place": (inserted("row_max[0] = 0.0"), "build a new one with tl.where", "row_max[0] = 0.0"),
    "a slice": (inserted("some = k_pos[0:4]"), "cannot be indexed or cut by position", "some = k_pos[0:4]"),
    "dtype that changes": (
        changed('float("-inf"), tl.float32)', 'float("-inf"), tl.float16)'),
        "row_max changes its type in a loop: it is a block (128) of fp16 before and a block (128) of fp32",
        "for k_start in range",
    ),
    "shape that changes": (
        changed("row_sum = tl.zeros([BLOCK_Q], tl.float32)", "row_sum = 0.0"),
        "row_sum changes its type in a loop: it is fp32 before and a block (128) of fp32", "for k_start in range",
    ),
    "dot of two dtypes": (changed("p.to(v.dtype)", "p"), "fp32 and fp16: cast one with .to()", "acc = tl.dot("),
    "no such type for the GPU": (
        changed("tl.dot(q, tl.trans(k))", "tl.dot(q.to(tl.float64), tl.trans(k).to(tl.float64)).to(tl.float32)"),
        "fp64", "",
    ),
}  # fmt: skip


# What Triton says while it walks the function, of a name, of a branch, of a loop and of a type; and what we refuse.
QUICK = ("if on a block", "a global", "set in one branch only", "dtype that changes", "dot of two dtypes", "torch")


@pytest.mark.parametrize("name", thorough_but(QUICK, BROKEN))
def test_the_error_is_said_with_its_line(name, tmp_path):
    source, words, line = BROKEN[name]
    tried = attempt(tmp_path, source)
    assert tried.outcome is Outcome.CRASHED and words in tried.error, tried
    if line:
        number = next(
            n for n, text in enumerate(source.splitlines(), 1) if text.strip().startswith(line) or line in text
        )
        assert f"(p3_flash_attention.py:{number}: `" in tried.error and line in tried.error, tried.error
    (row,) = tried.kernels
    assert row.target == "sm_80" and row.error == tried.error
    assert row.registers is None


def test_words_that_are_not_known_are_left_as_they_are():
    assert refusals.in_plain_words("ValueError('a new thing went wrong')") == "a new thing went wrong"
    assert refusals.in_plain_words("") == "no words"


# What compiles ------------------------------------------------------------------------------------------------------

# Each GPU and each problem at least once: all pairs take a minute.
PAIRS = [("p3", "sm_86"), ("p3", "sm_100"), ("p4", "sm_90"), ("p5", "sm_89"), ("p6", "sm_80"), ("p7", "gfx942")]
INSTRUCTIONS = {"sm_90": "wgmma f16", "sm_100": "tcgen05.mma f16", "gfx942": "mfma f16"}


@pytest.mark.parametrize(("problem", "target"), [PAIRS[0], *(thorough(*pair) for pair in PAIRS[1:])])
def test_the_solutions_compile_and_are_known(problem, target, tmp_path):
    before = TRITON_CACHE.exists()
    tried = attempt(tmp_path, solution(problem), target, problem)
    assert not tried.error and not tried.unknown and not tried.printed
    (row,) = tried.kernels
    assert 100 < row.registers <= 512 and 0 <= row.spill_bytes < 1000
    assert 30_000 < row.shared_bytes <= row.shared_limit == GPUS[target].shared_bytes
    assert row.matrix_instructions == INSTRUCTIONS.get(target, "mma f16")
    assert row.num_warps in (4, 8) and row.num_stages in (2, 3) and row.seconds > 0
    assert TRITON_CACHE.exists() == before  # the cache lies in the scratch folder


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["p3_written_for_cuda", "p4_autotune_many_configs", "p3_split_keys_merged"])
def test_honest_kernels_compile(name, tmp_path):
    source = (SUBMISSIONS / "honest" / f"{name}.py").read_text("utf-8")
    tried = attempt(tmp_path, source, "sm_90", name[:2])
    assert not tried.error and not tried.unknown, tried
    assert any(row.matrix_instructions.endswith("mma f16") for row in tried.kernels)


def test_the_first_config_that_fits_is_taken(tmp_path):
    source = (SUBMISSIONS / "honest" / "p4_autotune.py").read_text("utf-8")
    huge = 'CONFIGS = [\n    triton.Config({"BLOCK_Q": 128, "BLOCK_K": 128}, num_warps=8, num_stages=5),\n'
    tried = attempt(tmp_path, source.replace("CONFIGS = [\n", huge), problem="p4")
    (row,) = tried.kernels
    assert not tried.error and row.configs_tried == 2 and row.shared_bytes <= row.shared_limit


def test_a_module_may_ask_for_the_interpreter_itself(tmp_path):
    source = "import os\nos.environ['TRITON_INTERPRET'] = '1'\n" + solution("p3")
    assert attempt(tmp_path, source).kernels[0].registers


# Verdicts -----------------------------------------------------------------------------------------------------------


def judged(folder, source, targets=("sm_80", "sm_90")):
    (folder / "p3_flash_attention.py").write_text(source, "utf-8")
    return compiling.judge(ASKED, folder / "p3_flash_attention.py", targets)


@pytest.mark.thorough
def test_too_much_shared_memory_for_every_gpu_is_not_passed(tmp_path):
    source = changed(GRID, "    return (128, 128, 8, 5)\n")
    verdict = judged(tmp_path, source)
    outcome, sentence, facts = verdict.outcome, verdict.sentence, verdict.facts
    assert outcome is Outcome.CRASHED
    assert "runs here, does not fit a GPU: flash_attention_kernel needs 294912 bytes of shared" in sentence
    assert "an sm_80 has 166912" in sentence and "an sm_90 has 232448: smaller tiles" in sentence
    assert [row.shared_bytes > row.shared_limit for row in facts.compiled] == [True, True]


def test_too_much_for_one_gpu_is_advice(tmp_path):
    source = changed(GRID, "    return (128, 128, 8, 3)\n")
    verdict = judged(tmp_path, source, ("sm_86", "sm_90"))
    outcome, sentence, facts = verdict.outcome, verdict.sentence, verdict.facts
    assert outcome is Outcome.PASSED and "compile" not in sentence
    assert "bytes of shared memory; an sm_86 has 101376: smaller tiles" in sentence
    assert [row.error is not None for row in facts.compiled] == [True, False]


@pytest.mark.parametrize(("targets", "tried"), [("sm_90 sm_86", "sm_90"), thorough("sm_86 sm_90", "sm_86 sm_90")])
def test_a_class_stops_at_the_first_target_that_compiles(targets, tried, tmp_path):
    path = tmp_path / PROBLEMS["p3"].module
    path.write_text(changed(GRID, "    return (128, 128, 8, 3)\n"), "utf-8")  # fits no sm_86
    verdict = compiling.judge(ASKED, path, targets.split(), all_targets=False)
    outcome, facts = verdict.outcome, verdict.facts
    assert outcome is Outcome.PASSED and [row.target for row in facts.compiled] == tried.split()


@pytest.mark.thorough
def test_spills_are_advice(tmp_path):
    verdict = judged(tmp_path, changed(GRID, "    return (128, 128, 4, 2)\n"), ("sm_80",))
    outcome, sentence = verdict.outcome, verdict.sentence
    assert outcome is Outcome.PASSED and "bytes of each thread's registers on sm_80" in sentence


@pytest.mark.parametrize(("bytes_spilled", "said"), [(540, False), (601, True)])
def test_spills_that_the_reference_has_are_no_advice(bytes_spilled, said):
    row = CompileRow(kernel="keys_kernel", target="sm_90", spill_bytes=bytes_spilled, matrix_instructions="wgmma")
    tried = SimpleNamespace(error="", unknown="", compiled=True, target="sm_90", kernels=(row,))
    assert ("spills" in compiling.advice([tried], EVERY["x3"])) == said


@pytest.mark.thorough
def test_missing_matrix_instructions_are_advice(tmp_path):
    source = (SUBMISSIONS / "honest" / "p3_all_float32.py").read_text("utf-8")
    verdict = judged(tmp_path, source, ("sm_80",))
    outcome, sentence = verdict.outcome, verdict.sentence
    assert outcome is Outcome.PASSED and "uses no matrix instructions on sm_80: does every product" in sentence


def test_an_open_gap_is_unfinished(tmp_path):
    source = inserted('tl.static_assert(False, "TODO 1: the scores of this tile")')
    verdict = judged(tmp_path, source, ("sm_80",))
    outcome, sentence = verdict.outcome, verdict.sentence
    assert (outcome, sentence) == (Outcome.UNFINISHED, "TODO 1: the scores of this tile")


def test_a_wrapper_that_raises_for_a_gpu_has_no_kernel_to_compile(tmp_path):
    source = changed("    check_arguments(q, k, v)\n", "    if q.shape[2] == 2048: raise KeyError('long')\n")
    verdict = judged(tmp_path, source, ("sm_80",))
    outcome, sentence = verdict.outcome, verdict.sentence
    assert outcome is Outcome.CRASHED and "KeyError at p3_flash_attention.py:" in sentence


def test_a_triton_that_compiles_nothing_costs_nothing(tmp_path, monkeypatch):
    canary = tmp_path / "canary.py"
    canary.write_text(compiling.CANARY.read_text("utf-8").replace("product = ", "product = missing + "), "utf-8")
    monkeypatch.setattr(compiling, "CANARY", canary)
    verdict = judged(tmp_path, inserted("j = row_maxx"), ("sm_80",))
    outcome, sentence = verdict.outcome, verdict.sentence
    assert outcome is Outcome.NOT_RUN and "Triton compiles no kernel for sm_80" in sentence


def test_a_compiler_that_does_not_start_costs_nothing(tmp_path, monkeypatch):
    broken = tmp_path / "worker.py"
    broken.write_text("raise RuntimeError('no backend')\n", "utf-8")
    monkeypatch.setattr(server, "FORK_SERVER", broken)
    monkeypatch.setattr(pool, "_running", {})  # those that run have a whole one
    verdict = judged(tmp_path, solution("p3"))
    outcome, sentence = verdict.outcome, verdict.sentence
    assert outcome is Outcome.NOT_RUN and "not compiled: " in sentence and "no backend" in sentence


# Limits -------------------------------------------------------------------------------------------------------------


def close_runners():
    for key in [key for key in pool._running if key[0] == "runner"]:
        pool.close(key)


@pytest.fixture
def ptxas(tmp_path, monkeypatch):
    """ptxas(script): the runners' process starts anew with a ptxas of our own; returns its home folder."""
    tool, interpreter, environment = tmp_path / "ptxas", bubblewrap.python_folders, server.environment
    monkeypatch.setattr(bubblewrap, "python_folders", lambda: [*interpreter(), tmp_path])
    monkeypatch.setattr(server, "environment", lambda device: environment(device) | {"TRITON_PTXAS_PATH": str(tool)})
    version = "Cuda compilation tools, release 12.8, V12.8.93"

    def use(script):
        tool.write_text(f'#!/bin/sh\ncase "$1" in --version) echo "{version}";; *) {script};; esac\n', "utf-8")
        tool.chmod(0o755)
        close_runners()
        return pool.serving("compile").home

    yield use
    close_runners()


@pytest.mark.thorough
def test_a_ptxas_that_does_not_finish_is_named_and_ended(tmp_path, ptxas):
    home = ptxas("for last; do :; done; echo $last > $HOME/reads; sleep 602.25")
    tried = attempt(tmp_path, solution("p3"), seconds=12)
    assert tried.late and not tried.error
    assert "ptxas, NVIDIA's assembler, did not finish for sm_80 within 12 s" in tried.unknown
    reads = Path(home.take("reads", 1000).decode().strip())
    assert reads.parent.name.startswith("case-")  # the child's folder, gone
    assert reads.parent.name not in os.listdir(home.scratch.descriptor)
    assert not running("sleep 602.25")


@pytest.mark.thorough
def test_ptxas_has_a_limit_of_memory(tmp_path, ptxas):
    home = ptxas("ulimit -d > $HOME/said; echo 'ptxas fatal   : Memory allocation failure' >&2; exit 1")
    tried = attempt(tmp_path, solution("p3"))
    assert int(home.take("said", 100)) * 1024 == compiling.MEMORY
    assert "ptxas, NVIDIA's assembler, ran out of memory" in tried.error


@pytest.mark.thorough
def test_a_compiler_that_does_not_finish_judges_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "SECONDS", 0.2)
    case, *_, compiled, _ = results = graded(tmp_path, solution("p3"), names=None)
    # Which of the compiler's steps the limit meets depends on the machine.
    assert compiled.outcome is Outcome.NOT_RUN
    assert compiled.sentence.startswith("not judged: ") and "did not finish for sm_80 within 0.2 s" in compiled.sentence
    assert "This costs nothing" in compiled.sentence
    assert compiled.facts.compiled[0].target == "sm_80"
    assert sum(score.earned(results)) == 15 and score.passed([case, compiled])


@pytest.mark.parametrize(("late", "outcome"), [(("sm_80",), Outcome.NOT_RUN), ((), Outcome.CRASHED)])
def test_what_fits_no_gpu_is_wrong_only_where_all_are_known(late, outcome, tmp_path, monkeypatch):
    def attempt(subject, path, gpu, seconds):
        if subject is compiling.CANARY_SUBJECT:
            return compiling.Attempt(gpu.target)
        if gpu.target in late:
            return compiling.Attempt(gpu.target, unknown="the compiler did not finish", late=True)
        return compiling.lost(gpu, "it fits no GPU", Outcome.CRASHED)

    monkeypatch.setattr(compiling, "attempt", attempt)
    judged = compiling.judge(ASKED, tmp_path, ("sm_80", "sm_90"))
    assert judged.outcome is outcome


# The result ---------------------------------------------------------------------------------------------------------


def graded(folder, source, targets=("sm_80",), names=("one token", "compiles")):
    (folder / "p3_flash_attention.py").write_text(source, "utf-8")
    problems = (replace(PROBLEMS["p3"], cases=tuple(c for c in PROBLEMS["p3"].cases if c.name == "one token")),)
    return grade(Request(folder, problems, names and frozenset(names), "cpu", 0, targets=targets), lanes=1)


def test_a_kernel_that_compiles_for_no_gpu_loses_a_share(tmp_path):
    case, *_, compiled, speed = graded(tmp_path, changed(GRID, f"{GRID}    return (48, 32, 4, 1)\n"), names=None)
    assert case.outcome is Outcome.PASSED and speed.outcome is Outcome.NOT_RUN
    assert (compiled.aspect, compiled.case, compiled.outcome) == (Aspect.COMPILE, "compiles", Outcome.CRASHED)
    assert compiled.sentence.startswith("runs here, does not compile for a GPU: each size of a block")
    again = 'make grade P=3 CASE="compiles"'
    assert compiled.again in (again, f"{again} SUBMISSION={quoted(tmp_path)}")
    assert score.earned([case, compiled, speed]) == [12, 0, 0] and not score.passed([case, compiled, speed])
    test = gradescope.render([case, compiled, speed])["tests"][1]
    assert test["name"] == "p3 compiles: compiles" and test["status"] == "failed" and test["max_score"] == 3
    assert [CompileRow(**row) for row in test["extra_data"]["compile"]] == [*compiled.facts.compiled]


def test_a_kernel_that_compiles_keeps_all(tmp_path):
    results = graded(tmp_path, solution("p3"))
    assert [r.outcome for r in results] == [Outcome.PASSED] * 2 and score.passed(results)
    assert score.earned(results) == [Fraction(15), 0]


def test_what_fails_every_case_is_not_compiled(tmp_path):
    results = graded(tmp_path, solution("p3").replace("    return o\n", "    return None\n"))
    assert [r.outcome for r in results] == [Outcome.WRONG, Outcome.NOT_RUN]
    assert score.total(results) == (0, 15)


def test_nothing_is_compiled_unless_asked(tmp_path):
    assert [r.case for r in graded(tmp_path, solution("p3"), targets=())] == ["one token"]
