"""P2's measure: how many elements that depend on one query's row are alive at once, whatever a tensor's layout."""

import pytest
from msgspec.structs import replace

from grader.core.protocol.messages import Row, Run
from grader.core.sandbox.submission import Submission
from grader.kinds.attention.cases import Case
from grader.registry import EVERY

HEAD = """
import torch
def flash_attention_forward(q, k, v, is_causal=False):
    q, k, v = q.float(), k.float(), v.float()
"""
TILES = """
    parts = []
    for k_start in range(0, k.shape[2], {tile}):
        scores = q @ k[:, :, k_start : k_start + {tile}].mT / q.shape[-1] ** 0.5
        lse = scores.logsumexp(-1, keepdim=True)
        o = (scores - lse).exp() @ v[:, :, k_start : k_start + {tile}]
        {keep}
        both = lse if not parts else torch.logaddexp(parts[1], lse)
        parts = [o * (lse - both).exp() + (parts[0] * (parts[1] - both).exp() if parts else 0), both]
    return parts[0], parts[1][..., 0]
"""
ROWS = """
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for start in range(0, q.shape[2], 32):
        scores = (q[:, :, start : start + 32] @ k.mT / q.shape[-1] ** 0.5){layout}
        lse[:, :, start : start + 32] = scores.logsumexp(-1)
        o[:, :, start : start + 32] = (scores - scores.logsumexp(-1, keepdim=True)).exp() @ v
    return o, lse
"""


def held(folder, body, keys):
    problem, case = EVERY["p2"], Case("x", N=64, Nk=keys, D=16, dtype="float32")
    (folder / problem.module).write_text(HEAD + body, encoding="utf-8")
    submission = Submission(folder / problem.module, problem, "cpu", 30.0)
    how = problem.kind.handler(case)
    call, files = how.request(problem, case, how.inputs(case, 0), "cpu")
    answer = submission.run(Run(replace(call, row=Row("q", [0, 0, -1]))), files)
    submission.close()
    assert answer.returned, answer
    return answer.reply.row_elements


@pytest.mark.parametrize(
    ("body", "times"),
    [
        (TILES.format(tile=64, keep=""), 1.0),
        (TILES.format(tile=64, keep="kept = scores if k_start == 0 else torch.cat([kept, scores], -1)"), 1.8),
        (ROWS.format(layout=""), 1.8),
        (ROWS.format(layout=".transpose(1, 3).contiguous().transpose(1, 3)"), 1.8),
    ],
    ids=["tiles", "tiles that are kept", "whole rows", "whole rows in another layout"],
)
def test_what_is_held_of_a_row_grows_where_no_online_softmax_is(body, times, tmp_path):
    short, long = held(tmp_path, body, 256), held(tmp_path, body, 512)
    assert times <= long / short < times + 0.2, (short, long)


def test_a_value_that_hides_nan_hides_no_dependence(tmp_path):
    cleaned = ROWS.format(layout=".nan_to_num()")
    assert held(tmp_path, cleaned, 512) > 1.8 * held(tmp_path, cleaned, 256)
