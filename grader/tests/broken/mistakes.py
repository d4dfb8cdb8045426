"""The mistakes as data: which problem, which words of its solution, what stands there instead, and the right verdict.

`because` is a word or two that the sentence for the student must contain: a rejection for the wrong reason is a failure
of the grader. `case` is a case that must show the mistake. `base` is the honest kernel that is changed, where it is not
our solution (on_honest.py).
"""

from dataclasses import dataclass

from grader.result import Outcome


@dataclass(frozen=True)
class Mistake:
    problem: str
    name: str
    was: tuple[str, ...]
    now: tuple[str, ...]
    case: str
    outcome: Outcome = Outcome.WRONG
    because: str = ""
    base: str = ""

    def apply(self, source):
        """The source with the mistake in it; each of `was` must stand in it."""
        for was, now in zip(self.was, self.now, strict=True):
            if was not in source:
                raise ValueError(f"{self.problem} {self.name!r}: the solution no longer contains {was!r}")
            source = source.replace(was, now)
        return source


def mistake(problem, name, was, now, case, **rest):
    pair = (was,), (now,)
    return Mistake(problem, name, *(pair if isinstance(was, str) else (was, now)), case, **rest)


STEP = "row_sum = row_sum * alpha + tl.sum(p, 1)"
ADD = "acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])"
SCALE = "LOG2_E / math.sqrt(D)"
STORE = "tl.store(o_ptrs, o.to(O.dtype.element_ty), mask=q_pos[:, None] < N)"

P1 = (
    mistake("p1", "no scale", " * scale", " * 1.0", "whole tiles", because="without a scale"),
    mistake("p1", "scale by D", "1.0 / math.sqrt(q.shape[-1])", "1.0 / q.shape[-1]", "whole tiles", because="1 / D"),
    mistake(
        "p1",
        "one maximum for all rows",
        "scores.amax(dim=-1, keepdim=True)",
        "scores.amax(dim=(-2, -1), keepdim=True)",
        "rows of very different size",
        because="one maximum for all rows",
    ),
    mistake(
        "p1",
        "no maximum",
        "torch.exp(scores - row_max)",
        "torch.exp(scores)",
        "scores rising along the keys",
        because="without a maximum",
    ),
    mistake(
        "p1",
        "lse without the maximum",
        "(row_max + row_sum.log())",
        "row_sum.log()",
        "whole tiles",
        because="the logarithm of the sum alone",
    ),
    mistake(
        "p1",
        "lse in base 2",
        "(row_max + row_sum.log())",
        "((row_max + row_sum.log()) * 1.4426950408889634)",
        "whole tiles",
        because="base 2",
    ),
    mistake(
        "p1",
        "scores in the input's dtype",
        "q.float() @ k.float().transpose(-2, -1)",
        "(q @ k.transpose(-2, -1)).float()",
        "scores rising along the keys",
        because="whose scores are rounded to float16",
    ),
    mistake("p1", "causal strict", "diagonal=1", "diagonal=0", "causal", because="query's own key"),
    mistake(
        "p1",
        "causal one ahead",
        "triu(diagonal=1)",
        "triu(diagonal=2)",
        "causal",
        because="one key too many",
    ),
    mistake(
        "p1",
        "input mutated",
        "scores = q.float() @",
        "q *= scale\n    scale = 1.0\n    scores = q.float() @",
        "whole tiles",
        outcome=Outcome.UNSAFE,
        because="input q",
    ),
)

P2 = (
    mistake("p2", "acc not rescaled", "acc * alpha + p @", "acc + p @", "many tiles", because="acc is not rescaled"),
    mistake(
        "p2",
        "row_sum not rescaled",
        "row_sum * alpha + p.sum",
        "row_sum + p.sum",
        "many tiles",
        because="row_sum is not rescaled",
    ),
    mistake(
        "p2",
        "maximum replaced",
        "torch.maximum(row_max, scores.amax(dim=-1, keepdim=True))",
        "scores.amax(dim=-1, keepdim=True)",
        "scores falling along the keys",
        because="whose maximum is that of the last tile alone",
    ),
    mistake(
        "p2",
        "last tile dropped",
        "range(0, last_key, BLOCK_K)",
        "range(0, last_key // BLOCK_K * BLOCK_K, BLOCK_K)",
        "ragged tail",
        because="without the ragged tile",
    ),
    mistake(
        "p2",
        "half-precision accumulator",
        ("acc = torch.zeros_like(q_tile)", "acc * alpha + p @ v[:, :, k_start:k_end].float()"),
        (
            "acc = torch.zeros_like(q_tile).to(q.dtype)",
            "(acc * alpha + p @ v[:, :, k_start:k_end].float()).to(q.dtype)",
        ),
        "values with a large offset",
        because="whose acc is rounded to float16",
    ),
    mistake(
        "p2",
        "causal by tile",
        'scores = scores.masked_fill(k_pos > q_pos, float("-inf"))',
        'scores = scores.masked_fill(k_pos // BLOCK_K > q_pos // BLOCK_K, float("-inf"))',
        "causal",
        because="a causal mask by tiles of 64",
    ),
    mistake(
        "p2",
        "the whole matrix",
        "    for q_start in range",
        "    whole = q.float() @ k.float().transpose(-2, -1)\n    for q_start in range",
        "never the whole score matrix",
        outcome=Outcome.WASTEFUL,
        because="whole score matrix",
    ),
    mistake(
        "p2",
        "the whole mask",
        "    for q_start in range",
        "    seen = torch.ones(Nq, Nk, dtype=torch.bool).tril() if is_causal else None\n    for q_start in range",
        "never the whole causal mask",
        outcome=Outcome.WASTEFUL,
        because="whole score matrix",
    ),
    mistake(
        "p2",
        "all tiles kept",
        ("    for q_start in range", "            # gap 3: the online update"),
        ("    kept = []\n    for q_start in range", "            kept.append(scores)"),
        "never the whole score matrix",
        outcome=Outcome.WASTEFUL,
        because="alive at once",
    ),
)

P3 = (
    mistake(
        "p3",
        "no bfloat16",
        "torch.float16, torch.bfloat16, ",
        "torch.float16, ",
        "bfloat16",
        outcome=Outcome.CRASHED,
        because="torch.bfloat16",
    ),
    mistake(
        "p3",
        "an accumulator in the input's dtype",
        ("tl.zeros([BLOCK_Q, D], tl.float32)", ADD),
        (
            "tl.zeros([BLOCK_Q, D], Q.dtype.element_ty)",
            ADD.replace("acc * alpha[:, None])", "(acc * alpha[:, None]).to(tl.float32)).to(v.dtype)"),
        ),
        "bfloat16 with a large offset",
        because="rounded to bfloat16 at each tile",
    ),
    mistake(
        "p3",
        "one maximum for all rows of the tile",
        "tl.max(scores, 1) * qk_scale",
        "tl.max(tl.max(scores, 1), 0) * qk_scale",
        "rows of very different size",
        because="one maximum for the 32 rows of a tile",
    ),
    mistake(
        "p3",
        "exp where the scale is for exp2",
        ("tl.exp2(row", "tl.exp2(scores"),
        ("tl.exp(row", "tl.exp(scores"),
        "whole tiles",
        because="exp2",
    ),
    mistake("p3", "acc not rescaled", "acc * alpha[:, None]", "acc", "many tiles", because="acc is not rescaled"),
    mistake(
        "p3", "row_sum not rescaled", "row_sum * alpha +", "row_sum +", "many tiles", because="row_sum is not rescaled"
    ),
    mistake(
        "p3",
        "maximum replaced",
        "tl.maximum(row_max, tl.max(scores, 1) * qk_scale)",
        "tl.max(scores, 1) * qk_scale",
        "scores falling along the keys",
        because="whose maximum is that of the last tile alone",
    ),
    mistake(
        "p3",
        "no maximum",
        "tl.maximum(row_max, tl.max(scores, 1) * qk_scale)",
        "tl.maximum(row_max, 0.0)",
        "scores rising along the keys",
        because="without a maximum",
    ),
    mistake("p3", "scale missing", SCALE, "LOG2_E", "whole tiles", because="without a scale"),
    mistake("p3", "scale by D", SCALE, "LOG2_E / D", "whole tiles", because="1 / D"),
    mistake("p3", "log2(e) forgotten", SCALE, "1.0 / math.sqrt(D)", "whole tiles", because="log2(e)"),
    mistake(
        "p3",
        "padded keys not masked",
        'scores = tl.where(k_pos[None, :] < N, scores, float("-inf"))',
        "pass",
        "ragged tail",
        because="zeros",
    ),
    mistake(
        "p3",
        "last tile dropped",
        "if full_end < N:",
        "if full_end < 0:",
        "ragged tail",
        because="without the ragged tile",
    ),
    mistake(
        "p3",
        "half-precision accumulator",
        (ADD, "acc = tl.zeros([BLOCK_Q, D], tl.float32)"),
        (
            "acc = (acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)).to(v.dtype)",
            "acc = tl.zeros([BLOCK_Q, D], q.dtype)",
        ),
        "values with a large offset",
        because="whose acc is rounded to float16",
    ),
    mistake(
        "p3",
        "half-precision row_sum",
        (STEP, "row_sum = tl.zeros([BLOCK_Q], tl.float32)"),
        ("row_sum = (row_sum * alpha + tl.sum(p, 1)).to(q.dtype)", "row_sum = tl.zeros([BLOCK_Q], q.dtype)"),
        "values with a large offset",
        because="whose row_sum is rounded to float16",
    ),
    mistake(
        "p3",
        "V read with K's strides",
        "stride_vn + d",
        "stride_kn + d",
        "q, k and v each with another layout",
        because="reads V with the row stride of K",
    ),
    mistake(
        "p3",
        "O written with Q's strides",
        "*o.stride()[:3]",
        "*q.stride()[:3]",
        "slice of a larger buffer",
        outcome=Outcome.UNSAFE,
        because="the output's own strides",
    ),
    mistake(
        "p3",
        "batch ignored for K",
        "K += batch * stride_kb + head",
        "K += head",
        "every batch and head its own",
        because="the keys of batch 0 in every batch for K alone",
    ),
    mistake(
        "p3",
        "batch ignored for K and V",
        ("K += batch * stride_kb + head", "V += batch * stride_vb + head"),
        ("K += head", "V += head"),
        "every batch and head its own",
        because="batch 0",
    ),
    mistake(
        "p3",
        "head 0 for K and V",
        ("stride_kb + head * stride_kh", "stride_vb + head * stride_vh"),
        ("stride_kb", "stride_vb"),
        "every batch and head its own",
        because="kv head 0",
    ),
    mistake(
        "p3",
        "rows of the last tile not stored",
        "(triton.cdiv(N, BLOCK_Q), H, B)",
        "(max(1, N // BLOCK_Q), H, B)",
        "ragged tail",
        because="never written",
    ),
    mistake(
        "p3",
        "not divided at the end",
        "o = acc / row_sum[:, None]",
        "o = acc",
        "whole tiles",
        because="not divided by the sum",
    ),
    mistake(
        "p3",
        "input mutated",
        "    B, H, N, D = q.shape\n",
        "    B, H, N, D = q.shape\n    k.mul_(2.0)\n",
        "whole tiles",
        outcome=Outcome.UNSAFE,
        because="input k",
    ),
)

P4 = (
    mistake(
        "p4",
        "a condition on a block",
        'scores = tl.where(visible, scores, float("-inf"))',
        'scores = scores if visible else scores + float("-inf")',
        "whole tiles",
        outcome=Outcome.CRASHED,
        because="needs one value, not a block of 32 x 32 int1",
    ),
    mistake(
        "p4",
        "a break",
        "acc, row_max, row_sum = attend_tile(",
        "if k_start >= q_start:\n            break\n        acc, row_max, row_sum = attend_tile(",
        "whole tiles",
        outcome=Outcome.CRASHED,
        because="`break` does not exist",
    ),
    mistake(
        "p4", "causal strict", "k_pos[None, :] <= q_pos", "k_pos[None, :] < q_pos", "whole tiles", because="own key"
    ),
    mistake(
        "p4",
        "causal one ahead",
        "k_pos[None, :] <= q_pos[:, None]",
        "k_pos[None, :] <= q_pos[:, None] + 1",
        "whole tiles",
        because="one key too many inside tiles of 32",
    ),
    mistake(
        "p4",
        "causal by tile",
        "k_pos[None, :] <= q_pos[:, None]",
        "k_pos[None, :] // BLOCK_K <= q_pos[:, None] // BLOCK_K",
        "whole tiles",
        because="a causal mask by tiles of 32",
    ),
    mistake(
        "p4",
        "diagonal not masked",
        "            visible &= k_pos",
        "            k_pos",
        "whole tiles",
        because="a causal mask by tiles of 32",
    ),
    mistake(
        "p4",
        "diagonal dropped",
        "k_end = tl.minimum(q_start + BLOCK_Q, N)",
        "k_end = tl.minimum(q_start, N)",
        "whole tiles",
        because="without its diagonal tiles",
    ),
    mistake(
        "p4",
        "phase 1 one tile short",
        "range(0, masked_start",
        "range(BLOCK_K, masked_start",
        "many tiles",
        because="leaves out its first tile",
    ),
    mistake("p4", "acc not rescaled", "acc * alpha[:, None]", "acc", "many tiles", because="acc is not rescaled"),
)

P5 = (
    mistake(
        "p5",
        "kv head by modulo",
        "head // group",
        "head % (tl.num_programs(1) // group)",
        "groups of four",
        because="head % Hkv",
    ),
    mistake("p5", "kv head zero", "head // group", "head * 0", "groups of four", because="kv head 0"),
    mistake(
        "p5",
        "kv head for K only",
        "V += batch * stride_vb + kv_head",
        "V += batch * stride_vb + head * 0",
        "groups of four",
        because="kv head 0 for every query head for V alone",
    ),
    mistake(
        "p5",
        "batch ignored for K and V",
        ("batch * stride_kb + ", "batch * stride_vb + "),
        ("", ""),
        "every batch and head its own",
        because="batch 0",
    ),
    mistake(
        "p5", "row_sum not rescaled", "row_sum * alpha +", "row_sum +", "many tiles", because="row_sum is not rescaled"
    ),
)

P6 = (
    mistake(
        "p6",
        "window one wide",
        "age < window_size",
        "age <= window_size",
        "window smaller than a tile",
        because="a window of 6",
    ),
    mistake(
        "p6",
        "window one narrow",
        "age < window_size",
        "age < window_size - 1",
        "window smaller than a tile",
        because="a window of 4",
    ),
    mistake(
        "p6",
        "start in tiles",
        "tl.maximum(0, q_start - window_size + 1) // BLOCK_K * BLOCK_K",
        "tl.maximum(0, q_start // BLOCK_K - window_size // BLOCK_K) * BLOCK_K",
        "window not a multiple of a tile",
        because="counted in tiles",
    ),
    mistake(
        "p6",
        "start rounded up",
        "tl.maximum(0, q_start - window_size + 1) // BLOCK_K * BLOCK_K",
        "tl.cdiv(tl.maximum(0, q_start - window_size + 1), BLOCK_K) * BLOCK_K",
        "window not a multiple of a tile",
        because="rounded up",
    ),
    mistake(
        "p6",
        "the edge not masked",
        "range(first, inside, BLOCK_K)",
        "range(first, first, BLOCK_K)",
        "window not a multiple of a tile",
        because="without the tiles at its edge",
    ),
    mistake(
        "p6",
        "window ignored",
        "(age >= 0) & (age < window_size)",
        "age >= 0",
        "window smaller than a tile",
        because="too old for the window are not masked",
    ),
    mistake(
        "p6",
        "future visible",
        "(age >= 0) & (age < window_size)",
        "age < window_size",
        "whole tiles",
        because="a causal mask by tiles of 32",
    ),
    mistake(
        "p6",
        "NaN from rows that see nothing",
        'tl.where(new_max == float("-inf"), 0.0, new_max)',
        "new_max",
        "window of whole tiles",
        because="NaN for rows whose first tile hides every key",
    ),
)

P7 = (
    mistake("p7", "sinks missing", " | (k_pos[None, :] < sink_size)", "", "one sink", because="without sinks"),
    mistake(
        "p7",
        "sink phase missing",
        "range(0, sink_end, BLOCK_K)",
        "range(0, 0, BLOCK_K)",
        "sinks of whole tiles",
        because="only where the window's own tiles hold them",
    ),
    mistake(
        "p7",
        "one sink more",
        "(k_pos[None, :] < sink_size)",
        "(k_pos[None, :] <= sink_size)",
        "one sink",
        because="2 sinks",
    ),
    mistake(
        "p7",
        "sinks counted twice",
        "sink_end = tl.minimum(sink_size, first)",
        "sink_end = sink_size",
        "sinks overlapping the window",
        because="counts keys twice where the sink phase and the window",
    ),
    mistake(
        "p7",
        "sinks not causal",
        "(age >= 0) & ((age < window_size) | (k_pos[None, :] < sink_size))",
        "((age >= 0) & (age < window_size)) | (k_pos[None, :] < sink_size)",
        "sinks larger than the window",
        because="visible to queries before them",
    ),
    mistake(
        "p7",
        "sinks in whole tiles",
        "(k_pos[None, :] < sink_size)",
        "(k_pos[None, :] // BLOCK_K * BLOCK_K < sink_size)",
        "one sink",
        because="sinks rounded up to whole tiles",
    ),
    mistake(
        "p7",
        "window one wide",
        "age < window_size",
        "age <= window_size",
        "sinks larger than the window",
        because="a window of 10",
    ),
)

MISTAKES = (*P1, *P2, *P3, *P4, *P5, *P6, *P7)
