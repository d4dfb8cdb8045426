"""The page on the order of tiles: what is committed is what the model gives, and what its text says is so."""

import re

import pytest

from grader.kinds.program_order.orders import head_first, identity, listed, published
from report import orders, plots


@pytest.fixture(scope="module")
def page():
    return orders.page().partition("\n## On a GPU")[0]  # what follows is measured


def test_the_committed_page_and_picture_are_what_the_model_gives():
    assert orders.main(["--check"]) == 0, "run python -m report.orders"


def test_a_page_that_drifted_is_named(tmp_path, monkeypatch, page, capsys):
    monkeypatch.setattr(orders, "HERE", tmp_path / "report")
    monkeypatch.setattr(orders, "PAGE", tmp_path / "report" / "ORDERS.md")
    (tmp_path / "report").mkdir()
    orders.PAGE.write_text(orders.page().replace("head first", "heads first", 1))
    assert orders.main(["--check"]) == 1
    assert capsys.readouterr().out.startswith("report/ORDERS.md is not what the model gives")


def test_the_story_is_in_the_figures():
    plain, piled, ours = map(orders.figures, (identity, published, head_first))
    assert plain[0] < piled[0] < ours[0]
    assert piled[2] < 0.8 and ours[2] > 1.2
    assert piled[4] == pytest.approx(60.5 / 32.5) and ours[4] == 1


def test_the_published_order_is_slower_in_every_line(page):
    lines = [line.split("|") for line in page.splitlines() if line.count("|") == 7]
    speeds = [float(cells[5]) for cells in lines if re.fullmatch(r" \d\.\d\d ", cells[5]) and cells[3].strip()]
    assert len(speeds) >= 11 and max(speeds) < 1


def test_no_figures_where_an_order_leaves_tiles_out(page):
    assert not orders.complete(published, 128, 2) and orders.complete(published, 64, 2)
    lines = [line.split("|") for line in page.splitlines() if "N=16384" in line]
    assert len(lines) == 2
    assert all(not cells[3].strip() and not cells[5].strip() and cells[4].strip() for cells in lines)


def test_twelve_heads_on_eight_dies_are_spread_as_the_page_says():
    dies = {}
    for program, (head, _) in enumerate(listed(head_first, 64, 12)):
        dies.setdefault(head, set()).add(program % 8)
    assert [len(found) for found in dies.values()] == [1] * 8 + [2] * 4


def test_the_sweeps_pictures_leave_this_one_alone():
    assert orders.PICTURE.name in plots.OTHERS
