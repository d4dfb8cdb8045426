"""The model of orders at any shape: what is printed, and what is refused in one sentence."""

import pytest

from report.counting.cache_model import MI300X, simulate
from report.pages import order_command
from report.pages.orders_model import PUBLISHED_SHAPE, Shape


def test_it_prints_each_order_and_which_leaves_tiles_out(capsys):
    assert order_command.main(["--B", "1", "--H", "8", "--N", "1536", "--D", "128", "--tiles", "128x128"]) == 0
    said = capsys.readouterr().out
    assert "96 programs, 624 tiles of keys" in said
    assert "published: a block of tiles a die     leaves tiles out at 12 tiles a head" in said
    assert said.count("\n") == 6 and "head first, longest first (lab X2)" in said


def test_the_published_shape_has_the_tiles_and_the_cache_of_its_sizes():
    tiles, heads, _, machine, taller, _ = PUBLISHED_SHAPE.sizes
    assert (tiles, heads, taller) == (32, 32 * 48, 2)
    assert machine.capacity == 256 and machine.dies == 8  # 4 MB of 16 KiB
    assert Shape(1, 1, 128, 128, (128, 128)).sizes[3] == MI300X


def test_a_tall_tile_of_queries_visits_more_tiles_of_keys():
    run = simulate([(0, 0), (0, 1), (0, 2)], taller=2)
    assert sum(run.visits) == 2 + 4 + 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--N", "100"], "N must be a multiple of the tile of queries"),
        (["--tiles", "64x128"], "a tile of queries must be a multiple of a tile of keys"),
        (["--tiles", "64"], "two numbers with an x between them, like 128x64; got '64'"),
        (["--dies", "0"], "sizes must be at least 1"),
    ],
)
def test_bad_sizes_are_one_sentence(arguments, words, capsys):
    with pytest.raises(SystemExit) as ended:
        order_command.main(arguments)
    assert ended.value.code == 2 and words in capsys.readouterr().err
