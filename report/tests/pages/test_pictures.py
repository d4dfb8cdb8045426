"""The pictures: all there, small, the same bytes again, names apart; what is committed is what the CSV gives."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from report import __main__ as command_line
from report.pages import curves, drawing, measured, sweep, sweep_pictures
from report.studies.sweep import BASELINES, PEERS
from report.tests import synthetic

LARGEST = 160_000  # bytes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return synthetic.write(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="module")
def drawn(folder):
    assert command_line.main(["pages", "--of", str(folder)]) == 0
    return folder / "figures"


@pytest.mark.thorough
def test_every_picture_is_there_small_and_linked(folder, drawn):
    names = {path.name for path in drawn.iterdir()}
    tiers = {"b1-h12-d64", "b8-h12-d64", "b1-h12-d128", "b2-h24-d256", "b4-h16-d128"}
    others = {"speedups-float16", "speedups-bfloat16", "scaling", "memory", "windows"}
    assert names == {f"{name}.svg" for name in tiers | others}
    assert all(path.stat().st_size < LARGEST for path in drawn.iterdir())
    page = (folder / "BENCHMARKS.md").read_text("utf-8")
    assert set(re.findall(r"\(figures/([^)]+)\)", page)) == names


@pytest.mark.thorough
def test_the_same_bytes_again_whatever_the_reader_has_set(folder, drawn):
    import matplotlib

    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 9, "axes.facecolor": "red"}):
        again = sweep.files(folder)
    for path in drawn.iterdir():
        assert path.read_bytes() == again[f"figures/{path.name}"].encode(), path.name


def test_stale_pictures_go_and_those_of_other_pages_stay(tmp_path):
    few = [row for row in synthetic.rows(dtypes=("float16",)) if row.tier == "B=1 H=12 D=64"]
    folder = synthetic.write(tmp_path, few)
    (folder / "figures").mkdir()
    for name in ("b9-h9-d9", "orders"):
        (folder / f"figures/{name}.svg").write_text("<svg/>", "utf-8")
    (folder / "ORDERS.md").write_text("![tiles](figures/orders.svg)", "utf-8")
    assert command_line.main(["pages", "--of", str(folder)]) == 0
    assert (folder / "figures/orders.svg").exists() and (folder / "figures/scaling.svg").exists()
    assert not (folder / "figures/b9-h9-d9.svg").exists()


@pytest.mark.parametrize("name", ["scaling.svg", "memory.svg", "windows.svg", "b8-h12-d64.svg"])
def test_names_at_the_ends_of_lines_do_not_overlap_or_leave_the_page(folder, name):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    rows = measured.load(folder)
    figure = sweep_pictures.figure(rows, sweep_pictures.plans(rows)[f"figures/{name}"])
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
    said, rows = (drawn / "speedups-float16.svg").read_text("utf-8"), measured.load(folder).rows
    for row in rows:
        if row.dtype == "float16" and row.ours and row.window is None and row.kernel not in ("fast",):
            number = f"{row.ours:.2f}" if row.ours < 9.995 else f"{row.ours:,.0f}"
            assert f">{number}<" in said
    assert said.count(">oom<") == sum(row.status == "oom" and row.dtype == "float16" for row in rows)


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

    peers = [grey(name) for name in drawing.LOOKS if name in PEERS]
    baselines = [grey(name) for name in drawing.LOOKS if name in BASELINES]
    assert grey("fast") + 30 < min(peers) and max(peers) < min(baselines)
    together = ["P4", "P2", *PEERS, *BASELINES, "fast"]
    assert len({drawing.LOOKS[name].marker for name in together}) == len(together)
