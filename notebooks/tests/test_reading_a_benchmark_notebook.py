"""Notebooks 01 and 07: what their words say of the times and the memory that were measured."""

from statistics import fmean, median

import pytest

from grader.gpu.peaks import peak
from notebooks.pictures import memory_wall
from notebooks.pictures.operations import count
from report.pages import measured
from report.pages.measured import times_over
from report.studies import block_sparse
from report.studies import sweep as sweeps

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


@pytest.fixture(scope="module")
def sweep():
    return measured.load(measured.PUBLISHED)


@pytest.fixture(scope="module")
def points(sweep):
    return sweep.points()


@pytest.fixture(scope="module")
def ratios(points):
    """Our fast kernel over FlashAttention-4's, at every point of the sweep that has both."""
    both = [cells for cells in points.values() if "FlashAttention-4" in cells]
    return [pair for cells in both if (pair := times_over(cells["FlashAttention-4"], cells["fast"]))]


def test_the_headline_and_what_it_is_compared_with(points):
    cells = points["B=4 H=16 D=128", 16384, 16384, True, "float16"]
    measured = {name: row for name, row in cells.items() if name not in ("fast", "P2") and row.status == "ok"}
    over = {name: times_over(row, cells["fast"]).middle for name, row in measured.items()}
    assert f"{max(over.values()):.3g}" == "27.6", 'the page says "27.6 times as fast"'
    longest = sorted(over, key=over.get)[-3:]
    assert set(longest) == set(sweeps.BASELINES), "the longest bars are PyTorch code's"
    assert min(over, key=over.get) == "FlashAttention-4" and 1 < over["FlashAttention-4"] < 1.1, "hardly faster"


def test_one_call_in_a_hundred_makes_the_mean_a_quarter_larger():
    times = [11.0] * 99 + [300.0]
    assert median(times) == 11 and fmean(times) / 11 == pytest.approx(1.25, abs=0.03)


def test_far_means_lie_outside_the_percentiles_or_the_percentiles_are_far_too(sweep):
    done = [row for row in sweep.rows if row.median_ms is not None]
    far = sorted(done, key=lambda row: row.avg_ms / row.median_ms, reverse=True)[:6]
    outside = [row for row in far if row.avg_ms > row.p80_ms]
    assert outside and all(row.p80_ms > 1.25 * row.median_ms for row in far if row not in outside)


def test_cold_tensors_cost_a_good_part_of_short_calls_and_little_of_long_ones(sweep, points):
    part = {}
    for n in (512, 16384):
        row = points["B=4 H=16 D=128", n, n, True, "float16"]["fast"]
        moved = 4 * row.batch * row.heads * n * row.head_dim * 2
        part[n] = moved / (peak(sweep.device).terabytes * 1e9) / row.median_ms
    assert part[512] > 0.2 and part[16384] < 0.05


def test_three_headlines_from_one_picture(ratios):
    assert max(pair.low for pair in ratios) > 1.3, "far ahead"
    assert 1.02 < measured.geometric_mean([pair.middle for pair in ratios]) < 1.1, "a little faster on average"
    assert sum(pair.high < 1 for pair in ratios) > 2, "slower at some shapes"


def test_the_higher_rate_is_done_later():
    rows = {row.key: row for row in measured.load_study(block_sparse.STUDY)[0]}
    dense, sparse = (rows["documents", 512, 64, kernel] for kernel in ("cuDNN dense", "fast"))
    assert sparse.tflops < 0.7 * dense.tflops, "the one with the lower rate"
    assert sparse.p80_us < dense.p20_us, "is done first"


def test_a_launch_from_python_costs_more_than_a_short_run(points):
    small = {n: points["B=1 H=12 D=64", n, n, True, "float16"] for n in LENGTHS}
    longer = [n for n, cells in small.items() if cells["fast"].host_ms > cells["fast"].median_ms]
    assert longer == [512, 1024, 2048], "up to 2k tokens"
    fast, cudnn = small[512]["fast"], small[512]["SDPA cuDNN"]
    assert fast.median_ms < cudnn.median_ms and fast.host_ms > 3 * fast.median_ms
    assert fast.host_ms > max(cudnn.host_ms, cudnn.median_ms), "call after call from Python, it would lose"


def test_the_memory_wall(sweep, points):
    """Notebook 01: 25.6 FLOPs a byte, below every ridge; plain code's time is that of its bytes, not its products."""
    ledger = count(memory_wall.plain_attention, *[(4, 16, 16384, 128)] * 3)
    assert ledger.flops / ledger.moved == pytest.approx(4 * 128 / 20, rel=0.01)
    assert all(memory_wall.ridge(gpu) > 2 * ledger.flops / ledger.moved for gpu in memory_wall.GPUS)
    computing, moving = memory_wall.least_times(ledger, sweep.device)
    cells = points["B=4 H=16 D=128", 16384, 16384, False, "float16"]
    assert computing < cells["fast"].median_ms < moving < cells["vectorised"].median_ms < 2 * moving
    assert cells["vectorised"].peak_mib > 80e9 / 2**20, "plain code does not fit on a GPU of 80 GB"
