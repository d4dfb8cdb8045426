"""The pictures: all there, small, the same bytes again, names apart; what is committed is what the CSV gives."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from report import benchmarks, curves, drawing, measured, plots
from report.tests import synthetic

LARGEST = 150_000  # bytes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return synthetic.write(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="module")
def drawn(folder):
    assert plots.main([str(folder)]) == 0
    return folder / "figures"


def test_every_picture_is_there_small_and_linked(folder, drawn):
    names = {path.name for path in drawn.iterdir()}
    tiers = {"b1-h12-d64", "b8-h12-d64", "b1-h12-d128", "b2-h24-d256", "b4-h16-d128"}
    others = {"speedups-float16", "speedups-bfloat16", "scaling", "memory", "windows"}
    assert names == {f"{name}.svg" for name in tiers | others}
    assert all(path.stat().st_size < LARGEST for path in drawn.iterdir())
    page = benchmarks.page(measured.load(folder))
    assert set(re.findall(r"\(figures/([^)]+)\)", page)) == names


def test_the_same_bytes_again_whatever_the_reader_has_set(folder, drawn, tmp_path):
    import matplotlib

    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 9, "axes.facecolor": "red"}):
        plots.draw(measured.load(folder), tmp_path)
    for path in drawn.iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def test_stale_pictures_go(folder, tmp_path):
    sweep = measured.load(folder)
    few = replace(sweep, rows=tuple(row for row in sweep.rows if row.tier == "B=1 H=12 D=64"))
    (tmp_path / "b9-h9-d9.svg").write_text("<svg/>")
    plots.draw(few, tmp_path)
    assert not (tmp_path / "b9-h9-d9.svg").exists()


@pytest.mark.parametrize("name", ["scaling.svg", "memory.svg", "windows.svg", "b8-h12-d64.svg"])
def test_names_at_the_ends_of_lines_do_not_overlap_or_leave_the_page(folder, name):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    sweep = measured.load(folder)
    figure = plots.figure(sweep, plots.plans(sweep)[name])
    with drawing.house_style():
        FigureCanvasAgg(figure).draw()
        for axes in figure.axes:
            names = [text for text in axes.texts if text.get_text() and getattr(text, "arrow_patch", None)]
            places = sorted(text.xyann[1] * axes.bbox.height for text in names)
            assert len(names) > 2
            gaps = [high - low for low, high in pairwise(places)]
            assert min(gaps) * 72 / figure.dpi > drawing.LINE - 0.1
            for text in names:
                box = Text.get_window_extent(text)  # without the line that leads to it
                assert box.x0 > 0 and box.x1 < figure.bbox.x1, text.get_text()
                assert box.y0 > 0 and box.y1 < figure.bbox.y1, text.get_text()


def test_the_heat_map_prints_every_ratio(folder, drawn):
    sweep = measured.load(folder)
    said = (drawn / "speedups-float16.svg").read_text()
    for row in sweep.rows:
        if row.dtype == "float16" and row.ours and row.window is None and row.kernel not in ("fast",):
            number = f"{row.ours:.2f}" if row.ours < 9.995 else f"{row.ours:,.0f}"
            assert f">{number}<" in said
    assert said.count(">oom<") == sum(row.status == "oom" and row.dtype == "float16" for row in sweep.rows)


def test_the_slope_is_that_of_the_last_points():
    row = synthetic.rows(dtypes=("float16",), lengths=(512,), windowed=())[0]
    points = [replace(row, q_len=n, median_ms=ms) for n, ms in ((512, 5.0), (1024, 1.0), (2048, 4.0), (4096, 16.0))]
    assert curves.slope(points) == pytest.approx(2)
    assert curves.slope(points[:1]) is None


def test_names_are_moved_apart_and_kept_within():
    places = drawing.apart([1, 2, 3, 50, 99], [10] * 5, 0, 100)
    assert places == [5, 15, 25, 50, 95]


def test_greys_tell_ours_peers_and_baselines_apart():
    def grey(kernel):
        red, green, blue = (int(drawing.LOOKS[kernel].color[i : i + 2], 16) for i in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    peers = [grey(name) for name in drawing.LOOKS if name in benchmarks.PEERS]
    baselines = [grey(name) for name in drawing.LOOKS if name in benchmarks.BASELINES]
    assert grey("fast") + 30 < min(peers) and max(peers) < min(baselines)
    together = ["P4", "P2", *benchmarks.PEERS, *benchmarks.BASELINES, "fast"]
    assert len({drawing.LOOKS[name].marker for name in together}) == len(together)


def committed_page():
    if not (measured.PUBLISHED / measured.CSV).exists():
        pytest.skip("no results are committed yet")
    return measured.REPORT / benchmarks.PAGE


def test_the_committed_page_is_what_the_committed_csv_gives():
    page = committed_page()
    assert page.read_text(encoding="utf-8") == benchmarks.page(measured.load(measured.PUBLISHED)), (
        "run python -m report.benchmarks"
    )


def test_the_committed_pictures_are_what_the_committed_csv_gives(tmp_path):
    import matplotlib

    kept = committed_page().parent / plots.FIGURES
    names = plots.draw(measured.load(measured.PUBLISHED), tmp_path)
    there = {path.name for path in kept.glob("*.svg")} - set(plots.OTHERS)
    assert set(names) == there, "run python -m report.plots"
    for name in names:
        text = (kept / name).read_text(encoding="utf-8")
        if f"Matplotlib v{matplotlib.__version__}," not in text:
            pytest.skip(f"{name} was drawn by another matplotlib than {matplotlib.__version__}")
        assert text == (tmp_path / name).read_text(encoding="utf-8"), f"{name}: run python -m report.plots"
