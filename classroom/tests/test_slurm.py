"""The engine of a cluster on a real Slurm of this machine, in which nodes are lost and jobs are cancelled."""

import contextlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace

import pytest

pytest.importorskip("submitit", reason="needs submitit (the extra `slurm`)")

from msgspec.structs import replace

from classroom import data, slurm
from classroom.jobs import ATTEMPTS, Job
from classroom.tests.own_slurm import NoSlurm, OwnSlurm
from grader.commands.arguments import BadArguments
from grader.core.sandbox import server
from grader.registry import EVERY
from grader.tests.support import ROOT, SOLUTIONS

pytestmark = pytest.mark.thorough
# Stands in for classroom.one: what a job is called says what it does, with "once" in its first attempt alone.
ONE = """
import json, os, pathlib, sys, time
from classroom.data import Record, write_record
job = json.loads(pathlib.Path(sys.argv[1]).read_text())
out, row = pathlib.Path(job["out"]), job["row"]
print(row, file=(out / "log").open("a"), flush=True)
asked = set(row.split("-")) if job["attempt"] == 1 or "once" not in row else set()
eaten = bytearray(b"x") * (2 << 30) if "eat" in asked else b""
time.sleep(600 if "never" in asked else 2 if "slow" in asked else 0)
os.kill(os.getpid(), 9 if "die" in asked else 0)
if "fault" in asked:
    sys.exit("the disk was on fire")
write_record(out, job["keys"]["p1"], Record("p1", []))
"""


@contextlib.contextmanager
def a_slurm(**how):
    """An OwnSlurm of which nothing is left in the end; where it cannot be, the tests that need it are skipped."""
    folder = tempfile.mkdtemp(prefix="slurm-")  # short: a socket's path has at most 107 letters
    os.chmod(folder, 0o755)
    try:
        with OwnSlurm(folder, **how) as own, pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", str(own.conf))
            patch.setenv("PATH", own.environment["PATH"])
            yield own
        assert not own.left(), "a daemon or a job outlived the tests"
    except NoSlurm as error:
        pytest.skip(f"no Slurm: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


own = pytest.fixture(a_slurm.__wrapped__, scope="module")


def wait_for(what):
    deadline = time.monotonic() + 180
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def ran(out):
    return (out / "log").read_text("utf-8").split() if (out / "log").exists() else []


def grade(out, names, disturb=None, **how):
    """For each of these jobs, what the machine did in each attempt. disturb: called when the first's process began."""
    engine = slurm.Slurm(out, **{"poll": 0.2, "grace": 1, "array": 4, "command": (sys.executable, "-c", ONE)} | how)
    ends = {name: [] for name in names.split()}

    def on_start(job):
        if disturb and names.startswith(job.row) and job.attempt == 1:
            wait_for(lambda: job.row in ran(out))
            disturb()

    def on_end(job, why):
        ends[job.row].append(why)
        assert bool(why) is (data.read_record(out, job.row) is None)
        return replace(job, attempt=job.attempt + 1) if why and job.attempt < ATTEMPTS else None

    jobs = [Job(name, {"p1": name}, str(out), str(out), needs_gpu="gpu" in name) for name in ends]
    try:
        engine.run(jobs, on_end, on_start)
    finally:
        wait_for(lambda: not slurm.ask("squeue", "--noheader"))
    return list(ends.values())


def test_every_job_is_graded_and_a_failed_one_again(own, tmp_path, monkeypatch, capsys):
    """And nobody takes the silence of a controller that is restarted for the end of a job."""
    for name, value in {"CHUNK": 3, "SAY_SECONDS": 0, "ANSWER_SECONDS": 1}.items():
        monkeypatch.setattr(slurm, name, value)
    start = threading.Timer(5, own.start, ("slurmctld", "-D", "-f", str(own.conf)))
    names, restart = "a-slow b-slow c-fault-once d-die-once e-fault", lambda: (own.stop("slurmctld"), start.start())
    kill = "the process that graded this was killed by SIGKILL"
    fault = "the process that graded this ended with exit status 1 (the disk was on fire)"
    assert grade(tmp_path, names, restart) == [[""], [""], [fault, ""], [kill, ""], [fault] * ATTEMPTS]
    assert not (tmp_path / "work" / "slurm").exists(), "nothing of Slurm's is left behind"
    assert grade(tmp_path, "b-slow") == [[""]] and len(ran(tmp_path)) == 9, "its result is there"
    said = capsys.readouterr().err
    assert "slurm: queued 3 jobs, 4 at a time, each with 1 CPU, 0 GPU, 18GB" in said and "slurm: queued 2 jobs" in said
    assert grade(tmp_path, "f g-slow h", array=1) == [[""]] * 3
    assert "1 running" in (said := capsys.readouterr().err) and "2 running" not in said


ENDS = {
    "was cancelled": "scancel --state=RUNNING",
    "reached its time limit in Slurm": "scontrol update JobId=$(squeue -h -r -o %i -t RUNNING) EndTime=now",
    "had to make room for another (preempted)": "sbatch -p urgent --exclusive --output=/dev/null --wrap='sleep 1'",
    "took more memory than Slurm gave it": "",
}


@pytest.mark.parametrize("words", ENDS)
def test_what_slurm_ends_is_said_in_its_words(own, tmp_path, monkeypatch, words):
    monkeypatch.setitem(slurm.RESOURCES, "cpu", {"cpus_per_task": 1, "mem": "1GB"})
    if not ENDS[words] and not own.holds_memory:
        pytest.skip("no root, or no control groups of version 1: Slurm holds no job to its memory here")
    asks, disturb = "never-once" if ENDS[words] else "eat-once", lambda: own.ask("sh", "-c", ENDS[words])
    for letter in "abc":  # on a busy machine Slurm may see the job's end before it knows its reason
        [(first, *rest)] = grade(tmp_path, f"{letter}-{asks}", disturb, partition="spare")
        if not rest:  # nor may it end a job in time
            continue
        assert first.startswith("Slurm's job ") and rest[-1] == ""
        if first.endswith(words):
            return
    pytest.fail(f"{first!r} does not say that it {words}")


def test_a_lost_node(tmp_path):
    """The node dies under a running job and comes back; the job is graded then."""
    with a_slurm(patient=False) as own:
        a, b = grade(tmp_path, "a-never-once b", lambda: (own.lose_node(), own.start_node()))
    assert a[0].endswith(" was lost with its node") and a[1:] == [""] and b[-1] == ""


def test_killed_and_started_again(own, tmp_path, capsys):
    """What the killed run left in the queue is cancelled; what it has graded is kept; the rest is graded once more."""
    names = "a b-slow c-slow d-slow e-slow"
    process = multiprocessing.get_context("fork").Process(target=grade, args=(tmp_path, names))
    process.start()
    wait_for(lambda: data.path_of(tmp_path, "a").exists() and "c-slow" in ran(tmp_path))
    process.kill()
    process.join()
    assert grade(tmp_path, names) == [[""]] * 5 and ran(tmp_path).count("a") == 1
    assert " jobs of an earlier run" in capsys.readouterr().err


def test_a_stop_or_an_error_cancels_all(own, tmp_path, capfd):
    process = multiprocessing.get_context("fork").Process(target=grade, args=(tmp_path, "a-never b-never c-never"))
    process.start()
    wait_for(lambda: ran(tmp_path))
    os.kill(process.pid, signal.SIGINT)
    process.join(20)
    assert process.exitcode == 1 and "slurm: cancels 3 jobs: scancel --name=class-" in capfd.readouterr().err
    with pytest.raises(ZeroDivisionError):
        grade(tmp_path, "d-never e-never", lambda: 1 / 0)


def test_what_the_cluster_cannot_do_is_one_sentence(own, tmp_path, monkeypatch):
    asked = Namespace(out=tmp_path, partition="gold", gpus=None, array=None)
    with pytest.raises(BadArguments, match="the cluster has no partition 'gold'; it has normal, brief"):
        slurm.from_options(asked)
    with pytest.raises(BadArguments, match=r"min: the partition lets no job run that long \(PartitionTimeLimit\)$"):
        grade(tmp_path, "a", partition="brief")
    with pytest.raises(BadArguments, match=r"Slurm does not take the jobs \(.+\); each asks for 2 CPU, 1 GPU, 58GB"):
        grade(tmp_path, "a-gpu")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")  # the shell's own words, instead of a class of faults
    with pytest.raises(BadArguments, match=r"cannot start the grader \(.*/nowhere/python: No such file.*\): they need"):
        grade(tmp_path, "a b c d")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadArguments, match="there is no sbatch here"):
        slurm.from_options(asked)


def test_a_folder_that_the_nodes_do_not_see(tmp_path):
    with a_slurm(patient=False) as own:  # without root no folder can be hidden, and slurmd does not start
        own.stop("slurmd")
        own.start_node(before=("unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {tmp_path} && exec "$@"', "sh"))
        with pytest.raises(BadArguments, match=f"the nodes of the cluster cannot see OUT={tmp_path}/out: it must lie"):
            grade(tmp_path / "out", "a b c d")


def test_the_real_grader(own, tmp_path):
    shutil.copy(SOLUTIONS / EVERY["p1"].module, tmp_path)
    assert grade(tmp_path, "ann", command=slurm.COMMAND) == [[""]] and data.read_record(tmp_path, "ann").points == 10
    code = "import sys, classroom.slurm; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_what_slurm_is_asked_for_covers_what_a_submission_may_take():
    for device, names in {"cpu": ("recorder", "runner"), "cuda": ("recorder", "gpu runner")}.items():
        most = sum(server.KINDS[name].memory_bytes for name in names) + (2 << 30)
        assert int(slurm.RESOURCES[device]["mem"].removesuffix("GB")) << 30 >= most
