"""The model report: the committed one, what it is made of, and how it fails where text and code part."""

import math
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from report import places
from report.counting import cost, coverage, traced
from report.counting.coverage import shape
from report.measuring.rows import BadTable, write_whole
from report.pages import measured as sweeps
from report.places import PUBLISHED, REPORT, NotThere
from report.studies.ladder import RUNGS, Row, point
from report.write_up import excerpts, flow, measured, page, runs, tables, values


@pytest.fixture(scope="module")
def ladder():
    return measured.load_ladder()


# Excerpts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", tables.TRITON)
def test_the_seven_steps_are_in_every_kernel(problem):
    for name in excerpts.STEPS:
        text = excerpts.step(problem, name)
        assert text and "gap" not in text and "v = tl.load" not in text, name


def test_what_changes_is_found_by_comparing():
    found = {
        (after, name) for before, after in pairwise(tables.TRITON) for name in excerpts.STEPS
        if excerpts.changed(after, before, name)
    }  # fmt: skip
    assert found == {
        ("P4", "indices"), ("P4", "stream K and V"), ("P4", "scores and mask"), ("P5", "indices"),
        ("P6", "stream K and V"), ("P6", "scores and mask"), ("P6", "online update"),
        ("P7", "stream K and V"), ("P7", "scores and mask"),
    }  # fmt: skip


def test_lines_that_are_gone_are_named():
    with pytest.raises(NotThere, match=r"p4_causal\.py has no lines from 'no such line'"):
        excerpts.cut("P4", "no such line", "acc")


# The argument about P7, put to a program -----------------------------------------------------------------------------


def counted_twice(case, q_start, block_q, block_k):
    found = cost.phases(case, q_start, block_q, block_k)
    return found | {"S": range(0, case.sinks or 0, block_k)} if "S" in found else found


def from_tile_numbers(case, q_start, block_q, block_k):
    found = cost.phases(case, q_start, block_q, block_k)
    if "E" in found:
        first = max(0, q_start // block_k - case.window // block_k) * block_k
        found["E"] = range(first, found["E"].stop, block_k)
    return found


def one_too_many_without_a_mask(case, q_start, block_q, block_k):
    found = cost.phases(case, q_start, block_q, block_k)
    if not found.get("E"):
        return found
    stop = found["E"].stop - block_k
    return found | {"E": range(found["E"].start, stop, block_k), ">": range(stop, found[">"].stop, block_k)}


def no_diagonal(case, q_start, block_q, block_k):
    return cost.phases(case, q_start, block_q, block_k) | {"D": range(0)}


def test_wrong_phases_are_caught():
    assert coverage.checked(cost.phases)[1] is None
    for wrong in counted_twice, from_tile_numbers, one_too_many_without_a_mask, no_diagonal:
        assert coverage.checked(wrong)[1] is not None, wrong


def test_rows_that_see_nothing_in_their_first_tile():
    assert coverage.blind_rows(shape(64), cost.phases, 32, 32) == 0
    assert coverage.blind_rows(shape(64, window=1), cost.phases, 32, 32) == 0
    assert (
        coverage.blind_rows(shape(64, window=2), cost.phases, 32, 32) == 31
    )  # of queries 32 to 63 only 32 sees key 31


# Tables --------------------------------------------------------------------------------------------------------------


def test_a_rung_that_was_not_measured_stops_the_report(tmp_path, ladder):
    rows = [
        replace(row, status="failed", reason="wrong") if row.kernel == "P6" else row for row in ladder.rows.values()
    ]
    write_whole(tmp_path / "ladder.csv", rows, Row)
    with pytest.raises(BadTable, match="lacks P6 at 2048, P6 at 8192"):
        measured.load_ladder(tmp_path)
    (tmp_path / "ladder.csv").write_text("", "utf-8")
    with pytest.raises(BadTable):
        measured.load_ladder(tmp_path)


def test_every_rung_is_in_the_tables(ladder):
    for n in ladder.lengths:
        assert all(f"| {name}: " in measured.rungs(ladder, n) for name in measured.PROBLEMS)
    assert measured.fast_form(ladder).count("| as P") == sum(name.startswith("fast") for name in RUNGS)


def test_a_first_tile_from_tile_numbers_loses_what_is_left_of_the_window():
    lines = tables.mixed_up(128, 32, (32, 40, 33)).splitlines()[2:]
    assert [line.split(" | ")[1:] for line in lines] == [
        ["0", "0", "0", "0", "0", "3 |"],  # the last: tiles 0, 0, 0, 0 where 0, 0, 1, 2 are right
        ["56", "0", "0", "0", "0", "1 |"],  # 7 + 6 + ... + 1, twice
        ["0", "0", "0", "2", "0", "3 |"],
    ]


def test_a_trace_that_is_not_the_formulas_stops_the_report(monkeypatch):
    right = runs.cost
    monkeypatch.setattr(runs, "cost", lambda *of: replace(right(*of), tiles=right(*of).tiles + 1))
    with pytest.raises(runs.Disagrees, match="p3 did"):
        runs.counted()


def test_the_schedule():
    long = point(2048)
    waves = 16 * 32 / tables.MULTIPROCESSORS  # of programs of 16 tiles each
    assert tables.makespan("P3", long) == math.ceil(waves) * 16
    assert tables.makespan("P3", long, own=3) == math.ceil(waves) * 19
    work = sum(range(1, 17)) * 32
    assert work / tables.MULTIPROCESSORS <= tables.makespan("P4", long) < math.ceil(waves) * 16


# Faults --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file, change, said", [
    ("ladder.csv", lambda text: "".join(line for line in text.splitlines(True) if ",8192,P6," not in line),
     "lacks P6 at 8192: "),
    ("ladder.csv", lambda text: "".join(line for line in text.splitlines(True) if ",8192," not in line),
     "lacks P1 at 8192, P2 at 8192"),
    ("ladder.csv", lambda text: text.replace("0.155776", "fast"), "line 4 of "),
    ("ladder.json", lambda text: text.replace('"NVIDIA H200"', '"Abacus 3000"'), "names the GPU 'Abacus 3000'"),
    ("ladder.json", lambda text: text.replace('"NVIDIA H200"', "null"), "names the GPU None"),
    ("ladder.json", lambda text: text[:-5], "is no JSON"),
    ("ladder.json", lambda text: None, "there is no "),
])  # fmt: skip
def test_a_damaged_measurement_is_one_sentence(tmp_path, file, change, said):
    for name in ("ladder.csv", "ladder.json"):
        text = (PUBLISHED / name).read_text(encoding="utf-8")
        text = change(text) if name == file else text
        if text is not None:
            (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(BadTable) as caught:
        measured.load_ladder(tmp_path)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_what_the_sweep_lacks_is_named():
    sweep = sweeps.load()
    gone = replace(sweep, rows=tuple(row for row in sweep.rows if row.kernel != "SDPA cuDNN"))
    with pytest.raises(BadTable, match=r"sweep\.csv lacks SDPA cuDNN at B=4 H=16 D=128, full, 16384"):
        values.from_sweep(gone)
    flex = replace(sweep, rows=tuple(row for row in sweep.rows if row.kernel not in ("fast", "FlexAttention")))
    of_windows = measured.windows(flex, values.WINDOWED, values.LONG)
    assert "| 0.268 | 0.291 |" in of_windows and "FlexAttention |" not in of_windows  # a column without a number
    assert "| P3 | 18.5 |" in measured.peers(flex, values.SWEPT, values.LONG)
    with pytest.raises(BadTable, match=r"orders\.csv lacks 'sideways'"):
        measured.order_row("sideways")


def test_a_phase_that_is_gone_is_named(monkeypatch):
    source = traced.source_of("p7").replace(runs.SINK_PHASE, "")
    monkeypatch.setattr(traced, "source_of", lambda problem: source)
    with pytest.raises(NotThere, match="P7 no longer says 'state = attend"):
        runs.sinks_last()


def test_a_missing_solution_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "SOLUTIONS", tmp_path)
    with pytest.raises(NotThere, match=r"solutions/p3_flash_attention\.py is not there"):
        excerpts.step("P3", "indices")


# The page as text ----------------------------------------------------------------------------------------------------


def test_no_line_of_a_paragraph_becomes_a_list():
    for before in range(55, 62):  # words, so that somewhere the mark would be the first of the second line
        for text in (words := "a " * before + "- b and c", f"- {words}", f"1. {words}", words.replace("-", "3.")):
            first, *others = flow.flowed(text).splitlines()
            assert all(re.match(r" *[a-c]", line) for line in others), text
            assert " ".join(f"{first} {' '.join(others)}".split()) == text
    assert flow.flowed("|  a |\n| - |\n\n    x  =  1\n\n```\na\n\nb  c\n```\n") == (
        "|  a |\n| - |\n\n    x  =  1\n\n```\na\n\nb  c\n```\n"
    )


def test_the_page_is_flowed():
    text = (REPORT / page.PAGE).read_text(encoding="utf-8")
    assert flow.flowed(text) == text
    assert all(len(line) <= flow.WIDTH for line in text.splitlines() if not line.startswith("|"))
