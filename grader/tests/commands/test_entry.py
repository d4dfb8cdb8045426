"""python -m grader: one command for each word, and make's variables only where make has started it."""

import re
import subprocess
import sys

import pytest

from grader.__main__ import COMMANDS, main
from grader.commands import grade
from grader.commands.arguments import FROM_MAKE, OPTIONS, SWITCHES
from grader.tests.support import ROOT, SOLUTIONS

MAKEFILE = "".join((ROOT / name).read_text("utf-8") for name in ("Makefile", "instructors.mk"))


@pytest.fixture
def asked(monkeypatch):
    """The arguments of make grade that come of an argv and of variables, without grading."""

    def asking(*argv, **variables):
        seen = []
        monkeypatch.setattr(grade, "main", lambda arguments: seen.append(arguments) or 0)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert main(["grade", *argv]) == 0
        return seen[0]

    return asking


def test_alone_it_names_every_command(capsys):
    assert main([]) == 0
    said = capsys.readouterr().out
    assert all(re.search(rf"^ +{name}\b", said, re.MULTILINE) for name in COMMANDS)


@pytest.mark.parametrize("argv", [["grades"], ["--submission", "solutions"], ["--show"]])
def test_what_is_no_command_is_refused_in_one_line(argv, capsys):
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.endswith("`python -m grader --help` lists the options\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0 and COMMANDS[name][1][:40] in capsys.readouterr().out


def test_a_strangers_variables_change_nothing(asked):
    options = asked("--problems", "2", P="9", SUBMISSION="/nowhere", SEED="7", COMPILE="no", VERBOSE="1")
    assert (options.problems, options.seed, options.no_compile, options.verbose) == ("2", 0, False, False)
    assert options.submission == ROOT / "problems"


def test_makes_variables_are_options_whatever_is_in_them(asked):
    folder = '-x "$(touch made)" \n--seed=3'
    options = asked(FROM_MAKE, P="2,3", SUBMISSION=folder, CASE="ragged tail", COMPILE="no", HINTS="yes", N="8", OUT="")
    assert (options.problems, str(options.submission), options.case) == ("2,3", folder, "ragged tail")
    assert options.no_compile and not options.no_hints and options.seed == 0 and str(options.out) == "."


def test_a_wrong_value_of_makes_is_refused_in_one_line(capsys, monkeypatch):
    monkeypatch.setenv("SEED", "x")
    assert main(["grade", FROM_MAKE]) == 2
    assert capsys.readouterr().err == (
        "grader: argument --seed: invalid int value: 'x'; `python -m grader grade --help` lists the options\n"
    )


def test_every_variable_of_an_option_is_makes_own():
    own = set(re.search(r"^OPTIONS := ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)[1].replace("\\", "").split())
    assert {*OPTIONS, *(name for name, _, _ in SWITCHES)} <= own


def test_every_command_is_a_target_of_make():
    targets = re.findall(r"^(.*): \$\(SETUP\)\n\t@\$\(PY\) -m grader \$@", MAKEFILE, re.MULTILINE)
    assert {*" ".join(targets).split()} == {*COMMANDS}


@pytest.mark.parametrize("target", COMMANDS)
def test_a_target_is_one_line_and_no_value_is_in_it(target):
    values = ["PYTHON=python3", "P=4", "CASE=$(touch made)", "SUBMISSION=;touch made"]
    command = ["make", "-n", "--no-print-directory", target, *values]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == f"python3 -m grader {target} --from-make\n", done.stderr


def test_recipes_have_one_line():
    rules = re.findall(r"^[a-z][a-z -]*:.*\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE)
    assert len(rules) > 20 and max(rule.count("\n") for rule in rules) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "make try calls the module of one problem: name it, like make try P=6"),
        (["--problems", "x1", "--size", "mask=stars 3"], 'MASK must be like "documents 3 5"'),
        (["--problems", "3,4"], "one problem"),
        (["--problems", "6", "--submission", "docs"], "docs has no p6_sliding_window.py"),
        (["--problems", "6", "--size", "N=-1"], "N must be 1 or more; got -1"),
        (["--problems", "6", "--size", "window=0"], "window must be 1 or more; got 0"),
        (["--problems", "4", "--size", "window=3"], "p4 has no window"),
        (["--problems", "6", "--size", "keys=3"], "there is no size 'keys'; the sizes are B, Hq, Hkv, N"),
    ],
)
def test_what_try_cannot_use_is_said_in_one_line(arguments, words, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert main(["try", *arguments, *([] if "--submission" in arguments else ["--submission", str(SOLUTIONS)])]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1
