"""make class: killed at any moment it goes on, grades each thing once, and a machine's fault is nobody's 0."""

import contextlib
import csv
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from classroom import data, jobs
from classroom.__main__ import SEED_FILE
from classroom.jobs import Job
from classroom.local import Local
from classroom.tests import quick_class
from classroom.tests.quick_one import MODULES
from grader.core.sandbox import bubblewrap
from grader.course.problem import SECONDS_PER_CASE, SECONDS_PER_PROBLEM
from grader.tests.support import ROOT, below, thorough


def make_class(folder, texts):
    """Submissions of three modules each. texts: {name: text, or (text of p1, text of p2, text of p3)}."""
    for name, text in texts.items():
        each = text if isinstance(text, tuple) else (text,) * 3
        (folder / name).mkdir(parents=True, exist_ok=True)
        for (id, module), of in zip(MODULES.items(), each, strict=True):
            (folder / name / module).write_text(f"# {name} {id}\n{of}\n", "utf-8")
    return folder


def quick(folder, out, *more, monkeypatch=None, log=None):
    """The exit status of the command with quick_one.py, in this process."""
    if log:
        monkeypatch.setenv("QUICK_LOG", str(log))
    return quick_class.main([str(folder), "--out", str(out), "--problems", "1-3", "--lanes", "2", *more])


def start(folder, out, log=None):
    command = [sys.executable, "-m", "classroom.tests.quick_class", str(folder), "--out", str(out)]
    environment = {**os.environ, **({"QUICK_LOG": str(log)} if log else {})}
    return subprocess.Popen([*command, "--problems", "1-3", "--lanes", "2"], cwd=ROOT, env=environment, text=True,
                            start_new_session=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)  # fmt: skip


def results(out):
    """The names of the results on the disk."""
    return {path.name for path in (out / "results").glob("*.msgpack.gz")}


def gradebook(out):
    with (out / "gradebook.csv").open(newline="", encoding="utf-8-sig") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def wait_for(what, seconds=60):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def running(words):
    """The processes whose command line has these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [path.parent.name] if words in path.read_text("utf-8", "replace") else []
    return found


@pytest.mark.thorough
def test_killed_at_random_moments_it_goes_on(tmp_path):
    """SIGKILL for the whole process group, five times: the same gradebook, and only what was in flight twice."""
    folder = make_class(tmp_path / "in", {f"s{n:02}": f"wait {0.02 * (n % 4)}" for n in range(20)})
    draw, out, log, kills = random.Random(7), tmp_path / "out", tmp_path / "log", 0
    for _ in range(5):
        process, before = start(folder, out, log), results(out)
        wanted = len(before) + 3 * draw.randrange(0, 4)  # let it write some results, then a moment more
        while process.poll() is None and len(results(out)) < wanted:
            time.sleep(0.01)
        time.sleep(draw.random() * 0.3)
        kills += process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert before <= results(out), "a result was lost"
    last = start(folder, out, log)
    last.communicate()
    assert last.returncode == 0 and kills >= 4
    assert quick(folder, tmp_path / "whole", "--seed", (out / SEED_FILE).read_text("utf-8")) == 0  # kept
    assert (out / "gradebook.csv").read_bytes() == (tmp_path / "whole" / "gradebook.csv").read_bytes()
    assert results(out) == results(tmp_path / "whole") and len(results(out)) == 60
    assert len(log.read_text("utf-8").splitlines()) <= 20 + 2 * kills, "more was graded again than was in flight"


def test_nothing_outlives_a_killed_run(tmp_path):
    process = start(make_class(tmp_path / "in", {"ann": "never"}), tmp_path / "out")
    job = tmp_path / "out" / "work" / "jobs"
    lane = quick_class.QUICK_LANE[1]
    mine = []

    def began():  # the lane's process and its fork, of this run: other tests have lanes of the same name
        mine[:] = set(children(lane)) & set(map(str, below(process.pid)))
        return list(job.glob("*.json")) and len(mine) >= 2

    wait_for(began)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: not set(mine) & set(children(lane)))


def children(script):
    return running(script)


@pytest.mark.parametrize("number", [signal.SIGINT, thorough(signal.SIGTERM)])
def test_a_stop_is_clean_and_says_how_to_go_on(tmp_path, number):
    out = tmp_path / "out"
    process = start(make_class(tmp_path / "in", {"ann": "", "bob": "never"}), out)
    wait_for(lambda: len(results(out)) == 3)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "stopped; what is graded is kept, and the same command goes on" in said
    assert "Traceback" not in said and len(results(out)) == 3


def test_a_second_run_does_no_work_and_a_class_has_one_run_at_a_time(tmp_path, monkeypatch, capsys):
    folder, log, out = make_class(tmp_path / "in", {"ann": "", "bob": ""}), tmp_path / "log", tmp_path / "out"
    assert quick(folder, out, monkeypatch=monkeypatch, log=log) == 0
    before, first = (out / "gradebook.csv").read_bytes(), log.read_text("utf-8")
    assert sorted(first.splitlines()) == ["ann p1,p2,p3", "bob p1,p2,p3"]
    assert quick(folder, out, monkeypatch=monkeypatch, log=log) == 0
    assert log.read_text("utf-8") == first and (out / "gradebook.csv").read_bytes() == before
    from classroom.__main__ import locked

    with locked(out):
        assert quick(folder, out) == 2 and "being graded by another process" in capsys.readouterr().err


def test_only_what_changed_is_graded_again(tmp_path, monkeypatch):
    folder, log, out = make_class(tmp_path / "in", {"ann": "", "bob": ""}), tmp_path / "log", tmp_path / "out"

    def graded(*more):
        log.write_text("", "utf-8")
        assert quick(folder, out, *more, monkeypatch=monkeypatch, log=log) == 0
        return sorted(log.read_text("utf-8").splitlines())

    graded()
    before = gradebook(out)
    (folder / "ann" / MODULES["p3"]).write_text("a kernel of hers", "utf-8")
    assert graded() == ["ann p3"] and gradebook(out) != before
    real = jobs.hash_problem
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "hash_problem", lambda of, *rest: real(of, *rest) + ("x" if of.id == "p2" else ""))
        assert graded() == ["ann p2", "bob p2"]
    (folder / "ann" / MODULES["p3"]).write_text("# ann p3\n\n", "utf-8")  # as it was at first: its result is there
    assert graded() == [] and gradebook(out) == before
    assert len(graded("--seed", "1")) == 2
    assert graded("--seed", "1", "--only", "bob") == ["bob p1,p2,p3"]


def test_one_result_answers_for_all_who_handed_in_the_same(tmp_path, monkeypatch):
    folder, log = make_class(tmp_path / "in", {"ann": ""}), tmp_path / "log"
    (folder / "bob").symlink_to(folder / "ann")
    (folder / "bob").unlink()
    (folder / "bob").mkdir()
    for module in MODULES.values():
        (folder / "bob" / module).write_bytes((folder / "ann" / module).read_bytes())
    assert quick(folder, tmp_path / "out", monkeypatch=monkeypatch, log=log) == 0
    assert log.read_text("utf-8") == "ann p1,p2,p3\n"
    rows = gradebook(tmp_path / "out")
    assert rows["ann"]["total"] == rows["bob"]["total"] != ""


def test_a_fault_of_the_machine_is_tried_again(tmp_path, monkeypatch):
    folder, log = make_class(tmp_path / "in", {"ann": ("", "fault once", ""), "bob": "die once"}), tmp_path / "log"
    assert quick(folder, tmp_path / "out", monkeypatch=monkeypatch, log=log) == 0
    assert {row["status"] for row in gradebook(tmp_path / "out").values()} == {"graded"}
    assert "ann p2" in log.read_text("utf-8").splitlines(), "only what failed is tried again"


def test_a_machine_that_keeps_failing_costs_no_points(tmp_path, monkeypatch, capsys):
    folder, out, log = tmp_path / "in", tmp_path / "out", tmp_path / "log"
    make_class(folder, {"ann": ("", "fault", ""), "bob": "die", "cy": ""})
    assert quick(folder, out, monkeypatch=monkeypatch, log=log) == 1
    rows = gradebook(out)
    assert rows["ann"]["p2"] == rows["ann"]["total"] == rows["bob"]["p1"] == "" and rows["ann"]["p1"]
    assert rows["ann"]["status"] == "machine fault" and "The disk was on fire." in rows["ann"]["remarks"]
    assert "SIGKILL" in rows["bob"]["remarks"] and rows["cy"]["status"] == "graded"
    assert "4 problems have no grade, because the machine failed" in capsys.readouterr().err
    assert log.read_text("utf-8").count("ann p2\n") == jobs.ATTEMPTS - 1
    make_class(folder, {"bob": ""})  # other bytes, other keys; ann is tried anew all the same
    log.write_text("", "utf-8")
    assert quick(folder, out, monkeypatch=monkeypatch, log=log) == 1
    assert log.read_text("utf-8").count("ann p2") == jobs.ATTEMPTS and log.read_text("utf-8").count("bob p1,p2,p3") == 1


def test_a_damaged_result_is_no_result(tmp_path, monkeypatch):
    folder, log, out = make_class(tmp_path / "in", {"ann": ""}), tmp_path / "log", tmp_path / "out"
    assert quick(folder, out, monkeypatch=monkeypatch, log=log) == 0
    path = sorted((out / "results").iterdir())[0]
    path.write_bytes(path.read_bytes()[:-20])
    log.write_text("", "utf-8")
    assert quick(folder, out, monkeypatch=monkeypatch, log=log) == 0
    assert len(log.read_text("utf-8").splitlines()) == 1 and gradebook(out)["ann"]["status"] == "graded"


# Lanes ----------------------------------------------------------------------------------------------------------------


def job_of(tmp_path, text="", row="ann", **more):
    folder = make_class(tmp_path / "in", {"ann": text}) / "ann"
    return Job(row, {id: id * 8 for id in MODULES}, str(folder), str(tmp_path / "out"), **more)


def run_one(job, command=quick_class.QUICK_LANE):
    whys = []
    os.environ["PYTHONPATH"] = str(ROOT)
    Local(1, command, pause=0).run([job], lambda job, why: whys.append(why), lambda job: None)
    return whys[0]


def test_a_job_that_takes_longer_than_all_limits_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(Job, "limit", property(lambda job: 0.5))
    assert "no result within 0.5 s, the sum of all limits" in run_one(job_of(tmp_path, "never"))


def test_the_limit_of_a_job_is_the_sum_of_its_parts(tmp_path):
    job = job_of(tmp_path)
    assert job.limit > sum(job.limit_of(id) for id in job.keys) > len(job.keys) * SECONDS_PER_PROBLEM["cpu"]
    assert job.limit_of("p3") > SECONDS_PER_PROBLEM["cpu"] + SECONDS_PER_CASE["cpu"]
    assert job.limit < 2 * 60 * 60, "one that drags every case keeps its lane for long enough"


def test_a_full_disk_is_the_machines_fault(tmp_path):
    job = job_of(tmp_path)
    (tmp_path / "out").write_text("no folder can be made here", "utf-8")
    assert "exists" in run_one(job) or "directory" in run_one(job)


FILLED = """
fill() { head -c $((($(df --output=avail -k $1 | tail -1) - $2) * 1024)) /dev/zero > $1/filler; }
grade() { "$@" > /dev/null 2> said; echo "$? $(tail -1 said)"; }
for free in 40 200; do
    mkdir out/$free; fill out $free
    grade "$@" --out out/$free
    rm out/filler
    grade "$@" --out out/$free
    md5sum < out/$free/gradebook.csv
done
"""


@pytest.mark.thorough
def test_a_disk_that_fills_loses_nothing(tmp_path):
    """A tmpfs of bubblewrap's is full at two moments: while files are taken in, and while submissions are graded."""
    if bubblewrap.find_obstacle():
        pytest.skip("bubblewrap makes the disk that fills")
    make_class(tmp_path / "class", {f"s{i:02}": f"x = {i}" for i in range(20)})
    grade = [sys.executable, "-m", "classroom.tests.quick_class", str(tmp_path / "class")]
    grade += ["--problems", "1-3", "--seed", "3"]
    (tmp_path / "out").mkdir()
    disk = ["bwrap", "--dev-bind", "/", "/", "--size", str(6 << 20), "--tmpfs", str(tmp_path / "out"), "--"]
    done = subprocess.run([*disk, "bash", "-c", FILLED, "bash", *grade], capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    early, first, book, late, second, same = done.stdout.splitlines()
    assert early.startswith("2 class: ") and late[0] in "12", done
    assert first.startswith("0 ") and second.startswith("0 ") and book == same, done


def served(grade, get_ready="bool"):
    """The command of a lane whose forks do this, an expression of `files`."""
    imports = "import os, signal; from classroom import lane"
    return sys.executable, "-c", f"{imports}; lane.serve(lambda files: {grade}, {get_ready})"


def test_a_process_that_fails_says_how(tmp_path):
    said = "the process that graded this ended with exit status 1 (FileNotFoundError: "
    assert run_one(job_of(tmp_path), served("open('/no/room') and 0")).startswith(said)


@pytest.mark.parametrize("command", [
    served("os.kill(os.getppid(), signal.SIGKILL) or 0"),
    served("0", "lambda job: os.kill(os.getpid(), signal.SIGKILL)"),
])  # fmt: skip
def test_a_lane_that_is_lost_is_the_machines_fault(tmp_path, command):
    assert run_one(job_of(tmp_path), command) == "the process that graded this was killed by SIGKILL"


def test_a_lane_starts_once_and_again_where_it_is_lost(tmp_path):
    """Each job has a fork of its own of the same process, and a new process where that was lost."""
    forks = tmp_path / "forks"
    write = f"open({str(forks)!r}, 'a').write(f'{{os.getppid()}} {{os.getpid()}}\\n')"
    command = served(f"({write} and 'cy' in files[0] and os.kill(os.getppid(), signal.SIGKILL)) or 0")
    os.environ["PYTHONPATH"] = str(ROOT)
    several = [job_of(tmp_path, row=name) for name in ("ann", "bob", "cy", "dan")]
    Local(1, command).run(several, lambda job, why: None, lambda job: None)
    parents, own = zip(*(line.split() for line in forks.read_text("utf-8").splitlines()), strict=True)
    assert parents[0] == parents[1] == parents[2] != parents[3] and len(set(own)) == 4


@pytest.mark.thorough
def test_the_answers_are_worked_out_before_the_fork(tmp_path, monkeypatch):
    from classroom import one
    from grader.kinds.attention import answer_cache, inputs, oracle
    from grader.registry import EVERY, PROBLEMS

    monkeypatch.setattr(answer_cache, "KEPT", {})  # other tests of this process keep answers too
    one.work_out.cache_clear()
    job = Job("ann", {"p3": "k"}, str(tmp_path), str(tmp_path), seed=5)
    (tmp_path / "job").write_bytes(msgspec.json.encode(job))
    case = next(case for case in PROBLEMS["p3"].cases if not case.gpu)
    placed = inputs.make(case, 5)
    fresh = oracle.expect(*(each.tensor for each in placed), case.visibility, scale=case.scale)
    one.get_ready(str(tmp_path / "job"))
    kept = answer_cache.KEPT[answer_cache.key_of(case, placed)]
    assert answer_cache.to(case, placed) is kept and kept.o.equal(fresh.o) and kept.allowed_o.equal(fresh.allowed_o)
    assert answer_cache.key_of(case, inputs.make(case, 6)) not in answer_cache.KEPT
    one.work_out(tuple(EVERY), 0)  # labs too: a lane that cannot get ready grades nobody


def test_a_missing_gpu_is_the_machines_fault(tmp_path, monkeypatch):
    from classroom import one

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert one.run(job_of(tmp_path, device="cuda", needs_gpu=True)) == [
        "PyTorch sees no GPU on the machine that was to grade this"
    ]


@pytest.mark.thorough
def test_a_slow_submission_delays_no_other(tmp_path):
    """One lane waits, the other grades the rest; the GPU has a lane of its own."""
    texts = {"slow": ("wait 15", "", ""), **{f"s{n}": "" for n in range(6)}}
    folder, ended = make_class(tmp_path / "in", texts), []
    several = [
        Job(name, {"p1": f"{name} p1"}, str(folder / name), str(tmp_path / "out"), needs_gpu=name == "s5")
        for name in texts
    ]
    os.environ["PYTHONPATH"] = str(ROOT)
    Local(2, quick_class.QUICK_LANE).run(several, lambda job, why: ended.append((job.row, why)), lambda job: None)
    assert ended[-1] == ("slow", "") and len(ended) == 7


@pytest.mark.thorough
def test_a_real_submission_is_graded(tmp_path):
    """No stand-in: one right, one wrong and one that hangs, by the real grader."""
    from classroom.__main__ import main
    from grader.tests.submissions.broken.mistakes import MISTAKES
    from grader.tests.support import solution

    name, right = MODULES["p1"], solution("p1")
    wrong = next(m for m in MISTAKES if m.problem == "p1" and not m.base).apply(right)
    texts = {"ann": right, "bob": wrong, "eve": right + "\n\nwhile True: pass\n"}
    for student, text in texts.items():
        (tmp_path / "in" / student).mkdir(parents=True)
        (tmp_path / "in" / student / name).write_text(text, "utf-8")
    out = tmp_path / "out"
    assert main([str(tmp_path / "in"), "--out", str(out), "--problems", "1", "--device", "cpu"]) == 0
    rows = gradebook(out)
    assert rows["ann"]["total"] == "10" and rows["eve"]["total"] == "0" and float(rows["bob"]["total"]) < 10
    record = data.records_of(out, next(row for row in data.read_class(out).rows if row.id == "ann"))["p1"]
    assert record.points == 10 and "10 of 10 points" in (out / "pages" / "ann.html").read_text("utf-8")
    assert all("timed out" in (out / page).read_text("utf-8") for page in ("pages/eve.html", "class.html"))
