"""Decode's rows: what a form reads, which pieces are shares, what is found wrong, and the whole of it, tiny."""

import contextlib
import csv
from dataclasses import replace

import pytest
import torch

from grader.gpu.timing import Timing
from report.arms import decode as arms
from report.arms.decode_check import expect, fault
from report.measuring.graphs import CALLS, GraphArm
from report.places import Refused
from report.studies.decode import COLUMNS, COPY, CUDNN, NEW, PAGES, PLAIN, RAGGED, SHAPES, SINK, TINY, WINDOW, X4
from report.tests import called

(SMALL,) = TINY


def attend(q, k, v, lengths, table, sink, window):
    """Decode written out, one sequence and one head after the other, in float64 and rounded."""
    o = torch.zeros_like(q)
    for b, h, i in ((b, h, i) for b in range(q.shape[0]) for h in range(q.shape[1]) for i in range(q.shape[2])):
        kv_head, at = h // (SMALL.Hq // SMALL.Hkv), int(lengths[b]) - q.shape[2] + i
        seen = range(max(0, at - (window or at + 1) + 1), at + 1)
        if table is None:
            keys, values = (torch.stack([x[b, kv_head, j] for j in seen]).double() for x in (k, v))
        else:
            size = k.shape[1]
            places = [(int(table[b, j // size]), j % size) for j in seen]
            keys, values = (torch.stack([x[page, row, kv_head] for page, row in places]).double() for x in (k, v))
        scores = keys @ q[b, h, i].double() / q.shape[3] ** 0.5
        p = (scores if sink is None else torch.cat([scores, sink[h : h + 1].double()])).softmax(0)[: len(seen)]
        o[b, h, i] = (p @ values).to(q.dtype)
    return o


@pytest.mark.parametrize("form", [PLAIN, *SMALL.forms], ids=lambda form: form.name or "plain")
def test_a_right_result_passes_and_that_of_another_question_does_not(form):
    torch.manual_seed(0)
    k, v = (torch.randn(SMALL.B, SMALL.Hkv, SMALL.N, SMALL.D, dtype=torch.float16) for _ in range(2))
    q, k, v, lengths, table, sink, window = given = arms.arguments(SMALL, form, k, v, 3)
    expected = expect(*given)
    o = attend(*given)
    assert fault(o, expected, sink) is None
    for b, h in ((0, 0), (-1, -1)):
        changed = o.clone()
        changed[b, h] = o[0, 1]
        assert f"of sequence {b % SMALL.B}," in fault(changed, expected, sink)
    # Half the keys, not the newest alone: its weight may be nothing, by the numbers that this processor draws.
    wrong = [(q, v, k, lengths, table, sink, window), (q, k, v, lengths - lengths // 2, table, sink, window)]
    if table is not None:
        wrong.append((q, k, v, lengths, table.flip(0), sink, window))
    if sink is not None:
        wrong += [(q, k, v, lengths, table, None, window), (q, k, v, lengths, table, sink + 1.0, window)]
    if window is not None:
        wrong.append((q, k, v, lengths, table, sink, window // 2))
    assert all("wrong" in fault(attend(*each), expected, sink) for each in wrong)


def test_a_nan_at_a_head_that_is_not_compared_is_found():
    shape = replace(SMALL, Hq=6, Hkv=3)
    k, v = (torch.randn(shape.B, shape.Hkv, shape.N, shape.D, dtype=torch.float16) for _ in range(2))
    q, *rest = arms.arguments(shape, PLAIN, k, v, 3)
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert fault(o, expect(q, *rest), None) is None
    o[0, 2] = float("nan")
    assert fault(o, expect(q, *rest), None) == "wrong: some elements are NaN or infinite"


def test_what_is_read_and_how_many_sets_take_turns():
    long = next(shape for shape in SHAPES if WINDOW in shape.forms)
    assert long.bytes(PLAIN) == 2 * 8 * 8 * 16384 * 128 * 2 == long.bytes(PAGES[0]) == long.bytes(NEW)
    assert long.bytes(WINDOW) == 2 * 8 * 8 * 1024 * 128 * 2
    assert long.bytes(replace(WINDOW, new=4)) == 2 * 8 * 8 * 1027 * 128 * 2
    for shape in SHAPES:
        assert shape.sets() >= 2
        assert all(shape.sets() * shape.bytes(form) >= 5 * 50e6 for form in shape.forms), shape.name
    many = next(shape for shape in SHAPES if RAGGED in shape.forms)
    drawn = many.lengths(RAGGED)
    assert drawn == many.lengths(RAGGED) and len(set(drawn)) > 50 and set(drawn) <= set(range(1, many.N + 1))
    assert many.bytes(RAGGED) == 2 * 8 * 128 * 2 * sum(drawn)


def test_shares_fill_the_machine():
    for shape in SHAPES:
        for form in shape.shares(132, 1024):
            programs = shape.B * shape.Hkv * -(-shape.N // form.piece)
            assert form.piece % 128 == 0 and form.piece != 1024 and form.piece <= shape.N
            assert programs <= 4 * 132 or form.piece == shape.N, (shape.name, form)


def test_a_module_has_pieces_of_its_own():
    pytest.importorskip("triton")
    plain, other = arms.with_piece("x4_decode.py", None), arms.with_piece("x4_decode.py", 512)
    q = torch.empty(1, 1, 1, 128)
    before = plain.choose_tiles(q)[0]
    assert other.choose_tiles(q)[0] == 512 != before == plain.choose_tiles(q)[0]


def test_a_line_of_times():
    shape = replace(SHAPES[0], forms=(SINK, WINDOW))
    times = {(X4, PLAIN): [0.1, 0.11, 0.09], (CUDNN, PLAIN): [0.2, 0.22, 0.18], (COPY, PLAIN): [0.05, 0.055, 0.09],
             (X4, WINDOW): [0.01, 0.011, 0.009]}  # fmt: skip
    timings = {key: Timing([[ms] for ms in each]) for key, each in times.items()}

    def row(*key, faults=()):
        words = arms.line(shape, key, timings, {(X4, PLAIN): 41.26}, dict(faults))
        return dict(zip(COLUMNS, words, strict=True))

    plain, window = row(X4, PLAIN), row(X4, WINDOW)
    assert plain["shape"] == "B=1 H=32/8 D=128 N=16384" and plain["us"] == "100.00" and plain["mib"] == "64.00"
    assert plain["gb_s"] == "671.1" and plain["host_us"] == "41.3" and plain["over_plain"] == plain["fault"] == ""
    assert plain["over_cudnn"] == plain["over_cudnn_low"] == "2.0000" and plain["of_copy"] == "0.5000"
    assert (plain["of_copy_low"], plain["of_copy_high"]) == ("0.5000", "1.0000")
    assert window["mib"] == "4.00" and window["of_copy"] == "0.3125" and window["over_plain"] == "0.1000"
    assert row(COPY, PLAIN)["over_cudnn"] == row(COPY, PLAIN)["of_copy"] == row(CUDNN, PLAIN)["over_cudnn"] == ""
    failed = row(X4, SINK, faults={(X4, SINK): "wrong: all"}.items())
    assert (
        failed["form"] == "sink logit" and failed["us"] == failed["host_us"] == "" and failed["fault"] == "wrong: all"
    )


def test_a_graph_has_all_sets_in_turn(monkeypatch):
    made, replayed = [], []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        record = synchronize = lambda self: None

        def elapsed_time(self, end):
            return 4.0 * (len(replayed) - replayed.count("before"))

    monkeypatch.setattr(
        torch.cuda, "CUDAGraph", lambda: type("Graph", (), {"replay": lambda self: replayed.append(1)})()
    )
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    arm = GraphArm([lambda n=n: made.append(n) or n for n in range(3)], "cuda")
    assert made == [0, 1, 2, *[0, 1, 2] * (CALLS // 3)] and arm.o == 0 and len(replayed) == 1
    arm.warm_up(0)
    assert arm.count == int(20 / (4.0 * 3))  # 20 ms in a round; until then three replays
    replayed[:] = ["before"] * len(replayed)
    assert arm.round(0, 1) == [4.0 * (arm.count + 1) / (arm.count * len(arm.calls))]


def test_what_is_wrong_or_not_there_has_no_time(monkeypatch, capsys):
    pytest.importorskip("triton")
    monkeypatch.setattr(arms, "OURS", {"none": "no_such_decode.py"})
    calls = arms.calls_of(SMALL, "cpu")
    assert [kernel for kernel, _ in calls] == [
        CUDNN,
        COPY,
    ] and "no_such_decode.py is not there" in capsys.readouterr().err
    (right, given), _ = pairs = calls[CUDNN, PLAIN]
    short = SMALL.shares(4, 0)[0]

    def stopped():
        raise ValueError("no such thing")

    calls |= {(X4, PLAIN): pairs, (X4, SINK): [(stopped, given)], (X4, short): pairs,
              (X4, NEW): [(lambda: right() + 1, given)]}  # fmt: skip
    found, faults = arms.prepare(calls, "cpu")
    assert set(found) == {(CUDNN, PLAIN), (COPY, PLAIN), (X4, PLAIN)}
    assert "no such thing" in faults[X4, SINK] and "wrong: " in faults[X4, NEW] and "no bit" in faults[X4, short]


def test_without_a_gpu_it_is_refused(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(Refused, match="PyTorch sees no GPU here"):
        arms.main(["--out", str(tmp_path)])
    with pytest.raises(Refused, match="--rounds must be at least 1"):
        arms.main(["--rounds", "0"])


@pytest.mark.thorough
def test_a_tiny_one_runs_in_the_interpreter(tmp_path):
    pytest.importorskip("triton")
    done = called.report("decode", "--tiny", "--rounds", "1", "--device", "cpu", "--out", tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = list(csv.DictReader((tmp_path / "decode.csv").read_text("utf-8").splitlines()))
    forms = ["", *(form.name for form in SMALL.forms), "pieces of 128"]
    assert [row["form"] for row in rows if row["kernel"] == X4] == forms
    assert not any(row["fault"] for row in rows) and all(float(row["us"]) > 0 for row in rows)
