"""What a tile of queries met is told with the kernel's line that led there."""

import torch

from grader.kinds.attention.tile_visits import Stretch, Visit, in_words, line_without_mask
from grader.tests.support import grade_text, solution


def record(*stretches):
    return Visit("kernel", 0, (32, 63), 0, 1, [], 0, stretches=[Stretch(*each) for each in stretches])


def test_stretches_in_words():
    two = [record((128, 0, 31, False), (133, 32, 32, True))]
    said = "For query rows 32-63, line 128 works on keys 0-31 and line 133 on key 32 with a mask."
    assert in_words(two, (0, 1, 40)) == said
    assert in_words(two, (0, 0, 40)) == in_words(two, (0, 1, 64)) == ""  # another head, another tile
    assert in_words([record()], (0, 1, 63)) == "For query rows 32-63 no line works on a key."
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
    assert "leaves out the visible keys among keys 32-63 for query rows 32-63" in result.sentence
    assert f"For query rows 0-63, line {line} works on keys 0-31 with a mask." in result.sentence
