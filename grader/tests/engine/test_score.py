"""Points and the faces that show them."""

import io
import json
from fractions import Fraction

from rich.console import Console

from grader import score
from grader.engine.request import Request
from grader.registry import PROBLEMS
from grader.render import gradescope, terminal
from grader.result import ArmTimes, Aspect, Cause, Facts, Outcome, Result, Speed


def result(problem, case, outcome, aspect=Aspect.CORRECT, sentence="", **rest):
    return Result(problem, case, aspect, outcome, sentence, description="N=1", again="make grade P=3", **rest)


NO_GPU = result("p3", "speed", Outcome.NOT_RUN, Aspect.SPEED, "not run: needs a GPU")


def test_points_are_a_hundred():
    assert sum(problem.points for problem in PROBLEMS.values()) == 100


def test_each_case_earns_its_share_and_a_missing_gpu_costs_nothing():
    group = [result("p3", "a", Outcome.PASSED), result("p3", "b", Outcome.WRONG), NO_GPU]
    assert score.earned(group) == [Fraction(15, 2), 0, 0]
    assert score.total(group) == (Fraction(15, 2), 15)
    assert score.passed([group[0], NO_GPU]) and not score.passed(group)


def test_points_add_up_exactly_however_many_cases_share_them():
    for cases in (1, 7, 23, 32):
        group = [result("p4", str(i), Outcome.PASSED) for i in range(cases)]
        group += [result("p4", "work", Outcome.PASSED, Aspect.WORK), result("p4", "speed", Outcome.SLOW, Aspect.SPEED)]
        most = score.max_points(group)
        assert sum(most) == 15 and {each * 1000 % 1 for each in most} == {0}
        assert max(most[:cases]) - min(most[:cases]) <= Fraction(1, 1000)
        tests = gradescope.render(group)["tests"]
        shown = {name: sum(Fraction(str(test[name])) for test in tests) for name in ("score", "max_score")}
        assert shown == {"score": 12, "max_score": 15}
    assert score.max_points([result("p4", "work", Outcome.PASSED, Aspect.WORK)]) == [Fraction(15, 2)]


def test_a_grader_fault_leaves_its_points_open_and_is_not_a_pass():
    group = [result("p3", "a", Outcome.PASSED), result("p3", "b", Outcome.GRADER_FAULT)]
    assert score.total(group) == (Fraction(15, 2), 15) and score.open_points(group) == Fraction(15, 2)
    assert not score.passed(group)
    document = gradescope.render(group)
    assert "7.50 points are open" in document["output"] and "score" not in document["tests"][1]


def test_on_a_gpu_speed_has_its_share():
    group = [result("p3", "a", Outcome.PASSED), result("p3", "speed", Outcome.SLOW, Aspect.SPEED)]
    assert score.total(group) == (12, 15)
    fast = [group[0], result("p3", "speed", Outcome.PASSED, Aspect.SPEED)]
    assert score.total(fast) == (15, 15)
    half = result("p3", "speed", Outcome.SLOW, Aspect.SPEED, facts=Facts(share=0.5))
    assert score.total([group[0], half]) == (Fraction(27, 2), 15)
    unearned = result("p3", "speed", Outcome.NOT_RUN, Aspect.SPEED, facts=Facts(earned=False))
    assert score.total([result("p3", "a", Outcome.WRONG), unearned]) == (0, 15)


def with_work(outcome, sentence="", case=Outcome.PASSED, **rest):
    return [result("p4", "a", case), result("p4", "work", outcome, Aspect.WORK, sentence, **rest)]


def test_work_has_half_of_the_points_and_cases_share_the_rest():
    assert score.total(with_work(Outcome.PASSED)) == (15, 15)
    assert score.total(with_work(Outcome.WASTEFUL)) == (Fraction(15, 2), 15)
    unjudged = with_work(Outcome.NOT_RUN, case=Outcome.WRONG, facts=Facts(earned=False))
    assert score.total(unjudged) == (0, 15) and not score.passed(unjudged)
    waiting = with_work(Outcome.NEEDS_REVIEW)
    assert score.total(waiting) == (0, 15) and score.needs_review(waiting)


def test_gradescope_document(tmp_path):
    group = [result("p3", "a", Outcome.PASSED), result("p3", "b", Outcome.WRONG, sentence="off by one", printed="hi")]
    gradescope.write([*group, NO_GPU], tmp_path / "results.json")
    document = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert document["score"] == 7.5 == sum(test["score"] for test in document["tests"])
    assert [test["status"] for test in document["tests"]] == ["passed", "failed", "passed"]
    assert sum(test["max_score"] for test in document["tests"]) == 15
    wrong = document["tests"][1]
    assert wrong["extra_data"] == {"problem": "p3", "case": "b", "aspect": "correct", "outcome": "wrong"}
    assert "off by one" in wrong["output"] and "again: make grade P=3" in wrong["output"] and "hi" in wrong["output"]
    speed = Speed("N=1", "float16", 1, {"yours": ArmTimes(1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 3)}, {}, [], {}, None, None, {})
    timed = result("p3", "speed", Outcome.PASSED, Aspect.SPEED, facts=Facts(speed=speed))
    extra = gradescope.render([group[0], timed])["tests"][1]["extra_data"]
    assert extra["arms"]["yours"]["median_ms"] == 1.0 and extra["aspect"] == "speed"
    kept = {"shape", "arms", "times_as_fast", "failures", "oom", "least_ms", "machine"}
    assert kept <= extra.keys(), "docs/instructors.md: what was measured stands in results.json"
    assert "extra_data" not in document
    assert gradescope.render(group, failed=2)["extra_data"] == {"failed_explanations": 2}


def show(results, tmp_path, verbose=False):
    console = Console(width=100, record=True, file=io.StringIO(), highlight=False)
    terminal.show(console, results, Request(tmp_path, (), None, "cpu", 0), 3.0, verbose)
    return console.export_text()


def test_terminal_names_the_case_the_sentence_and_the_way_back(tmp_path):
    text = show(
        [result("p3", "ragged [tail]", Outcome.WRONG, sentence="row 3 [of 4]", printed="[x]"), NO_GPU], tmp_path
    )
    assert 'p3 "ragged [tail]" (N=1): wrong' in text
    assert "  row 3 [of 4]" in text and "[x]" in text and "again: make grade P=3" in text


def test_terminal_counts_what_is_the_same(tmp_path):
    results = [result("p3", f"case {i}", Outcome.CRASHED, sentence="KeyError") for i in range(4)]
    text = show(results, tmp_path)
    assert text.count("KeyError") == 2 and "the same in 3 more cases" in text


def test_terminal_says_once_in_which_case_work_was_wasted(tmp_path):
    text = show(with_work(Outcome.WASTEFUL, '"long row": loads 9 tiles where this mask needs 4'), tmp_path)
    assert 'p4 "work" (N=1): wasteful' in text and "again: make grade P=3" in text
    assert '"work": "long row"' not in text and text.count('"long row": loads 9 tiles') == 2
    assert "7.5/15" in text and "1/1" in text


def test_terminal_says_why_work_was_not_judged_once_a_case_is_right(tmp_path):
    unjudged = {"sentence": 'not judged: "long row" must be right first', "facts": Facts(earned=False)}
    said = 'p4 work (7.5 points): not judged: "long row" must be right first'
    cases = [result("p4", "long row", Outcome.WRONG, sentence="off by one"), *with_work(Outcome.NOT_RUN, **unjudged)]
    assert said in show(cases, tmp_path)
    assert "not judged" not in show(with_work(Outcome.NOT_RUN, case=Outcome.WRONG, **unjudged), tmp_path)


def wrong(case, equals="", sentence="First wrong row 32."):
    causes = (Cause(equals, "how old may a key be?", "Windows"),) if equals else ()
    said = f"Your output equals {equals}. {sentence}" if equals else sentence
    return result("p3", case, Outcome.WRONG, sentence=said, facts=Facts(causes=causes, where=sentence))


def test_terminal_shows_one_case_of_each_cause_whatever_its_numbers(tmp_path):
    windows = [wrong(f"case {size}", f"a window of {size}") for size in (33, 6, 78)]
    text = show([*windows, wrong("scaled", "attention without a scale")], tmp_path)
    assert "a window of 33" in text and "case 6" not in text and "case 78" not in text
    assert text.count("the same cause in 2 more cases") == 1 == text.count("the same cause")
    assert "attention without a scale" in text


def test_terminal_says_one_more_case_of_one(tmp_path):
    text = show([wrong(f"case {size}", f"a window of {size}") for size in (33, 6)], tmp_path)
    assert "the same cause in 1 more case\n" in text


def test_terminal_shows_wrong_places_apart_where_no_cause_is_known(tmp_path):
    text = show([wrong("a", sentence="First wrong row 3."), wrong("b", sentence="First wrong row 5.")], tmp_path)
    assert "First wrong row 3." in text and "First wrong row 5" in text and "the same" not in text


def test_terminal_shows_the_first_failure_whole_and_a_line_for_each_other(tmp_path):
    long = "Your output equals " + "a window of 33 and " * 9
    given = [
        wrong("a", "a window of 6"),
        wrong("again", "a window of 7"),
        wrong("b", sentence=long),
        wrong("c", sentence="Row 5. At (0, 0, 5, 0)."),
    ]
    assert 'p3 "c" and 1 more: wrong: Row 5\n' in show([*given, wrong("d", sentence="Row 5. At 7.")], tmp_path)
    text = show(given, tmp_path)
    assert text.count("again: ") == 1 and "ask yourself" not in text
    assert 'p3 "c": wrong: Row 5\n' in text and " ...\n" in text
    assert "whole: make grade P=3 VERBOSE=1\n" in text
    text = show(given, tmp_path, verbose=True)
    assert text.count("again: ") == 3 and "VERBOSE" not in text and "At (0, 0, 5, 0)." in text


def test_other_numbers_in_a_sentence_make_no_other_message():
    loads = [result("p4", c, Outcome.WASTEFUL, sentence=f"loads {n} tiles") for c, n in (("a", 18), ("b", 46))]
    crash = result("p4", "c", Outcome.CRASHED, sentence="loads 18 tiles")
    assert loads[0].message == loads[1].message != crash.message


def test_terminal_keeps_an_unfinished_problem_to_one_line(tmp_path):
    results = [result("p3", f"case {i}", Outcome.UNFINISHED, sentence="TODO 1: the loads") for i in range(4)]
    assert show(results, tmp_path).count("TODO 1") == 1
