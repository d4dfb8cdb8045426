"""The page on the order of tiles: what is committed is what the model gives, and what its text says is so."""

import json
import re
from dataclasses import replace

import pytest

from report.counting.orders import head_first, identity, listed, published
from report.measuring.rows import not_measured, read, write_whole
from report.pages import orders, orders_model
from report.studies.orders import STUDY, WHOLE


@pytest.fixture(scope="module")
def page():
    return orders.page().partition("\n## On a GPU")[0]  # what follows is measured


def test_the_story_is_in_the_figures():
    plain, piled, ours = map(orders_model.figures, (identity, published, head_first))
    assert plain[0] < piled[0] < ours[0]
    assert piled[2] < 0.8 and ours[2] > 1.2
    assert piled[4] == pytest.approx(60.5 / 32.5) and ours[4] == 1


@pytest.mark.thorough
def test_the_published_order_is_slower_in_every_line(page):
    lines = [line.split("|") for line in page.splitlines() if line.count("|") == 7]
    speeds = [float(cells[5]) for cells in lines if re.fullmatch(r" \d\.\d\d ", cells[5]) and cells[3].strip()]
    assert len(speeds) >= 11 and max(speeds) < 1


@pytest.mark.thorough
def test_no_figures_where_an_order_leaves_tiles_out(page):
    assert not orders_model.complete(published, 128, 2) and orders_model.complete(published, 64, 2)
    lines = [line.split("|") for line in page.splitlines() if "N=16384" in line]
    assert len(lines) == 2
    assert all(not cells[3].strip() and not cells[5].strip() and cells[4].strip() for cells in lines)


def test_twelve_heads_on_eight_dies_are_spread_as_the_page_says():
    dies = {}
    for program, (head, _) in enumerate(listed(head_first, 64, 12)):
        dies.setdefault(head, set()).add(program % 8)
    assert [len(found) for found in dies.values()] == [1] * 8 + [2] * 4


# What was measured ----------------------------------------------------------------------------------------------------


def measured(folder, **changes):
    """A folder with a row for each order of one point."""
    point = WHOLE[0]
    found = [
        replace(STUDY.blank(point, name), median_us=1000.0 / (1 + i / 10), p20_us=900.0, p80_us=1100.0, samples=9,
                tflops=300.0, over_plain=1 + i / 10, over_plain_low=1 + i / 11, over_plain_high=1 + i / 9, **changes)
        for i, name in enumerate(point.kernels)
    ]  # fmt: skip
    write_whole(folder / STUDY.csv, found, STUDY.row)
    facts = {"gpu": "NVIDIA H200", "torch": "2.11.0", "triton": "3.6.0", "driver": "580", "commit": "abc"}
    (folder / STUDY.facts).write_text(json.dumps(facts), "utf-8")
    return folder


def section(folder):
    return orders.page(folder).partition("\n## On a GPU")[2]


@pytest.mark.thorough
def test_the_section(tmp_path):
    assert section(tmp_path) == ""
    text = section(measured(tmp_path, read_hits=80.0, l2_hits=70.0, l2_reads=2048.0, dram_reads=512.0))
    assert "the model's" in text and "| B=1 H=16 D=128 8k, plain |" in text and "None" not in text
    assert "*published* runs at 1.50 times the plain order's speed" in text and "| 80.0 | 2.00 | 0.500 |" in text


@pytest.mark.thorough
def test_a_section_without_counters_or_with_a_wrong_order(tmp_path):
    measured(tmp_path)
    kept = read(tmp_path / STUDY.csv, STUDY.row)
    kept[1] = not_measured(kept[1], "failed", "wrong: off by 1")
    write_whole(tmp_path / STUDY.csv, kept, STUDY.row)
    text = section(tmp_path)
    assert "failed: wrong: off by 1" in text and "found in L2, %" not in text
