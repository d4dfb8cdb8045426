"""The command: bad input gets one sentence and exit status 2; verdicts get 0 or 1; nothing of ours is a traceback."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from classroom import __main__ as classroom
from classroom import handins
from grader.__main__ import main
from grader.core.sandbox import scratch
from grader.engine.request import Request
from grader.registry import PROBLEMS
from grader.tests.support import ROOT, SOLUTIONS, in_utf8, solution, thorough


def run(*arguments, cwd=ROOT):
    command = [sys.executable, "-m", "grader", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stdout + done.stderr
    return done


def status_of(main, arguments):
    """The exit status of a command in this process."""
    try:
        return main(list(map(str, arguments)))
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--submission", "no/such/folder"], "the submission folder no/such/folder does not exist"),
        (["--submission", "README.md"], "is a file, not a folder"),
        (["--submission", "grader/render"], "has no p1_naive_attention.py nor p2_online_softmax.py"),
        (["--problems", "9"], "there is no problem 9; the problems are 1, 2, 3, 4, 5, 6, 7"),
        (["--problems", "x9"], "there is no problem x9; the problems are 1, 2, 3, 4, 5, 6, 7, the labs w1"),
        (["--problems", "x1", "--case", "list of documents"], "did you mean 'lists of documents'?"),
        (["--problems", "7-5"], "there is no problem 7-5"),
        (["--problems", ","], "there is no problem ,; the problems are"),
        (["--case", "raged tail"], "no case is named 'raged tail'; did you mean 'ragged tail'?"),
        (["--problems", "3", "--case", "one sink"], "no case is named 'one sink'"),
        (["--seed", "x"], "invalid int value: 'x'"),
        (["--device", "tpu"], "invalid choice: 'tpu'"),
        (["--colour"], "unrecognized arguments: --colour"),
        (["--out", "README.md/x"], "the folder README.md/x for results.json cannot be made"),
    ],
)
def test_bad_input(arguments, words, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert status_of(main, ["grade", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_cuda_without_a_gpu_says_so(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["grade", "--device", "cuda"]) == 2
    assert "sees no GPU" in capsys.readouterr().err


def test_a_module_that_does_not_import_and_one_that_passes(tmp_path):
    (tmp_path / PROBLEMS["p1"].module).write_text("import no_such_module\n", "utf-8")
    (tmp_path / PROBLEMS["p2"].module).write_text(solution("p2"), "utf-8")
    done = run("grade", "--submission", tmp_path, "--problems", "1-2", "--out", tmp_path)
    assert done.returncode == 1
    assert "No module named 'no_such_module'" in done.stdout and "15 of 25 points" in done.stdout
    assert (tmp_path / "results.json").exists()
    assert (tmp_path / "report.html").exists() and "pictures: " in done.stdout


def test_one_case_of_one_problem(tmp_path, capsys):
    given = ["grade", "--submission", SOLUTIONS, "--problems", "p2", "--case", "ragged tail", "--out", tmp_path]
    assert status_of(main, given) == 0 and "1/1" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]  # a selection is no grade


def test_wrong_answer_names_the_window(tmp_path, capsys):
    source = solution("p6").replace("age < window_size", "age <= window_size")
    (tmp_path / PROBLEMS["p6"].module).write_text(source, "utf-8")
    given = ["grade", "--submission", tmp_path, "--problems", "6", "--case", "ragged tail", "--seed", "3"]
    given += ["--out", tmp_path]
    assert status_of(main, given) == 1
    said = capsys.readouterr().out
    assert said.endswith(f"pictures: {tmp_path / 'report.html'}\n")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "only the case ragged tail: no points are counted" in page and "equals a window of 33" in page
    head = 'p6 "ragged tail" (B=2 Hq=2 Hkv=1 N=129 D=64 window=32, float16, seed 3): wrong'
    assert head in said
    assert "First wrong row 32, a multiple of 32; rows before it agree" in said
    assert "Your output equals a window of 33." in said
    assert 'again: make grade P=6 CASE="ragged tail" SUBMISSION=' in said


def run_pytest(*arguments):
    command = [sys.executable, "-m", "pytest", "grader", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.thorough
@pytest.mark.parametrize("jobs", [[], ["-p", "no:xdist"]])
def test_the_pytest_face(tmp_path, jobs):
    (tmp_path / PROBLEMS["p4"].module).write_text(solution("p4"), "utf-8")
    done = run_pytest("--submission", tmp_path, "-k", "p4 and ragged and tail", "-q", *jobs)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


@pytest.mark.thorough
def test_the_pytest_face_fails_with_the_sentence(tmp_path):
    shutil.copy(ROOT / "problems" / PROBLEMS["p4"].module, tmp_path)
    done = run_pytest("--submission", tmp_path, "-k", "p4 and (ragged or speed)")
    assert done.returncode == 1 and "unfinished" in done.stdout and "TODO 1" in done.stdout, done.stdout


@pytest.mark.thorough
def test_the_pytest_face_without_a_folder():
    done = run_pytest("--submission", "no/such/folder")
    assert done.returncode == 4 and "does not exist" in done.stderr


@pytest.mark.parametrize("name", [thorough('x"; touch made; "'), "$(shell touch made)`touch made`$$(touch made)"])
def test_what_make_is_given_is_a_name_and_no_command(name, tmp_path):
    """No shell reads it, and make does not expand it."""
    command = ["make", "-C", ROOT, "grade", f"PYTHON={sys.executable}", f"SUBMISSION={tmp_path}/{name}", "P=1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert f"{tmp_path}/{name}" in done.stderr and "does not exist" in done.stderr
    assert not (ROOT / "made").exists()


@pytest.mark.parametrize("given", [None, "another"])
def test_the_grader_has_one_temporary_folder_and_no_other(given, tmp_path, monkeypatch):
    """Python's own choice goes on to other folders where one is full."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    folder = str(tmp_path / given) if given else "/tmp"
    monkeypatch.setenv("TMPDIR", folder) if given else monkeypatch.delenv("TMPDIR", raising=False)
    scratch.choose_own_folder()
    assert tempfile.gettempdir() == folder
    if given:
        with pytest.raises(FileNotFoundError):
            tempfile.mkdtemp()


ODD_FOLDERS = ("$(touch hit)", "`touch hit`", '"; touch hit; "', "it's $$HOME ${P} $(shell touch hit)", "a b\\",
               "#x; =1", "\x1b[2J$(touch hit)'\\", "new\nline",
               *(pytest.param(name, marks=in_utf8) for name in ("\udcff\u202eb", "näher")))  # fmt: skip


@pytest.mark.parametrize("name", ODD_FOLDERS)
@pytest.mark.parametrize("printed", ["again", "BadFolder"])
def test_a_printed_command_names_the_very_folder_and_runs_nothing_else(printed, name, tmp_path):
    """Pasted into bash, with an interpreter that writes down its arguments in place of grading."""
    folder = tmp_path / name
    folder.mkdir()
    (folder / PROBLEMS["p1"].module).write_text("x = 1", "utf-8")
    if printed == "again":
        sentence = Request(folder, (PROBLEMS["p1"],), None, "cpu", 0, False).again(PROBLEMS["p1"], "ragged tail")
    else:
        with pytest.raises(handins.BadFolder) as raised:
            handins.find(folder, tmp_path / "out")
        sentence = str(raised.value)
    assert sentence.isprintable()
    command = sentence[sentence.index("make grade") :]
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\0" "$*" "$SUBMISSION" > "$NOTED"\n', "utf-8")
    python.chmod(0o755)
    given = os.environ | {"PYTHON": "./python", "NOTED": str(tmp_path / "noted")}
    (tmp_path / "Makefile").symlink_to(ROOT / "Makefile")
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env=given, check=True)
    arguments = (tmp_path / "noted").read_bytes().split(b"\0")
    assert arguments[:2] == [b"-m grader grade --from-make", os.fsencode(folder)]
    assert not list(tmp_path.rglob("hit"))


@pytest.mark.parametrize("name", ["\x1b[2Jno", pytest.param("\x9b2J\u202eno\udcff", marks=in_utf8)])
@pytest.mark.parametrize("command", [main, classroom.main])
def test_no_command_says_a_path_that_a_terminal_obeys(command, name, capsys):
    assert status_of(command, ["grade", "--submission", name] if command is main else [name]) == 2
    said = capsys.readouterr().err
    assert "no" in said and not set(said) & set("\x1b\x9b\u202e\udcff")


def test_watch_grades_again_when_the_file_is_saved(tmp_path):
    module = tmp_path / PROBLEMS["p1"].module
    module.write_text("import no_such_module\n", "utf-8")
    command = [sys.executable, "-u", "-m", "grader", "watch", "--submission", tmp_path, "--problems", "1"]
    command += ["--case", "one token", "--out", tmp_path]
    with subprocess.Popen(list(map(str, command)), cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        first = "".join(iter_until(process.stdout, "Ctrl-C ends"))
        assert "No module named 'no_such_module'" in first and f"watching {module.name}" in first
        saved = tmp_path / "saved"  # as editors save: another file takes its place
        saved.write_text(solution("p1"), "utf-8")
        saved.replace(module)
        second = "".join(iter_until(process.stdout, "Ctrl-C ends"))
        assert "saved" in second and "1/1" in second and "no_such_module" not in second
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_another_word_than_none_for_the_sandbox_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GRADER_SANDBOX", "off")
    for command, given in ((main, ["grade", "--problems", "1"]), (classroom.main, [tmp_path])):
        assert status_of(command, given) == 2
        assert "SANDBOX=off is unknown: SANDBOX=none does without bubblewrap" in capsys.readouterr().err


def iter_until(lines, words):
    for line in lines:
        yield line
        if words in line:
            return
