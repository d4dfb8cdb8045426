"""make profile: ncu looks into the recorded program, its words are shown, and whatever fails is one sentence."""

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from grader import __main__ as command_line
from grader.commands import profile as command
from grader.gpu import gpus, ncu
from grader.registry import PROBLEMS
from grader.tests.engine.test_command import run
from grader.tests.support import ROOT, SOLUTIONS, solution

HERE = SimpleNamespace(name="NVIDIA H200", total_memory=140 << 30)

# A run, with an ncu of ours ------------------------------------------------------------------------------------------

FAKE = """#!{python}
import json, os, pathlib, subprocess, sys, time
with open({seen!r}, "a") as file:
    print(json.dumps(dict(arguments=sys.argv[1:], environment=dict(os.environ))), file=file)
def given(option):
    return sys.argv[sys.argv.index(option) + 1]
if "--import" in sys.argv:
    if "flash_attention_kernel" in given("--kernel-name") and pathlib.Path(given("--import")).exists():
        print("  flash_attention_kernel (1, 1, 1)\\n    Section: " + ("Stalls" if "body" in sys.argv else "Everything"))
    sys.exit()
program = sys.argv[len(sys.argv) - 1 - sys.argv[::-1].index(sys.executable) :]
def say(text):
    with open(given("--log-file"), "a") as file:
        file.write(text)
{body}
"""
RUNS = """say("==WARNING== Note: Running with unmodified GPU clocks.\\n==PROF== Connected to process 7\\n")
ended = subprocess.run(program).returncode
"""
MEASURES = f"""{RUNS}
say('==PROF== Profiling "fill" - 0: 23 passes\\n==PROF== Profiling "flash_attention_kernel" - 1: 23 passes\\n')
pathlib.Path(given("--export")).write_text("all")
say("==PROF== Report: " + given("--export"))"""
RETURNS = """import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
assert {"program.json", "inputs.bin", "texts.json", "request.json"} <= {path.name for path in folder.iterdir()}
print("the kernel prints")
reply = {"type": "profiled", "kernels": ["flash_attention_kernel"]}
(folder / "reply.json").write_text(json.dumps(reply))
"""


@pytest.fixture
def profiled(tmp_path, monkeypatch, capfd):
    """Profiles a module's text with a fake ncu: (exit status, what was printed, the fake's calls, the folder)."""

    def profiling(body, source=None, program=RETURNS):
        tools, submission, out = tmp_path / "tools", tmp_path / "submission", tmp_path / "out"
        for folder in (tools, submission, out):
            folder.mkdir(exist_ok=True)
        seen = tmp_path / "seen"
        (tools / "ncu").write_text(FAKE.format(python=sys.executable, seen=str(seen), body=body), "utf-8")
        (tools / "ncu").chmod(0o755)
        monkeypatch.setenv("PATH", str(tools), prepend=":")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=0: HERE)
        monkeypatch.setattr(command.machine, "first_gpu", lambda: gpus.GPUS["sm_90"])
        (tmp_path / "program.py").write_text(program, "utf-8")
        monkeypatch.setattr(command, "PROGRAM", tmp_path / "program.py")
        problem = PROBLEMS["p4"]
        (submission / problem.module).write_text(solution("p4") if source is None else source, "utf-8")
        given = ["--problems", "4", "--case", "one token", "--submission", str(submission), "--out", str(out)]
        status = command_line.main(["profile", *given])
        calls = [json.loads(line) for line in seen.read_text("utf-8").splitlines()] if seen.exists() else []
        return status, capfd.readouterr().out, calls, out

    return profiling


def test_a_profile(profiled, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    status, said, (call, *_), out = profiled(MEASURES)
    assert status == 0
    assert 'p4 "one token" (B=1 Hq=1 Hkv=1 N=1 D=32, float16, causal, seed 0), NVIDIA H200' in said
    assert said.index("Section: Everything") < said.index("Section: Stalls")
    assert "the kernel prints" not in said
    arguments = call["arguments"]
    assert arguments[arguments.index("--clock-control") + 1] == "none"
    assert [b for a, b in itertools.pairwise(arguments) if a == "--section"] == list(command.SECTIONS)
    assert "TRITON_INTERPRET" not in call["environment"]
    (file,) = out.iterdir()
    assert file.name == "profile-p4-one-token.ncu-rep" and file.read_bytes() == b"all" and f"report: {file}; " in said


def test_a_call_without_a_kernel_of_its_own_is_no_profile(profiled):
    for names in ('"another"', ""):
        program = RETURNS.replace('"flash_attention_kernel"', names)
        status, said, _, _ = profiled(MEASURES, program=program)
        assert status == 1 and "no profile: the call launches no kernel of its own" in said


def test_a_report_of_before_is_none_of_this_profile(profiled, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "profile-p4-one-token.ncu-rep").write_text("before", "utf-8")
    status, said, _, _ = profiled(f'{RUNS}say("==ERROR== Failed to create report\\n")')
    assert status == 1 and "Nsight Compute measured nothing: Failed to create report" in said


def test_counters_forbidden(profiled):
    error = (
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on "
        "the target device 0. See https://developer.nvidia.com/ERR_NVGPUCTRPERM\n"
    )
    status, said, _, out = profiled(f"{RUNS}say({error!r})\nsys.exit(1)", program=RETURNS.replace("print(", "str("))
    assert status == 1 and said.count("\n") == 2 and not list(out.iterdir())
    assert "no profile: Nsight Compute measured nothing: ERR_NVGPUCTRPERM" in said
    assert "https://developer.nvidia.com/ERR_NVGPUCTRPERM" in said


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f'{RUNS}say("==WARNING== No kernels were profiled.\\n")', "No kernels were profiled."),
        (f'{RUNS}say("==ERROR== Failed to profile kernel\\n")', "Failed to profile kernel"),
        ('print("ncu: libnvperf is missing")\nsys.exit(9)', "ncu: libnvperf is missing"),
        ("sys.exit(9)", "it said nothing"),
        ('say("==ERROR== no such option\\n")\nsys.exit(1)', "no such option"),
    ],
)
def test_an_ncu_that_fails(profiled, body, words):
    status, said, _, out = profiled(body)
    assert status == 1 and f"no profile: Nsight Compute measured nothing: {words}\n" in said
    assert not list(out.iterdir())


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def flash_attention_forward(:\n", "crashed: SyntaxError at p4_causal.py:1"),
        ("x = 1\n", "crashed: p4_causal.py has no function named flash_attention_forward. It must be "),
        ("raise KeyError('mine')\n", "crashed: KeyError at p4_causal.py:1 in `raise KeyError('mine')`: 'mine'"),
        ('raise NotImplementedError("TODO 1: the tiles")\n', "unfinished: TODO 1: the tiles"),
        ("import os\nprint('hello')\nos.kill(os.getpid(), 11)\n", "the process was killed by SIGSEGV"),
        ("import sys\nprint('hello')\nsys.exit(3)\n", "crashed: SystemExit at p4_causal.py:3"),
    ],
)
def test_the_submission_fails(profiled, source, words):
    status, said, calls, out = profiled("", source)
    assert status == 1 and f"no profile: {words}" in said and not list(out.iterdir()) and not calls
    assert ("hello" in said) == ("hello" in source)


RAISES = """import json, pathlib, sys
reply = {"type": "refused", "text": "too large", "line": None}
pathlib.Path(sys.argv[1], "reply.json").write_text(json.dumps(reply))
"""


def test_what_the_program_raises_is_told_with_the_profilers_own_error(profiled):
    own = "==ERROR== Profiling failed because a driver resource was unavailable.\n"
    status, said, _, _ = profiled(f"{RUNS}say({own!r})", program=RAISES)
    assert (
        status == 1
        and "no profile: needs review: Needs the instructor's review: the grader cannot run this kernel: too large"
        in said
    )
    assert "(Nsight Compute measured nothing: Profiling failed because a driver resource" in said


@pytest.mark.parametrize(
    ("prints", "words"), [("print('mine', flush=True)\n", "mine"), ("", "The application returned an")]
)
def test_a_program_that_is_killed_has_no_profile(prints, words, profiled):
    code = "say(f'==ERROR== The application returned an error code ({abs(ended)}).\\n')"
    status, said, _, _ = profiled(f"{RUNS}{code}", program=f"import os\n{prints}os.kill(os.getpid(), 9)")
    assert status == 1 and f"no profile: Nsight Compute measured nothing: {words}" in said


def test_a_program_that_hangs_is_ended_with_all_that_it_started(profiled, monkeypatch, tmp_path):
    pid = tmp_path / "pid"
    hangs = f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    monkeypatch.setattr(ncu, "SECONDS", 12.0)
    status, said, _, _ = profiled(RUNS, program=hangs)
    assert status == 1 and "no profile: stopped after 12 s" in said
    for _ in range(50):
        state = Path(f"/proc/{pid.read_text('utf-8')}/stat")
        if not state.exists() or state.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError("the profiled process still runs")


PROFILES = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import torch
happened = []
torch.cuda.synchronize = lambda: None
torch.cuda.profiler.start = lambda: happened.append("start")
torch.cuda.profiler.stop = lambda: happened.append("stop")
from grader.core.run import profiled, replay, runner
runner.get_ready("compile")
real = replay.place_inputs
replay.place_inputs = lambda described, data, device: real(described, data, "cpu")
class Calls(replay.Replay):
    def __init__(self, program, device, *rest):
        super().__init__(program, "cpu", *rest)
    def call(self):
        happened.append("call")
        return super().call()
replay.Replay = Calls
from grader.core.protocol.program import Program
from grader.core.protocol.messages import Call, Profile, RunnerSetup
program = Program(3, [], [], [], [], [], [], True)
open("inputs.bin", "wb").close()
with open("texts.json", "w", encoding="utf-8") as file:
    file.write("{{}}")
setup = RunnerSetup(device="cuda")
reply = profiled.profile(runner.Runner(setup), Profile(setup, Call([])), program)
assert reply.kernels == []
assert happened == ["call"] * profiled.WARM_UP + ["start", "call", "stop"], happened
"""


def test_the_program_profiles_one_call_after_warm_up(tmp_path):
    subprocess.run([sys.executable, "-c", PROFILES], cwd=tmp_path, check=True)


# Where it is not installed, and bad input ----------------------------------------------------------------------------


def test_ncu_is_found_beside_path_too(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu, "PLACES", (f"{tmp_path}/cuda-*/ncu",))
    assert ncu.find() is None
    for version in ("cuda-12", "cuda-13"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "ncu").touch()
    assert ncu.find() == f"{tmp_path}/cuda-13/ncu"


def test_without_ncu_it_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(ncu, "find", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert command_line.main(["profile", "--problems", "4", "--submission", str(SOLUTIONS)]) == 2
    said = capsys.readouterr().err
    assert "(here: cuda) and its `ncu`, of CUDA's toolkit or conda's nsight-compute (here: None)" in said
    assert 'make grade P=4 CASE="compiles" DEVICE=cpu needs neither' in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "this takes one problem: name it, like make profile P=4"),
        (["--problems", "1"], "P=3 or later"),
        (["--problems", "x1"], "no lab"),
        (["--problems", "4", "--case", "raged tail"], "did you mean 'ragged tail'?"),
        (["--problems", "4", "--case", "sped"], "did you mean 'speed'?"),
        (["--problems", "4", "--device", "cpu"], "a profile needs NVIDIA's GPU (here: cpu)"),
    ],
)
def test_bad_input(arguments, words, capsys):
    assert command_line.main(["profile", *arguments, "--submission", str(SOLUTIONS)]) == 2
    said = capsys.readouterr().err
    assert words in said.splitlines()[-1] and "Traceback" not in said


@pytest.mark.gpu
def test_a_real_profile(tmp_path):
    if not ncu.find():
        pytest.skip("Nsight Compute is not installed")
    done = run("profile", "--problems", 4, "--submission", SOLUTIONS, "--out", tmp_path)
    if "ERR_NVGPUCTRPERM" in done.stdout:
        pytest.skip("this machine keeps its counters for administrators")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Section: GPU Speed Of Light Throughput" in done.stdout and "Stall Barrier" in done.stdout
    assert (tmp_path / "profile-p4-speed.ncu-rep").stat().st_size > 10_000
