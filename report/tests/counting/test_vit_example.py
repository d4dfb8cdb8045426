"""The vision transformer's example: it ends with what is right, and CLS sees all in every pattern."""

import pytest

from grader.kinds.block_sparse.patterns import FULL
from report.counting import vit_example
from report.tests.called import report

pytest.importorskip("triton")


@pytest.mark.thorough
def test_it_is_right_and_says_what_it_visits():
    done = report("vit_example", "--heads", "1", "--images", "197,5,257")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count("within what a careful kernel may be off by") == len(vit_example.PATTERNS)
    assert "42 of 42 tiles visited by each head; hidden: 0 % of all pairs" in done.stdout
    visited = 4 * 4 - 2 + 1 + 5 * 5 - 6  # local with CLS: all but the tiles two or more apart, except those of CLS
    assert f"{visited} of 42 tiles" in done.stdout


@pytest.mark.thorough
def test_a_larger_block_is_cut_into_tiles():
    done = report("vit_example", "--heads", "1", "--images", "197", "--block", "128", "--only", "dense")
    assert done.returncode == 0 and "8 of 8 tiles" in done.stdout and "\n    F F\n    F F\n" in done.stdout


@pytest.mark.parametrize("name", vit_example.PATTERNS)
def test_where_cls_is_named_it_sees_all_and_is_seen_by_all(name):
    kinds = vit_example.PATTERNS[name](10, 64).kinds
    sees_all = set(kinds[0]) == {FULL} and {row[0] for row in kinds} == {FULL}
    assert sees_all == ("CLS" in name or name == "dense")
    assert (name == "dense") == (sum(map(sum, kinds)) == 100 * FULL)
    assert sum(map(sum, kinds)) == {"diagonal": 10, "local": 28}.get(name, sum(map(sum, kinds)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--images", "197,x"], "numbers of tokens between commas; got '197,x'"),
        (["--heads", "0"], "--heads must be at least 1; got 0"),
        (["--block", "96", "--tile", "64"], "block_q must be a multiple of the kernel's tile_q=64; got 96"),
        (["--tile", "48"], "tile_q must be a power of two from 16 on; got 48"),
    ],
)
@pytest.mark.thorough
def test_bad_arguments_are_one_sentence(arguments, words):
    done = report("vit_example", *arguments)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
