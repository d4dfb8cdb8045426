"""make class on a cluster: a real Slurm on this machine, in which nodes are lost and jobs are cancelled."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("submitit", reason="needs submitit (the extra `slurm`)")

from grader.classroom import cluster, journal, plan, slurm
from grader.classroom.record import GRADED, MACHINE_FAULT
from grader.tests.classroom import quick_class
from grader.tests.classroom.own_slurm import NoSlurm, OwnSlurm
from grader.tests.classroom.quick_one import MODULES
from grader.tests.classroom.test_run import lines_of, make_class, verdicts, wait_for
from grader.tests.support import ROOT, SOLUTIONS

pytestmark = pytest.mark.thorough
ASKED = ("--problems", "1-3", "--seed", "7")  # a class draws a seed of its own, and two would differ
OPTIONS = (*ASKED, "--engine", "slurm")


@contextlib.contextmanager
def a_slurm(**how):
    """An OwnSlurm of which nothing is left in the end; where it cannot be, the tests that need it are skipped."""
    folder = tempfile.mkdtemp(prefix="slurm-")  # short: a socket's path has at most 107 letters
    os.chmod(folder, 0o755)
    try:
        with OwnSlurm(folder, **how) as own:
            yield own
        assert not own.left(), "a daemon or a job outlived the tests"
    except NoSlurm as error:
        pytest.skip(f"no Slurm: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def started():
    with a_slurm() as own:
        yield own


@pytest.fixture
def own(started, monkeypatch):
    talk_to(started, monkeypatch)
    yield started
    started.ask("scancel", "--name=" + ",".join(queue(started, "%j")) or "none")
    wait_for(lambda: not queue(started))


def talk_to(own, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", str(own.conf))
    monkeypatch.setenv("PATH", own.environment["PATH"])


def queue(own, what="%T"):
    """What squeue says of each job that has not ended."""
    return own.ask("squeue", "--noheader", "--array", f"--format={what}").stdout.split()


def quick(folder, out, *more, log=None, monkeypatch=None):
    if log:
        monkeypatch.setenv("QUICK_LOG", str(log))
    return quick_class.main([str(folder), "--out", str(out), *OPTIONS, *more])


def start(folder, out, *more, log=None):
    command = [
        sys.executable,
        "-m",
        "grader.tests.classroom.quick_class",
        str(folder),
        "--out",
        str(out),
        *OPTIONS,
        *more,
    ]
    environment = {**os.environ, **({"QUICK_LOG": str(log)} if log else {})}
    return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, text=True,
                            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)  # fmt: skip


def assert_graded(out, attempts):
    """Each submission has one record for each problem, graded, and no other. attempts: {submission: of each record}."""
    known = journal.read(out).records
    assert {record.status for record in known.values()} == {GRADED}
    assert {(name, id): record.attempts for (name, id), record in known.items()} == {
        (name, id): count for name, count in attempts.items() for id in MODULES
    }
    assert lines_of(out / journal.JOURNAL) == len(known)


def while_it_runs(what):
    """Call `what` in a thread beside the class; the thread, to be joined. Where it fails, the class is stopped."""

    def call():
        try:
            what()
        except BaseException:
            os.kill(os.getpid(), signal.SIGTERM)
            raise

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_a_class_as_on_one_machine(own, tmp_path, monkeypatch, capsys):
    texts = {**{f"s{n}": "" for n in range(5)}, "ann": ("", "fault once", ""), "bob": "die once"}
    folder, log = make_class(tmp_path / "in", texts), tmp_path / "log"
    assert quick(folder, tmp_path / "out", log=log, monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().err
    assert "slurm: queued 7 jobs, 7 at a time, each with 1 CPU" in said and "running" in said
    assert "killed by SIGKILL; it is tried again" in said
    known = journal.read(tmp_path / "out").records
    assert {record.status for record in known.values()} == {GRADED} and len(known) == 21
    assert [known["ann", id].attempts for id in MODULES] == [1, 2, 1] and known["bob", "p1"].attempts == 2
    assert len(log.read_text().splitlines()) == 9
    assert not list((tmp_path / "out" / "work" / "slurm").iterdir()), "nothing of Slurm's is left behind"

    assert quick_class.main([str(folder), "--out", str(tmp_path / "local"), *ASKED, "--lanes", "2"]) == 0
    assert verdicts(tmp_path / "out") == verdicts(tmp_path / "local")
    assert quick(folder, tmp_path / "out") == 0 and "nothing is left to grade" in capsys.readouterr().err


def test_no_more_at_a_time_than_asked(own, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(slurm, "CHUNK", 3)
    folder = make_class(tmp_path / "in", {f"s{n}": "wait 0.3" for n in range(5)})
    seen, real = [], cluster.tasks

    def tasks(names):
        found = real(names)
        seen.append(sum(task.state == "RUNNING" for of in found.values() for task in of.values()))
        return found

    monkeypatch.setattr(cluster, "tasks", tasks)
    assert quick(folder, tmp_path / "out", "--array", "1") == 0
    assert max(seen) == 1
    said = capsys.readouterr().err
    assert "queued 3 jobs, 1 at a time" in said and "queued 2 jobs, 1 at a time" in said
    seen.clear()
    assert quick(folder, tmp_path / "both", "--array", "2") == 0
    assert max(seen) == 2
    assert verdicts(tmp_path / "out") == verdicts(tmp_path / "both")


def test_a_cancelled_job_is_the_machines_fault_and_tried_again(own, tmp_path, monkeypatch, capsys):
    folder, log = make_class(tmp_path / "in", {"ann": "", "bob": "never"}), tmp_path / "log"

    def cancel():
        for attempt in range(1, plan.ATTEMPTS + 1):
            wait_for(lambda: log.exists() and log.read_text().count("bob") == attempt)  # noqa: B023
            wait_for(lambda: len(queue(own)) == 1)  # ann is done
            own.ask("scancel", *queue(own, "%i"))

    thread = while_it_runs(cancel)
    assert quick(folder, tmp_path / "out", log=log, monkeypatch=monkeypatch) == 1
    thread.join()
    known = journal.read(tmp_path / "out").records
    assert known["ann", "p1"].status == GRADED and known["bob", "p1"].status == MACHINE_FAULT
    assert known["bob", "p1"].attempts == plan.ATTEMPTS and known["bob", "p1"].points is None
    assert "was cancelled" in known["bob", "p1"].remarks[0] and "it is tried again" in capsys.readouterr().err


def test_a_time_limit_of_slurm_is_no_zero(own, tmp_path, monkeypatch):
    """Slurm counts in minutes, so the limit is brought forward while the job runs."""
    monkeypatch.setattr(plan, "ATTEMPTS", 1)
    folder, log = make_class(tmp_path / "in", {"bob": "never"}), tmp_path / "log"

    def shorten():
        wait_for(lambda: log.exists() and "bob" in log.read_text())
        own.ask("scontrol", "update", f"JobId={queue(own, '%i')[0]}", "EndTime=now")

    thread = while_it_runs(shorten)
    assert quick(folder, tmp_path / "out", log=log, monkeypatch=monkeypatch) == 1
    thread.join()
    (remark,) = journal.read(tmp_path / "out").records["bob", "p1"].remarks
    assert "reached its time limit in Slurm" in remark


def test_a_lost_node_is_no_zero(tmp_path, monkeypatch, capsys):
    """The node dies under a running job and comes back; the submission is graded then."""
    folder, log = make_class(tmp_path / "in", {"ann": "never once", "bob": ""}), tmp_path / "log"
    with a_slurm(patient=False) as own:
        talk_to(own, monkeypatch)

        def lose():
            wait_for(lambda: log.exists() and "ann" in log.read_text())
            wait_for(lambda: len(queue(own)) == 1)  # bob is done
            own.lose_node()
            own.start_node()

        thread = while_it_runs(lose)
        assert quick(folder, tmp_path / "out", log=log, monkeypatch=monkeypatch) == 0
        thread.join()
    assert_graded(tmp_path / "out", {"ann": 2, "bob": 1})
    assert "was lost with its node; it is tried again" in capsys.readouterr().err


@pytest.mark.parametrize("partition", ["normal", "spare"])  # Slurm would requeue there, and cancels here
def test_a_preempted_job_is_no_zero(own, tmp_path, monkeypatch, capsys, partition):
    folder, log = make_class(tmp_path / "in", {"ann": "never once", "bob": ""}), tmp_path / "log"

    def preempt():
        wait_for(lambda: log.exists() and "ann" in log.read_text())
        wait_for(lambda: len(queue(own)) == 1)  # bob is done
        take_the_node(own)

    thread = while_it_runs(preempt)
    more = ("--partition", partition)
    assert quick(folder, tmp_path / "out", *more, log=log, monkeypatch=monkeypatch) == 0
    thread.join()
    assert_graded(tmp_path / "out", {"ann": 2, "bob": 1})
    assert "had to make room for another (preempted); it is tried again" in capsys.readouterr().err


def take_the_node(own):
    """Queue a job that needs all of the node and goes before all others."""
    done = own.ask("sbatch", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
    assert done.returncode == 0, done.stderr


def test_a_job_that_slurm_starts_again_counts_once(own, tmp_path, monkeypatch, capsys):
    """Slurm puts none of our jobs back into the queue by itself; where somebody has it do so, one result is taken."""
    folder, log = make_class(tmp_path / "in", {"ann": "wait 2"}), tmp_path / "log"
    monkeypatch.setenv("QUICK_GRACE", "20")  # as a class has it: Slurm needs a while to put a job back

    def start_again():
        wait_for(lambda: log.exists() and "ann" in log.read_text())
        (id,) = queue(own, "%i")
        assert "disabled" in own.ask("scontrol", "requeue", id).stderr
        own.ask("scontrol", "update", f"JobId={id}", "Requeue=1")
        assert own.ask("scontrol", "requeue", id).returncode == 0
        wait_for(lambda: queue(own) == ["PENDING"])
        own.ask("scontrol", "update", f"JobId={id}", "StartTime=now")  # Slurm itself would wait for two minutes

    thread = while_it_runs(start_again)
    assert quick(folder, tmp_path / "out", log=log, monkeypatch=monkeypatch) == 0
    thread.join()
    assert_graded(tmp_path / "out", {"ann": 1})
    assert log.read_text().count("ann") == 2 and "tried again" not in capsys.readouterr().err


def test_out_of_memory_is_no_zero(own, tmp_path, monkeypatch, capsys):
    """One submission's job is ended for it each time: that one is given up, and the others are graded as without it."""
    if not own.holds_memory:
        pytest.skip("no root, or no control groups of version 1: Slurm holds no job to its memory here")
    monkeypatch.setattr(slurm, "MEMORY_GB", {"cpu": 1})
    monkeypatch.setattr(slurm, "GRADER_GB", 0)
    texts, out = {"ann": "eat once", "bob": "eat", "cas": "", "dan": ""}, tmp_path / "out"
    log = tmp_path / "log"
    assert quick(make_class(tmp_path / "in", texts), out, log=log, monkeypatch=monkeypatch) == 1
    known, said = journal.read(out).records, capsys.readouterr().err
    of = {name: {(known[name, id].status, known[name, id].attempts) for id in MODULES} for name in texts}
    assert of["bob"] == {(MACHINE_FAULT, plan.ATTEMPTS)} and all(known["bob", id].points is None for id in MODULES)
    assert [of["ann"], of["cas"], of["dan"]] == [{(GRADED, 2)}, {(GRADED, 1)}, {(GRADED, 1)}]
    assert lines_of(out / journal.JOURNAL) == len(known) and log.read_text().count("bob") == plan.ATTEMPTS
    again = [
        line for line in said.splitlines() if line.endswith("took more memory than Slurm gave it; it is tried again")
    ]
    assert sorted(line.partition(":")[0] for line in again) == ["ann", *["bob"] * (plan.ATTEMPTS - 1)]

    others = make_class(tmp_path / "others", {"cas": "", "dan": ""})
    assert quick_class.main([str(others), "--out", str(tmp_path / "without"), *ASKED]) == 0
    without = journal.read(tmp_path / "without").records
    assert {pair: known[pair].verdict() for pair in without} == {p: record.verdict() for p, record in without.items()}


def test_killed_it_finds_what_was_done_meanwhile(own, tmp_path, monkeypatch, capsys):
    """SIGKILL for the command: the jobs go on in Slurm; the next run takes their results and grades nothing twice."""
    folder = make_class(tmp_path / "in", {f"s{n}": "wait 0.7" for n in range(6)})
    out, log = tmp_path / "out", tmp_path / "log"
    process = start(folder, out, log=log)
    wait_for(lambda: lines_of(log) >= 3)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = lines_of(out / journal.JOURNAL)
    wait_for(lambda: lines_of(log) >= 5)  # Slurm goes on without us
    assert quick(folder, out, log=log, monkeypatch=monkeypatch) == 0
    assert before < 18 and "jobs of an earlier run go on" in capsys.readouterr().err
    assert sorted(log.read_text().split()[::2]) == [f"s{n}" for n in range(6)], "something was graded twice"
    assert lines_of(out / journal.JOURNAL) == 18
    assert quick_class.main([str(folder), "--out", str(tmp_path / "local"), *ASKED, "--lanes", "2"]) == 0
    assert verdicts(out) == verdicts(tmp_path / "local")


def test_what_nobody_asks_for_any_more_is_cancelled(own, tmp_path, monkeypatch):
    """Killed, then handed in anew: the old version's job goes, its result is not taken."""
    folder, out, log = make_class(tmp_path / "in", {"ann": "never", "bob": ""}), tmp_path / "out", tmp_path / "log"
    process = start(folder, out, log=log)
    wait_for(lambda: lines_of(log) >= 2)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    make_class(folder, {"ann": "quick now"})
    assert quick(folder, out, log=log, monkeypatch=monkeypatch) == 0
    assert log.read_text().count("ann") == 2 and log.read_text().count("bob") == 1
    wait_for(lambda: not queue(own))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_cancels_and_says_how_to_go_on(own, tmp_path, number):
    folder, out, log = make_class(tmp_path / "in", {f"s{n}": "never" for n in range(4)}), tmp_path / "o", tmp_path / "l"
    process = start(folder, out, log=log)
    wait_for(lambda: lines_of(log) >= 2)
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130 and "stopped; what is graded is kept, and the same command goes on" in said
    assert "slurm: 4 jobs were cancelled" in said and "Traceback" not in said
    wait_for(lambda: not queue(own))


def test_slurm_may_be_silent_for_a_while(own, tmp_path, monkeypatch):
    """The controller is restarted under a class: nobody takes its silence for the end of a job."""
    folder, log = make_class(tmp_path / "in", {"ann": "wait 2", "bob": ""}), tmp_path / "log"

    def restart():
        wait_for(lambda: log.exists() and "ann" in log.read_text())
        own.stop("slurmctld")
        time.sleep(1.5)
        own.start("slurmctld", "-D", "-f", str(own.conf))

    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 0.5)
    thread = while_it_runs(restart)
    assert quick(folder, tmp_path / "out", log=log, monkeypatch=monkeypatch) == 0
    thread.join()
    assert lines_of(log) == 2
    own.wait(lambda: own.ask("scontrol", "ping").returncode == 0)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--partition", "gold"], "the cluster has no partition 'gold'; it has normal, brief"),
        (["--partition", "brief"], "the partition lets no job run that long (PartitionTimeLimit): each asks for 1 CPU"),
        (["--gpus", "1"], "Slurm does not take the jobs ("),
        (["--array", "0"], "ARRAY must be 1 or more; got 0"),
        (["--engine", "local", "--partition", "normal"], "PARTITION says something of a cluster"),
    ],
)
def test_what_the_cluster_cannot_do_is_one_sentence(own, tmp_path, capsys, arguments, words):
    folder = make_class(tmp_path / "in", {"ann": ""})
    arguments = [*arguments, "--device", "cuda"] if "--gpus" in arguments else arguments
    assert quick(folder, tmp_path / "out", *arguments) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("class: ")]
    assert len(said) == 1 and words in said[0]
    wait_for(lambda: not queue(own))


def test_no_slurm_is_one_sentence(tmp_path, capsys, monkeypatch):
    folder = make_class(tmp_path / "in", {"ann": ""})
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        assert quick(folder, tmp_path / "out") == 2
    assert "there is no sbatch here" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "submitit", None)
        patch.delitem(sys.modules, "grader.classroom.slurm")
        patch.delattr(sys.modules["grader.classroom"], "slurm")
        assert quick(folder, tmp_path / "out") == 2
    assert "ENGINE=slurm needs submitit: pip install submitit" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root, to hide a folder from a node")
def test_a_folder_that_the_nodes_do_not_see(own, tmp_path, capsys):
    folder, out = make_class(tmp_path / "in", {f"s{n}": "" for n in range(4)}), tmp_path / "hidden" / "out"
    out.mkdir(parents=True)
    own.stop("slurmd")
    hide = f'mount -t tmpfs none {out.parent} && exec "$@"'
    own.start_node(before=("unshare", "--mount", "sh", "-c", hide, "sh"))
    try:
        assert quick(folder, out) == 2
    finally:
        own.stop("slurmd")
        own.start_node()
    assert f"the nodes of the cluster do not see OUT={out}" in capsys.readouterr().err
    assert lines_of(out / journal.JOURNAL) == 0, "that is nobody's machine fault yet"


def test_nodes_without_the_interpreter(own, tmp_path, capsys, monkeypatch):
    """Python is missing there: said once, with the shell's own words, instead of a class of machine faults."""
    folder = make_class(tmp_path / "in", {f"s{n}": "" for n in range(4)})
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert quick(folder, tmp_path / "out") == 2
    assert "the nodes cannot start the grader (" in (said := capsys.readouterr().err) and "/nowhere/python" in said


def test_a_real_submission(own, tmp_path):
    """Two problems through the real grader on a node: the records of one machine."""
    folder, out = tmp_path / "in", tmp_path / "out"
    (folder / "ann").mkdir(parents=True)
    shutil.copy(SOLUTIONS / MODULES["p1"], folder / "ann")
    wrong = (SOLUTIONS / MODULES["p3"]).read_text().replace("* scale", "* 1.0")
    (folder / "ann" / MODULES["p3"]).write_text(wrong)
    command = [sys.executable, "-m", "grader.classroom", str(folder), "--problems", "1,3", "--device", "cpu"]
    command += ["--seed", "7"]
    done = {}
    for engine in ("local", "slurm"):
        more = ["--no-compile", "--engine", engine, "--out", str(out / engine)]
        done[engine] = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True)
        assert done[engine].returncode == 0, done[engine].stderr
    known = journal.read(out / "slurm").records
    assert known["ann", "p1"].earned == "10" and known["ann", "p1"].core_seconds > 0
    assert verdicts(out / "slurm") == verdicts(out / "local")
    assert (out / "slurm" / "pages" / "ann.html").stat().st_size > 1000
    assert json.loads((out / "slurm" / journal.SUBMISSIONS).read_text())["submissions"]


def test_a_node_loads_torch_in_the_grading_process_alone():
    code = "import sys, grader.classroom.node; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_what_slurm_is_asked_for_covers_what_a_submission_may_take():
    from grader.core.sandbox import sandbox_process

    engine = slurm.Slurm("out", None, 2, 4)
    job = plan.Job("ann", "Ann", tuple(MODULES), "", "", {}, targets=("sm_80",))
    asked = engine.choose_resources([job, job])
    assert asked["time"] * 60 > job.limit + 60 and "gpus_per_node" not in asked
    assert asked["mem"] == slurm.MEMORY_GB["cpu"] + slurm.GRADER_GB
    on_gpu = plan.Job("ann", "Ann", tuple(MODULES), "", "", {}, device="cuda", needs_gpu=True)
    assert engine.choose_resources([on_gpu])["gpus_per_node"] == 2
    taken = {"cpu": ("recorder", "runner"), "cuda": ("recorder", "gpu runner")}
    for kind, sandbox_processes in taken.items():
        most = sum(sandbox_process.KINDS[name].memory_bytes for name in sandbox_processes)
        assert slurm.MEMORY_GB[kind] << 30 >= most, "Slurm would end what the sandbox still allows"
    assert Path(engine.home).name == "slurm"
