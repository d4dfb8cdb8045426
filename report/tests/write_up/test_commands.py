"""The commands that pages, notebooks and skeletons name exist: targets and options of make, cases, modules."""

import re
import shlex
from importlib.util import find_spec

from grader.course.problem import COMPILES
from grader.registry import EVERY
from grader.tests.support import ROOT, prose
from report.__main__ import OTHERS, PAGES, STUDIES
from report.measuring.command import parse
from report.measuring.study import find_study


def commands(text):
    """The words of each command in a text: in backquotes, which may be broken over lines, or alone in its line."""
    text = re.sub(r"^(?:> |# |    )", "", text, flags=re.M)
    found = re.findall(r"(?<!`)`((?:make|(?:\.venv/bin/)?python3?) [^`]+)`", text)
    found += re.findall(r"^(?:\$ )?((?:make|(?:\.venv/bin/)?python3?) [^`|\n#]+)", text, re.M)
    return [words for command in found if len(words := shlex.split(command)) > 1]


def test_the_commands_that_are_named_exist():
    makefile = "".join((ROOT / name).read_text("utf-8") for name in ("Makefile", "instructors.mk"))
    targets = set(" ".join(re.findall(r"^\.PHONY: (.*)$", makefile, re.M)).split())
    options = {"REST", *re.search(r"^SIZES := (.*)$", makefile, re.M)[1].split()}
    options |= set(re.search(r"^OPTIONS := ((?:.*\\\n)*.*)$", makefile, re.M)[1].replace("\\", "").split())
    checked = 0
    for name, text in prose().items():
        for words in commands(text):
            checked += 1
            where = f"{name}: {' '.join(words)}"
            if words[0] == "make":
                check_make(words, targets, options, where)
            elif words[1] == "-m":
                check_module(words[2:], where)
            elif words[1] not in ("-", "-c"):
                assert (ROOT / words[1]).exists(), where
    assert checked > 150


def check_make(words, targets, options, where):
    given = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    assert {word for word in words[1:] if "=" not in word} <= targets and set(given) <= options, where
    cases = {case.name for id, problem in EVERY.items() if id.strip("p") == given.get("P") for case in problem.cases}
    assert given.get("P") is None or "CASE" not in given or given["CASE"] in cases | {COMPILES}, where
    if "SWEEP" in given:
        parse(find_study("sweep"), shlex.split(given["SWEEP"]))


def check_module(words, where):
    assert find_spec(words[0]), where
    if words[0] == "report" and len(words) > 1 and words[1].islower():
        assert words[1] in {"pages", *STUDIES, *OTHERS}, where
        assert words[1] != "pages" or {word for word in words[2:] if word.islower()} <= {"--of", *PAGES}, where
