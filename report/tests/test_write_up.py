"""The model report: the committed one, what it is made of, and how it fails where text and code part."""

import math
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from report import (
    cost,
    coverage,
    excerpts,
    flow,
    measured,
    plots,
    table,
    traced,
    write_up,
    write_up_figures,
    write_up_measured,
    write_up_runs,
    write_up_tables,
    write_up_values,
)
from report.coverage import shape
from report.ladder_rows import RUNGS, LadderPoint, LadderRow


@pytest.fixture(scope="module")
def ladder():
    return write_up_measured.load_ladder()


def test_the_committed_report_is_what_the_command_writes(capsys):
    assert write_up.main(["--check"]) == 0, "".join(capsys.readouterr())


def test_its_pictures_survive_those_of_the_sweep():
    assert set(plots.OTHERS) >= write_up_figures.FIGURES
    page = (write_up.HERE / write_up.PAGE).read_text(encoding="utf-8")
    for name in re.findall(r"\]\((figures/[^)]+)\)", page):
        assert (write_up.HERE / name).is_file()
    assert set(re.findall(r"figures/(report-[^)]+)", page)) == write_up_figures.FIGURES


# Excerpts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", write_up_tables.TRITON)
def test_the_seven_steps_are_in_every_kernel(problem):
    for name in excerpts.STEPS:
        text = excerpts.step(problem, name)
        assert text and "gap" not in text and "v = tl.load" not in text, name


def test_what_changes_is_found_by_comparing():
    found = {
        (after, name) for before, after in pairwise(write_up_tables.TRITON) for name in excerpts.STEPS
        if excerpts.changed(after, before, name)
    }  # fmt: skip
    assert found == {
        ("P4", "stream K and V"), ("P4", "scores and mask"), ("P5", "indices"), ("P6", "stream K and V"),
        ("P6", "scores and mask"), ("P6", "online update"), ("P7", "stream K and V"), ("P7", "scores and mask"),
    }  # fmt: skip


def test_lines_that_are_gone_are_named():
    with pytest.raises(excerpts.NotThere, match=r"p4_causal\.py has no lines from 'no such line'"):
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


@pytest.mark.parametrize("wrong", [counted_twice, from_tile_numbers, one_too_many_without_a_mask, no_diagonal])
def test_wrong_phases_are_caught(wrong):
    assert coverage.checked(cost.phases)[1] is None
    assert coverage.checked(wrong)[1] is not None


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
    table.write_whole(tmp_path / "ladder.csv", rows, LadderRow)
    with pytest.raises(table.BadTable, match="lacks P6 at 2048, P6 at 8192"):
        write_up_measured.load_ladder(tmp_path)
    (tmp_path / "ladder.csv").write_text("")
    with pytest.raises(table.BadTable):
        write_up_measured.load_ladder(tmp_path)


def test_every_rung_is_in_the_tables(ladder):
    for n in ladder.lengths:
        assert all(f"| {name}: " in write_up_measured.rungs(ladder, n) for name in write_up_measured.PROBLEMS)
    assert write_up_measured.fast_form(ladder).count("| as P") == sum(name.startswith("fast") for name in RUNGS)


def test_a_first_tile_from_tile_numbers_loses_what_is_left_of_the_window():
    lines = write_up_tables.mixed_up(128, 32, (32, 40, 33)).splitlines()[2:]
    assert [line.split(" | ")[1:] for line in lines] == [
        ["0", "0", "0", "0 |"],
        ["56", "0", "0", "0 |"],  # 7 + 6 + ... + 1, twice
        ["0", "0", "0", "2 |"],
    ]


def test_a_trace_that_is_not_the_formulas_stops_the_report(monkeypatch):
    right = write_up_runs.cost
    monkeypatch.setattr(write_up_runs, "cost", lambda *of: replace(right(*of), tiles=right(*of).tiles + 1))
    with pytest.raises(write_up_runs.Disagrees, match="p3 did"):
        write_up_runs.counted()


def test_the_schedule():
    point = LadderPoint(2048)
    waves = 16 * 32 / write_up_tables.MULTIPROCESSORS  # of programs of 16 tiles each
    assert write_up_tables.makespan("P3", point) == math.ceil(waves) * 16
    assert write_up_tables.makespan("P3", point, own=3) == math.ceil(waves) * 19
    work = sum(range(1, 17)) * 32
    assert work / write_up_tables.MULTIPROCESSORS <= write_up_tables.makespan("P4", point) < math.ceil(waves) * 16


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
        text = (measured.PUBLISHED / name).read_text(encoding="utf-8")
        text = change(text) if name == file else text
        if text is not None:
            (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(table.BadTable) as caught:
        write_up_measured.load_ladder(tmp_path)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_what_the_sweep_lacks_is_named():
    sweep = measured.load(measured.PUBLISHED)
    gone = replace(sweep, rows=tuple(row for row in sweep.rows if row.kernel != "SDPA cuDNN"))
    with pytest.raises(table.BadTable, match=r"sweep\.csv lacks SDPA cuDNN at B=4 H=16 D=128, full, 16384"):
        write_up_values.from_sweep(gone)
    flex = replace(sweep, rows=tuple(row for row in sweep.rows if row.kernel not in ("fast", "FlexAttention")))
    of_windows = write_up_measured.windows(flex, write_up_values.WINDOWED, write_up_values.LONG)
    assert "| 0.270 | 0.302 |" in of_windows and "FlexAttention |" not in of_windows  # a column without a number
    assert "| P3 | 18.7 |" in write_up_measured.peers(flex, write_up_values.SWEPT, write_up_values.LONG)
    with pytest.raises(table.BadTable, match=r"orders\.csv lacks 'sideways'"):
        write_up_measured.order_row("sideways")


@pytest.mark.parametrize("text, said", [
    (None, "REPORT.md.jinja is not there"),
    ("{{ nothing }}", "asks for what is not there: 'nothing'"),
    ("one\n{{ two", "line 2 of report/REPORT.md.jinja is no Jinja"),
])  # fmt: skip
def test_a_fault_of_the_template_is_one_sentence(tmp_path, monkeypatch, capsys, text, said):
    if text is not None:
        (tmp_path / write_up.TEMPLATE).write_text(text)
    monkeypatch.setattr(write_up, "HERE", tmp_path)
    monkeypatch.setattr(write_up, "values", lambda ladder, sweep: {})
    assert write_up.main([]) == 2
    printed = capsys.readouterr().err
    assert said in printed and printed.startswith("report: ") and printed.count("\n") == 1


def test_words_that_mark_a_loop_and_are_gone_are_named(monkeypatch):
    source = traced.source_of("p7").replace(write_up_runs.DIAGONAL_LOOP, "for k_start in range(diagonal, N, BLOCK_K):")
    monkeypatch.setattr(traced, "source_of", lambda problem: source)
    with pytest.raises(excerpts.NotThere, match="P7 no longer says 'for k_start in range"):
        write_up_runs.sinks_last()


def test_a_missing_solution_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(excerpts, "SOLUTIONS", tmp_path)
    with pytest.raises(excerpts.NotThere, match=r"solutions/p3_flash_attention\.py is not there"):
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


def test_the_page_is_flowed_and_its_links_resolve():
    page = (write_up.HERE / write_up.PAGE).read_text(encoding="utf-8")
    assert flow.flowed(page) == page
    assert all(len(line) <= flow.WIDTH for line in page.splitlines() if not line.startswith("|"))
    links = [link for link in re.findall(r"\]\(([^)]+)\)", page) if not link.startswith("https://")]
    assert links and all((write_up.HERE / link).is_file() for link in links)


def test_a_fault_is_one_sentence(monkeypatch, capsys):
    def fail():
        raise write_up_runs.Disagrees("p7 did something else")

    monkeypatch.setattr(write_up, "files", fail)
    assert write_up.main([]) == 2
    assert capsys.readouterr().err == "report: p7 did something else\n"
