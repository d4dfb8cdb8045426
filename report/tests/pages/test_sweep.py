"""BENCHMARKS.md, of a sweep that nobody measured: what stands where, and what stands nowhere."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from report import __main__ as command_line
from report.measuring.rows import not_measured
from report.pages import measured, tables
from report.pages import sweep as benchmarks
from report.places import ROOT
from report.tests import synthetic


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return measured.load(synthetic.write(tmp_path_factory.mktemp("sweep")))


@pytest.fixture(scope="module")
def text(sweep):
    return benchmarks.page(sweep)


def part(text, start, end):
    return text[text.index(start) : text.index(end, text.index(start))]


def test_every_table_is_well_formed(text):
    lines = text.splitlines()
    for above, line in zip(["", *lines], lines, strict=False):
        if line.startswith("|"):
            if above.startswith("|"):
                assert line.count("|") == above.count("|"), line
            else:
                assert not above, f"no blank line before {line}"
    assert text.count("<details>") == text.count("</details>") == 5
    assert not re.search(r"\b(None|nan|inf)\b", text)


def test_every_measured_row_stands_once_in_ms(sweep, text):
    for dtype in measured.dtypes(sweep.rows):
        block = part(text, f"<summary>{dtype}: time in ms", "</details>")
        lines = [line.split("|")[2:] for line in block.splitlines() if line.startswith("|")]
        cells = [cell.strip() for line in lines for cell in line]
        numbers = [cell for cell in cells if re.match(r"[\d.,*]+(<br>.*)?$", cell)]
        measured_rows = [row for row in sweep.rows if row.dtype == dtype and row.median_ms is not None]
        assert len(numbers) == len(measured_rows)
        assert cells.count("oom") == sum(row.status == "oom" and row.dtype == dtype for row in sweep.rows) > 0


def test_the_best_of_a_line_is_bold(sweep, text):
    block = text[text.index("<summary>float16: time in ms") :]
    block = block[block.index("**B=4 H=16 D=128, causal**") :]
    line = next(line for line in block.splitlines() if line.startswith("| 16k"))
    cells = {
        row.kernel: row
        for row in sweep.rows
        if measured.question(row) == ("B=4 H=16 D=128", 16384, 16384, True, "float16")
    }
    best = min((row for row in cells.values() if row.median_ms), key=lambda row: row.median_ms)
    assert re.findall(r"\*\*([\d.,]+)\*\*", line) == [tables.number(best.median_ms)]


def test_reasons_are_footnotes_and_missing_rows_are_blank(text):
    block = text[text.index("<summary>float16: time in ms") :]
    failed = block[block.index("**B=2 H=24 D=256, full**") :]
    assert re.search(r"\| 512 \|.*failed <sup>(\d)</sup>", failed)
    assert "<sup>2</sup> failed: OutOfResources: shared memory" in failed
    assert "not run: left out at head dim 256" in failed
    small = block[block.index("**B=1 H=12 D=64, causal**") :]
    head, _, line = small.splitlines()[2:5]
    names, values = ([cell.strip() for cell in text.split("|")] for text in (head, line))
    assert values[names.index("SDPA efficient")] == ""


def test_ratios_are_the_paired_ones(sweep):
    cells = next(c for p, c in sweep.points().items() if p == ("B=4 H=16 D=128", 16384, 16384, True, "float16"))
    peer = cells["SDPA cuDNN"]
    paired = measured.times_over(peer, cells["fast"])
    assert (paired.middle, paired.low, paired.high) == (peer.ours, peer.ours_low, peer.ours_high)
    inverse = measured.times_over(cells["fast"], peer)
    assert inverse.low == pytest.approx(1 / peer.ours_high) and inverse.low < inverse.middle < inverse.high
    loose = measured.times_over(cells["P4"], peer)
    assert (
        loose.middle == pytest.approx(cells["P4"].median_ms / peer.median_ms) and loose.low < loose.middle < loose.high
    )
    assert f"| {tables.times(paired, strong=True)} |" in benchmarks.page(sweep)


def test_what_sinks_cost(sweep, text):
    rows = {row.sinks: row for row in sweep.rows if row.tier.startswith("B=1 H=32/8 D=128 window=128 ")
            and row.kernel == "fast" and row.q_len == 16384 and row.dtype == "float16"}  # fmt: skip
    more = f"({round(100 * (rows[128].median_ms / rows[0].median_ms - 1)):+d} %)"
    line = next(line for line in text.splitlines() if line.startswith("| B=1 H=32/8 D=128 | 16k | 128 | fast"))
    assert more in line


def test_what_sinks_cost_a_peer_is_of_one_peer():
    """FlashAttention-4 has no sinks: its time without them is not put beside another's with them."""
    lines = [line for line in benchmarks.sinks(measured.load(), "float16").splitlines() if "| P" not in line]
    flex = {row.sinks: row for row in measured.load().rows if row.tier.startswith("B=1 H=32/8 D=64 window=128 ")
            and row.kernel == "FlexAttention" and row.q_len == 16384 and row.dtype == "float16"}  # fmt: skip
    (line,) = (line for line in lines if line.startswith("| B=1 H=32/8 D=64 | 16k | 128 | FlexAttention"))
    assert [cell.split()[0] for cell in line.split("|")[5:-1]] == [
        tables.number(flex[n].median_ms) for n in (0, 4, 128)
    ]
    assert not any("FlashAttention-4" in line for line in lines)


def test_noise_stands_under_the_median_only_where_there_is_some(text):
    block = text[text.index("<summary>float16: time in ms") :]
    block = block[: block.index("</details>")]
    for line in block.splitlines():
        if re.match(r"\| (512|16k) ", line):
            assert ("<sub>" in line) == line.startswith("| 512")


@pytest.mark.parametrize("pairs, window, sinks", [(36, None, None), (21, 3, 0), (21 + 9, 3, 2)])
def test_visible_pairs_agree_with_the_grader(pairs, window, sinks):
    torch = pytest.importorskip("torch")
    from grader.kinds.attention.masks import Visibility

    row = replace(synthetic.rows(dtypes=("float16",))[0], q_len=8, k_len=8, causal=True, window=window, sinks=sinks)
    positions = torch.arange(8)
    seen = int(Visibility(causal=True, window=window, sinks=sinks or 0).mask(positions, positions).sum())
    assert measured.visible_pairs(row) == seen == pairs


def test_a_quick_sweep_without_our_fast_kernel(tmp_path):
    rows = synthetic.rows(dtypes=("float32",), tiers=((1, 2, 2, 64),), lengths=(128, 256), windowed=())
    rows = [row for row in rows if row.kernel in ("naive per head", "vectorised", "P2")]
    rows = [replace(row, ours=None, ours_low=None, ours_high=None, fraction_of_peak=None) for row in rows]
    sweep = measured.load(synthetic.write(tmp_path, rows, gpu=None, memory_gib=None, clocks={"before": None}))
    text = benchmarks.page(sweep)
    assert "**a CPU**" in text and "None" not in text
    assert "P2:" in text and "how many times faster our P2 is" in text
    pictures = [f"figures/{name}.svg" for name in ("speedups-float32", "b1-h2-d64", "scaling", "memory")]
    files = benchmarks.files(tmp_path)
    assert list(files) == ["BENCHMARKS.md", *pictures]
    heat_map = files["figures/speedups-float32.svg"]
    assert "How many times faster our P2 is" in heat_map and "Flex" not in heat_map


def test_nothing_measured_at_all(tmp_path):
    rows = [not_measured(row, "not run", "interpreter") for row in synthetic.rows(lengths=(512,), windowed=())]
    made = benchmarks.files(synthetic.write(tmp_path, rows))
    assert list(made) == ["BENCHMARKS.md"] and "not run: interpreter" in made["BENCHMARKS.md"]


def broken(folder, kind):
    folder.mkdir()
    if kind == "no folder":
        return folder / "nowhere"
    synthetic.write(folder, [] if kind == "no rows" else synthetic.rows(lengths=(512,), windowed=()))
    if kind == "empty file":
        (folder / "sweep.csv").write_text("", "utf-8")
    if kind == "another version":
        (folder / "sweep.csv").write_text("kernel,tier,avg_ms\nP2,x,1\n", "utf-8")
    if kind == "no machine":
        (folder / "machine.json").unlink()
    if kind == "torn machine":
        (folder / "machine.json").write_text('{"gpu": ', "utf-8")
    if kind == "nameless machine":
        (folder / "machine.json").write_text(json.dumps({"torch": "2.13.0"}), "utf-8")
    return folder


BROKEN = {
    "no folder": "there is no",
    "no rows": "holds no rows",
    "empty file": "is no sweep",
    "another version": "another version",
    "no machine": "machine.json",
    "torn machine": "is no JSON",
    "nameless machine": '"gpu" is missing',
}


@pytest.mark.parametrize("command", [["pages", "sweep", "--of"], ["compare"]], ids=" ".join)
@pytest.mark.parametrize("kind", BROKEN)
def test_bad_input_is_one_sentence(kind, command, tmp_path, capsys):
    folder = broken(tmp_path / "sweep", kind)
    assert command_line.main([*command, str(folder)]) == 2
    said = capsys.readouterr()
    assert not said.out and said.err.count("\n") == 1 and BROKEN[kind] in said.err


def test_a_folder_that_cannot_be_written_to(tmp_path, capsys):
    folder = synthetic.write(tmp_path, synthetic.rows(lengths=(512,), windowed=()))
    (folder / "figures").write_text("in the way", "utf-8")
    assert command_line.main(["pages", "--of", str(folder)]) == 2
    assert "a file could not be read or written: " in capsys.readouterr().err


@pytest.mark.thorough
def test_no_torch_is_needed(tmp_path):
    folder = synthetic.write(tmp_path, synthetic.rows(lengths=(512,), windowed=()))
    code = (
        "import sys; sys.modules['torch'] = sys.modules['triton'] = None\n"
        "from report.__main__ import main\n"
        f"sys.exit(main(['pages', '--of', {str(folder)!r}]) or main(['compare', *[{str(folder)!r}] * 2]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_commits_of_rows_that_were_measured_in_several_runs():
    assert tables.commits({"commit": None}) == tables.commits({}) == ""
    assert tables.commits({"commit": "0123456789abcdef"}) == "commit 0123456789ab"
    assert tables.commits({"commit": "c", "earlier_commits": ["a", "b"]}) == "commits a, b, c"
