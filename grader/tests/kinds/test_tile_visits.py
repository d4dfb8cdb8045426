"""What a tile of queries met is told with the kernel's line that led there."""

import torch

from grader.kinds.attention.tile_visits import Stretch, Visit, in_words, line_without_mask
from grader.tests.support import grade_text, solution


def record(*stretches):
    return Visit("kernel", 0, (32, 63), 0, 1, [], 0, stretches=[Stretch(*each) for each in stretches])


def test_stretches_in_words():
    two = [record((128, 0, 31, False), (133, 32, 32, True))]
    assert in_words(two, (0, 1, 40)) == "Query rows 32-63 meet keys 0-31 in line 128 and key 32, masked, in line 133."
    assert in_words(two, (0, 0, 40)) == in_words(two, (0, 1, 64)) == ""  # another head, another tile
    assert in_words([record()], (0, 1, 63)) == "Query rows 32-63 meet no key."
    assert in_words([record((0, 0, 31, False))], (0, 1, 40)) == ""  # a line that is not known


def test_the_only_line_that_puts_no_mask_on_these_keys():
    shown = torch.zeros(70, 70, dtype=torch.bool)
    shown[40:50, 4:20] = True
    assert line_without_mask([record((128, 0, 31, False), (133, 32, 63, True))], (0, 1, shown)) == 128
    assert line_without_mask([record((128, 0, 31, True), (133, 32, 63, False))], (0, 1, shown)) is None  # masked there
    two = [record((128, 0, 15, False), (133, 16, 63, False))]
    assert line_without_mask(two, (0, 1, shown)) is None
    assert line_without_mask(two, (0, 0, shown)) is None and shown.any()


def test_a_phase_that_ends_too_early_is_named_by_its_line(tmp_path):
    text = solution("p4").replace(
        "k_end = tl.minimum(q_start + BLOCK_Q, N)", "k_end = tl.minimum(q_start + BLOCK_K, N)"
    )
    line = next(n for n, said in enumerate(text.splitlines(), 1) if "MASKED=True)" in said)
    (result,) = grade_text(tmp_path, "p4", text, names=["whole tiles"])
    assert "leaves out the visible ones of keys 32-63 for query rows 32-63" in result.sentence
    assert f"Query rows 0-63 meet keys 0-31, masked, in line {line}." in result.sentence
