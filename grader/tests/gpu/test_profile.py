"""make profile: what Nsight Compute measured is read and said rightly, and whatever fails is one sentence."""

import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from grader import __main__ as command_line
from grader.commands import profile as command
from grader.engine import Request
from grader.gpu import gpus
from grader.gpu.profile import counters, figures, limits, measure, ncu
from grader.gpu.profile.counters import METRICS, Reading
from grader.kinds.attention.cases import Case
from grader.kinds.registry import PROBLEMS
from grader.tests.engine.test_command import run
from grader.tests.support import ROOT, SOLUTIONS, solution

RECORDING = Path(__file__).parent / "recorded" / "ncu_h200.csv"
RECORDED = Case("speed", B=2, Hq=16, N=4096, D=128, causal=True)  # a shape that the recording's FLOPs and grid fit
H200 = {"name": "NVIDIA H200", "shared_bytes": 232448}
HERE = SimpleNamespace(
    name="NVIDIA H200", total_memory=140 << 30, shared_memory_per_block_optin=232448, major=9, minor=0
)


def recorded(**changed):
    """The recorded launch's Reading, with other values for some names of METRICS; None takes one out."""
    (launch,) = ncu.read(RECORDING.read_text())
    values = launch.values | {METRICS[name]: value for name, value in changed.items()}
    return Reading({name: value for name, value in values.items() if value is not None}, RECORDED, H200)


def lines(reading):
    return {line.name: line for line in figures.figures(reading)}


# Reading -------------------------------------------------------------------------------------------------------------


def test_the_recorded_table_is_read():
    (launch,) = ncu.read(RECORDING.read_text())
    assert (launch.kernel, launch.block, launch.grid) == ("kern", "(256, 1, 1)", "(1024, 1, 1)")
    assert set(METRICS.values()) <= set(launch.values)  # all that is asked for exists under these names
    assert launch.values["gpu__time_duration.sum"] == 357152
    assert launch.values["sm__ops_path_tensor_src_fp16.sum"] == 141_733_920_768
    assert launch.values["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"] == 41.98


def test_what_was_not_measured_is_not_zero():
    text = '"ID","Kernel Name","Block Size","Grid Size","a","b","c","d","e"\n"","","","","%","%","","",""\n'
    text += '"0","k","(1, 1, 1)","(1, 1, 1)","n/a","nan","","1,024.50","0"\n'
    assert ncu.read(text)[0].values == {"ID": 0, "d": 1024.5, "e": 0}


def test_every_launch_is_read_and_a_broken_row_is_none():
    header, units, row = RECORDING.read_text().splitlines()[-3:]
    assert len(ncu.read("\n".join([header, units, row, row, row[:50]]))) == 2


@pytest.mark.parametrize(
    "text", ["", "==PROF== Connected\n", '"ID","Kernel Name","Block Size","Grid Size"\n"","","",""\n']
)
def test_no_table(text):
    with pytest.raises(ncu.NcuFailed, match="it said nothing"):
        ncu.read(text)


def test_ncus_own_words_are_the_reason():
    with pytest.raises(ncu.NcuFailed, match="a driver resource was unavailable"):
        ncu.read("==WARNING== slow\n==ERROR== Profiling failed because a driver resource was unavailable.\n")
    with pytest.raises(ncu.NcuFailed, match="No kernels were profiled"):
        ncu.read("==PROF== Connected\n==WARNING== No kernels were profiled.\n")


def test_only_the_flops_of_the_cases_dtype_are_asked_for():
    for dtype, name in (("float16", "fp16"), ("bfloat16", "bf16"), ("float32", "tf32")):
        asked = [metric for metric in counters.metrics_for(replace(RECORDED, dtype=dtype)) if "ops_path" in metric]
        assert len(asked) == 1 and name in asked[0]


# Sentences -----------------------------------------------------------------------------------------------------------


def test_the_screen_of_the_recording():
    said = lines(recorded())
    assert said["tensor cores"].value == "42 %"
    assert said["tensor cores"].meaning == "busy 42 % of the time: softmax, loads and waiting take the rest"
    assert said["their products"].value == "1.03 x" and "little is computed" in said["their products"].meaning
    assert said["SMs with work"].value == "87 %" and "7.8 rounds" in said["SMs with work"].meaning
    assert said["DRAM throughput"][1:3] == ("3.0 %", "100 %")
    assert said["DRAM throughput"].meaning == "of 4.8 TB/s; 52.4 MB moved, q, k, v and o together are 134 MB"
    assert said["bank conflicts"].value == "0 %" and said["spills"].value == "0 B"
    assert said["occupancy"][1:3] == ("12.5 %", "12.5 %")
    assert "1 program fits an SM at a time, by registers and shared memory" in said["occupancy"].meaning
    assert said["registers"][1:3] == ("203", "255") and said["shared memory"][1:3] == ("162 KiB", "227 KiB")
    assert said["first wait"].value == "30 %" and "(stall: barrier)" in said["first wait"].meaning
    assert said["second wait"].value == "18 %" and "(stall: long scoreboard)" in said["second wait"].meaning


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (["tensor"], "tensor cores"),
        (["flops_float16"], "their products"),
        (["special"], "exp2 unit"),
        (["busiest"], "SM throughput"),
        (["active"], "SMs with work"),
        (["dram"], "DRAM throughput"),
        (["l2_hits"], "L2 hit rate"),
        (["shared"], "shared-mem. pipe"),
        (["conflicts"], "bank conflicts"),
        (["wavefronts"], "bank conflicts"),
        (["warps"], "occupancy"),
        (["registers"], "registers"),
        (["shared_bytes"], "shared memory"),
        (["local_loaded"], "spills"),
        ([name for name in METRICS if name.startswith("stall_")], "waits"),
    ],
)
def test_a_missing_counter_leaves_its_line_blank(names, line):
    reading = recorded(**dict.fromkeys(names))
    assert lines(reading)[line].value == "" and lines(reading)[line].meaning == "not measured here"
    assert limits.likeliest_limit(reading)


def test_with_nothing_measured_nothing_is_claimed():
    reading = Reading({}, RECORDED, {"name": "a GPU of tomorrow", "shared_bytes": None})
    assert all((line.value, line.meaning) == ("", "not measured here") for line in figures.figures(reading))
    assert limits.likeliest_limit(reading) == "nothing that was measured stands out."
    assert command.in_a_line(reading, 1) == ""


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "waiting, mostly for the program's other warps, at a barrier. Try fewer num_warps"),
        ({"stall_barrier": 0.0}, "for data from L2 or memory. Try more num_stages"),
        ({"stall_gmma": 9.0}, "for the tensor cores' product"),
        ({"stall_not_selected": 99.0}, "at a barrier"),  # no wait: another warp went first
        ({"local_loaded": 1e6}, "registers spill"),
        ({"tensor": 0.0}, "no tensor cores"),
        ({"flops_float16": 275e9}, "products that nobody sees"),
        ({"tensor": 80.0}, "the tensor cores themselves"),
        ({"dram": 70.0}, "memory. Try a larger BLOCK_Q"),
        ({"active": 400_000.0}, "multiprocessors without work"),
        ({"conflicts": 8e6, "shared": 50.0}, "bank conflicts"),
        ({"shared": 75.0}, "shared memory. Try larger tiles"),
        ({"special": 65.0}, "exp2. Try to take fewer"),
        ({"issued": 75.0}, "instructions beside the products"),
        ({"tensor": 0.0, "local_stored": 1e6}, "registers spill"),  # the first that applies
    ],
)
def test_the_likeliest_limit(changed, words):
    assert words in limits.likeliest_limit(recorded(**changed))


def test_the_sentences_follow_the_figures():
    said = lines(recorded(tensor=80.0, flops_float16=275e9, special=65.0, busiest=80.0, dram_read=9e8, l2_hits=40.0))
    assert "near what this GPU can do" in said["tensor cores"].meaning
    assert said["their products"].value == "2.00 x" and "much is computed" in said["their products"].meaning
    assert "exp2 alone is a limit" in said["exp2 unit"].meaning and "near its limit" in said["SM throughput"].meaning
    assert "again and again" in said["DRAM throughput"].meaning
    assert "costs little" in said["L2 hit rate"].meaning
    assert "run too far apart" in lines(recorded(l2_hits=40.0, dram=50.0))["L2 hit rate"].meaning
    spilled = lines(recorded(local_loaded=1e6, local_stored=5e5))["spills"]
    assert spilled.value == "48 MB" and "smaller tiles" in spilled.meaning


# A run, with an ncu of ours ------------------------------------------------------------------------------------------

FAKE = """#!{python}
import json, os, subprocess, sys, time
at = sys.argv.index("--log-file")
log, program = sys.argv[at + 1], sys.argv[at + 2 :]
with open({seen!r}, "a") as file:
    print(json.dumps(dict(arguments=sys.argv[1:], environment=dict(os.environ))), file=file)
def say(text):
    with open(log, "a") as file:
        file.write(text)
{body}
"""
RUNS = 'say("==PROF== Connected to process 7\\n")\nended = subprocess.run(program).returncode\n'
MEASURES = f"{RUNS}say(open({str(RECORDING)!r}).read())"
RETURNS = """import json, pathlib, sys
request = json.load(open(sys.argv[1]))
print("the kernel prints")
pathlib.Path(request["folder"], "status.json").write_text('{"status": "returned"}')
"""


@pytest.fixture
def profiled(tmp_path, monkeypatch, capfd):
    """Profiles a module's text with a fake ncu: (exit status, what was printed, the fake's calls, the folder)."""

    def profiling(body, source=None, program=None, name="one token"):
        tools, submission, out = tmp_path / "tools", tmp_path / "submission", tmp_path / "out"
        for folder in (tools, submission, out):
            folder.mkdir(exist_ok=True)
        seen = tmp_path / "seen"
        tool = tools / "ncu"
        tool.write_text(FAKE.format(python=sys.executable, seen=str(seen), body=body))
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tools), prepend=":")
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=0: HERE)
        monkeypatch.setattr(measure.machine, "gpu_as_data", lambda: asdict(gpus.GPUS["sm_90"]))
        if program:
            (tmp_path / "program.py").write_text(program)
            monkeypatch.setattr(measure, "PROGRAM", tmp_path / "program.py")
        problem = PROBLEMS["p4"]
        (submission / problem.module).write_text(solution("p4") if source is None else source)
        request = Request(submission, (problem,), None, "cuda", 0)
        status = command.run(request, command.choose_case(problem, name), out)
        calls = [json.loads(line) for line in seen.read_text().splitlines()] if seen.exists() else []
        return status, capfd.readouterr().out, calls, out

    return profiling


def test_a_profile(profiled, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    status, said, (call,), out = profiled(MEASURES, program=RETURNS)
    assert status == 0
    assert 'p4 "one token" (B=1 Hq=1 Hkv=1 N=1 D=32, float16, causal, seed 0), NVIDIA H200' in said
    assert "kern: 1024 programs of 8 warps, 0.357 ms with cold caches" in said
    assert "likeliest limit: " in said and "the kernel prints" not in said
    arguments = call["arguments"]
    assert arguments[arguments.index("--clock-control") + 1] == "none"
    assert arguments[arguments.index("--metrics") + 1].split(",") == counters.metrics_for(PROBLEMS["p4"].cases[2])
    assert "TRITON_INTERPRET" not in call["environment"]
    (file,) = out.iterdir()
    assert file.name == "profile-p4-one-token.csv" and ncu.read(file.read_text()) == ncu.read(RECORDING.read_text())
    assert f"all that was measured: {file}" in said


def test_of_several_launches_the_longest_is_shown(profiled):
    header, units, row = RECORDING.read_text().splitlines()[-3:]
    short = row.replace('"kern"', '"fill"').replace('"357,152"', '"119,050"')
    table = "\n".join([header, units, short, row])
    status, said, _, _ = profiled(f"{RUNS}say({table!r})", program=RETURNS)
    assert status == 0 and "kern: 1024 programs" in said and "TFLOP/s" not in said
    assert "the longest of 2 launches in the call, 75% of their time" in said


def test_products_are_those_of_the_whole_call():
    (launch,) = ncu.read(RECORDING.read_text())
    flops = METRICS["flops_float16"]
    assert [v[flops] for v in counters.with_flops_of_all([launch] * 3, 32)] == [3 * launch.values[flops]] * 3
    assert flops not in counters.with_flops_of_all([launch] * 32, 32)[0]  # there may have been more
    unknown = ncu.Launch("k", "", "", {})
    assert counters.with_flops_of_all([launch, unknown], 32)[1] == {}
    assert launch.values[flops] == 141_733_920_768


def test_counters_forbidden(profiled):
    error = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters\n"
    status, said, _, out = profiled(f"{RUNS}say({error!r})\nsys.exit(1)", program=RETURNS)
    assert status == 2 and said.count("\n") == 2 and not list(out.iterdir())
    assert "no profile: this machine keeps the GPU's performance counters for administrators (ERR_NVGPUCTRPERM)" in said
    assert "NVreg_RestrictProfilingToAdminUsers=0" in said and "https://developer.nvidia.com/ERR_NVGPUCTRPERM" in said


@pytest.mark.thorough
def test_metrics_that_this_gpu_has_not_are_left_out_the_second_time(profiled):
    name = METRICS["stall_gmma"]
    body = f"""{RUNS}
if {name!r} in sys.argv[sys.argv.index("--metrics") + 1]:
    say("==ERROR== Failed to find metric {name}\\n")
    sys.exit(1)
say(open({str(RECORDING)!r}).read())"""
    status, said, calls, _ = profiled(body, program=RETURNS)
    assert status == 0 and len(calls) == 2 and "kern: 1024 programs" in said


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f'{RUNS}say("==WARNING== No kernels were profiled.\\n")', "measured nothing: No kernels were profiled."),
        (f'{RUNS}say("==ERROR== Failed to profile kernel\\n")', "measured nothing: Failed to profile kernel"),
        ('print("ncu: libnvperf is missing")\nsys.exit(9)', "itself failed: ncu: libnvperf is missing"),
        ("sys.exit(9)", "itself failed: it ended with exit status 9"),
        ("os.kill(os.getpid(), 9)", "itself failed: it ended with exit status -9"),
        ('say("==ERROR== no such option\\n")\nsys.exit(1)', "measured nothing: no such option"),
    ],
)
def test_an_ncu_that_fails(profiled, body, words):
    status, said, _, out = profiled(body, program=RETURNS)
    assert status == 2 and f"no profile: Nsight Compute {words}" in said and said.count("\n") == 2
    assert not list(out.iterdir())


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def flash_attention_forward(:\n", "crashed: SyntaxError at p4_causal.py:1"),
        ("x = 1\n", "crashed: p4_causal.py has no function named flash_attention_forward. It must be "),
        ("raise KeyError('mine')\n", "crashed: KeyError at p4_causal.py:1 in `raise KeyError('mine')`: 'mine'"),
        ('raise NotImplementedError("TODO 1: the tiles")\n', "unfinished: TODO 1: the tiles"),
        ("import os\nprint('hello')\nos.kill(os.getpid(), 11)\n", "crashed: the process was killed by SIGSEGV"),
        ("import sys\nprint('hello')\nsys.exit(3)\n", "crashed: SystemExit at p4_causal.py:3"),
    ],
)
def test_the_submission_fails(profiled, source, words):
    status, said, calls, out = profiled("", source)
    assert status == 1 and f"no profile: {words}" in said and not list(out.iterdir()) and not calls
    assert ("hello" in said) == ("hello" in source)


WHILE_PROFILED = """import json, os, pathlib, sys
request = json.load(open(sys.argv[1]))
pathlib.Path(request["folder"], "status.json").write_text('{"status": "profiling", "warm": true}')
os.kill(os.getpid(), 9)
"""


def test_what_ncu_breaks_is_not_the_submissions_fault(profiled):
    code = "say(f'==ERROR== The application returned an error code ({abs(ended)}).\\n')"
    own = "==ERROR== Profiling failed because a driver resource was unavailable.\n"
    status, said, _, _ = profiled(f"{RUNS}say({own!r})\n{code}", program=WHILE_PROFILED)
    assert status == 2 and "no profile: Nsight Compute failed: Profiling failed because a driver resource" in said
    status, said, _, _ = profiled(f"{RUNS}{code}", program=WHILE_PROFILED)
    assert status == 1 and "no profile: crashed: the process ended before its call did (SIGKILL)" in said


def test_a_program_that_hangs_is_ended_with_all_that_it_started(profiled, monkeypatch, tmp_path):
    pid = tmp_path / "pid"
    hangs = f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    monkeypatch.setattr(measure, "RUN_SECONDS", 3.0)
    status, said, _, _ = profiled(RUNS, program=hangs)
    assert status == 1 and "no profile: stopped after 3 s" in said
    for _ in range(50):
        state = Path(f"/proc/{pid.read_text()}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError("the profiled process still runs")


PROFILES = """
import json, sys
sys.path[:0] = {rooms}
import torch
happened = []
torch.cuda.synchronize = lambda: None
torch.cuda.profiler.start = lambda: happened.append("start")
torch.cuda.profiler.stop = lambda: happened.append("stop")
import profiled, replay, role
role.get_ready("compile")
real = replay.place_inputs
replay.place_inputs = lambda described, data, device, poison: real(described, data, "cpu", poison)
class Calls(replay.Replay):
    def __init__(self, program, kernels, device, *rest):
        super().__init__(program, kernels, "cpu", *rest)
    def call(self):
        happened.append("call")
        return super().call()
replay.Replay = Calls
program = {{"version": 1, "storages": [], "kernels": [], "setup": [], "stale": [], "steps": [], "returns": [],
           "several": True}}
open("inputs.bin", "wb").close()
profiled.profile(role.Runner({{"device": "cuda"}}), {{"inputs": []}}, program)
assert json.load(open("status.json"))["warm"]
assert happened == ["call"] * profiled.WARM_UP + ["start", "call", "stop"], happened
"""


def test_the_program_profiles_one_call_after_warm_up(tmp_path):
    rooms = [str(ROOT / "grader" / "runner"), str(ROOT / "grader" / "processes" / "inside")]
    subprocess.run([sys.executable, "-c", PROFILES.format(rooms=rooms)], cwd=tmp_path, check=True)


# Where it is not installed, and bad input ----------------------------------------------------------------------------


def test_ncu_is_found_beside_path_too(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu, "PLACES", (f"{tmp_path}/cuda-*/ncu",))
    assert ncu.find() is None
    for version in ("cuda-12", "cuda-13"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "ncu").touch()
    assert ncu.find() == f"{tmp_path}/cuda-13/ncu"


@pytest.mark.thorough
def test_without_ncu_the_compiler_tells_what_it_knows(profiled, monkeypatch):
    monkeypatch.setattr(ncu, "find", lambda: None)
    status, said, calls, out = profiled("", name=None)
    assert status == 2 and not calls and not list(out.iterdir())
    assert (
        "(`ncu`) is not installed: it comes with NVIDIA's CUDA toolkit; alone it is the package cuda-nsight-com" in said
    )
    assert "sm_90 flash_attention_kernel: " in said and "registers a thread" in said and "bytes spilled" in said
    assert "programs that fit a multiprocessor: 1 by registers and 1 by shared memory" in said
    status, said, _, _ = profiled("", source="x = 1\n", name=None)
    assert status == 2 and "not installed" in said and "Not compiled either: " in said


def test_without_ncu_on_a_gpu_that_is_not_known(profiled, monkeypatch):
    monkeypatch.setattr(ncu, "find", lambda: None)
    monkeypatch.setattr(HERE, "major", 77)
    status, said, _, _ = profiled("")
    assert status == 2 and "and this GPU is sm_770" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "a profile is of one problem: name it, like make profile P=4"),
        (["--problems", "3-4"], "a profile is of one problem"),
        (["--problems", "1"], "P=1 has no kernel of its own to look into"),
        (["--problems", "4", "--case", "raged tail"], "did you mean 'ragged tail'?"),
        (["--problems", "4", "--case", "sped"], "did you mean 'speed'?"),
        (["--problems", "4", "--device", "cpu"], "a profile needs a GPU, and DEVICE=cpu asks for none"),
    ],
)
def test_bad_input(arguments, words, capsys):
    assert command_line.main(["--profile", *arguments, "--submission", str(SOLUTIONS)]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_no_gpu():
    done = run("--profile", "--problems", 4, "--submission", SOLUTIONS)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "a profile needs a GPU, and PyTorch sees none here" in done.stderr


def test_the_words_of_make():
    said = subprocess.run(
        ["make", "-n", "profile", "P=4", "CASE=ragged tail", "PYTHON=python3"], cwd=ROOT, capture_output=True, text=True
    )
    assert 'python3 -m grader --profile  --problems "$P" --case "$CASE"' in said.stdout


@pytest.mark.gpu
def test_a_real_profile(tmp_path):
    if not ncu.find():
        pytest.skip("Nsight Compute is not installed")
    done = run("--profile", "--problems", 4, "--submission", SOLUTIONS, "--out", tmp_path)
    if "ERR_NVGPUCTRPERM" in done.stdout:
        pytest.skip("this machine keeps its counters for administrators")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "likeliest limit: " in done.stdout and "not measured here" not in done.stdout
    launches = ncu.read((tmp_path / "profile-p4-speed.csv").read_text())
    assert max(launch.values[METRICS["tensor"]] for launch in launches) > 10
