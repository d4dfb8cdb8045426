"""make class: killed at any moment it goes on, grades each thing once, and a machine's fault is nobody's 0."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from grader.classroom import journal, plan
from grader.classroom.__main__ import SEED_FILE, main
from grader.classroom.local import Local
from grader.classroom.record import GRADED, MACHINE_FAULT
from grader.core.sandbox import bubblewrap
from grader.course.problem import SECONDS_PER_CASE, SECONDS_PER_PROBLEM
from grader.tests.classroom import quick_class
from grader.tests.classroom.quick_one import MODULES
from grader.tests.support import ROOT, SOLUTIONS, thorough


def make_class(folder, texts):
    """Submissions of three modules each. texts: {name: text, or (text of p1, text of p2, text of p3)}."""
    for name, text in texts.items():
        each = text if isinstance(text, tuple) else (text,) * 3
        (folder / name).mkdir(parents=True, exist_ok=True)
        for (id, module), of in zip(MODULES.items(), each, strict=True):
            (folder / name / module).write_text(f"# {name} {id}\n{of}\n")
    return folder


def quick(folder, out, *more, monkeypatch=None, log=None):
    """The exit status of the command with quick_one.py, in this process."""
    if log:
        monkeypatch.setenv("QUICK_LOG", str(log))
    return quick_class.main([str(folder), "--out", str(out), "--problems", "1-3", "--lanes", "2", *more])


def verdicts(out):
    """Everything of a class that does not depend on when it was graded, as one text."""
    known = journal.read(out)
    pairs = sorted(known.records)
    assert len(pairs) == len(known.submissions) * len(known.problems)
    return json.dumps([known.records[pair].verdict() for pair in pairs])


def start(folder, out, log=None):
    command = [
        sys.executable,
        "-m",
        "grader.tests.classroom.quick_class",
        str(folder),
        "--out",
        str(out),
        "--problems",
        "1-3",
    ]
    environment = {**os.environ, **({"QUICK_LOG": str(log)} if log else {})}
    return subprocess.Popen([*command, "--lanes", "2"], cwd=ROOT, env=environment, start_new_session=True,
                            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)  # fmt: skip


def lines_of(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.thorough
def test_killed_at_random_moments_it_goes_on(tmp_path):
    """SIGKILL for the whole process group, five times: the same verdicts, and only what was in flight twice."""
    folder = make_class(tmp_path / "in", {f"s{n:02}": f"wait {0.02 * (n % 4)}" for n in range(20)})
    draw, out, log, kills = random.Random(7), tmp_path / "out", tmp_path / "log", 0
    for _ in range(5):
        process, before = start(folder, out, log), lines_of(out / journal.JOURNAL)
        wanted = before + 3 * draw.randrange(0, 4)  # let it write some records, then a moment more
        while process.poll() is None and lines_of(out / journal.JOURNAL) < wanted:
            time.sleep(0.01)
        time.sleep(draw.random() * 0.3)
        kept = (out / journal.JOURNAL).read_bytes() if (out / journal.JOURNAL).exists() else b""
        kills += process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert not kept or (out / journal.JOURNAL).read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    last = start(folder, out, log)
    last.communicate()
    assert last.returncode == 0 and kills >= 4
    assert quick(folder, tmp_path / "whole", "--seed", (out / SEED_FILE).read_text()) == 0  # drawn once, and kept
    assert verdicts(out) == verdicts(tmp_path / "whole")
    assert len(log.read_text().splitlines()) <= 20 + 2 * kills, "more was graded again than was in flight"
    assert lines_of(out / journal.JOURNAL) == 60, "a grade was written twice"


def test_nothing_outlives_a_killed_run(tmp_path):
    folder = make_class(tmp_path / "in", {"ann": "never"})
    process = start(folder, tmp_path / "out")
    jobs = tmp_path / "out" / "work" / "jobs"
    wait_for(lambda: list(jobs.glob("*.json")) and len(running(str(jobs))) == 2)  # the lane's process and its fork
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: not running(str(jobs)))


def running(words):
    """The processes whose command line has these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [path.parent.name] if words in path.read_text(errors="replace") else []
    return found


def wait_for(what, seconds=20):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, thorough(signal.SIGTERM)])
def test_a_stop_is_clean_and_says_how_to_go_on(tmp_path, number):
    folder = make_class(tmp_path / "in", {"ann": "", "bob": "never"})
    out = tmp_path / "out"
    process = start(folder, out)
    wait_for(lambda: lines_of(out / journal.JOURNAL) == 3)
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130 and "stopped; what is graded is kept, and the same command goes on" in said
    assert "Traceback" not in said and lines_of(out / journal.JOURNAL) == 3
    wait_for(lambda: not running(str(out / "work" / "jobs")))


def test_a_second_run_does_no_work(tmp_path, monkeypatch):
    folder, log = make_class(tmp_path / "in", {"ann": "", "bob": ""}), tmp_path / "log"
    assert quick(folder, tmp_path / "out", monkeypatch=monkeypatch, log=log) == 0
    before, first = (tmp_path / "out" / journal.JOURNAL).read_bytes(), log.read_text()
    assert sorted(first.splitlines()) == ["ann p1,p2,p3", "bob p1,p2,p3"]
    assert quick(folder, tmp_path / "out", monkeypatch=monkeypatch, log=log) == 0
    assert log.read_text() == first and (tmp_path / "out" / journal.JOURNAL).read_bytes() == before


def test_only_what_changed_is_graded_again(tmp_path, monkeypatch):
    folder, log, out = make_class(tmp_path / "in", {"ann": "", "bob": ""}), tmp_path / "log", tmp_path / "out"
    assert quick(folder, out, monkeypatch=monkeypatch, log=log) == 0
    before = verdicts(out)

    (folder / "ann" / MODULES["p3"]).write_text("another kernel")
    log.write_text("")
    assert quick(folder, out, monkeypatch=monkeypatch, log=log) == 0
    assert log.read_text() == "ann p3\n" and verdicts(out) != before

    real = plan.fingerprint.hash_problem
    changed = lambda problem, *rest: real(problem, *rest) + ("x" if problem.id == "p2" else "")  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(plan.fingerprint, "hash_problem", changed)
        log.write_text("")
        assert quick(folder, out, monkeypatch=monkeypatch, log=log) == 0
    assert sorted(log.read_text().splitlines()) == ["ann p2", "bob p2"]

    (folder / "ann" / MODULES["p3"]).write_text("# ann p3\n\n")  # as it was at first: its grade is in the journal
    log.write_text("")
    assert quick(folder, out, monkeypatch=monkeypatch, log=log) == 0
    assert log.read_text() == "" and verdicts(out) == before

    assert quick(folder, out, "--seed", "1", monkeypatch=monkeypatch, log=log) == 0
    assert len(log.read_text().splitlines()) == 2


def test_a_fault_of_the_machine_is_tried_again(tmp_path, monkeypatch):
    folder, log = make_class(tmp_path / "in", {"ann": ("", "fault once", ""), "bob": "die once"}), tmp_path / "log"
    assert quick(folder, tmp_path / "out", monkeypatch=monkeypatch, log=log) == 0
    known = journal.read(tmp_path / "out").records
    assert {record.status for record in known.values()} == {GRADED}
    assert [known["ann", id].attempts for id in MODULES] == [1, 2, 1] and known["bob", "p1"].attempts == 2
    assert "ann p2" in log.read_text().splitlines(), "only what failed is tried again"


def test_a_machine_that_keeps_failing_costs_no_points(tmp_path, monkeypatch, capsys):
    folder, out, log = tmp_path / "in", tmp_path / "out", tmp_path / "log"
    make_class(folder, {"ann": ("", "fault", ""), "bob": "die", "cy": ""})
    assert quick(folder, out, monkeypatch=monkeypatch, log=log) == 1
    known = journal.read(out).records
    assert known["ann", "p2"].status == known["bob", "p1"].status == MACHINE_FAULT
    assert known["ann", "p2"].points is None and known["ann", "p2"].attempts == plan.ATTEMPTS
    assert known["ann", "p2"].remarks == ("The disk was on fire.",) and "SIGKILL" in known["bob", "p3"].remarks[0]
    assert known["ann", "p1"].status == known["cy", "p1"].status == GRADED
    assert "4 problems have no grade, because the machine failed" in capsys.readouterr().err

    make_class(folder, {"bob": ""})  # other bytes, other keys; ann is tried anew all the same
    log.write_text("")
    assert quick(folder, out, monkeypatch=monkeypatch, log=log) == 1
    assert log.read_text().count("ann p2") == plan.ATTEMPTS and log.read_text().count("bob p1,p2,p3") == 1


def job_of(tmp_path, text="", **more):
    folder = make_class(tmp_path / "in", {"ann": text}) / "ann"
    keys = {id: id * 8 for id in MODULES}
    return plan.Job("ann", "Ann", tuple(MODULES), str(folder), str(tmp_path / "out"), keys, **more)


def run_one(job, command=quick_class.QUICK_LANE):
    done = []
    os.environ["PYTHONPATH"] = str(ROOT)
    Local(1, command, pause=0).run([job], lambda job, records: done.extend(records))
    return done


def test_a_job_that_takes_longer_than_all_limits_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(plan.Job, "limit", property(lambda job: 0.5))
    records = run_one(job_of(tmp_path, "never"))
    assert {record.status for record in records} == {MACHINE_FAULT}
    assert "no result within 0.5 s, the sum of all limits" in records[0].remarks[0]


def test_the_limit_of_a_job_is_the_sum_of_its_parts(tmp_path):
    job = job_of(tmp_path)
    assert job.limit > sum(job.limit_of(id) for id in job.problems) > len(job.problems) * SECONDS_PER_PROBLEM["cpu"]
    assert job.limit_of("p3") > SECONDS_PER_PROBLEM["cpu"] + SECONDS_PER_CASE["cpu"]
    assert job.limit < 60 * 60, "one that drags every case keeps its lane for long enough"


def test_a_full_disk_is_the_machines_fault(tmp_path, monkeypatch):
    job = job_of(tmp_path)
    (tmp_path / "out").write_text("no folder can be made here")
    records = run_one(job)
    assert [record.status for record in records] == [MACHINE_FAULT] * 3
    assert records[0].remarks[0].startswith("The machine failed: ")


FILLED = """
fill() { head -c $((($(df --output=avail -k $1 | tail -1) - $2) * 1024)) /dev/zero > $1/filler; }
grade() { "$@" > /dev/null 2> said; echo "$? $(tail -1 said)"; }
for free in 40 300; do
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
    grade = [sys.executable, "-m", "grader.tests.classroom.quick_class", str(tmp_path / "class")]
    grade += ["--problems", "1-3", "--seed", "3"]
    (tmp_path / "out").mkdir()
    disk = ["bwrap", "--dev-bind", "/", "/", "--size", str(4 << 20), "--tmpfs", str(tmp_path / "out"), "--"]
    done = subprocess.run([*disk, "bash", "-c", FILLED, "bash", *grade], capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    early, first, book, late, second, same = done.stdout.splitlines()
    for stopped in (early, late):
        assert stopped.startswith("2 class: a file could not be written: No space left on device"), done
        assert stopped.endswith("the same command goes on from there")
    assert first.startswith("0 ") and second.startswith("0 ") and book == same, done


def served(grade, get_ready="bool"):
    """The command of a lane whose forks do this, an expression of `files`."""
    imports = "import os, signal, sys; from grader.classroom import lane"
    return sys.executable, "-c", f"{imports}; lane.serve(sys.argv[1], lambda files: {grade}, {get_ready})"


def test_records_that_are_not_whole_are_no_grades(tmp_path):
    records = run_one(job_of(tmp_path), served("files[1].write_text('{}')"))
    assert {record.status for record in records} == {MACHINE_FAULT} and "cannot be read" in records[0].remarks[0]
    records = run_one(job_of(tmp_path), served("open('/no/room')"))
    said = "The machine failed: the process that graded this ended with exit status 1 (FileNotFoundError: "
    assert records[0].remarks[0].startswith(said)


@pytest.mark.parametrize("command", [
    served("os.kill(os.getppid(), signal.SIGKILL)"), served("0", "lambda job: os.kill(os.getpid(), signal.SIGKILL)"),
])  # fmt: skip
def test_a_lane_that_is_lost_is_the_machines_fault(tmp_path, command):
    records = run_one(job_of(tmp_path), command)
    assert {record.status for record in records} == {MACHINE_FAULT}
    assert records[0].remarks == ("The machine failed: the process that graded this was killed by SIGKILL.",)


def test_a_lane_starts_once_and_again_where_it_is_lost(tmp_path):
    """Each job has a fork of its own of the same process, and a new process where that was lost."""
    write = "open(files[0].parent / 'forks', 'a').write(f'{os.getppid()} {os.getpid()}\\n')"
    jobs = [replace(job_of(tmp_path), submission=name) for name in ("ann", "bob", "cy", "dan")]
    command = served(f"{write} and 'cy' in files[0].name and os.kill(os.getppid(), signal.SIGKILL)")
    os.environ["PYTHONPATH"] = str(ROOT)
    Local(1, command).run(jobs, lambda job, records: None)
    forks = [line.split() for line in (tmp_path / "out" / "work" / "jobs" / "forks").read_text().splitlines()]
    parents, own = zip(*forks, strict=True)
    assert parents[0] == parents[1] == parents[2] != parents[3] and len(set(own)) == 4


@pytest.mark.thorough
def test_the_answers_are_worked_out_before_the_fork(tmp_path, monkeypatch):
    from grader.classroom import one
    from grader.kinds.attention import answers, inputs, oracle
    from grader.kinds.registry import EVERY, PROBLEMS

    monkeypatch.setattr(answers, "KEPT", {})  # other tests of this process keep answers too
    one.work_out.cache_clear()
    job = replace(job_of(tmp_path), problems=("p3",), keys={"p3": "k"}, seed=5)
    (tmp_path / "job").write_text(job.to_json())
    case = next(case for case in PROBLEMS["p3"].cases if not case.gpu)
    placed = inputs.make(case, 5)
    fresh = oracle.expect(*(each.tensor for each in placed), case.visibility, scale=case.scale)
    one.get_ready(tmp_path / "job")
    kept = answers.KEPT[answers.key_of(case, placed)]
    assert answers.to(case, placed) is kept and kept.o.equal(fresh.o) and kept.allowed_o.equal(fresh.allowed_o)
    assert answers.key_of(case, inputs.make(case, 6)) not in answers.KEPT
    one.work_out(tuple(EVERY), 0)  # labs too: a lane that cannot get ready grades nobody


def test_a_missing_gpu_is_the_machines_fault(tmp_path, monkeypatch):
    from grader.classroom import one

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    records = one.run(job_of(tmp_path, device="cuda", needs_gpu=True), grade=None)
    assert {record.status for record in records} == {MACHINE_FAULT} and "sees no GPU" in records[0].remarks[0]


@pytest.mark.thorough
def test_a_slow_submission_delays_no_other(tmp_path):
    """One lane waits, the other grades the rest; the GPU has a lane of its own."""
    folder = make_class(tmp_path / "in", {"slow": "wait 1.0", **{f"s{n}": "" for n in range(6)}})
    keys, order = {id: id for id in MODULES}, []
    jobs = [plan.Job(name, name, tuple(MODULES), str(folder / name), str(tmp_path / "out"), keys,
                     needs_gpu=name == "slow") for name in sorted(os.listdir(folder), reverse=True)]  # fmt: skip
    os.environ["PYTHONPATH"] = str(ROOT)
    Local(1, quick_class.QUICK_LANE).run(jobs, lambda job, records: order.append(job.submission))
    assert order[-1] == "slow" and len(order) == 7


def test_an_error_of_ours_stops_all_and_is_heard(tmp_path):
    def fail(job, records):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        os.environ["PYTHONPATH"] = str(ROOT)
        Local(1, quick_class.QUICK_LANE).run([job_of(tmp_path)], fail)


def test_makes_variables_are_options_of_a_class(monkeypatch):
    from grader.classroom.__main__ import parse

    for name, value in {"P": "1-3", "LANES": "2", "COMPILE": "no", "CASE": "a case", "VERBOSE": "1"}.items():
        monkeypatch.setenv(name, value)
    options = parse(["--from-make", "--", "--a folder"])
    assert (options.problems, options.lanes, options.no_compile) == ("1-3", 2, True)
    assert str(options.submissions) == "--a folder"
    assert (parse(["folder"]).problems, parse(["folder"]).lanes) == ("", None)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["missing"], "does not exist"),
        ([__file__], "is a file, not a folder"),
        ([], "name the folder of submissions: make class SUBMISSIONS=folder"),
        ([".", "--lanes", "0"], "LANES must be 1 or more; got 0"),
        ([".", "--problems", "9"], "there is no problem 9"),
        ([".", "--out", "."], "OUT must be another folder"),
        ([".", "--out", __file__], "the results need a folder"),
        ([str(SOLUTIONS)], "looks like one submission"),
        (["{tmp}/empty"], "holds no submissions"),
        (["{tmp}", "--roster", "missing.csv"], "the roster missing.csv cannot be read"),
        ([".", "--targets", "sm_1"], "no GPU 'sm_1'"),
    ],
)
def test_bad_arguments_are_one_sentence(tmp_path, capsys, monkeypatch, arguments, words):
    from grader.classroom.__main__ import main

    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    out = [] if "--out" in arguments else ["--out", str(tmp_path / "out")]
    assert main([*out, *(text.format(tmp=tmp_path) for text in arguments)]) == 2
    said = capsys.readouterr().err
    assert words in said and said.startswith("class: ") and said.count("\n") == 1


def test_two_runs_at_once_are_refused(tmp_path, capsys):
    folder = make_class(tmp_path / "in", {"ann": ""})
    (tmp_path / "out").mkdir()
    with journal.Journal(tmp_path / "out"):
        assert quick(folder, tmp_path / "out") == 2
    assert "is being graded by process" in capsys.readouterr().err


def test_a_roster_and_remarks_reach_the_class(tmp_path):
    folder = make_class(tmp_path / "in", {"ann": "", "eve": ""})
    (folder / "ann" / MODULES["p2"]).unlink()
    (tmp_path / "roster.csv").write_text("id,name\n1,Ann\n2,Bob\n")
    assert quick(folder, tmp_path / "out", "--roster", str(tmp_path / "roster.csv")) == 0
    rows = {row.id: row for row in journal.read(tmp_path / "out").submissions}
    assert rows["ann"].roster["id"] == "1" and rows["ann"].remarks == ("Missing: p2_online_softmax.py.",)
    assert not rows["bob"].handed_in and rows["eve"].roster is None and rows["eve"].handed_in


# The real thing -------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_real_class(tmp_path):
    """Four submissions and two problems through the real grader, twice."""
    folder, out = tmp_path / "in", tmp_path / "out"
    right, p3 = (SOLUTIONS / MODULES["p1"]).read_text(), (SOLUTIONS / MODULES["p3"]).read_text()
    for name, p1, kernel in (
        ("ann", right, p3),
        ("bob", right.replace("* scale", "* 1.0"), p3.replace("\n", "\r\n")),
        ("cy", right, None),
        ("dan", "import os\nos.kill(os.getpid(), 9)\n", (ROOT / "problems" / MODULES["p3"]).read_text()),
    ):
        (folder / name).mkdir(parents=True)
        (folder / name / MODULES["p1"]).write_bytes(p1.encode())
        if kernel is not None:
            (folder / name / MODULES["p3"]).write_bytes(kernel.encode())
    command = [sys.executable, "-m", "grader.classroom", str(folder), "--out", str(out), "--problems", "1,3"]
    command += ["--device", "cpu", "--no-compile", "--lanes", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    known = journal.read(out).records
    earned = {name: [known[name, id].earned for id in ("p1", "p3")] for name in ("ann", "bob", "cy", "dan")}
    assert earned["ann"] == ["10", "15"] and earned["cy"] == ["10", "0"] and earned["dan"] == ["0", "0"]
    assert 0 <= known["bob", "p1"].points < 10 and earned["bob"][1] == "15"
    assert known["dan", "p1"].results[0]["outcome"] == "crashed" and known["dan", "p3"].results[0]["sentence"]
    assert any(result["causes"] for result in known["bob", "p1"].results)
    assert all(record.status == GRADED for record in known.values())
    assert all(record.core_seconds > 0 for record in known.values() if record.earned != "0")
    assert str(tmp_path) not in (out / journal.JOURNAL).read_text(), "a record names no folder of this machine"
    for name in earned:
        page = (out / "pages" / f"{name}.html").read_text()
        assert f"<title>{name}" in page or name in page
        assert str(tmp_path) not in page
    before, text = (out / journal.JOURNAL).read_bytes(), verdicts(out)

    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert second.returncode == 0 and "nothing is left to grade" in second.stderr
    assert (out / journal.JOURNAL).read_bytes() == before

    (folder / "ann" / MODULES["p1"]).write_text(right + "\n# handed in again\n")
    third = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert third.returncode == 0 and "1 left to grade" in third.stderr
    assert lines_of(out / journal.JOURNAL) == 9
    changed = [now for now, then in zip(json.loads(verdicts(out)), json.loads(text), strict=True) if now != then]
    assert [(one["submission"], one["problem"], one["earned"]) for one in changed] == [("ann", "p1", "10")]
    assert (out / "pages" / "ann.html").read_text().count("FlashAttention") >= 1, "the page still has the other problem"


def test_a_class_without_a_sandbox_must_be_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.delenv("GRADER_SANDBOX", raising=False)
    (tmp_path / "in").mkdir()
    command = [str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    assert main(command, lambda options: None) == 2
    said = capsys.readouterr().err
    assert "bubblewrap is not installed" in said and "SANDBOX=none" in said and not (tmp_path / "out").exists()
    monkeypatch.setenv("GRADER_SANDBOX", "none")
    assert main(command, lambda options: None) == 2
    assert "SANDBOX" not in capsys.readouterr().err, "there are no submissions: that is what is told"


def test_explanations_that_failed_are_a_remark_without_a_folder(tmp_path, monkeypatch):
    from grader.classroom import one
    from grader.diagnosis import failures

    def grade(problem, job):
        failures.count("a picture", ValueError("of ours"))
        return []

    monkeypatch.setattr(one, "make_record", lambda job, id, *given: plan.fault_records(job, "")[0])
    job = job_of(tmp_path)
    Path(job.out).mkdir()
    *_, last = one.run(job, grade)
    assert any(said.endswith("see grader.log") and str(tmp_path) not in said for said in last.remarks), last.remarks
    assert "ValueError: of ours" in (Path(job.out) / "grader.log").read_text()
