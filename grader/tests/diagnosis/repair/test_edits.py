"""Candidates: what is changed, where else it is changed, and that the text stays one."""

import ast

import pytest

from grader.diagnosis.repair import edits, rank
from grader.diagnosis.repair.kernel import Kernel
from grader.diagnosis.repair.launches import Launch

SOURCE = """def attend(Q, K, V, stride_kn, stride_vn, N, scale, BLOCK_K):
    row_sum = tl.zeros([BLOCK_K], tl.float32)  # ∑ of the weights
    for start in range(0, N, BLOCK_K):
        k_pos = start + tl.arange(0, BLOCK_K)
        k = tl.load(K + k_pos[:, None] * stride_kn)
        v = tl.load(V + k_pos[:, None] * stride_vn)
        scores = tl.where(k_pos[None, :] <= N, tl.dot(q, k) * scale, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        alpha = tl.exp(row_max - new_max)
        row_sum = row_sum + tl.sum(scores, 1)
"""
KINDS = {
    "Q": "p0", "K": "p0", "V": "p0", "stride_kn": "int", "stride_vn": "int", "N": "int", "scale": "float",
    "BLOCK_K": "int", "start": "int", "k_pos": "i1", "k": "f2", "v": "f2", "scores": "f2", "row_max": "f1",
    "new_max": "f1", "alpha": "f1", "row_sum": "f1",
}  # fmt: skip
FIRST = 40  # the line of the `def`


LINES = range(FIRST, FIRST + 20)


def kernel(source=SOURCE, ran=LINES):
    return Kernel(0, source, FIRST, KINDS, frozenset(ran))


def made(source=SOURCE, **more):
    """{(family, lines): [the new texts]}."""
    kernels = {0: kernel(source, **more)}
    found = {}
    for edit in edits.every(kernels, []):
        found.setdefault((edit.family, edit.lines), []).append(edit.texts(kernels)[0])
    return found


@pytest.mark.parametrize(
    ("family", "line", "was", "now"),
    [
        ("comparison", 46, "k_pos[None, :] <= N", "k_pos[None, :] < N"),
        ("function", 48, "tl.exp(", "tl.exp2("),
        ("left out", 47, "tl.maximum(row_max, tl.max(scores, 1))", "tl.max(scores, 1)"),
        ("factor", 49, "row_sum + tl.sum", "(row_sum * alpha) + tl.sum"),
        ("axis", 49, "tl.sum(scores, 1)", "tl.sum(scores, 0)"),
        ("axis", 46, "tl.dot(q, k)", "tl.dot(q, tl.trans(k))"),
        ("tensor", 45, "V + k_pos[:, None] * stride_vn", "K + k_pos[:, None] * stride_kn"),
        ("name", 45, "stride_vn", "stride_kn"),
        ("order", 47, None, None),
        ("statement", 49, "row_sum = row_sum + tl.sum(scores, 1)", "row_sum += row_sum + tl.sum(scores, 1)"),
        ("second mask", 44, "* stride_kn)", "* stride_kn, mask=k_pos[None, :] <= N, other=0.0)"),
    ],
)
def test_a_kind_of_change_is_made_in_its_line(family, line, was, now):
    found = [text for (name, lines), texts in made().items() if (name, lines[0]) == (family, line) for text in texts]
    if was is None:
        assert found
        return
    lines = SOURCE.splitlines()
    lines[line - FIRST] = lines[line - FIRST].replace(was, now)
    assert "\n".join(lines) in [text.rstrip("\n") for text in found]


def test_every_candidate_is_a_function_and_none_is_the_text_itself():
    for texts in made().values():
        for text in texts:
            assert text != SOURCE
            ast.parse(text)


def test_the_same_slip_is_mended_for_k_and_for_v():
    source = SOURCE.replace("[:, None] * stride", "[None, :] * stride")
    both = [texts for (family, lines), texts in made(source).items() if family == "axis" and lines == (44, 45)]
    assert any(text == SOURCE for texts in both for text in texts)


EXCHANGED = """def attend(state, N, start, row_max, k):
    row_max, row_sum = state
    for place in range(N):
        new_max = tl.maximum(row_max, tl.max(k, 1))
        state = step(N, start, row_max)
        row_sum = row_sum + new_max
"""


def test_arguments_names_of_a_tuple_and_a_value_that_is_not_carried_on():
    found = [text for texts in made(EXCHANGED).values() for text in texts]
    for was, now in (
        ("step(N, start, row_max)", "step(start, N, row_max)"),
        ("row_max, row_sum = state", "row_sum, row_max = state"),
        ("row_sum = row_sum + new_max", "row_sum = row_sum + new_max; row_max = new_max"),
    ):
        assert EXCHANGED.replace(was, now) in found


def test_what_did_not_run_is_not_changed():
    assert {line for _, lines in made(ran=[FIRST + 1]) for line in lines} == {FIRST + 1}


def test_a_text_that_is_no_function_is_a_value_error():
    with pytest.raises(ValueError, match="no function"):
        made("def (:")


LAUNCH = Launch(
    0, 90, (2, 3, 1),
    {
        "Q": {"is": "tensor", "sizes": [1, 4, 8, 16], "strides": [512, 128, 16, 1]},
        "K": {"is": "tensor", "sizes": [1, 2, 8, 16], "strides": [512, 16, 32, 1]},
        "stride_kb": 512, "stride_kh": 128, "stride_kn": 16, "group": 4, "scale": {"is": "float", "hex": (0.5).hex()},
    },
    {"stride_kb": "*q.stride()[:3]"},
)  # fmt: skip


def applied(launch, chosen):
    found = [edit for edit in edits.every({}, [launch]) if edit.family == chosen]
    assert {edit.lines for edit in found} == {(90,)}
    return [edit.launch.applied(launch) for edit in found]


def test_a_row_of_strides_is_that_of_another_tensor():
    assert {"stride_kb": 512, "stride_kh": 16, "stride_kn": 32} in [each["args"] for each in applied(LAUNCH, "stride")]


def test_a_number_a_scale_and_the_grid_are_changed():
    assert {"group": 2} in [each["args"] for each in applied(LAUNCH, "number")]
    assert {"scale": {"is": "float", "hex": (0.25).hex()}} in [each["args"] for each in applied(LAUNCH, "scale")]
    assert [3, 2, 1] in [each["grid"] for each in applied(LAUNCH, "grid")]


def test_what_was_measured_says_what_is_tried_first():
    kernels = {0: kernel()}
    every = edits.every(kernels, [LAUNCH])
    assert sorted(map(id, rank.ranked(every, kernels, ["mask"]))) == sorted(map(id, every))
    for kind in rank.FAMILIES:
        first = rank.ranked(every, kernels, [kind])[0]
        assert rank.fits(first, [kind]) or rank.uses_unused(first, kernels)


def test_a_value_that_nobody_reads_is_tried_first():
    kernels = {0: kernel()}
    assert kernels[0].unused >= {"alpha", "v"}
    first, *_ = rank.ranked(edits.every(kernels, []), kernels, ["rescale"])
    assert rank.uses_unused(first, kernels)
