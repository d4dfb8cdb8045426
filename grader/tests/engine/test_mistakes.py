"""Each known mistake of a kind with a Reference is named, and refuted; the rules of both on a made-up kind."""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch

from grader import failures
from grader.course.tensors import place
from grader.engine import compare_values, mistakes
from grader.engine.cause import Diagnosis
from grader.engine.kind import Kind
from grader.engine.mistakes import Mistake
from grader.engine.question import Question
from grader.engine.reference import Reference, in_float32
from grader.kinds.backward.cases import BackwardCase
from grader.registry import EVERY
from grader.result import Aspect, Facts, Outcome, Result
from grader.tests.support import thorough

# With pieces of some length, which a kernel may have, these make no difference: no case that passes refutes them.
NEVER_REFUTED = "is not rescaled when the maximum grows", "16 pieces"
KNOWN = [id for id, problem in EVERY.items() if problem.kind.mistakes.get(id)]


def by_size(problem):
    return sorted((case for case in problem.cases if not case.gpu), key=problem.kind.size)


def expected_of(kind, problem, case):
    return kind.expect(problem, case, kind.inputs(case, 0), "cpu")


def stored(kind, problem, case, values):
    """{output: tensor} of these values as a kernel returns them."""
    return {name: values[name].to(getattr(torch, dtype)) for name, _, dtype in kind.outputs(problem, case)}


def is_right(expected, name, got):
    return mistakes.within(got, expected.values[name], expected.allowed[name])


EACH = [(id, number, mistake.words) for id in KNOWN for number, mistake in enumerate(EVERY[id].kind.mistakes[id])]


@pytest.mark.parametrize(("id", "number", "words"), [each if each[1] % 10 == 0 else thorough(*each) for each in EACH])
def test_a_mistake_is_named_in_a_case_and_refuted_by_one_that_passes(id, number, words):
    problem, kind, mistake = EVERY[id], EVERY[id].kind, EVERY[id].kind.mistakes[id][number]
    named, refuted = False, any(part in words for part in NEVER_REFUTED)
    for case in filter(mistake.when, by_size(problem)):
        expected = expected_of(kind, problem, case)
        given = SimpleNamespace(**vars(expected.given) | next(iter(mistake.vary(case))))
        got = stored(kind, problem, case, vars(expected.reference.run(given, mistake.changes)))
        wrong = [name for name in got if not is_right(expected, name, got[name])]
        assert set(wrong) <= set(mistake.touches(list(got)))
        if wrong:
            cause = mistake.cause(wrong)
            named = named or cause in mistakes.find(kind, problem, case, expected, got, {cause.kind})
            refuted = refuted or mistakes.would_show(kind, problem, case, 0, cause.kind)
        if named and refuted:
            break
    assert (named, refuted) == (True, True) and mistake.ask.endswith("?") and mistake.read


@pytest.mark.parametrize("id", KNOWN)
def test_what_is_right_or_has_one_wrong_number_is_named_by_none_and_careful_kernels_are_right(id):
    problem, kind = EVERY[id], EVERY[id].kind
    for case in by_size(problem)[10:12]:
        expected = expected_of(kind, problem, case)
        got = stored(kind, problem, case, expected.values)
        assert expected is expected_of(kind, problem, case)  # it is worked out once
        for form in expected.reference.careful:
            x = expected.reference.run(in_float32(expected.given, getattr(torch, case.dtype), False), form)
            assert all(is_right(expected, *each) for each in stored(kind, problem, case, vars(x)).items())
        assert mistakes.find(kind, problem, case, expected, got) == []
        got[min(got)].view(-1)[0] += 1.0
        assert mistakes.find(kind, problem, case, expected, got) == []


def judged(kind, problem, case, values):
    """The Result of a case whose outputs are these values."""
    placed, got = kind.inputs(case, 0), stored(kind, problem, case, values)
    right = kind.right(problem, case, placed, "cpu")
    wrong = {each.name: found for each in right if (found := compare_values.compare(got[each.name], each))}
    told = kind.diagnose(problem, case, placed, SimpleNamespace(trace=None), got, right, wrong)
    facts = Facts(mismatch=next(iter(wrong.values())))
    return Result(problem.id, case.name, Aspect.CORRECT, Outcome.WRONG, facts=facts, diagnosis=told)


def test_a_mistake_of_each_kernel_is_told_of_each():
    problem, case = EVERY["x3"], BackwardCase("groups", B=2, Hq=4, Hkv=2, N=24, D=16, window=7, sinks=2)
    words = "{of} without delta: ds = p * dp", "{of} without the sinks"
    of_dk, of_dq = (next(each for each in problem.kind.mistakes["x3"] if each.words == said) for said in words)
    expected = expected_of(problem.kind, problem, case)
    got, other = (vars(expected.reference.run(expected.given, each.changes)) for each in (of_dk, of_dq))
    told = judged(problem.kind, problem, case, got | {"dq": other["dq"]}).diagnosis
    told.causes = told.evidence["search"]()
    said = "Your output equals dq without the sinks; and dk without delta: ds = p * dp. dv is right, dq and dk are not."
    assert told.sentence.startswith(said), told.sentence


# The rules, on a made-up kind -----------------------------------------------------------------------------------------

X = torch.tensor([[[[1.0, -2.0], [3.0, 5.0], [-7.0, 11.0]]]])
STEPS = {"a": lambda x: x.x * x.one, "b": lambda x: 2 * x.x, "c": lambda x: 3 * x.x}
REFERENCE = Reference(lambda case, tensors: {"x": tensors[0].double(), "one": 1.0}, STEPS, ("a", "b", "c"))
RIGHT = {"a": X, "b": 2 * X, "c": 3 * X}
M = SimpleNamespace(id="m")


@dataclass(frozen=True)
class Case(Question):
    """Given code makes the first rows of b and c, so many."""

    given: int = 0
    tiles: tuple | None = None


class MadeUp(Kind):
    references, sides = {"m": REFERENCE}, (("a",), ("b", "c"))

    def __init__(self, known):
        super().__init__()
        self.mistakes = {"m": known}

    def inputs(self, case, seed):
        return [place(X)]

    def outputs(self, problem, case):
        return [(name, tuple(X.shape), "float32") for name in "abc"]

    def given_rows(self, case, name):
        return 0 if name == "a" else case.given


def known(words, outputs, times=1.0, **more):
    changes = {name: lambda x, name=name: STEPS[name](x) * times for name in outputs}
    return Mistake(f"{{of}} {words}", "why?", "", changes, outputs=tuple(outputs), **more)


HALF, TURNED, SQUARED = known("halved", "abc", 0.5), known("turned", "b", -1.0), known("squared", "c", X.double())
LARGER = known("larger", "ab", vary=lambda case: ({"one": 2.0}, {"one": 3.0}))
NOT_LARGER = known("larger", "a", vary=lambda case: ({"one": 3.0}, {"one": 1.0}))
OFF, HARDLY = known("a little off", "a", 1 + 6e-6), known("hardly off", "a", 1 + 5e-6)
AT_TIMES = known("five times", "c", 5.0, when=lambda case: case.given)
ALL = HALF, TURNED, SQUARED, LARGER, OFF, AT_TIMES
BEHIND = torch.tensor([[1.0], [-1.0], [-1.0]])  # the first row is right


def named(times, every=ALL, given=0, only=frozenset()):
    """What is said of outputs that are so many times the right ones."""
    kind, case = MadeUp(every), Case("one", given=given)
    got = {name: right * times.get(name, 1.0) for name, right in RIGHT.items()}
    return [cause.equals for cause in mistakes.find(kind, M, case, expected_of(kind, M, case), got, only)]


@pytest.mark.parametrize(("times", "given", "words"), [
    ({"a": 0.5, "b": 0.5, "c": 0.5}, 0, ["a, b and c halved"]),
    ({"b": 0.5, "c": 0.5}, 0, ["b and c halved"]), ({"b": 0.5}, 0, ["b halved"]),
    ({"a": 9.0, "b": 0.5}, 0, []),  # the kernel of b makes c, too, which is right
    ({"b": -1.0, "c": X}, 0, ["b turned", "c squared"]),
    ({"b": -1.0, "c": 0.5}, 0, ["c halved", "b turned"]),
    ({"a": 9.0, "b": -1.0}, 0, ["b turned"]),
    ({"a": 3.0}, 0, ["a larger"]),  # the second number that is tried
    ({"a": math.nan}, 0, []), ({"a": 1 + 6e-6}, 0, ["a a little off"]),
    ({"a": 1 + 3e-6}, 0, []),  # as near to what is right
    ({"b": BEHIND}, 0, []), ({"b": BEHIND}, 1, ["b turned"]), ({"c": 5.0}, 0, []), ({"c": 5.0}, 1, ["c five times"]),
])  # fmt: skip
def test_a_mistake_is_named_with_the_wrong_outputs_that_it_gives(times, given, words):
    assert named(times, given=given) == words
    assert named(times, given=given, only={"b turned"}) == [said for said in words if said == "b turned"]


@pytest.mark.parametrize(("words", "every", "given", "shown"), [
    ("a larger", [LARGER], 0, True), ("b larger", [LARGER], 0, False),
    ("a larger", [LARGER, NOT_LARGER], 0, False),
    ("a hardly off", [HARDLY], 0, False),
    ("b turned", [TURNED, known("turned", "b", when=lambda case: case.given)], 0, True),
    ("b turned", [TURNED], 3, False),
    ("c five times", [AT_TIMES], 0, False), ("c five times", [AT_TIMES], 1, True),
])  # fmt: skip
def test_a_case_refutes_what_each_variant_of_a_mistake_would_show(words, every, given, shown):
    assert mistakes.would_show(MadeUp(every), M, Case("one", given=given), 0, words) is shown


@pytest.mark.parametrize(("others", "left"), [(3, 1), (4, 0)])
def test_one_match_is_chance_where_many_cases_that_fail_otherwise_would_show_it(others, left):
    told = Diagnosis("output", "", [TURNED.cause(["b"])])
    failed = [(Case("one"), told), *((Case(f"{n}"), Diagnosis("output", "")) for n in range(others))]
    mistakes.drop_refuted(MadeUp([TURNED]), M, failed, [], 0)
    assert len(told.causes) == left


def test_a_careful_form_that_overflows_allows_nothing():
    kind, other = MadeUp(ALL), MadeUp(ALL)
    other.references = {"m": replace(REFERENCE, careful=({}, {"x": lambda x: x.x * math.inf}))}
    same, allowed = (expected_of(each, M, Case("one")).allowed for each in (kind, other))
    assert all(torch.equal(allowed[name], same[name]) for name in RIGHT)


@pytest.mark.parametrize("limit", ["SECONDS", "LARGEST"])
def test_nothing_is_named_beyond_a_limit(limit, monkeypatch):
    monkeypatch.setattr(mistakes, limit, -1)
    assert named({"b": -1.0}) == []


def test_a_mistake_that_fails_is_logged_and_the_others_are_tried(monkeypatch):
    told, every = [], [known("that fails", "b", None), TURNED]
    with pytest.raises(TypeError):
        named({"b": -1.0}, every)
    monkeypatch.setenv(failures.DEBUG, "0")
    monkeypatch.setattr(failures, "count", lambda what, error: told.append(what))
    assert named({"b": -1.0}, every) == ["b turned"] and told == ["the known mistake '{of} that fails'"]


@pytest.mark.parametrize(("bits", "searched"), [(-1, False), (0x7FC00000, True)])
def test_what_was_never_written_has_no_cause(bits, searched):
    """It equals whatever gives NaN."""
    nan = torch.full(X.shape, bits, dtype=torch.int32).view(torch.float32)
    assert ("search" in judged(MadeUp(ALL), M, Case("one"), RIGHT | {"b": nan}).diagnosis.evidence) is searched


@pytest.mark.parametrize(("failing", "passing", "stands"), [
    (1, [None], False), (9, [None], False), (10, [None], True), (1, [(16, 16)], True), (1, [], True),
])  # fmt: skip
def test_a_case_that_passes_refutes_the_causes_of_a_few_with_its_tiles(failing, passing, stands):
    kind = MadeUp([TURNED])
    cases = [Case(f"{number}") for number in range(failing)]
    results = [judged(kind, M, case, RIGHT | {"b": -2 * X}) for case in cases]
    cases += [Case("passes", tiles=tiles) for tiles in passing]
    results += [Result("m", "passes", Aspect.CORRECT, Outcome.PASSED) for _ in passing]
    mistakes.check(kind, M, {case.name: case for case in cases}, 0, results)
    assert {bool(result.diagnosis.causes) for result in results[:failing]} == {stands}
