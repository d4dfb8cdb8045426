"""The key of a grade changes with all that the grade depends on, and with nothing else."""

from dataclasses import dataclass, replace

import pytest

from grader.classroom import fingerprint
from grader.kinds.registry import EVERY, PROBLEMS

P3 = PROBLEMS["p3"]


def test_every_problem_has_its_own():
    assert len({fingerprint.hash_problem(problem) for problem in EVERY.values()}) == len(EVERY)


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
    assert fingerprint.hash_problem(changed) != fingerprint.hash_problem(P3)


def test_points_limits_targets_and_device_change_it(monkeypatch):
    seen = {
        fingerprint.hash_problem(P3),
        fingerprint.hash_problem(P3, "cuda"),
        fingerprint.hash_problem(P3, "cpu", ("sm_80",)),
    }
    seen.add(fingerprint.hash_problem(replace(P3, points=99)))
    monkeypatch.setattr(fingerprint.settings, "SECONDS_PER_CASE", {"cpu": 3.0})
    seen.add(fingerprint.hash_problem(P3))
    assert len(seen) == 5


def test_the_judges_version_changes_it_for_its_own_kind(monkeypatch):
    before = {id: fingerprint.hash_problem(problem) for id, problem in EVERY.items()}
    monkeypatch.setattr("grader.kinds.block_sparse.JUDGE_VERSION", 99)
    assert {id for id, problem in EVERY.items() if fingerprint.hash_problem(problem) != before[id]} == {"x1"}
    monkeypatch.setattr("grader.kinds.attention.JUDGE_VERSION", 99)
    changed = {id for id, problem in EVERY.items() if fingerprint.hash_problem(problem) != before[id]}
    assert changed == {*PROBLEMS, "x1"}


def test_a_new_field_changes_no_problem_as_long_as_nobody_uses_it():
    @dataclass(frozen=True)
    class Case(type(P3.cases[0])):
        temperature: float = 1.0

    cases = tuple(Case(**vars(case)) for case in P3.cases)
    assert fingerprint.hash_problem(replace(P3, cases=cases)) == fingerprint.hash_problem(P3)
    hot = (replace(cases[0], temperature=2.0), *cases[1:])
    assert fingerprint.hash_problem(replace(P3, cases=hot)) != fingerprint.hash_problem(P3)


def test_what_is_no_plain_data_is_refused():
    with pytest.raises(TypeError, match="is no plain data"):
        fingerprint.hash_problem(replace(P3, takes=lambda: None))


def test_the_environment_is_part_of_it(monkeypatch):
    seen = {fingerprint.hash_environment(), fingerprint.hash_environment("NVIDIA H200")}
    monkeypatch.setattr(fingerprint.platform, "python_version", lambda: "3.99.1")
    seen |= {fingerprint.hash_environment()}
    monkeypatch.setattr(fingerprint.platform, "python_version", lambda: "3.99.2")
    seen |= {fingerprint.hash_environment()}
    monkeypatch.setattr(fingerprint, "version", lambda package: "9.9.9")
    assert len(seen | {fingerprint.hash_environment()}) == 4, "a patch of Python changes nothing"


def test_a_key_tells_apart_what_differs():
    keys = [fingerprint.make_key(*given) for given in (
        (b"x", "p", "e", 0), (b"y", "p", "e", 0), (b"x", "q", "e", 0), (b"x", "p", "f", 0), (b"x", "p", "e", 1),
        (None, "p", "e", 0), (b"", "p", "e", 0), (b"xp", "", "e", 0),
    )]  # fmt: skip
    assert len(set(keys)) == len(keys)
