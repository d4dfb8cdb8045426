# %% [markdown]
# # 2. The online softmax
#
# **How can a softmax be right before all of its scores are known?**
#
# A softmax divides by a sum over all keys. So it seems that a query must meet all keys before it can weigh the first
# one. It need not. The picture shows one query that meets 16 keys, a tile of four at a time. Dark is the tile in hand.

# %%
import torch

from notebooks.pictures import online_softmax as draw

torch.manual_seed(363)
D, BLOCK_K = 16, 4
q, k, v = 2.2 * torch.randn(1, D), torch.randn(16, D), torch.randn(16, D)
scores = (q @ k.T / D**0.5).view(-1, BLOCK_K)  # (tiles, keys of a tile)
draw.steps(scores, v)

# %% [markdown]
# - **Top:** the 16 scores, grey where still unknown. The dashed line is the largest one met so far.
# - **Middle:** each key's weight. When the maximum rises, all earlier weights shrink by one common factor (dotted:
#   before).
# - **Bottom:** the weighted mean of the values met so far (of its D = 16 numbers, the first four). The red frames are
#   the answer over all keys. The bars fill them exactly when the last tile is in.
#
# Three things are carried from tile to tile: the maximum, the sum of the weights, and the weighted sum of the values.
# This page shows why these three are enough.
#
# ## Why the maximum?
#
# The softmax of scores $s_j$ gives key $j$ the weight $e^{s_j} / \sum_i e^{s_i}$. Written like that, it fails at once:

# %%
high = torch.tensor([60.0, 100.0, 99.0])
print("exp:             ", *(f"{x:.4g}" for x in torch.exp(high).tolist()))
print("exp / sum:       ", *(f"{x:.4f}" for x in torch.exp(high) / torch.exp(high).sum()))
p = torch.exp(high - high.max())
print("with the maximum:", *(f"{x:.4f}" for x in p / p.sum()))

# %% [markdown]
# A float32 ends near $3.4 \cdot 10^{38}$, which is about $e^{88.7}$. Above that `exp` is infinite, and infinity
# divided by infinity is not a number. But a softmax does not change when the same number $c$ is subtracted from all
# scores:
#
# $$\frac{e^{s_j - c}}{\sum_i e^{s_i - c}} = \frac{e^{-c}\, e^{s_j}}{e^{-c} \sum_i e^{s_i}}
# = \frac{e^{s_j}}{\sum_i e^{s_i}}$$
#
# So $c$ is ours to choose. With the maximum no exponent is above 0, so nothing overflows; and one weight is exactly 1,
# so the sum is never 0.
#
# ### Predict before you run
#
# Must it be the maximum? The next cell draws 64 scores; the largest is a little above 50. For which $c$ is the softmax
# still right?
#
# <details><summary>Answer</summary>
#
# For any $c$ in a wide range. Far below the maximum, exp overflows. Far above it, all exp become 0, and so does the
# sum. Shortly before that the weights are so tiny that float32 keeps few of their digits, and the error grows. The
# maximum is not the only good choice; it is the one that is safe for every row without looking further.
# </details>

# %% tags=["hide-output"]
torch.manual_seed(0)
many = 44 + 2.5 * torch.randn(64)
print("largest score:", f"{many.max().item():.1f}")
draw.pivots(many, torch.linspace(-80, 200, 701))

# %% [markdown]
# ## Why rescale?
#
# The maximum is known only when all scores are. Until then we take the largest score met so far. After some tiles, let
# $S$ be the keys met. We carry
#
# $$m = \max_{j \in S} s_j \qquad \ell = \sum_{j \in S} e^{s_j - m} \qquad a = \sum_{j \in S} e^{s_j - m}\, v_j$$
#
# In the course's code these are `row_max`, `row_sum` and `acc`. Now a larger maximum $m'$ comes. Everything that was
# added up was measured against $m$. But
#
# $$e^{s_j - m'} = e^{s_j - m} \cdot e^{m - m'}$$
#
# and the second factor, $\alpha = e^{m - m'}$, is the same for every key. It comes out of both sums. So $\ell$ and $a$
# need one multiplication each, and no old score is looked at again. $\alpha$ is at most 1: it cannot overflow.
#
# In code: `part` is what one set of keys knows by itself, and `merge` joins what two sets know.


# %%
def part(scores, values):
    row_max = scores.max()
    p = torch.exp(scores - row_max)
    return row_max, p.sum(), p @ values


def merge(one, other):
    row_max = torch.maximum(one[0], other[0])
    alpha, beta = torch.exp(one[0] - row_max), torch.exp(other[0] - row_max)
    return row_max, alpha * one[1] + beta * other[1], alpha * one[2] + beta * other[2]


# %% [markdown]
# In `merge`, alpha rescales one side and beta the other. One of them is always 1, because the larger maximum stays.
#
# ## Tile by tile
#
# The same query as above. In each line: this tile's largest score, the running values, and the factor for what came
# before.

# %%
from itertools import accumulate

values = v.view(-1, BLOCK_K, D)
parts = [part(s, x) for s, x in zip(scores, values, strict=True)]
before = torch.tensor(-torch.inf)
print("tile  its max  row_max   alpha  row_sum  acc[0]  o[0] so far")
for t, (row_max, row_sum, acc) in enumerate(accumulate(parts, merge)):
    alpha = torch.exp(before - row_max)
    print(f"{t + 1:4} {parts[t][0]:8.2f} {row_max:8.2f} {alpha:7.2f} {row_sum:8.2f}", end=" ")
    print(f"{acc[0]:7.2f} {acc[0] / row_sum:9.2f}")
    before = row_max

# %% [markdown]
# The picture at the top was computed from the definitions, with all scores met so far. Here each line is made from the
# line before and four new scores. They agree.
#
# ### Predict before you run
#
# 1. Why is alpha 1 in the third line?
# 2. Why is alpha 0 in the first one, and why is that harmless?
# 3. What would alpha be if no key of the first tile were visible, so that all its scores were $-\infty$?
#
# <details><summary>Answer</summary>
#
# 1. The third tile has no score above the running maximum. The maximum stays, so nothing is rescaled.
# 2. Before the first tile the maximum is $-\infty$, and $e^{-\infty} = 0$. It multiplies an empty sum.
# 3. $-\infty - (-\infty)$ is not a number, and one such value spoils the row for good. Kernels with masks that can
#    hide a whole tile of a row must subtract a finite number there, for example 0. Problems 6 and 7 meet such rows.
# </details>

# %%
from notebooks.pictures.png import folded

nothing = torch.tensor(-torch.inf)
hidden, with_0 = torch.exp(nothing - nothing), torch.exp(nothing - 0)
found = [f"alpha after a tile in which every key is hidden: {hidden}"]
folded(*found, f"with 0 in place of a maximum of -inf:            {with_0}")

# %% [markdown]
# At the end one division gives the output. It is the answer of the course's own problem 1, which holds all the scores
# at once:

# %% tags=["solution"]
from report.places import load

naive_attention = load("p1_naive_attention.py").naive_attention
o = acc / row_sum
o_naive, lse_naive = naive_attention(*(x.view(1, 1, -1, D) for x in (q, k, v)))
agree = torch.allclose(o, o_naive.flatten(), atol=1e-6)
print("equal to naive attention, but for rounding:", agree)

# %% [markdown]
# ## Any order
#
# ### Predict before you run
#
# Nothing in `merge` asks which tile came first. The four tiles have 24 orders. Which of them give another result?
#
# <details><summary>Answer</summary>
#
# None, but for rounding in the last digits. The maximum and the sums are over the same keys in any order, and merging
# can also be done in pairs, as a tree. So the order is free: for speed, for caches, for programs that share a row. In
# problem 7 the first keys are visited first because that is simple, not because the softmax needs it.
# </details>

# %% tags=["hide-output", "solution"]
from itertools import permutations

runs = [list(accumulate(order, merge)) for order in permutations(parts)]
paths = torch.tensor([[acc[0] / row_sum for _, row_sum, acc in run] for run in runs])
ends = torch.stack([run[-1][2] / run[-1][1] for run in runs])
pairs = merge(merge(parts[3], parts[0]), merge(parts[1], parts[2]))
print("all orders agree:       ", torch.allclose(ends, o, atol=1e-6))
print("and so does a tree:     ", torch.allclose(pairs[2] / pairs[1], o, atol=1e-6))
draw.orders(paths, o[0])

# %% [markdown]
# ## What breaks when one rescale is forgotten
#
# Two things must be rescaled: the sum and the accumulator. Suppose that one of the two lines is missing, or both.
#
# ### Predict before you run
#
# Each of 96 queries sees all of 128 keys, in 4 tiles of 32. Which rows are right all the same? And which of the three
# mistakes gives outputs that look reasonable?
#
# <details><summary>Answer</summary>
#
# Rows whose maximum stands in the first tile are right: their alpha is 1 ever after. With 4 tiles that is about a
# quarter of them. In a test with a single tile it is all of them: such a test sees nothing.
#
# Without the accumulator's rescale, old values weigh too much against a right sum. Without the sum's, the sum is too
# large and the output too small. Without both, the weights still add up to 1: the output is a mean of the values, with
# earlier tiles too heavy. It looks reasonable, and it is wrong.
# </details>

# %% tags=["hide-output"]
from grader.kinds.attention import variants

torch.manual_seed(1)
Q, K, V = 2 * torch.randn(1, 1, 96, D), torch.randn(1, 1, 128, D), torch.randn(1, 1, 128, D)
tiles = [(0, 96, start, start + 32) for start in range(0, 128, 32)]
head = Q[0].double(), K[0].double(), variants.add_sizes(V[0].double())  # adds |v|: unused here
inputs = variants.Inputs(*head, torch.ones(96, 128).double(), D**-0.5, tiles=tiles)  # all seen
right = variants.online(inputs, {}).o[0]
acc = {"new_acc": lambda x: x.acc + x.tile_acc}  # replaces x.acc * x.alpha + x.tile_acc
row_sum = {"new_sum": lambda x: x.row_sum + x.tile_sum}
mistakes = {"acc not rescaled": acc, "row_sum not rescaled": row_sum}
mistakes["neither rescaled"] = acc | row_sum
wrong = {said: variants.online(inputs, changes).o[0] for said, changes in mistakes.items()}
tile_of_max = (Q[0, 0] @ K[0, 0].T).argmax(1) // 32
draw.forgotten(right, wrong, tile_of_max)

# %% [markdown]
# Each dot is a query. These wrong kernels come from the grader's catalogue. When a submission's output equals one of
# them, the grader says so, and asks the question that leads to the missing line.

# %%
first = (tile_of_max == 0).sum().item()
print(f"rows whose maximum is in the first tile: {first} of {len(right)}")
for said, o_wrong in wrong.items():
    bad = (o_wrong - right).abs().amax(1) > 1e-9
    size = (o_wrong[bad].abs().mean() / right[bad].abs().mean()).item()
    print(f"{said:22} {bad.sum().item():3} rows wrong; outputs {size:.2f} times as large")

# %% [markdown]
# ## One number that remembers the sum: lse
#
# When all keys are met, the maximum and the sum can be put into one number, the logarithm of the sum of the
# exponentials:
#
# $$\text{lse} = \ln \sum_j e^{s_j} = m + \ln \ell$$
#
# It is hardly larger than the largest score, so it does not overflow; it does not depend on which maximum was used on
# the way, and each weight is $e^{s_j - \text{lse}}$. For training, the forward kernel stores lse for each row, and
# never the weights: the backward computes them again from lse. lse also lets finished outputs be joined. Let two GPUs
# take one half of the keys each, and each divide by its own sum. Then
#
# $$\text{lse} = \ln\left(e^{\text{lse}_1} + e^{\text{lse}_2}\right) \qquad
# o = e^{\text{lse}_1 - \text{lse}}\, o_1 + e^{\text{lse}_2 - \text{lse}}\, o_2$$
#
# The two factors are the halves' shares of the softmax, and add up to 1. Here problem 2's own solution does each half:

# %% tags=["solution"]
flash_attention_forward = load("p2_online_softmax.py").flash_attention_forward
o_1, lse_1 = flash_attention_forward(Q, K[:, :, :64], V[:, :, :64])
o_2, lse_2 = flash_attention_forward(Q, K[:, :, 64:], V[:, :, 64:])
lse = torch.logaddexp(lse_1, lse_2)
share = torch.exp(lse_1 - lse)[..., None]
o_both = share * o_1 + (1 - share) * o_2
o_all, lse_all = flash_attention_forward(Q, K, V)
print("o of the halves, merged, is o of all:", torch.allclose(o_both, o_all, atol=1e-5))
print("and so is lse:                       ", torch.allclose(lse, lse_all, atol=1e-5))
draw.halves(share.flatten()[:48], 64)

# %% [markdown]
# Text generation uses this: each new token is one query over very many keys, so the keys are cut into pieces for
# many programs, and the results merged at the end (Flash-Decoding). For very long texts, GPUs that each hold a part of
# the keys use it too (Ring Attention).
#
# ## What it costs
#
# A query carries $D + 2$ numbers, however many keys there are. The scores of a tile live as long as the tile. Compare
# that with a row of the $N \times N$ matrix of [the first notebook](01_memory_wall.ipynb).

# %%
for n in (1024, 16384, 131072):
    print(f"{n:7,} scores in a row of the matrix; with D = 128, {128 + 2} numbers carried")

# %% [markdown]
# ## Exercises
#
# 1. On paper: two tiles, scores (1, 3) and (2, 5), values (1, 2) and (3, 4). Carry the maximum, the sum and the
#    accumulator, and compare with the softmax of all four.
# 2. `merge` rescales both sides. Write the update that problem 2 asks for: take the new maximum first, and measure the
#    new tile against it at once. Which factor is no longer needed?
# 3. Put the keys of the picture above in falling order of their scores. Which mistakes does a test with such inputs
#    miss?
# 4. What must `merge` do when one side has met no visible key, and when neither has?
# 5. Now build it: `problems/p2_online_softmax.py`, and `make grade P=2`. (Problem 1 already needs lse: `make grade
#    P=1`.)
#
# **Next:** [3. A first Triton kernel](03_first_triton_kernel.ipynb): how one function becomes thousands of workers.
#
# ## References
#
# - Milakov, Gimelshein, [Online normalizer calculation for softmax](https://arxiv.org/abs/1805.02867), 2018: the
#   running maximum and sum.
# - Rabe, Staats, [Self-attention Does Not Need O(n²) Memory](https://arxiv.org/abs/2112.05682), 2021: the output as
#   well.
# - Dao et al., [FlashAttention](https://arxiv.org/abs/2205.14135), 2022: all of it in one kernel.
# - Dao, [FlashAttention-2](https://arxiv.org/abs/2307.08691), 2023: one division, at the end.
# - Dao et al., [Flash-Decoding for long-context inference](https://pytorch.org/blog/flash-decoding/), 2023: the keys
#   cut into pieces, and merged.
# - Liu, Zaharia, Abbeel, [Ring Attention](https://arxiv.org/abs/2310.01889), 2023: the keys on a ring of GPUs.
