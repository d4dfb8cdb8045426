"""The key of a result changes with all that the grade depends on, and with nothing else."""

import math
from dataclasses import dataclass, replace

import pytest
import torch

from classroom import data, jobs
from grader.engine import compare_values
from grader.registry import EVERY, PROBLEMS
from grader.result import Aspect, Facts, Outcome, Result
from grader.tests.support import ROOT

P3 = PROBLEMS["p3"]


def test_every_problem_has_its_own():
    assert len({jobs.hash_problem(problem) for problem in EVERY.values()}) == len(EVERY)


@pytest.mark.parametrize(
    "changed",
    [
        replace(P3, cases=P3.cases[1:]),
        replace(P3, cases=(replace(P3.cases[0], N=129), *P3.cases[1:])),
        replace(P3, entry_point="attention"),
        replace(P3, cases=(*P3.cases[1:], P3.cases[0])),
    ],
)
def test_a_changed_case_changes_its_problem(changed):
    assert jobs.hash_problem(changed) != jobs.hash_problem(P3)


def test_points_limits_targets_and_device_change_it(monkeypatch):
    seen = {
        jobs.hash_problem(P3),
        jobs.hash_problem(P3, "cuda"),
        jobs.hash_problem(P3, "cpu", ("sm_80",)),
    }
    seen.add(jobs.hash_problem(replace(P3, points=99)))
    monkeypatch.setattr(jobs.settings, "SECONDS_PER_CASE", {"cpu": 3.0})
    seen.add(jobs.hash_problem(P3))
    assert len(seen) == 5


def test_the_judges_version_changes_it_for_its_own_kind(monkeypatch):
    before = {id: jobs.hash_problem(problem) for id, problem in EVERY.items()}
    monkeypatch.setattr("grader.kinds.block_sparse.JUDGE_VERSION", 99)
    assert {id for id, problem in EVERY.items() if jobs.hash_problem(problem) != before[id]} == {"x1"}
    monkeypatch.setattr("grader.kinds.attention.JUDGE_VERSION", 99)
    changed = {id for id, problem in EVERY.items() if jobs.hash_problem(problem) != before[id]}
    assert changed == {*PROBLEMS, "x1"}


def test_a_new_field_changes_no_problem_as_long_as_nobody_uses_it():
    @dataclass(frozen=True)
    class Case(type(P3.cases[0])):
        temperature: float = 1.0

    cases = tuple(Case(**vars(case)) for case in P3.cases)
    assert jobs.hash_problem(replace(P3, cases=cases)) == jobs.hash_problem(P3)
    hot = (replace(cases[0], temperature=2.0), *cases[1:])
    assert jobs.hash_problem(replace(P3, cases=hot)) != jobs.hash_problem(P3)


def test_what_is_no_plain_data_is_refused():
    with pytest.raises(TypeError, match="is no plain data"):
        jobs.hash_problem(replace(P3, takes=lambda: None))


def test_the_environment_is_part_of_it(monkeypatch):
    seen = {jobs.hash_environment("cpu"), jobs.hash_environment("NVIDIA H200")}
    for version in (("3", "99", "1"), ("3", "99", "2")):
        monkeypatch.setattr(jobs.platform, "python_version_tuple", lambda version=version: version)
        seen.add(jobs.hash_environment("cpu"))
    monkeypatch.setattr(jobs, "version", lambda package: "9.9.9")
    assert len(seen | {jobs.hash_environment("cpu")}) == 4, "a patch of Python changes nothing"


def keys_of(folder, texts, problems=("p3", "p4"), seed=0):
    folder.mkdir()
    for id, text in texts.items():
        (folder / PROBLEMS[id].module).write_text(text, "utf-8")
    return jobs.Keys([PROBLEMS[id] for id in problems], "cpu", "cpu", (), seed).of(folder)


def test_a_key_is_of_a_module_its_problem_and_the_seed(tmp_path):
    one = keys_of(tmp_path / "one", {"p3": "x = 1", "p4": "y = 1"})
    assert keys_of(tmp_path / "same", {"p4": "y = 1", "p3": "x = 1"}) == one
    other = keys_of(tmp_path / "other", {"p3": "x = 2", "p4": "y = 1"})
    assert other["p3"] != one["p3"] and other["p4"] == one["p4"]
    assert len({*one.values(), *keys_of(tmp_path / "seed", {"p3": "x = 1", "p4": "y = 1"}, seed=1).values()}) == 4
    empty, none = keys_of(tmp_path / "empty", {"p3": ""}), keys_of(tmp_path / "none", {})
    assert empty["p3"] != none["p3"] and empty["p4"] == none["p4"]


def test_a_module_that_names_another_depends_on_it(tmp_path):
    imports = "from p3_flash_attention import flash_attention"
    one = keys_of(tmp_path / "one", {"p3": "x = 1", "p4": imports})
    assert keys_of(tmp_path / "other", {"p3": "x = 2", "p4": imports})["p4"] != one["p4"]


def test_a_result_is_read_as_it_was_written(tmp_path):
    """NaN and infinity are no JSON, and a picture's keys may be numbers."""
    got = torch.tensor([[[[math.nan, math.inf, 1.0]]]])
    found = compare_values.mismatch(got, torch.zeros(1, 1, 1, 3), torch.zeros(1, 1, 1, 3))
    facts = Facts(mismatch=found, picture={"tiles": {3: [math.nan, (1, 2)]}})
    data.write_record(tmp_path, "k", data.Record("p1", [Result("p1", "a", Aspect.CORRECT, Outcome.WRONG, facts=facts)]))
    (read,) = data.read_record(tmp_path, "k").results
    assert math.isnan(read.facts.mismatch.first_got) and read.facts.mismatch.nan == 1
    assert read.facts.picture["tiles"]["3"][1] == [1, 2]
    data.path_of(tmp_path, "k").write_bytes(data.path_of(tmp_path, "k").read_bytes()[:-9])
    assert data.read_record(tmp_path, "k") is None


@pytest.mark.parametrize("folder", ["problems", "solutions"])
def test_our_own_modules_stand_alone(folder):
    for problem in EVERY.values():
        assert jobs.stands_alone((ROOT / folder / problem.module).read_bytes()), problem.module


@pytest.mark.parametrize("line", [
    "import p1_naive_attention", "from p1_naive_attention import naive_attention", "import importlib",
    "import math, p1", "x = __import__('p1')", "x = torch.os.listdir('.')", "x = os.listdir('.')", "import os as o",
    "from os import listdir", "x = torch.load('p1')", "x = torch.hub", "x = torch.utils", "exec('')",
    "x = getattr(torch, 'o' + 's')", "from . import p1", "x = triton.runtime.jit.inspect", "if 1: import p1",
    "x = (", "x = tl._p", "x = torch.from_file('p')", "import math; import p1",
])  # fmt: skip
def test_a_module_that_may_reach_others_depends_on_them(line, tmp_path):
    module = f"import math\nimport os\n\nimport torch\nimport triton.language as tl\n\n{line}\n"
    assert not jobs.stands_alone(module.encode())
    (tmp_path / P3.module).write_text(module, "utf-8")
    (tmp_path / "p1_naive_attention.py").write_text("x = 1", "utf-8")
    keys = jobs.Keys((P3,), "cpu", "cpu", (), 0)
    before = keys.of(tmp_path)
    (tmp_path / "p1_naive_attention.py").write_text("x = 2", "utf-8")
    assert keys.of(tmp_path) != before


def test_a_module_that_stands_alone_depends_on_itself(tmp_path):
    (tmp_path / P3.module).write_text(
        "import math\nimport torch\n# open, sys\nx = tl.load(p)\ny = os.environ\nz = 'exec'\n", "utf-8"
    )
    keys = jobs.Keys((P3,), "cpu", "cpu", (), 0)
    before = keys.of(tmp_path)
    (tmp_path / "p1_naive_attention.py").write_text("x = 2", "utf-8")
    assert keys.of(tmp_path) == before
