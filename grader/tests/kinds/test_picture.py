"""The numbers behind a picture: small, true, and never in the way of a verdict."""

import json

import pytest
import torch

from grader.core.protocol.reports import Costs, TraceReport
from grader.engine import error_map
from grader.kinds.attention import picture
from grader.kinds.attention.cases import Case
from grader.kinds.attention.tile_visits import Visit
from grader.registry import PROBLEMS

WINDOW = Case("window", Hq=2, Hkv=1, N=128, D=16, causal=True, window=32)


def record(q, tiles, head=0, **rest):
    """A Visit of these tiles."""
    tiles, span = [tuple(tile) for tile in tiles], max(b - a + 1 for a, b in tiles)
    rest["masked"] = [tuple(tile) for tile in rest.get("masked", ())]
    return Visit(
        **{"kernel": "kernel", "program": 0, "q": tuple(q), "batch": 0, "head": head, "tiles": tiles, "span": span}
        | rest
    )


def tensors(shape=(1, 2, 128, 16)):
    """(got, expected, allowed) that agree."""
    expected = torch.randn(shape, dtype=torch.float64)
    return expected.float(), expected, torch.full(shape, 1e-3, dtype=torch.float64)


def test_marks_tell_sizes_and_kinds_apart():
    got, expected, allowed = tensors((1, 1, 8, 1))
    for row, off in enumerate((0.0, 2e-3, 5e-3, 0.02, 0.5, 50.0)):
        got[0, 0, row] += off
    got[0, 0, 6], got[0, 0, 7] = float("inf"), float("nan")
    found = error_map.as_text(error_map.marks(got, expected, allowed)[0, 0].T)
    assert found == ["0123" + "67in"]
    never = got.view(torch.int32).clone()
    never[0, 0, 0] = -1
    assert error_map.as_text(error_map.marks(never.view(torch.float32), expected, allowed)[0, 0].T)[0][0] == "u"


def test_one_wrong_element_shows_in_its_cell_of_the_worst_head():
    got, expected, allowed = tensors((2, 3, 397, 128))
    got[1, 2, 200, 77] += 0.5
    maps = error_map.error_maps("o", got, expected, allowed, tile=16)
    errors, heads = maps["errors"], maps["heads"]
    assert errors["place"] == [1, 2] and errors["step"] == [8, 2]
    assert all(len(row) <= error_map.MOST_CELLS for row in errors["cells"]) and len(errors["cells"]) == 50
    wrong = [(r, c) for r, row in enumerate(errors["cells"]) for c, mark in enumerate(row) if mark != "0"]
    assert wrong == [(200 // 8, 77 // 2)]
    assert heads["step"] == [16] and heads["cells"][5][200 // 16] == "6"
    assert sum(mark != "0" for row in heads["cells"] for mark in row) == 1


@pytest.mark.parametrize("problem", ["p3", "p4", "p6", "p7"])
def test_the_outline_of_a_mask_lies_on_its_edge(problem):
    for case in (case for case in PROBLEMS[problem].cases if case.N < 500):
        assert_outlined(case)


def assert_outlined(case):
    mask = case.visibility.mask(torch.arange(case.N), torch.arange(case.num_keys))
    padded = torch.nn.functional.pad(mask, (1, 1))
    for line in picture.mask_outlines(case):
        for key, row in line:
            if row % 1 == 0.5:  # the middle of a row: the mask changes here
                assert padded[int(row), int(key)] != padded[int(row), int(key) + 1]
            assert 0 <= key <= case.num_keys and 0 <= row <= case.N


def test_visits_are_needed_needless_repeated_or_missing():
    records = [
        record([0, 31], [[0, 31], [96, 127]]),
        record([32, 63], [[0, 31], [32, 63], [32, 63]]),
        record([64, 95], [[64, 95]]),
        record([96, 127], [[64, 95], [96, 127]]),
    ]
    compared = ("o", *tensors())
    compared[1][0, 0, 70] += 1.0
    made = picture.draw(WINDOW, records, compared=compared)
    bands = made["visits"]["bands"]
    assert bands[0]["tiles"] == [[0, 31, 1, True], [96, 127, 1, False]]
    assert bands[1]["tiles"] == [[0, 31, 1, True], [32, 63, 2, True]]
    assert [band["missing"] for band in bands] == [[], [], [[33, 63]], []]
    assert made["need"]["visited_tiles"] == 8 and made["need"]["needed_tiles"] == 7
    assert made["need"]["loaded_bytes"] == 8 * 32 * 16 * 2 * 2
    assert json.loads(json.dumps(made)) == made  # plain data


def test_the_loads_of_programs_count_where_they_are_known():
    trace = TraceReport([], [], [], {}, {}, Costs([], [], 0, 0, 0, {"k": 96 * 16, "v": 32 * 16}, 0, 0))
    need = picture.draw(WINDOW, [record([0, 31], [[0, 31]])], trace)["need"]
    assert need["loaded_bytes"] == (96 + 32) * 16 * 2


def test_programs_that_share_a_tile_of_queries_need_its_keys_once():
    records = [record([32, 63], [[0, 31]], program=0), record([32, 63], [[32, 63]], program=1)]
    need = picture.draw(WINDOW, records)["need"]
    assert need["visited_tiles"] == need["needed_tiles"] == 2


def test_rows_that_no_program_took_up_are_missing():
    compared = ("o", *tensors())
    compared[1][0, 0, 70] += 1.0
    bands = picture.draw(WINDOW, [record([32, 63], [[0, 31], [32, 63]])], compared=compared)["visits"]["bands"]
    assert [(band["q"], band["missing"]) for band in bands[:3]] == [
        ([0, 31], [[0, 31]]), ([32, 63], []), ([64, 95], [[33, 63], [64, 95]]),
    ]  # fmt: skip


def test_a_passing_kernel_misses_nothing_even_where_a_visit_could_not_be_told():
    made = picture.draw(WINDOW, [record([64, 95], [[64, 95]])])
    assert made["visits"]["bands"][0]["missing"] == []


def test_the_head_with_most_needless_visits_is_drawn():
    records = [record([0, 31], [[0, 31]], head=0), record([0, 31], [[0, 31], [64, 95]], head=1)]
    assert picture.draw(WINDOW, records)["visits"]["place"] == [0, 1]


def test_tiles_of_several_key_heads_are_no_repeats():
    shared = record([0, 31], [[0, 31], [0, 31]], key_heads=2)
    assert picture.draw(WINDOW, [shared])["visits"]["bands"][0]["tiles"] == [[0, 31, 1, True]]


@pytest.mark.parametrize("visited", [[], [Visit("kernel", 0, (0, 3), 0, 0, [], 0)]], ids=["none", "no tile"])
def test_without_visits_the_mask_alone_is_drawn(visited):
    assert set(picture.draw(WINDOW, visited)) == {"size", "mask", "shown"}


def test_a_right_kernel_visits_what_is_needed_with_the_tiles_of_the_one_that_was_seen():
    seen = picture.draw(WINDOW, [record([0, 63], [[0, 31], [96, 127]])])
    bands = picture.draw_right(WINDOW, seen)["visits"]["bands"]
    assert [(band["q"], [tile[:2] for tile in band["tiles"]]) for band in bands] == [
        ([0, 63], [[0, 31], [32, 63]]), ([64, 127], [[32, 63], [64, 95], [96, 127]]),
    ]  # fmt: skip
    whole = Case("no mask", N=80, D=16)
    seen = picture.draw(whole, [record([0, 63], [[0, 31]])])
    assert [band["masked"] for band in picture.draw_right(whole, seen)["visits"]["bands"]] == [[[64, 79]]] * 2
    assert set(picture.draw_right(WINDOW, {})) == {"size", "mask", "shown"}


def test_the_mask_by_itself_is_cut_into_cells_hidden_whole_or_in_part():
    shown = picture.draw(Case("window", N=77, D=16, causal=True, window=33))["shown"]
    assert shown["step"] == [16, 4]
    assert shown["cells"] == [
        "++++................", "oooo++++............", "++++oooo++++........", "....++++oooo++++....",
        "........+++ooooo++++",
    ]  # fmt: skip
    causal = picture.draw(Case("causal", N=16, D=16, causal=True))["shown"]
    assert causal["cells"][1] == "ooo+" + "." * 12 and causal["step"] == [2, 1]


def test_tiles_that_were_masked_are_named_beside_those_visited():
    records = [record([0, 31], [[0, 31]], masked=[[0, 31]]), record([32, 63], [[0, 31], [32, 63]], masked=[[32, 63]])]
    bands = picture.draw(WINDOW, records)["visits"]["bands"]
    assert [band["masked"] for band in bands] == [[[0, 31]], [[32, 63]]]


def test_a_failure_of_ours_costs_the_picture_alone(monkeypatch):
    monkeypatch.setenv("GRADER_DEBUG", "0")
    assert "fault" in picture.draw(WINDOW, [record("broken", [[0, 31]])])


def test_a_picture_is_small():
    case = Case("large", B=3, Hq=4, N=397, D=128)
    tiles = [[a, min(a + 15, 396)] for a in range(0, 397, 16)]
    records = [record(q, tiles, head) for q in tiles for head in range(4)]
    got, expected, allowed = tensors((3, 4, 397, 128))
    made = picture.draw(case, records, compared=("o", torch.randn_like(got), expected, allowed))
    assert len(json.dumps(made)) < 30_000
