"""P3 as students fill it in: each gap in one of the ways that the task leaves, drawn independently.

Names and remarks are drawn too. Two of them are alike by chance alone."""

import random
import textwrap

from grader.tests.support import ROOT

SCORES = (
    "{s} = tl.dot(q, tl.trans(k))", "{s} = tl.dot(q, k.T)", "{t} = tl.trans(k)\n    {s} = tl.dot(q, {t})",
    "{s} = tl.dot(q, tl.trans(k), out_dtype=tl.float32)",
)  # fmt: skip
HIDE = (
    'if MASKED:\n        {s} = tl.where(k_pos[None, :] < N, {s}, float("-inf"))',
    'if MASKED:\n        {s} = tl.where(k_pos[None, :] < N, {s}, -float("inf"))',
    '{s} = tl.where(k_pos[None, :] < N, {s}, float("-inf"))',
    'if MASKED:\n        {v} = k_pos < N\n        {s} = tl.where({v}[None, :], {s}, float("-inf"))',
    'if MASKED:\n        {s} += tl.where(k_pos[None, :] < N, 0.0, float("-inf"))',
)
MAXIMUM = (
    "new_max = tl.maximum(row_max, tl.max({s}, 1) * qk_scale)",
    "new_max = tl.maximum(row_max, tl.max({s}, axis=1) * qk_scale)",
    "{m} = tl.max({s}, axis=1) * qk_scale\n    new_max = tl.maximum(row_max, {m})",
    "{s} = {s} * qk_scale\n    new_max = tl.maximum(row_max, tl.max({s}, 1))",
)
WEIGHTS = (
    "alpha = tl.exp2(row_max - new_max)\n    p = tl.exp2({s} * qk_scale - new_max[:, None])",
    "p = tl.exp2({s} * qk_scale - new_max[:, None])\n    alpha = tl.exp2(row_max - new_max)",
    "{d} = row_max - new_max\n    alpha = tl.exp2({d})\n    p = tl.exp2({s} * qk_scale - new_max[:, None])",
    "alpha = tl.math.exp2(row_max - new_max)\n    p = tl.math.exp2({s} * qk_scale - new_max[:, None])",
)
SUMS = (
    "row_sum = row_sum * alpha + tl.sum(p, 1)", "row_sum = row_sum * alpha + tl.sum(p, axis=1)",
    "row_sum = alpha * row_sum + tl.sum(p, 1)", "row_sum *= alpha\n    row_sum += tl.sum(p, axis=1)",
)  # fmt: skip
SUMMED = (
    "acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])", "acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)",
    "acc *= alpha[:, None]\n    acc += tl.dot(p.to(v.dtype), v)",
    "{w} = p.to(v.dtype)\n    acc = acc * alpha[:, None] + tl.dot({w}, v)",
    "acc = acc * alpha[:, None]\n    acc = tl.dot(p.to(v.dtype), v, acc)",
)  # fmt: skip
NAMES = {
    "s": ("scores", "s", "qk", "S"), "t": ("kt", "k_t", "kT"), "v": ("valid", "mask", "ok"),
    "w": ("w", "pv", "weights"), "m": ("m", "tile_max", "cur"), "d": ("diff", "delta", "d_max"),
}  # fmt: skip
REMARKS = ("", "", "", "", "# scores of this tile", "# q times k transposed", "# mask", "# as in the lecture",
           "# online softmax", "# (BLOCK_Q, BLOCK_K)")  # fmt: skip


def filled(seed):
    """The text of p3_flash_attention.py by one student."""
    dice = random.Random(seed)
    names = {key: dice.choice(choices) for key, choices in NAMES.items()}
    gaps = ((SCORES, HIDE), (MAXIMUM, WEIGHTS), (SUMS, SUMMED))
    keep_todo = dice.random() < 0.5
    out, number = [], 0
    for line in (ROOT / "problems" / "p3_flash_attention.py").read_text().splitlines():
        if "tl.static_assert(False" in line:
            for ways in gaps[number]:
                remark = dice.choice(REMARKS)
                text = dice.choice(ways).format(**names).replace("scores", names["s"])
                out += [f"        {remark}"] if remark else []
                out.append(textwrap.indent(f"    {text}", "    "))
            number += 1
        elif keep_todo or not line.startswith(("        # TODO", "        #   ")):
            out.append(line)
    return "\n".join(out) + "\n"
