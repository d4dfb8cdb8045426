"""The page on the fast backward pass, and how its rows are made of times."""

import pytest
import torch

from grader.gpu.timing import Timing
from report.arms import backward as arms
from report.arms.backward_ideas import WITHOUT
from report.pages import backward
from report.pages.measured import read_words
from report.places import Refused


def test_the_committed_rows_and_what_the_page_says_of_them():
    rows = read_words(backward.CSV)
    assert list(rows[0]) == list(arms.HEAD) and len(rows) == len(arms.SHAPES)
    assert len({(row["gpu"], row["torch"], row["triton"], row["rounds"]) for row in rows}) == 1
    (text,) = backward.files().values()
    assert text.partition("## Sinks")[0].count("| B=") == len(rows) and "nan" not in text
    slower = [row["shape"] for row in rows if float(row["over_cudnn"] or 1) < 1 and tokens(row) >= backward.LONG]
    assert all(f"{shape} " in text.partition("Slower than cuDNN there: ")[2].partition(".\n")[0] for shape in slower)
    assert all(float(row["over_cudnn"] or 1) >= 1 for row in rows)
    ideas = read_words(backward.IDEAS)
    assert list(ideas[0]) == list(arms.IDEAS_HEAD) and {row["idea"] for row in ideas} == set(WITHOUT)


def tokens(row):
    return int(row["shape"].rpartition("=")[2])


def test_a_row_of_times(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA X")
    times = {"fast": [0.1, 0.11, 0.09], "x3": [0.2, 0.22, 0.18], "flex": [0.1, 0.099, 0.18]}
    times = {name: Timing([[ms] for ms in each]) for name, each in times.items()}
    found = dict(zip(arms.HEAD, arms.row((1, 8, 2, 64, 1024, True, 100), times, {"fast": 41.26}), strict=True))
    assert found["shape"] == "B=1 H=8/2 D=64 N=1024" and found["mask"] == "window 100" and found["gpu"] == "X"
    assert found["fast_us"] == "100.00" and found["cudnn_us"] == found["over_cudnn"] == ""
    assert found["host_us"] == "41.3" and found["cudnn_host_us"] == ""
    assert found["over_x3"] == found["over_x3_low"] == found["over_x3_high"] == "2.0000"
    assert float(found["over_flex_low"]) == 0.9 and float(found["over_flex_high"]) == 2.0


def test_without_a_hopper_gpu_it_is_refused():
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(Refused, match="for Hopper GPUs"):
        arms.main([])
