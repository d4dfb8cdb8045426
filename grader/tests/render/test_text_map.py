"""The map in text: small enough for a terminal, and it shows what the picture shows."""

from grader.engine import error_map
from grader.kinds.attention import picture
from grader.kinds.attention.cases import Case
from grader.render import text_map
from grader.tests.kinds.test_picture import WINDOW, record, tensors


def fits(lines):
    return 2 < len(lines) <= 12 and all(len(line) <= 70 for line in lines)


def test_wrong_tiles():
    got, expected, allowed = tensors((2, 2, 128, 16))
    got[:, 1, 32:64] += 1.0
    got[:, 1, 127] = float("nan")
    lines = text_map.draw(picture.draw(WINDOW, compared=("o", got, expected, allowed)))
    assert lines == [
        "o by (batch, head); each mark is 16 rows",
        " row  0   64",
        "0, 0  ........",
        "0, 1  ..##...N",
        "1, 0  ........",
        "1, 1  ..##...N",
        ". right  # off by 30 x the allowed error or more  N NaN",
    ]


def test_one_matrix_has_no_batch_and_head():
    got, expected, allowed = tensors((1, 1, 128, 16))
    got[:, :, 32:64] += 1.0
    title, _, marks, *_ = text_map.draw(error_map.draw("out", got, expected, allowed))
    assert title == "out; each mark is 16 rows" and marks == "out  ..##...."


def test_visited_tiles():
    records = [record([0, 31], [[0, 31], [96, 127]]), record([32, 63], [[0, 31], [32, 63], [32, 63]])]
    lines = text_map.draw(picture.draw(WINDOW, records))
    assert lines[1:] == [
        "  key  0",
        " 0-31  o..x",
        "32-63  o2..",
        ". skipped  o visited  2 visited again  x not needed",
    ]


def test_masked_tiles_are_marked():
    records = [
        record([0, 31], [[0, 31]], masked=[[0, 31]]),
        record([32, 63], [[0, 31], [32, 63]], masked=[[32, 63]]),
        record([64, 95], [[0, 31], [64, 95]], masked=[[0, 31], [64, 95]]),
    ]
    lines = text_map.draw_visits(picture.draw(WINDOW, records))
    assert lines[2:] == [
        " 0-31  m...", "32-63  om..", "64-95  x.m.", ". skipped  o visited  m visited, masked  x not needed",
    ]  # fmt: skip


def test_the_mask_alone_is_drawn_where_nobody_sees_visits():
    assert text_map.draw_mask(picture.draw(Case("causal", N=16, D=16, causal=True)))[1:4] == [
        "  key  0   4   8   12", "  0-1  o+..............", "  2-3  ooo+............",
    ]  # fmt: skip


def test_a_kernel_that_does_no_more_than_it_needs_has_no_map():
    assert text_map.draw(picture.draw(WINDOW, [record([0, 31], [[0, 31]])])) == []
    assert text_map.draw({}) == [] and text_map.draw({"fault": "ours"}) == []


def test_large_maps_are_joined_and_lose_no_mistake():
    got, expected, allowed = tensors((4, 16, 1030, 2))
    got[2, 5, 700] += 1.0
    got[3, 15, 1029] = float("inf")
    lines = text_map.draw(picture.draw(WINDOW, compared=("o", got, expected, allowed)))
    assert fits(lines) and "".join(lines[2:-1]).count("#") == 1 and "".join(lines[2:-1]).count("I") == 1

    case = Case("many", N=1000, D=16, causal=True)
    tiles = [[a, min(a + 15, 999)] for a in range(0, 1000, 16)]
    records = [
        record(q, [t for t in tiles if t[0] <= q[1] or t[0] == 960], kernel="a_very_long_name" * 5) for q in tiles
    ]
    lines = text_map.draw(picture.draw(case, records))
    assert fits(lines) and "x" in lines[3] and lines[3].split("  ")[-1].startswith("o")
