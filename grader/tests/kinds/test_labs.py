"""The labs in the grader: named to be graded, for no points; each gap and each wrong order told by its own words."""

import io
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from msgspec import structs
from rich.console import Console

from grader import score
from grader.commands.arguments import BadArguments, choose_problems
from grader.course import gaps
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.kinds.attention.masks import Visibility
from grader.kinds.attention.tile_visits import Visit
from grader.kinds.block_sparse import check_lists, kind, list_mistakes, patterns, tile_lists, tile_map
from grader.kinds.block_sparse.cases import BY_BOTH, KERNEL, LISTS, BuilderCase, SparseCase
from grader.kinds.program_order import kind as order_kind
from grader.kinds.program_order.cases import OrderCase, OrderedCase
from grader.registry import EVERY, LABS, PROBLEMS
from grader.render import drawing, gradescope, terminal, text_map
from grader.result import Aspect, Outcome, Result
from grader.tests.support import ROOT, SOLUTIONS, grade_text, solution, thorough, thorough_but

IDS = list(LABS)


def failures(results):
    return [f"{r.case}: {r.outcome.value}: {r.sentence}" for r in results if r.outcome is not Outcome.PASSED]


SEEDS = [("x1", 5), ("x2", 5), ("x3", 0), *(("x4", seed) for seed in (1, 2, 3, 5)), ("w1", 5), ("w2", 5), ("w3", 5)]


@pytest.mark.parametrize(("id", "seed"), [("x1", 0), ("x2", 0), ("x4", 0), ("w3", 0), *(thorough(*of) for of in SEEDS)])
def test_the_solution_passes_and_earns_nothing(id, seed, tmp_path):
    results = grade_text(tmp_path, id, solution(id), seed=seed)
    assert failures(results) == []
    assert score.total(results) == (0, 0) and score.passed(results)
    document = gradescope.render(results)
    assert document["score"] == 0 and {test["max_score"] for test in document["tests"]} == {0}


def test_labs_are_chosen_by_name_alone():
    def chosen(text):
        return [problem.id for problem in choose_problems(text, PROBLEMS, LABS)]

    assert (
        chosen("3,x1") == ["p3", "x1"]
        and chosen("X1 x2") == chosen("x1-2") == ["x1", "x2"]
        and chosen("1-7") == list(PROBLEMS)
    )
    with pytest.raises(BadArguments, match="the labs w1, w2, w3, x1, x2, x3, x4"):
        chosen("x4-5")


@pytest.mark.parametrize("id", IDS)
def test_the_names_of_cases_are_unique_and_every_case_is_described(id):
    names = [case.name for case in LABS[id].cases]
    assert len(set(names)) == len(names)
    assert all("\n" not in case.describe(3) and len(case.describe(3)) < 128 for case in LABS[id].cases)


# Gaps ----------------------------------------------------------------------------------------------------------------


def with_gaps(id, closed):
    """The skeleton of a lab with its first `closed` gaps filled in."""
    text = solution(id)
    lines, kernels = text.splitlines(), gaps.jit_lines(text)
    for gap in sorted(gaps.find_gaps(lines, id), key=lambda gap: -gap.start):
        if gap.number > closed:
            lines[gap.start : gap.end] = gap.todo(in_kernel=gap.start + 1 in kernels)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("id", "closed"),
    [("x1", 0), *(thorough("x1", n) for n in range(1, 5)), ("x2", 0), *(thorough("x2", n) for n in range(1, 3))],
)
def test_the_first_open_gap_is_named_in_every_case_that_needs_one(id, closed, tmp_path):
    results = grade_text(tmp_path, id, with_gaps(id, closed))
    told = {r.sentence for r in results if r.outcome is Outcome.UNFINISHED}
    assert len(told) == 1 and told.pop().startswith(f"TODO {closed + 1}: ")
    assert {r.outcome for r in results} <= {Outcome.UNFINISHED, Outcome.PASSED}
    builders = {r.outcome for r in results if r.case.startswith("lists ")}
    assert id == "x2" or builders == {Outcome.UNFINISHED if closed < 2 else Outcome.PASSED}


@pytest.mark.thorough
def test_an_open_gap_of_place_reads_the_same_where_it_is_compiled(tmp_path):
    (tmp_path / LABS["x2"].module).write_text(with_gaps("x2", 3).replace("if slot <", "if slot + 1 <"), "utf-8")
    text = with_gaps("x2", 1).replace(*gap_three())
    (tmp_path / LABS["x2"].module).write_text(text, "utf-8")
    cases = tuple(case for case in LABS["x2"].cases if case.name == "one head for each die")
    request = Request(tmp_path, (replace(LABS["x2"], cases=cases),), None, "cpu", 0, targets=("sm_90",))
    first, compiled = grade(request, 1)
    assert first.outcome is Outcome.PASSED
    assert (compiled.outcome, compiled.sentence) == (
        Outcome.UNFINISHED,
        "TODO 2: a kv head that is spread over the dies",
    )


def gap_three():
    """The open gap 3 of x2, and what stands there in the solution."""
    (gap,) = (g for g in gaps.find_gaps(solution("x2").splitlines(), "x2") if g.number == 3)
    line = next(line for line in solution("x2").splitlines() if line.strip().startswith("flat_head, tile ="))
    return "\n".join(gap.todo(in_kernel=True)), line


# Lists ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [case for case in (*KERNEL, *LISTS) if not case.gpu], ids=lambda case: case.name)
def test_the_graders_lists_give_the_mask_back(case):
    """Walked as the kernel walks them, and as the map of tiles has it."""
    if isinstance(case, BuilderCase):
        case = SparseCase(
            case.name, B=case.maps[0], Hq=case.maps[1], N=case.N, Nk=case.Nk, of=case.of, block=case.block
        )
    lists = tile_lists.cut(case)
    weight, past = list_mistakes.weigh(case)
    for b in range(case.B):
        for h in range(case.Hq):
            seen = case.seen_at(b, h).mask(torch.arange(case.N), torch.arange(case.num_keys))
            assert torch.equal(weight[b, h], seen.double())
    assert not past.any()
    assert len(lists.columns) == int((lists.kinds != patterns.EMPTY).sum()) == len(lists.places)


def test_the_lists_have_the_kinds_of_the_map_of_tiles():
    case = next(case for case in KERNEL if case.of is BY_BOTH)
    for m, kinds in enumerate(tile_lists.cut(case).kinds.unflatten(0, (8, -1))):
        assert torch.equal(kinds, tile_map.cut(case.seen_at(*divmod(m, 4)), case.N, case.num_keys, 32, 32).kinds)


def test_a_list_in_another_order_is_right_and_one_with_a_tile_twice_is_not():
    case = next(case for case in LISTS if case.name == "lists of documents")
    lists = tile_lists.cut(case)
    _, _, begin, end = lists.starts[0, 1].tolist()
    columns, places = lists.columns.clone(), lists.places.clone()
    columns[begin:end], places[begin:end] = columns[begin:end].flip(0), places[begin:end].flip(0)
    assert not torch.equal(columns, lists.columns)
    assert check_lists.wrong_kinds(case, lists.starts, columns) is None
    assert check_lists.wrong_bits(case, lists.starts, columns, places, lists.bits) is None
    assert "not its pairs" in check_lists.wrong_bits(case, lists.starts, columns, lists.places, lists.bits).sentence
    columns[begin] = columns[begin + 1]
    assert check_lists.wrong_kinds(case, lists.starts, columns).sentence.endswith(" twice.")


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        (
            "starts.view(batches * heads, -1, 4).to(torch.int32)", "starts.view(batches * heads, -1, 4)",
            "int32; it is int64",
        ),
        ("places.to(torch.int32)", "places[:-1].to(torch.int32)", "one number for each entry"),
        (
            "block_q, block_k, queries, keys, batches, heads,\n    )",
            "block_k, block_q, queries, keys, batches, heads,\n    )", "block_q of the Tiles is 64; it must be 16",
        ),
        ("starts = begin[:, None]", "starts = begin[:, None] - 1", "must rise, from 0"),
        ("return listed(list(rows)", "return\n    return listed(list(rows)", "returned nothing; it must return Tiles"),
        ("    columns: torch.Tensor", "    column: torch.Tensor", "columns of the Tiles must be a tensor"),
    ],
)  # fmt: skip
def test_tiles_of_another_form_are_told(was, now, words, tmp_path):
    assert was in solution("x1")
    name = "lists of a window, tiles that are not square"
    (result,) = grade_text(tmp_path, "x1", solution("x1").replace(was, now), names=[name])
    assert result.outcome in (Outcome.WRONG, Outcome.CRASHED) and words in result.sentence, result.sentence


@pytest.mark.thorough
def test_a_wrong_builder_fails_builder_cases_alone(tmp_path):
    results = grade_text(tmp_path, "x1", solution("x1").replace(".tril()", ".triu()"))
    wrong = {r.case for r in results if r.outcome is not Outcome.PASSED}
    assert wrong and wrong <= {case.name for case in LISTS}


def test_lists_that_a_kernel_writes_into_are_told(tmp_path):
    source = solution("x1").replace(
        "    o = torch.empty_like(q)\n", "    tiles.places.add_(1)\n    o = torch.empty_like(q)\n"
    )
    (result,) = grade_text(tmp_path, "x1", source, names=["documents"])
    assert result.outcome is Outcome.UNSAFE and "places must stay as they were" in result.sentence


@pytest.mark.thorough
def test_a_load_outside_a_list_asks_about_lists(tmp_path):
    source = solution("x1")
    wrong_rows = source.replace("+ q_tile) * 4", "+ q_tile) * 3", 1)
    assert wrong_rows != source
    (result,) = grade_text(tmp_path, "x1", wrong_rows, names=["dense"])
    assert result.outcome is Outcome.UNSAFE and "begins to read Starts at number 3 of a row" in result.sentence
    wrong_kind = source.replace("causal, partial, 2,", "causal, partial, 3,", 1)
    assert wrong_kind != source
    (result,) = grade_text(tmp_path, "x1", wrong_kind, names=["causal"])
    assert "at entry 0, and there are none, for no tile is PARTIAL" in result.sentence


def test_a_kernel_that_knows_no_tiles_is_told_what_they_are_made_of(tmp_path):
    source = solution("x1").replace("    places: torch.Tensor\n", "", 1)
    results = grade_text(tmp_path, "x1", source, names=["documents"])
    assert "the grader makes Tiles(starts, columns, places, bits, block_q" in results[0].sentence


# Orders --------------------------------------------------------------------------------------------------------------

# The body of `place`, and of which case the sentence must contain which words. That each property is needed, and caught
# alone, is test_program_order.py's matter: here they are submissions.
WRONG_ORDERS = {
    "identity": (
        "return program // num_tiles, program % num_tiles", "one head for each die", "all their tiles on one die",
    ),
    "published": (
        "head, m = program // num_tiles, program % num_tiles\n"
        "    return head, (m % 8) * (num_tiles // 8) + (m // 8) % 8",
        "more than 64 tiles", "are never computed",
    ),
    "shortest first": (
        "slot = program // num_dies\n    return slot // num_tiles * num_dies + program % num_dies, slot % num_tiles",
        "one head for each die", "which takes longer",
    ),
    "a block of tiles for each die": (
        "head, m = program // num_tiles, program % num_tiles\n"
        "    return head, m % num_dies * (num_tiles // num_dies) + m // num_dies",
        "fewer heads than dies", "tiles of keys to visit",
    ),
    "query heads": (
        "return right(program, num_tiles, num_heads, num_dies, 1)",
        "heads that share K and V", "all their tiles on one die",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", thorough_but(["identity", "shortest first", "published"], WRONG_ORDERS))
def test_a_wrong_order_is_told_with_its_size(name, tmp_path):
    body, case, words = WRONG_ORDERS[name]
    wrong = f"right = place\n\n\ndef place(program, num_tiles, num_heads, num_dies, heads_per_kv):\n    {body}\n\n\n"
    source = solution("x2").replace(
        "place_in_kernel = triton.jit(place)", f"{wrong}place_in_kernel = triton.jit(right)"
    )
    (result,) = grade_text(tmp_path, "x2", source, names=[case])
    assert result.outcome is Outcome.WRONG and words in result.sentence, result.sentence
    assert re.match(r"program_order\(num_tiles=\d+, num_heads=\d+, num_dies=\d+, heads_per_kv=\d\): ", result.sentence)
    assert result.facts.question.endswith("?")
    many = ("every small size", "sizes drawn at random")
    cases = [c for c in LABS["x2"].cases if isinstance(c, OrderCase) and c.name in many]
    assert Outcome.WRONG in {r.outcome for r in grade_text(tmp_path, "x2", source, cases=cases)}


@pytest.mark.parametrize("came", ["None", *map(thorough, ["[(0,)]", "[(0, 1, 2)]", "[('a', 'b')]", "7"])])
def test_what_is_no_order_is_told(came, tmp_path):
    source = solution("x2").replace("    programs = range(", f"    return {came}\n    programs = range(")
    (result,) = grade_text(tmp_path, "x2", source, names=["one tile"])
    assert result.outcome is Outcome.WRONG and "must be a list of (head, tile)" in result.sentence


# Faces ---------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_command_grades_a_problem_and_a_lab_apart(tmp_path):
    folder = tmp_path / "submission"
    folder.mkdir()
    for id in ("p1", "x2"):
        (folder / EVERY[id].module).write_text(solution(id), "utf-8")
    command = [sys.executable, "-m", "grader", "grade", "--submission", folder, "--problems", "1,x2", "--no-compile"]
    done = subprocess.run([*command, "--out", tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 of 10 points" in done.stdout and re.search(r"x2 program order +\| passed +\| +- \| 30/30", done.stdout)
    document = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert document["score"] == 10 and {t["max_score"] for t in document["tests"] if t["name"][:2] == "x2"} == {0}
    assert "A lab, for no points" in (tmp_path / "report.html").read_text("utf-8")


def test_labs_alone_have_no_points_to_speak_of():
    console = Console(file=io.StringIO(), width=120)
    passed = [Result("x2", "one tile", Aspect.CORRECT, Outcome.PASSED)]
    terminal.show(console, passed, Request(ROOT, (LABS["x2"],), None, "cpu", 0), 3.0)
    assert "points," not in console.file.getvalue() and "past the ladder" not in console.file.getvalue()
    whole = [Result(id, "whole tiles", Aspect.CORRECT, Outcome.PASSED) for id in PROBLEMS]
    terminal.show(console, whole, Request(ROOT, tuple(PROBLEMS.values()), None, "cpu", 0), 3.0)
    assert (
        "100 of 100 points, " in console.file.getvalue()
        and "past the ladder, for no points: make grade P=x1,x2,x3,x4\n" in console.file.getvalue()
    )


@pytest.mark.thorough
@pytest.mark.parametrize(("words", "found"), [("x1 and lists", 13), ("ragged", 0)])
def test_the_pytest_face_has_labs_where_they_are_named(words, found):
    command = [sys.executable, "-m", "pytest", "grader", "--submission", SOLUTIONS, "-k", words, "--collect-only", "-q"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout.count("[x1-") == found and "[x2-" not in done.stdout


def test_a_program_that_computes_several_tiles_is_told_so():
    visits = [Visit("kernel", 7, (t * 32, t * 32 + 31), 0, 0, [], 0) for t in (0, 1)]
    case, orders = OrderedCase("two tiles", num_dies=1), [[(0, 1), (0, 0)]]
    said = order_kind.misplaced(case, visits, orders)
    assert said.startswith("Program 0 computes 2 tiles of queries; here each program computes one")
    visits[0] = structs.replace(visits[0], program=8)
    assert order_kind.misplaced(case, visits, orders) is None


def test_the_picture_of_lists_says_listed_and_not_visited():
    case = next(case for case in LISTS if case.name == "lists of documents")
    lists = tile_lists.cut(case)
    made = kind.draw_lists(case, lists.starts, lists.columns)
    words = text_map.draw_visits(made)[-1] + str(drawing.draw_visits(made).legend)
    assert "o listed" in words and "needed and listed: 12" in words and "visited" not in words


def test_a_mask_of_dust_is_outlined_by_its_tiles():
    from grader.kinds.attention import picture

    case = next(case for case in KERNEL if case.name == "random FULL and PARTIAL tiles")
    assert sum(len(line) for line in picture.mask_outlines(case)) < 100
    made = picture.draw(replace(case, of=Visibility(True)))
    assert made["letters"]["rows"][1] == "FC   " and len(json.dumps(made)) < 30_000
